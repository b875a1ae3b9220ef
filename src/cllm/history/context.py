"""Context commands: which run in a turn, and their output as blocks of a prompt.

Static context is captured once, below the system prompt. Other context goes before the user's text
and is never saved. `cllm.commands` runs the commands.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Literal

import msgspec

from cllm.core.conversation import (
    CONTEXT_END,
    ContextCommandRecord,
    ContextRecord,
    Policy,
    StoredConversation,
)
from cllm.core.errors import ContextError
from cllm.core.message import Message
from cllm.core.notice import Notice

OnFailure = Literal["warn", "ignore", "fail"]
ContextKind = Literal["static", "dynamic", "exec"]
OutcomeState = Literal["ok", "cut", "failed", "timed_out", "not_started"]

DEFAULT_TIMEOUT = 10.0
NO_OUTPUT = "(no output)"


class ContextCommand(msgspec.Struct, frozen=True, kw_only=True):
    """`template` is the command as configured, before variables are filled in.

    `static` runs with the first turn of a conversation, `dynamic` with every turn.
    """

    name: str
    command: str
    template: str
    kind: ContextKind = "static"
    on_failure: OnFailure = "warn"
    timeout: float = DEFAULT_TIMEOUT


class CommandOutcome(msgspec.Struct, frozen=True, kw_only=True):
    """`output` is standard output, then standard error. The state `cut`: it was too long.

    `error` is the first line of standard error.
    """

    command: ContextCommand
    state: OutcomeState
    output: str = ""
    error: str = ""
    exit_code: int | None = None

    @property
    def succeeded(self) -> bool:
        return self.state in ("ok", "cut")


class ContextPlan(msgspec.Struct, frozen=True, kw_only=True):
    captured: tuple[ContextCommand, ...] = ()
    for_turn: tuple[ContextCommand, ...] = ()

    @property
    def commands(self) -> tuple[ContextCommand, ...]:
        return self.captured + self.for_turn


class Context(msgspec.Struct, frozen=True, kw_only=True):
    captured: str = ""
    for_turn: str = ""
    commands: tuple[ContextCommandRecord, ...] = ()
    notices: tuple[Notice, ...] = ()

    def record(self, at: datetime) -> ContextRecord:
        return ContextRecord(executed_at=at, commands=self.commands)


def plan_context(
    conversation: StoredConversation | None,
    commands: Sequence[ContextCommand],
    *,
    new_policy: Policy,
) -> ContextPlan:
    """Return the commands that run; output is captured with the first turn only."""
    configured = tuple(commands)
    if conversation is None or not _is_captured(conversation, new_policy):
        return ContextPlan(for_turn=configured)
    if conversation.is_untouched:
        return ContextPlan(
            captured=tuple(command for command in configured if command.kind != "dynamic"),
            for_turn=tuple(command for command in configured if command.kind == "dynamic"),
        )
    if conversation.context_record is None and not conversation.has_context_in_system_message():
        return ContextPlan(for_turn=configured)
    return ContextPlan(for_turn=tuple(one for one in configured if one.kind != "static"))


def _is_captured(conversation: StoredConversation, new_policy: Policy) -> bool:
    record = conversation.system_record
    if record is None:
        return not conversation.is_untouched or new_policy == "captured"
    return record.policy == "captured"


def gather_context(plan: ContextPlan, outcomes: Sequence[CommandOutcome]) -> Context:
    """Return the outcomes, in the order of the plan, as text and records."""
    for outcome in outcomes:
        if not outcome.succeeded and outcome.command.on_failure == "fail":
            raise ContextError(
                name=to_one_line(outcome.command.name), reason=_explain_failure(outcome)
            )
    captured, for_turn = outcomes[: len(plan.captured)], outcomes[len(plan.captured) :]
    return Context(
        captured=_format_blocks(captured),
        for_turn=_format_blocks(for_turn),
        commands=tuple(
            ContextCommandRecord(
                name=outcome.command.name,
                command=outcome.command.template,
                state=outcome.state,
                exit_code=outcome.exit_code,
            )
            for outcome in captured
        ),
        notices=tuple(notice for outcome in outcomes for notice in _make_outcome_notices(outcome)),
    )


def _format_blocks(outcomes: Sequence[CommandOutcome]) -> str:
    return "\n\n".join(block for outcome in outcomes if (block := _format_block(outcome)))


def _format_block(outcome: CommandOutcome) -> str:
    name = to_one_line(outcome.command.name)
    output = outcome.output.rstrip("\n")
    if outcome.succeeded:
        text = output if output.strip() else NO_OUTPUT
        return f"--- Context: {name} ---\n{text}\n{CONTEXT_END}"
    if outcome.command.on_failure == "ignore":
        return ""
    text = _describe_failure(outcome) + (f"\n{output}" if output.strip() else "")
    return f"--- Context Error: {name} ---\n{text}\n{CONTEXT_END}"


def _describe_failure(outcome: CommandOutcome) -> str:
    match outcome.state:
        case "timed_out":
            return f"Command timed out after {outcome.command.timeout:g} seconds"
        case "not_started":
            return "Command could not be started"
        case _:
            return f"Command exited with code {outcome.exit_code}"


def _explain_failure(outcome: CommandOutcome) -> str:
    """Describe a failure for a person, who does not see the output of the command."""
    return _describe_failure(outcome) + (f": {outcome.error}" if outcome.error else "")


def _make_outcome_notices(outcome: CommandOutcome) -> list[Notice]:
    name = to_one_line(outcome.command.name)
    if outcome.state == "cut":
        message = f"The output of context command '{name}' is too long; only its start is sent."
        return [Notice(code="context_cut", path="context_commands", message=message)]
    if outcome.succeeded or outcome.command.on_failure == "ignore":
        return []
    message = f"Context command '{name}' failed: {_explain_failure(outcome)}."
    return [Notice(code="context_failed", path="context_commands", message=message)]


def to_one_line(name: str) -> str:
    return " ".join(name.split())


def insert_context(messages: tuple[Message, ...], context: str) -> tuple[Message, ...]:
    """Put the context before the newest user text."""
    positions = [n for n, message in enumerate(messages) if message.role == "user"]
    if not context or not positions:
        return messages
    position = positions[-1]
    message = messages[position]
    fields = message.json()
    content = fields.get("content")
    if isinstance(content, list):
        block = {"text": context}
        if message.dialect != "bedrock":
            block = {"type": "text"} | block
        # Tool results have to be the first blocks of a message.
        results = [one for one in content if _is_result(one)]
        others = [one for one in content if not _is_result(one)]
        fields["content"] = [*results, block, *others]
    else:
        fields["content"] = f"{context}\n\n{content or ''}".rstrip("\n")
    changed = msgspec.structs.replace(message, raw=msgspec.json.encode(fields))
    return (*messages[:position], changed, *messages[position + 1 :])


def _is_result(block: object) -> bool:
    return isinstance(block, dict) and (block.get("type") == "tool_result" or "toolResult" in block)


NO_CONTEXT = Context()
