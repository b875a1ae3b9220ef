"""The system prompt of a turn, by the policy of its conversation: captured, dynamic or pinned."""

from datetime import datetime

import msgspec

from cllm.core.conversation import (
    CONTEXT_START,
    Policy,
    StoredConversation,
    SystemRecord,
)
from cllm.core.errors import UsageError
from cllm.core.message import Message, plain_message
from cllm.core.notice import Notice, NoticeCollector
from cllm.core.ports import Opening
from cllm.core.prompt import Prompt
from cllm.history.context import NO_CONTEXT, Context

NO_PROMPT = "none"
"""The source of a captured prompt if none was configured."""


class GivenPrompt(msgspec.Struct, frozen=True, kw_only=True):
    """A system prompt from the settings, or from the request (`explicit`).

    A blank text is no prompt. `said` is the client's system message.
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


class SplitMessages(msgspec.Struct, frozen=True, kw_only=True):
    """The messages of a request, and its system prompt.

    `prompt_messages`: those to send, without a system prompt that is the first message.
    `saved_messages`: those without the role `system`. `index` is that of the system prompt,
    `ignored_indexes` are those of other system messages; a continued conversation ignores them.
    """

    system: Message | None
    prompt_messages: tuple[Message, ...]
    saved_messages: tuple[Message, ...]
    ignored_indexes: tuple[int, ...] = ()
    index: int = 0

    @property
    def has_inner_system(self) -> bool:
        """Whether system messages are among the messages of the prompt."""
        return len(self.prompt_messages) != len(self.saved_messages)

    @property
    def system_prompt(self) -> GivenPrompt:
        if self.system is None:
            return GivenPrompt()
        path = f"messages[{self.index}]"
        return GivenPrompt(said=self.system, text=self.system.text, source=path)

    def ignored_notices(self) -> tuple[Notice, ...]:
        return tuple(NoticeCollector(map(_ignored_notice, self.ignored_indexes)))


class SystemChoice(msgspec.Struct, frozen=True, kw_only=True):
    message: Message | None
    opening: Opening | None = None
    notices: tuple[Notice, ...] = ()


def split_messages(prompt: Prompt) -> SplitMessages:
    messages = prompt.messages
    indexes = [index for index, message in enumerate(messages) if message.role == "system"]
    if prompt.system is None and not indexes:
        return SplitMessages(system=None, prompt_messages=messages, saved_messages=messages)
    saved = tuple(message for message in messages if message.role != "system")
    if prompt.system is not None:
        return SplitMessages(
            system=prompt.system,
            prompt_messages=messages,
            saved_messages=saved,
            ignored_indexes=tuple(indexes),
        )
    first = indexes[0]
    return SplitMessages(
        system=messages[first],
        index=first,
        prompt_messages=messages[1:] if first == 0 else messages,
        saved_messages=saved,
        ignored_indexes=tuple(indexes[1:]),
    )


def choose_system(
    conversation: StoredConversation | None,
    prompt: GivenPrompt,
    *,
    new_policy: Policy,
    now: datetime,
    context: Context = NO_CONTEXT,
) -> SystemChoice:
    """Return the system prompt of the next turn; the first turn captures `context`."""
    if conversation is None:
        return SystemChoice(message=prompt.message)
    record = conversation.system_record
    if conversation.is_untouched and not _is_pinned(record):
        policy = record.policy if record else new_policy
        return _choose_first(prompt, policy=policy, now=now, context=context)
    # An old conversation has no record; its prompt was captured.
    is_captured = conversation.system is not None if record is None else record.policy == "captured"
    if is_captured or _is_pinned(record):
        return _choose_stored(conversation, prompt)
    return SystemChoice(message=prompt.message)


def build_captured_opening(
    prompt: GivenPrompt, *, now: datetime, context: Context = NO_CONTEXT
) -> Opening:
    """Return an opening with the prompt and, below it, the context."""
    message = prompt.message
    parts = [text for text in (prompt.text if message else None, context.captured) if text]
    return Opening(
        system=plain_message("system", "\n\n".join(parts)) if parts else None,
        system_record=SystemRecord(
            policy="captured", source=prompt.source if message else NO_PROMPT
        ),
        context_record=context.record(now),
    )


def build_pinned_opening(
    prompt: GivenPrompt, *, now: datetime, context: Context = NO_CONTEXT
) -> Opening:
    """Return an opening with the prompt in its system record."""
    text = None if prompt.message is None else prompt.text
    source = NO_PROMPT if text is None else prompt.source
    return Opening(
        system=None,
        system_record=SystemRecord(policy="pinned", source=source, prompt=text),
        context_record=context.record(now),
    )


def build_branch_opening(
    conversation: StoredConversation, prompt: GivenPrompt, *, now: datetime
) -> Opening:
    """Return the opening of a branch: another prompt and the captured context."""
    system_record = conversation.system_record
    if system_record is not None and system_record.policy == "pinned":
        return build_pinned_opening(prompt, now=now)
    text = "" if conversation.system is None else conversation.system.text
    match = CONTEXT_START.search(text)
    context = NO_CONTEXT if match is None else Context(captured=text[match.start() :].lstrip("\n"))
    opening = build_captured_opening(prompt, now=now, context=context)
    record = conversation.context_record
    return opening if record is None else msgspec.structs.replace(opening, context_record=record)


def _choose_first(
    prompt: GivenPrompt, *, policy: Policy, now: datetime, context: Context
) -> SystemChoice:
    if policy == "captured":
        opening = build_captured_opening(prompt, now=now, context=context)
        return SystemChoice(message=opening.system, opening=opening)
    if policy == "pinned":
        return SystemChoice(
            message=prompt.message, opening=build_pinned_opening(prompt, now=now, context=context)
        )
    opening = Opening(
        system=None, system_record=SystemRecord(policy=policy), context_record=context.record(now)
    )
    return SystemChoice(message=prompt.message, opening=opening)


def _is_pinned(record: SystemRecord | None) -> bool:
    """Whether a prompt is pinned, or that there is none."""
    if record is None or record.policy != "pinned":
        return False
    return record.prompt is not None or record.source == NO_PROMPT


def _choose_stored(conversation: StoredConversation, prompt: GivenPrompt) -> SystemChoice:
    stored = conversation.kept_prompt
    if prompt.explicit and _read_prompt_text(stored) != (prompt.text or "").strip():
        name = conversation.name or conversation.id
        raise UsageError(
            f"Conversation '{name}' has a fixed system prompt; to use another one, create a "
            f"branch: cllm conversations branch {name} --system TEXT"
        )
    if prompt.said is None:
        notice = find_prompt_difference(conversation, prompt)
    else:
        notice = Notice(
            code="system_prompt_ignored",
            path=prompt.source or "",
            message=(
                "The conversation has a fixed system prompt; the system prompt in this request "
                "was ignored."
            ),
        )
    return SystemChoice(message=stored, notices=() if notice is None else (notice,))


def add_prefix(choice: SystemChoice, prefix: str | None) -> SystemChoice:
    """Put the operator's text before the prompt; it is never saved."""
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


def find_prompt_difference(conversation: StoredConversation, prompt: GivenPrompt) -> Notice | None:
    """Return a notice if a prompt is configured and differs from the captured one."""
    name = conversation.name or conversation.id
    record = conversation.system_record
    if conversation.is_untouched or (record is None and conversation.system is None):
        # The configured one is used.
        return None
    if record is not None and record.policy != "captured":
        return None
    if record is not None and (record.source or "").startswith("--system"):
        return None
    stored = _read_prompt_text(conversation.system)
    configured = "" if prompt.message is None else prompt.message.text.strip()
    if configured in ("", stored):
        return None
    reason = (
        f"Conversation '{name}' uses its own system prompt, which differs from the configured one"
        if stored
        else f"Conversation '{name}' has no system prompt, so the configured one is not used"
    )
    branch = f"cllm conversations branch {name} --system TEXT"
    return Notice(
        code="system_prompt_differs",
        path="messages[0]",
        message=f"{reason}; to use another one, create a branch: {branch}",
    )


def prompt_without_context(text: str) -> str:
    return CONTEXT_START.split(text, maxsplit=1)[0]


def _read_prompt_text(stored: Message | None) -> str:
    return "" if stored is None else prompt_without_context(stored.text).strip()


def _ignored_notice(index: int) -> Notice:
    return Notice(
        code="system_message_ignored",
        path=f"messages[{index}]",
        message="A request can have only one system prompt; this system message was ignored.",
    )
