"""The prompt that a turn sent, from the stored conversation: what was sent, what was left out."""

from collections.abc import Iterable, Iterator, Sequence
from itertools import takewhile
from typing import Any, Literal

import msgspec
from msgspec.structs import replace

from cllm.core.conversation import (
    LOCAL_OWNER,
    StandingSummary,
    StoredConversation,
    Turn,
    WindowRecord,
    make_message_id,
)
from cllm.core.errors import ConversationNotFoundError, InvalidIdError
from cllm.core.message import Message, plain_message
from cllm.core.ports import Store
from cllm.providers.local.models import find_template_prompt
from cllm.window.summary import build_summary_messages
from cllm.window.tokens import estimate_tokens, weights_for
from cllm.wire.path_digest import digest_path, meaning_of, path_start_of, read_content

Kind = Literal["system", "template", "context", "summary", "history", "request"]
NOT_STORED = "not kept"
"""The content of a message that is not stored: a documented value of the API."""


class SentView(msgspec.Struct, frozen=True, kw_only=True):
    """One message of a prompt. `tokens` is an estimate.

    `template`: the text that the chat template of a local model adds.
    `differs`: a client that sent its whole history sent other content than is stored.
    `conversation_id`: the parent that has the message, if a side request sent it.
    """

    kind: Kind
    role: str
    content: Any
    tokens: int | None = None
    message_id: str | None = None
    sequence_number: int | None = None
    differs: bool = False
    conversation_id: str | None = None

    @property
    def is_stored(self) -> bool:
        return self.tokens is not None and self.kind != "context"

    @property
    def is_unknown(self) -> bool:
        """Whether the turn may have sent no such message: no prompt of a request is recorded."""
        return self.kind == "system" and not self.is_stored


class LeftOutView(msgspec.Struct, frozen=True, kw_only=True):
    """Consecutive messages that were not sent, by sequence number."""

    first: int
    last: int
    reason: Literal["window", "summary", "failed"]


class PromptView(msgspec.Struct, frozen=True, kw_only=True):
    """The messages that the turn sent, in order, and those left out.

    `exact` is false if the turn recorded another number of messages, or a message `differs`.
    `from_client`: the client sent its whole history; its system messages are not stored.
    `counted_tokens` is the provider's count for the last prompt.
    """

    turn_id: str
    model: str | None
    provider: str | None
    system_policy: str | None
    exact: bool
    from_client: bool
    sent: tuple[SentView, ...]
    left_out: tuple[LeftOutView, ...]
    estimated_tokens: int
    counted_tokens: int | None = None


class _NumberedMessage(msgspec.Struct, frozen=True):
    number: int
    ordinal: int
    turn: Turn
    message: Message
    conversation: str | None = None


async def read_sent_prompt(
    store: Store,
    conversation: StoredConversation,
    turn: Turn,
    *,
    owner: str = LOCAL_OWNER,
    prefix: str = "",
) -> PromptView:
    """Return the prompt of the first call of a turn; `prefix` is that of conversation IDs."""
    before = await _load_parent_messages(store, conversation, turn, owner=owner, prefix=prefix)
    return view_prompt(conversation, turn, before)


async def _load_parent_messages(
    store: Store, conversation: StoredConversation, turn: Turn, *, owner: str, prefix: str
) -> list[_NumberedMessage]:
    """Return the messages of the parent that a side request sent before its own.

    Empty if the parent does not exist, or has other messages now.
    """
    parent, window = conversation.parent, turn.window
    if conversation.path_start is None or parent is None or window is None:
        return []
    if isinstance(window.client, msgspec.UnsetType):
        return []
    try:
        loaded = await store.load(parent.conversation, owner=owner)
    except (ConversationNotFoundError, InvalidIdError):
        return []
    messages = [
        replace(one, conversation=f"{prefix}{loaded.id}")
        for one in _number_messages(loaded.turns, loaded.first_sequence)
        if one.turn.is_history and one.number <= parent.sequence
    ]
    digests = digest_path([one.message for one in messages], path_start_of(loaded))
    is_same = digests and meaning_of(digests[-1]) == meaning_of(conversation.path_start)
    return messages if is_same else []


def view_prompt(
    conversation: StoredConversation, turn: Turn, before: Sequence[_NumberedMessage] = ()
) -> PromptView:
    """`before` are messages of the parent."""
    window = turn.window or WindowRecord(first_sequence=1, sent_messages=0)
    earlier = list(_list_earlier_messages(conversation, turn))
    pinned = {one.turn.id for one in earlier if one.number in conversation.pins}
    selected = [
        one
        for one in earlier
        if one.turn.is_history and (one.number >= window.first_sequence or one.turn.id in pinned)
    ]
    history = [*before, *selected]
    # The messages of a parent that does not exist have no known number.
    count = None if conversation.path_start is not None and not before else len(history)
    messages = _list_input(turn, window, count)
    sent = tuple(_view_sent(conversation, turn, window, history, messages))
    is_complete = len(history) + len(messages) == _count_sent(window)
    record = conversation.system_record
    return PromptView(
        turn_id=turn.id,
        model=turn.model,
        provider=turn.provider,
        system_policy=None if record is None else record.policy,
        exact=turn.window is not None and is_complete and not any(one.differs for one in sent),
        from_client=window.client is not msgspec.UNSET,
        sent=sent,
        left_out=tuple(_view_left_out(earlier, selected, window)),
        estimated_tokens=sum(one.tokens or 0 for one in sent),
        counted_tokens=window.counted,
    )


def _list_earlier_messages(
    conversation: StoredConversation, turn: Turn
) -> Iterator[_NumberedMessage]:
    turns = takewhile(lambda earlier: earlier.place != turn.place, conversation.turns)
    return _number_messages(turns, conversation.first_sequence)


def _number_messages(turns: Iterable[Turn], first: int) -> Iterator[_NumberedMessage]:
    number = first
    for turn in turns:
        for ordinal, message in enumerate(turn.messages):
            yield _NumberedMessage(number, ordinal, turn, message)
            number += 1


def _view_sent(
    conversation: StoredConversation,
    turn: Turn,
    window: WindowRecord,
    history: Sequence[_NumberedMessage],
    messages: Sequence[Message],
) -> Iterator[SentView]:
    weights = weights_for(turn.provider or "")

    def view(kind: Kind, message: Message, content: Any, **more: Any) -> SentView:
        tokens = estimate_tokens(message, weights)
        return SentView(kind=kind, role=message.role, content=content, tokens=tokens, **more)

    for kind, added in _list_added(conversation, turn, window, history, messages):
        if added is None:
            role = "system" if kind == "system" else "user"
            yield SentView(kind=kind, role=role, content=NOT_STORED)
        else:
            yield view(kind, added, added.text)
    hashes = _find_client_hashes(conversation, turn, len(history) + len(messages))
    for one in history:
        yield view(
            "history",
            one.message,
            one.message.json().get("content"),
            message_id=make_message_id(one.turn.id, one.ordinal),
            sequence_number=one.number,
            differs=_is_different(one.message, next(hashes, None)),
            conversation_id=one.conversation,
        )
    if window.context:
        yield SentView(kind="context", role="user", content=NOT_STORED, tokens=window.context)
    for ordinal, message in enumerate(messages):
        content = message.json().get("content")
        message_id = make_message_id(turn.id, ordinal)
        differs = _is_different(message, next(hashes, None))
        yield view("request", message, content, message_id=message_id, differs=differs)


def _list_added(
    conversation: StoredConversation,
    turn: Turn,
    window: WindowRecord,
    history: Sequence[_NumberedMessage],
    messages: Sequence[Message],
) -> Iterator[tuple[Kind, Message | None]]:
    """Yield the messages before the history; None for one that is not stored."""
    record, prompt = conversation.system_record, conversation.kept_prompt
    if record is not None and record.policy == "dynamic":
        yield "system", None
    elif prompt is not None:
        yield "system", prompt
    elif record is None:
        # The configured prompt was sent and not saved, if there was one.
        yield "system", None
    elif (template := _find_template_prompt(turn, history, messages)) is not None:
        yield "template", template
    if window.summary_through is None:
        return
    summary = _find_summary(conversation, window.summary_through)
    if summary is None:
        yield "summary", None
    else:
        for message in build_summary_messages(summary.text):
            yield "summary", message


def _find_template_prompt(
    turn: Turn, history: Sequence[_NumberedMessage], messages: Sequence[Message]
) -> Message | None:
    """Return the system prompt that the template adds, if the first message is none."""
    if turn.provider != "local" or turn.model is None:
        return None
    first = next((one.role for one in (*(each.message for each in history), *messages)), None)
    text = find_template_prompt(turn.model)
    return None if text is None or first == "system" else plain_message("system", text)


def _count_sent(window: WindowRecord) -> int:
    """Return the number of sent messages that can be stored."""
    client = window.client
    return window.sent_messages if isinstance(client, msgspec.UnsetType) else client.count


def _list_input(turn: Turn, window: WindowRecord, before: int | None) -> tuple[Message, ...]:
    """Return the messages of the turn that were sent, not its reply; a client can send replies too.

    `before` is the number of messages before them, if it is known.
    """
    if isinstance(window.client, msgspec.UnsetType):
        return turn.asked
    has_reply = bool(turn.messages) and turn.messages[-1].role == "assistant"
    end = len(turn.messages) - (has_reply and (turn.is_history or before is None))
    if before is not None:
        end = min(end, max(window.client.count - before, len(turn.asked)))
    return turn.messages[:end]


def _find_client_hashes(conversation: StoredConversation, turn: Turn, shown: int) -> Iterator[str]:
    """Yield the hashes of the client's messages: those of the turn, and of the turns before it.

    If the first messages of a side request are not shown, those of the last ones.
    """
    places = [each.place for each in conversation.turns]
    before = conversation.turns[: places.index(turn.place)] if turn.place in places else ()
    hashes: list[str] = []
    needed: int | None = None
    for each in (turn, *reversed(before)):
        client = msgspec.UNSET if each.window is None else each.window.client
        if isinstance(client, msgspec.UnsetType):
            continue
        end = client.count if needed is None else needed
        hashes = [*client.hashes[: end - client.first], *hashes]
        needed = client.first
        if needed == 0:
            break
    first = 0 if conversation.path_start is None else max(len(hashes) - shown, 0)
    return iter(hashes[first:] if needed == 0 else ())


def _is_different(message: Message, client_hash: str | None) -> bool:
    return client_hash is not None and read_content(message).whole != client_hash


def _find_summary(conversation: StoredConversation, through: int) -> StandingSummary | None:
    summary = conversation.summary
    while summary is not None and summary.through != through:
        summary = summary.before
    return summary


def _view_left_out(
    earlier: Sequence[_NumberedMessage], selected: Sequence[_NumberedMessage], window: WindowRecord
) -> Iterator[LeftOutView]:
    """Yield runs of messages with the same reason."""
    sent = {one.number for one in selected}
    run: LeftOutView | None = None
    for one in earlier:
        if one.number in sent:
            continue
        reason = _find_reason_left_out(one, window)
        if run is not None and run.reason == reason and run.last == one.number - 1:
            run = replace(run, last=one.number)
            continue
        if run is not None:
            yield run
        run = LeftOutView(first=one.number, last=one.number, reason=reason)
    if run is not None:
        yield run


def _find_reason_left_out(
    one: _NumberedMessage, window: WindowRecord
) -> Literal["window", "summary", "failed"]:
    if not one.turn.is_history:
        return "failed"
    in_summary = window.summary_through is not None and one.number <= window.summary_through
    return "summary" if in_summary else "window"
