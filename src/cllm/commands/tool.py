"""The one tool of `--allow-commands`: the model asks for a shell command, the rules decide.

A refusal is a result like any other, so that the model can go on. Asks the person through what it
is given; it prints nothing.
"""

from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from cllm.commands.permission import CommandRules, judge
from cllm.commands.reach import stays_inside
from cllm.core.context import CommandOutcome, ContextCommand
from cllm.core.message import ToolCall
from cllm.core.secret import without_secrets

TOOL = "execute_bash_command"
MAX_SHOWN = 64 * 1024

RunOne = Callable[[Sequence[ContextCommand]], Awaitable[Sequence[CommandOutcome]]]
Confirm = Callable[[str, str], Awaitable[bool]]
Report = Callable[[str], None]


class Offer(msgspec.Struct, frozen=True, kw_only=True):
    """A command that the model is told about."""

    command: str
    description: str = ""


class CommandSettings(msgspec.Struct, frozen=True, kw_only=True):
    """What `dynamic_commands` and the flags say."""

    offers: tuple[Offer, ...] = ()
    rules: CommandRules = CommandRules()
    confirm: bool = False
    timeout: float = 30.0
    most: int = 10


class _Arguments(msgspec.Struct):
    command: str
    reason: str = ""


class CommandTool:
    """Runs what the model asks for, if it may.

    What the model is told is without `secrets`, wherever a command found them.
    """

    def __init__(
        self,
        settings: CommandSettings,
        *,
        directory: Path,
        run: RunOne,
        confirm: Confirm | None,
        report: Report,
        secrets: Iterable[str] = (),
    ) -> None:
        self.most_uses = settings.most
        self.definitions = [_definition(settings.offers)]
        self._settings = settings
        self._run = run
        self._confirm = confirm
        self._report = report
        self._directory = directory
        self._secrets = tuple(secrets)

    async def use(self, call: ToolCall) -> str:
        """Run the command of a call, or say why not."""
        if call.name != TOOL:
            return f"Error: there is no tool {call.name!r}; there is {TOOL}."
        try:
            asked = msgspec.json.decode(call.arguments, type=_Arguments)
        except (msgspec.MsgspecError, UnicodeDecodeError):
            return 'Error: the arguments must be JSON such as {"command": "ls", "reason": "…"}.'
        refusal = await self._refusal(asked)
        if refusal is not None:
            self._report(f"Refused: {asked.command} ({refusal})")
            return f"Refused: {refusal}"
        self._report(f"$ {asked.command}")
        command = ContextCommand(
            name=TOOL,
            command=asked.command,
            written=asked.command,
            kind="exec",
            timeout=self._settings.timeout,
        )
        (outcome,) = await self._run([command])
        return without_secrets(result_text(outcome), self._secrets)

    async def _refusal(self, asked: _Arguments) -> str | None:
        verdict = judge(asked.command, self._settings.rules)
        if not verdict.allowed:
            return verdict.reason
        if verdict.basis == "read_only" and not stays_inside(asked.command, self._directory):
            return "only files in this folder may be read, and no hidden ones."
        if not self._settings.confirm:
            return None
        if self._confirm is None:
            return "commands must be confirmed, and there is no terminal to ask on."
        return None if await self._confirm(asked.command, asked.reason) else "the person said no."


def result_text(outcome: CommandOutcome) -> str:
    """What the model is told of a command that ran."""
    output = outcome.output[:MAX_SHOWN]
    match outcome.state:
        case "ok":
            return output or "(no output)"
        case "cut":
            return f"{output}\n(the rest was cut off)"
        case "timed_out":
            return f"Error: timed out after {outcome.command.timeout:g} seconds.\n{output}".strip()
        case "not_started":
            return "Error: the command could not be started."
        case _:
            return f"Error: exit code {outcome.exit_code}.\n{output}".strip()


def _definition(offers: Sequence[Offer]) -> dict[str, Any]:
    about = "Run a shell command on the user's machine and read what it prints."
    if offers:
        listed = "\n".join(
            f"- {offer.command}" + (f": {offer.description}" if offer.description else "")
            for offer in offers
        )
        about = f"{about} These are available:\n{listed}"
    properties = {
        "command": {"type": "string", "description": "The command, of simple commands only."},
        "reason": {"type": "string", "description": "Why it is needed."},
    }
    schema = {"type": "object", "properties": properties, "required": ["command", "reason"]}
    return {
        "type": "function",
        "function": {"name": TOOL, "description": about, "parameters": schema},
    }
