"""The system prompt of a turn, and the context blocks below it or in front of the user's text.

Three policies, one rule: never a second system prompt, never one twice, and its source is always
known. Static context is captured once, under the system prompt; all other context goes in front of
the newest user text, is sent, and is never stored. Runs no command and writes no prompt.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import assert_never

import msgspec

from cllm.core.context import CommandOutcome, ContextCommand
from cllm.core.conversation import (
    CONTEXT_END,
    CONTEXT_START,
    ContextCommandRecord,
    ContextRecord,
    Conversation,
    Policy,
    SystemRecord,
)
from cllm.core.errors import ContextError, UsageError
from cllm.core.message import Message, plain_message
from cllm.core.notice import Notice
from cllm.core.ports import Opening

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


NO_CONTEXT = Context()


class GivenPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """The system prompt from outside the conversation: the settings', or one named for this turn.

    `explicit` is one that the person gave with the request itself. A blank text is no prompt.
    `said` is the message that a client sent it in, which is what is sent.
    """

    text: str | None = None
    source: str | None = None
    explicit: bool = False
    said: Message | None = None

    @property
    def message(self) -> Message | None:
        if self.said is not None:
            return self.said
        if self.text is None or not self.text.strip():
            return None
        return plain_message("system", self.text)


class SystemChoice(msgspec.Struct, frozen=True, kw_only=True):
    """The prompt that is sent, what the conversation is to keep, and what to tell the person."""

    message: Message | None
    opening: Opening | None = None
    notices: tuple[Notice, ...] = ()


def choose_system(
    conversation: Conversation | None,
    given: GivenPrompt,
    *,
    new_policy: Policy,
    now: datetime,
    context: Context = NO_CONTEXT,
) -> SystemChoice:
    """The system prompt of the next turn of this conversation, or of a turn without one.

    `context` is what a conversation that is opened captures under its prompt.
    """
    if conversation is None:
        return SystemChoice(message=given.message)
    record = conversation.system_record
    if conversation.is_untouched and not _is_pinned(record):
        policy = record.policy if record else new_policy
        return _open(given, policy=policy, now=now, context=context)
    match _policy_of(conversation):
        case "captured":
            return _kept(conversation, given)
        case "pinned" if _is_pinned(record):
            return _kept(conversation, given)
        case "dynamic" | "pinned" | None:
            return SystemChoice(message=given.message)
        case other:
            assert_never(other)


def capture(given: GivenPrompt, *, now: datetime, context: Context = NO_CONTEXT) -> Opening:
    """What a captured conversation keeps of its beginning, also when there was no prompt.

    Prompt and static context are one system message, the prompt first, either of them alone, or
    none.
    """
    prompt = given.message
    parts = [text for text in (given.text if prompt else None, context.captured) if text]
    return Opening(
        system=plain_message("system", "\n\n".join(parts)) if parts else None,
        system_record=SystemRecord(policy="captured", source=given.source if prompt else "none"),
        context_record=context.record(now),
    )


def pin(given: GivenPrompt, *, now: datetime, context: Context = NO_CONTEXT) -> Opening:
    """What a pinned conversation keeps of its beginning: its prompt, beside the messages.

    Nothing is captured under the prompt; context is for each turn.
    """
    text = None if given.message is None else given.text
    source = "none" if text is None else given.source
    return Opening(
        system=None,
        system_record=SystemRecord(policy="pinned", source=source, prompt=text),
        context_record=context.record(now),
    )


def recapture(conversation: Conversation, given: GivenPrompt, *, now: datetime) -> Opening:
    """What a branch under another prompt keeps: that prompt, and the context captured before.

    A branch of a pinned conversation is pinned too.
    """
    kept = conversation.system_record
    if kept is not None and kept.policy == "pinned":
        return pin(given, now=now)
    text = "" if conversation.system is None else conversation.system.text
    found = CONTEXT_START.search(text)
    known = Context() if found is None else Context(captured=text[found.start() :].lstrip("\n"))
    opening = capture(given, now=now, context=known)
    record = conversation.context_record
    return opening if record is None else msgspec.structs.replace(opening, context_record=record)


def _open(given: GivenPrompt, *, policy: Policy, now: datetime, context: Context) -> SystemChoice:
    if policy == "captured":
        opening = capture(given, now=now, context=context)
        return SystemChoice(message=opening.system, opening=opening)
    if policy == "pinned":
        return SystemChoice(message=given.message, opening=pin(given, now=now, context=context))
    opening = Opening(
        system=None, system_record=SystemRecord(policy=policy), context_record=context.record(now)
    )
    return SystemChoice(message=given.message, opening=opening)


def _policy_of(conversation: Conversation) -> Policy | None:
    """The policy, or None for an old conversation that captured nothing and recorded nothing."""
    if conversation.system_record is not None:
        return conversation.system_record.policy
    return "captured" if conversation.has_system_message() else None


def _is_pinned(record: SystemRecord | None) -> bool:
    """Whether a prompt was pinned, or that there is none."""
    if record is None or record.policy != "pinned":
        return False
    return record.prompt is not None or record.source == "none"


def _kept(conversation: Conversation, given: GivenPrompt) -> SystemChoice:
    if given.explicit and not _says_the_same(conversation, given):
        name = conversation.name or conversation.id
        raise UsageError(
            f"Conversation '{name}' keeps the system prompt it was started with; to go on under "
            f"another one, start a branch: cllm conversations branch {name} --system TEXT"
        )
    notice = difference(conversation, given) if given.said is None else _ignored(given)
    notices = () if notice is None else (notice,)
    return SystemChoice(message=conversation.kept_prompt, notices=notices)


def _ignored(given: GivenPrompt) -> Notice:
    return Notice(
        code="system_prompt_ignored",
        path=given.source or "",
        message=(
            "The conversation keeps the system prompt it was started with; the one in this "
            "request was ignored."
        ),
    )


def under_prefix(choice: SystemChoice, prefix: str | None) -> SystemChoice:
    """The choice with an operator's text before the prompt, or alone; what is kept stays as is."""
    if prefix is None or not prefix.strip():
        return choice
    message = plain_message("system", prefix)
    if choice.message is not None:
        message = with_prefix(choice.message, prefix)
    return msgspec.structs.replace(choice, message=message)


def with_prefix(message: Message, prefix: str) -> Message:
    """A system message that begins with this text: before its own, or as a first block."""
    fields = message.json()
    content = fields.get("content")
    if isinstance(content, list):
        fields["content"] = [{"type": "text", "text": prefix}, *content]
    else:
        fields["content"] = f"{prefix}\n\n{content}" if content else prefix
    return msgspec.structs.replace(message, raw=msgspec.json.encode(fields))


def _says_the_same(conversation: Conversation, given: GivenPrompt) -> bool:
    kept = conversation.kept_prompt
    stored = "" if kept is None else prompt_without_context(kept.text)
    return stored.strip() == (given.text or "").strip()


def difference(conversation: Conversation, given: GivenPrompt) -> Notice | None:
    """What to say when the settings' prompt is not the one that this conversation keeps."""
    name = conversation.name or conversation.id
    record = conversation.system_record
    if record is not None and record.policy != "captured":
        return None
    if record is not None and (record.source or "").startswith("--system"):
        return None
    stored = "" if conversation.system is None else prompt_without_context(conversation.system.text)
    configured = "" if given.message is None else given.message.text
    if stored.strip() == configured.strip() or (record is None and not configured):
        return None
    was = "the one it was started with" if stored else "none, as it was started"
    return Notice(
        code="system_prompt_differs",
        path="messages[0]",
        message=(
            f"The configured system prompt differs from that of conversation '{name}', which goes "
            f"on under {was}; to change it, start a branch: cllm conversations branch {name} "
            "--system TEXT"
        ),
    )


def prompt_without_context(text: str) -> str:
    """A stored system prompt without the context blocks under it."""
    return CONTEXT_START.split(text, maxsplit=1)[0]
