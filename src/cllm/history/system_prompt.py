"""The system prompt of a turn, and the context blocks below it or before the user's text.

Static context is captured once, below the system prompt; other context is never saved.
"""

from collections.abc import Sequence
from datetime import datetime

import msgspec

from cllm.core.conversation import (
    CONTEXT_END,
    CONTEXT_START,
    ContextCommandRecord,
    ContextRecord,
    Policy,
    StoredConversation,
    SystemRecord,
)
from cllm.core.errors import ContextError, UsageError
from cllm.core.message import Message, plain_message
from cllm.core.notice import Notice
from cllm.core.ports import Opening
from cllm.history.context import CommandOutcome, ContextCommand

NO_OUTPUT = "(no output)"


class ContextPlan(msgspec.Struct, frozen=True, kw_only=True):
    captured: tuple[ContextCommand, ...] = ()
    now: tuple[ContextCommand, ...] = ()

    @property
    def commands(self) -> tuple[ContextCommand, ...]:
        return self.captured + self.now


class Context(msgspec.Struct, frozen=True, kw_only=True):
    captured: str = ""
    now: str = ""
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
    """Return the commands that run; captured ones with the first turn only."""
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


def _captures(conversation: StoredConversation, new_policy: Policy) -> bool:
    record = conversation.system_record
    if record is None:
        return not conversation.is_untouched or new_policy == "captured"
    return record.policy == "captured"


def gather_context(plan: ContextPlan, outcomes: Sequence[CommandOutcome]) -> Context:
    """Return the outcomes, in the order of the plan, as text and record."""
    for outcome in outcomes:
        if not outcome.succeeded and outcome.command.on_failure == "fail":
            raise ContextError(name=to_one_line(outcome.command.name), reason=_reason(outcome))
    captured, now = outcomes[: len(plan.captured)], outcomes[len(plan.captured) :]
    return Context(
        captured=_blocks(captured),
        now=_blocks(now),
        commands=tuple(
            ContextCommandRecord(
                name=outcome.command.name,
                command=outcome.command.written,
                state=outcome.state,
                exit_code=outcome.exit_code,
            )
            for outcome in captured
        ),
        notices=tuple(notice for outcome in outcomes for notice in _notices(outcome)),
    )


def _blocks(outcomes: Sequence[CommandOutcome]) -> str:
    return "\n\n".join(block for outcome in outcomes if (block := _block(outcome)))


def _block(outcome: CommandOutcome) -> str:
    name = to_one_line(outcome.command.name)
    output = outcome.output.rstrip("\n")
    if outcome.succeeded:
        text = output if output.strip() else NO_OUTPUT
        return f"--- Context: {name} ---\n{text}\n{CONTEXT_END}"
    if outcome.command.on_failure == "ignore":
        return ""
    text = _reason(outcome) + (f"\n{output}" if output.strip() else "")
    return f"--- Context Error: {name} ---\n{text}\n{CONTEXT_END}"


def _reason(outcome: CommandOutcome) -> str:
    match outcome.state:
        case "timed_out":
            return f"Command timed out after {outcome.command.timeout:g} seconds"
        case "not_started":
            return "Command could not be started"
        case _:
            return f"Command exited with code {outcome.exit_code}"


def _notices(outcome: CommandOutcome) -> list[Notice]:
    name = to_one_line(outcome.command.name)
    if outcome.state == "cut":
        message = f"Context command '{name}' said too much; only the beginning is sent."
        return [Notice(code="context_cut", path="context_commands", message=message)]
    if outcome.succeeded or outcome.command.on_failure == "ignore":
        return []
    message = f"Context command '{name}' failed: {_reason(outcome)}."
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


class GivenPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """A system prompt from the settings or the request (`explicit`).

    A blank text is no prompt. `said` is the message in which a client sent it.
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
    message: Message | None
    opening: Opening | None = None
    notices: tuple[Notice, ...] = ()


def choose_system(
    conversation: StoredConversation | None,
    given: GivenPrompt,
    *,
    new_policy: Policy,
    now: datetime,
    context: Context = NO_CONTEXT,
) -> SystemChoice:
    """Return the system prompt of the next turn; `context` is captured with the first."""
    if conversation is None:
        return SystemChoice(message=given.message)
    record = conversation.system_record
    if conversation.is_untouched and not _is_pinned(record):
        policy = record.policy if record else new_policy
        return _open(given, policy=policy, now=now, context=context)
    # An old conversation has no record; its prompt was captured.
    is_captured = conversation.system is not None if record is None else record.policy == "captured"
    if is_captured or _is_pinned(record):
        return _choose_stored(conversation, given)
    return SystemChoice(message=given.message)


def build_captured_opening(
    given: GivenPrompt, *, now: datetime, context: Context = NO_CONTEXT
) -> Opening:
    """Return what a captured conversation saves of its beginning."""
    prompt = given.message
    parts = [text for text in (given.text if prompt else None, context.captured) if text]
    return Opening(
        system=plain_message("system", "\n\n".join(parts)) if parts else None,
        system_record=SystemRecord(policy="captured", source=given.source if prompt else "none"),
        context_record=context.record(now),
    )


def build_pinned_opening(
    given: GivenPrompt, *, now: datetime, context: Context = NO_CONTEXT
) -> Opening:
    """Return what a pinned conversation saves of its beginning."""
    text = None if given.message is None else given.text
    source = "none" if text is None else given.source
    return Opening(
        system=None,
        system_record=SystemRecord(policy="pinned", source=source, prompt=text),
        context_record=context.record(now),
    )


def build_branch_opening(
    conversation: StoredConversation, given: GivenPrompt, *, now: datetime
) -> Opening:
    """Return what a branch with another prompt saves: that, and the captured context."""
    kept = conversation.system_record
    if kept is not None and kept.policy == "pinned":
        return build_pinned_opening(given, now=now)
    text = "" if conversation.system is None else conversation.system.text
    found = CONTEXT_START.search(text)
    known = Context() if found is None else Context(captured=text[found.start() :].lstrip("\n"))
    opening = build_captured_opening(given, now=now, context=known)
    record = conversation.context_record
    return opening if record is None else msgspec.structs.replace(opening, context_record=record)


def _open(given: GivenPrompt, *, policy: Policy, now: datetime, context: Context) -> SystemChoice:
    if policy == "captured":
        opening = build_captured_opening(given, now=now, context=context)
        return SystemChoice(message=opening.system, opening=opening)
    if policy == "pinned":
        return SystemChoice(
            message=given.message, opening=build_pinned_opening(given, now=now, context=context)
        )
    opening = Opening(
        system=None, system_record=SystemRecord(policy=policy), context_record=context.record(now)
    )
    return SystemChoice(message=given.message, opening=opening)


def _is_pinned(record: SystemRecord | None) -> bool:
    """Whether a prompt, or the absence of one, was pinned."""
    if record is None or record.policy != "pinned":
        return False
    return record.prompt is not None or record.source == "none"


def _choose_stored(conversation: StoredConversation, given: GivenPrompt) -> SystemChoice:
    stored = conversation.kept_prompt
    if given.explicit and _prompt_text(stored) != (given.text or "").strip():
        name = conversation.name or conversation.id
        raise UsageError(
            f"Conversation '{name}' keeps the system prompt it was started with; to go on under "
            f"another one, start a branch: cllm conversations branch {name} --system TEXT"
        )
    if given.said is None:
        notice = find_prompt_difference(conversation, given)
    else:
        notice = Notice(
            code="system_prompt_ignored",
            path=given.source or "",
            message=(
                "The conversation keeps the system prompt it was started with; the one in this "
                "request was ignored."
            ),
        )
    return SystemChoice(message=stored, notices=() if notice is None else (notice,))


def add_prefix(choice: SystemChoice, prefix: str | None) -> SystemChoice:
    """Put an operator's text, which is not saved, before the prompt."""
    if prefix is None or not prefix.strip():
        return choice
    message = plain_message("system", prefix)
    if choice.message is not None:
        message = prefix_message(choice.message, prefix)
    return msgspec.structs.replace(choice, message=message)


def prefix_message(message: Message, prefix: str) -> Message:
    fields = message.json()
    content = fields.get("content")
    if isinstance(content, list):
        fields["content"] = [{"type": "text", "text": prefix}, *content]
    else:
        fields["content"] = f"{prefix}\n\n{content}" if content else prefix
    return msgspec.structs.replace(message, raw=msgspec.json.encode(fields))


def find_prompt_difference(conversation: StoredConversation, given: GivenPrompt) -> Notice | None:
    """Return a notice if the configured prompt is not that of the conversation."""
    name = conversation.name or conversation.id
    record = conversation.system_record
    if record is not None and record.policy != "captured":
        return None
    if record is not None and (record.source or "").startswith("--system"):
        return None
    stored = _prompt_text(conversation.system)
    configured = "" if given.message is None else given.message.text
    if stored == configured.strip() or (record is None and not configured):
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
    return CONTEXT_START.split(text, maxsplit=1)[0]


def _prompt_text(stored: Message | None) -> str:
    return "" if stored is None else prompt_without_context(stored.text).strip()
