"""The tool of `--allow-commands`. A refusal is a result, so that the model can continue."""

from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import msgspec

from cllm.commands.command_line import CommandEnvironment, Plan
from cllm.commands.permission import READ_SET, CommandRules, check_permission
from cllm.commands.programs import READERS
from cllm.core.message import ToolCall
from cllm.core.secret import redact_secrets
from cllm.history.context import CommandOutcome, ContextCommand

TOOL = "execute_bash_command"
MAX_SHOWN = 64 * 1024

RunPlan = Callable[[ContextCommand, Plan, CommandEnvironment], Awaitable[CommandOutcome]]
Confirm = Callable[[str, str], Awaitable[bool]]
Report = Callable[[str], None]


class OfferedCommand(msgspec.Struct, frozen=True, kw_only=True):
    command: str
    description: str = ""


class CommandSettings(msgspec.Struct, frozen=True, kw_only=True):
    offers: tuple[OfferedCommand, ...] = ()
    rules: CommandRules = CommandRules()
    confirm: bool = False
    timeout: float = 30.0
    max_commands: int = 10


class _Arguments(msgspec.Struct):
    command: str
    reason: str = ""


class CommandTool:
    """Runs the commands that the model requests and the rules allow.

    Removes `secrets` from results.
    """

    def __init__(
        self,
        settings: CommandSettings,
        *,
        env: CommandEnvironment,
        run: RunPlan,
        confirm: Confirm | None,
        report: Report,
        secrets: Iterable[str] = (),
    ) -> None:
        self.max_calls = settings.max_commands
        self.definitions = [_build_definition(settings)]
        self._settings = settings
        self._run = run
        self._confirm = confirm
        self._report = report
        self._env = env
        self._secrets = tuple(secrets)

    async def use(self, call: ToolCall) -> str:
        if call.name != TOOL:
            return f"Error: there is no tool {call.name!r}; use {TOOL}."
        try:
            arguments = msgspec.json.decode(call.arguments, type=_Arguments)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            return 'Error: the arguments must be JSON such as {"command": "ls", "reason": "…"}.'
        verdict = check_permission(arguments.command, self._settings.rules, self._env)
        refusal = (
            verdict.reason if verdict.plan is None else await self._check_confirmation(arguments)
        )
        if verdict.plan is None or refusal is not None:
            self._report(f"Refused: {arguments.command} ({refusal})")
            return f"Refused: {refusal}"
        self._report(f"$ {arguments.command}")
        command = ContextCommand(
            name=TOOL,
            command=arguments.command,
            template=arguments.command,
            kind="exec",
            timeout=self._settings.timeout,
        )
        outcome = await self._run(command, verdict.plan, self._env)
        return redact_secrets(result_text(outcome), self._secrets)

    async def _check_confirmation(self, arguments: _Arguments) -> str | None:
        """The reason of a refusal; None if the user confirms or need not."""
        if not self._settings.confirm:
            return None
        if self._confirm is None:
            return "commands need confirmation; run cllm on a terminal or omit --confirm-commands."
        is_confirmed = await self._confirm(arguments.command, arguments.reason)
        return None if is_confirmed else "the user did not confirm it."


def result_text(outcome: CommandOutcome) -> str:
    output = outcome.output[:MAX_SHOWN]
    if outcome.state == "cut" or len(outcome.output) > MAX_SHOWN:
        output = f"{output}\n(the rest was cut off)"
    match outcome.state:
        case "ok" | "cut":
            return output or "(no output)"
        case "timed_out":
            return f"Error: timed out after {outcome.command.timeout:g} seconds.\n{output}".strip()
        case "not_started":
            return "Error: the command could not be started."
        case _:
            return f"Error: exit code {outcome.exit_code}.\n{output}".strip()


def _build_definition(settings: CommandSettings) -> dict[str, Any]:
    about = "Run a command on the user's machine and read its output."
    if settings.offers:
        listed = "\n".join(
            f"- {offer.command}" + (f": {offer.description}" if offer.description else "")
            for offer in settings.offers
        )
        about = f"{about} These are available:\n{listed}"
    offered = {offer.command for offer in settings.offers}
    entries = settings.rules.entries
    patterns = [entry for entry in entries if entry not in offered | {READ_SET}]
    if patterns:
        about = f"{about}\nAllowed patterns: {', '.join(patterns)}."
    if READ_SET in entries:
        about = (
            f"{about}\nAllowed to read visible files in the current folder: "
            f"{', '.join(sorted(READERS))}."
        )
    line = "One line: simple commands, joined by ; && || or |. No variables or redirections."
    properties = {
        "command": {"type": "string", "description": line},
        "reason": {"type": "string", "description": "Why it is needed."},
    }
    schema = {"type": "object", "properties": properties, "required": ["command", "reason"]}
    return {
        "type": "function",
        "function": {"name": TOOL, "description": about, "parameters": schema},
    }
