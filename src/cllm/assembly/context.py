"""Context blocks: which commands a turn needs, and how their output stands in the prompt.

Static context is captured once, under the system prompt; all other context stands in front of the
newest user text, is sent, and is never stored. Runs nothing.
"""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from cllm.core.context import CommandOutcome, ContextCommand
from cllm.core.conversation import (
    CONTEXT_END,
    ContextCommandRecord,
    ContextRecord,
    Conversation,
    Policy,
)
from cllm.core.errors import ContextError
from cllm.core.message import Message
from cllm.core.notice import Notice

NO_OUTPUT = "(no output)"


class ContextPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The commands to run: those to be captured, and those for this turn only."""

    captured: tuple[ContextCommand, ...] = ()
    now: tuple[ContextCommand, ...] = ()

    @property
    def commands(self) -> tuple[ContextCommand, ...]:
        return self.captured + self.now


class Context(msgspec.Struct, frozen=True, kw_only=True):
    """What the commands gave: text to capture, text for this turn, the record, and warnings."""

    captured: str = ""
    now: str = ""
    commands: tuple[ContextCommandRecord, ...] = ()
    notices: tuple[Notice, ...] = ()

    def record(self, at: datetime) -> ContextRecord:
        """That the static context is captured, also where there was none."""
        return ContextRecord(executed_at=at, commands=self.commands)


def plan_context(
    conversation: Conversation | None, commands: Sequence[ContextCommand], *, new_policy: Policy
) -> ContextPlan:
    """Which commands run, and what for.

    A captured conversation runs its static ones when it is opened and never again, whatever they
    said. One that captures nothing, and an old one that never did, run them for every turn.
    """
    every = tuple(commands)
    if conversation is None or not _captures(conversation, new_policy):
        return ContextPlan(now=every)
    if conversation.is_untouched:
        return ContextPlan(
            captured=tuple(command for command in every if command.kind != "dynamic"),
            now=tuple(command for command in every if command.kind == "dynamic"),
        )
    if conversation.context_record is None and not conversation.has_context_in_system_message():
        return ContextPlan(now=every)
    return ContextPlan(now=tuple(command for command in every if command.kind != "static"))


def _captures(conversation: Conversation, new_policy: Policy) -> bool:
    """Whether the conversation keeps its system prompt, and the context under it."""
    record = conversation.system_record
    if record is None:
        return not conversation.is_untouched or new_policy == "captured"
    return record.policy == "captured"


def gather_context(plan: ContextPlan, outcomes: Sequence[CommandOutcome]) -> Context:
    """The outcomes of the plan's commands, in its order, as text and record.

    ContextError if one of them failed that must not.
    """
    for outcome in outcomes:
        if not outcome.succeeded and outcome.command.on_failure == "fail":
            raise ContextError(name=one_line(outcome.command.name), reason=_reason(outcome))
    captured, now = outcomes[: len(plan.captured)], outcomes[len(plan.captured) :]
    return Context(
        captured=_blocks(captured),
        now=_blocks(now),
        commands=tuple(map(_record, captured)),
        notices=tuple(notice for outcome in outcomes for notice in _notices(outcome)),
    )


def _blocks(outcomes: Sequence[CommandOutcome]) -> str:
    return "\n\n".join(block for outcome in outcomes if (block := _block(outcome)))


def _block(outcome: CommandOutcome) -> str:
    name = one_line(outcome.command.name)
    output = outcome.output.rstrip("\n")
    if outcome.succeeded:
        said = output if output.strip() else NO_OUTPUT
        return f"--- Context: {name} ---\n{said}\n{CONTEXT_END}"
    if outcome.command.on_failure == "ignore":
        return ""
    said = _reason(outcome) + (f"\n{output}" if output.strip() else "")
    return f"--- Context Error: {name} ---\n{said}\n{CONTEXT_END}"


def _reason(outcome: CommandOutcome) -> str:
    match outcome.state:
        case "timed_out":
            return f"Command timed out after {outcome.command.timeout:g} seconds"
        case "not_started":
            return "Command could not be started"
        case _:
            return f"Command exited with code {outcome.exit_code}"


def _notices(outcome: CommandOutcome) -> list[Notice]:
    name = one_line(outcome.command.name)
    if outcome.state == "cut":
        said = f"Context command '{name}' said too much; only the beginning is sent."
        return [Notice(code="context_cut", path="context_commands", message=said)]
    if outcome.succeeded or outcome.command.on_failure == "ignore":
        return []
    said = f"Context command '{name}' failed: {_reason(outcome)}."
    return [Notice(code="context_failed", path="context_commands", message=said)]


def _record(outcome: CommandOutcome) -> ContextCommandRecord:
    return ContextCommandRecord(
        name=outcome.command.name,
        command=outcome.command.written,
        state=outcome.state,
        exit_code=outcome.exit_code,
    )


def one_line(name: str) -> str:
    """A name as it can stand in a block's heading."""
    return " ".join(name.split())


def with_context(messages: tuple[Message, ...], context: str) -> tuple[Message, ...]:
    """The messages with the context in front of the newest user text."""
    places = [place for place, message in enumerate(messages) if message.role == "user"]
    if not context or not places:
        return messages
    place = places[-1]
    told = _told(messages[place], context)
    return (*messages[:place], told, *messages[place + 1 :])


def _told(message: Message, context: str) -> Message:
    """The user's message with the context in front of its text."""
    fields = message.json()
    content = fields.get("content")
    if isinstance(content, list):
        # A block with a text reads the same in OpenAI's words and in Anthropic's.
        block = {"text": context} if message.dialect == "bedrock" else _text_block(context)
        results = [block for block in content if _is_result(block)]
        others = [block for block in content if not _is_result(block)]
        fields["content"] = [*results, block, *others]
    else:
        fields["content"] = f"{context}\n\n{content or ''}".rstrip("\n")
    return msgspec.structs.replace(message, raw=msgspec.json.encode(fields))


def _text_block(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def _is_result(block: object) -> bool:
    """A tool's result stands before everything else in its message."""
    return isinstance(block, dict) and (block.get("type") == "tool_result" or "toolResult" in block)
