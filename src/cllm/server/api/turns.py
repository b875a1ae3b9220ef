"""The turns endpoints: one turn, and its prompt."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import msgspec
from starlette.responses import Response

from cllm.core.conversation import (
    StandingSummary,
    StoredConversation,
    Turn,
    WindowRecord,
    make_message_id,
)
from cllm.core.errors import TurnNotFoundError
from cllm.core.message import Message
from cllm.server.api.conversation_ref import find_conversation, load_imported
from cllm.server.api.views import NOT_STORED, find_turn, json_response
from cllm.server.state import ApiRequest
from cllm.window.summary import build_summary_messages
from cllm.window.tokens import estimate_tokens, weights_for
from cllm.wire.path_digest import read_content

Kind = Literal["system", "context", "summary", "history", "request"]


async def get_turn(request: ApiRequest) -> Response:
    """GET /v1/conversations/{conversation_id}/turns/{turn_id}."""
    ref = await find_conversation(request)
    turn_id = request.path_params["turn_id"]
    conversation = await ref.store.load(ref.id, owner=ref.owner)
    view = find_turn(conversation, turn_id, await load_imported(ref))
    if view is None:
        raise TurnNotFoundError(ref.id, turn_id)
    request.record.turn = turn_id
    return json_response(view)


async def get_prompt(request: ApiRequest) -> Response:
    """GET /v1/conversations/{conversation_id}/turns/{turn_id}/prompt."""
    ref = await find_conversation(request)
    conversation = await ref.store.load(ref.id, owner=ref.owner)
    turn_id = request.path_params["turn_id"]
    for turn in (*conversation.turns, *conversation.variants):
        if turn.id == turn_id:
            request.record.turn = turn_id
            return json_response(_view_prompt(conversation, turn))
    raise TurnNotFoundError(conversation.id, turn_id)


class SentView(msgspec.Struct, frozen=True, kw_only=True):
    """One message of a prompt. `tokens` is an estimate.

    `differs`: a client that sent its whole history sent other content than is stored.
    """

    kind: Kind
    role: str
    content: Any
    tokens: int | None = None
    message_id: str | None = None
    sequence_number: int | None = None
    differs: bool = False


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


def _view_prompt(conversation: StoredConversation, turn: Turn) -> PromptView:
    """Return the prompt of the first call of the turn."""
    window = turn.window or WindowRecord(first_sequence=1, sent_messages=0)
    earlier = list(_earlier_messages(conversation, turn))
    pinned = {one.turn.id for one in earlier if one.number in conversation.pins}
    selected = [
        one
        for one in earlier
        if one.turn.is_history and (one.number >= window.first_sequence or one.turn.id in pinned)
    ]
    sent = tuple(_view_sent(conversation, turn, window, selected))
    is_complete = len(selected) + len(_list_input(turn, window, len(selected))) == _count_sent(
        window
    )
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


def _earlier_messages(conversation: StoredConversation, turn: Turn) -> Iterator[_NumberedMessage]:
    number = conversation.first_sequence
    for earlier in conversation.turns:
        if earlier.place == turn.place:
            return
        for ordinal, message in enumerate(earlier.messages):
            yield _NumberedMessage(number, ordinal, earlier, message)
            number += 1


def _view_sent(
    conversation: StoredConversation,
    turn: Turn,
    window: WindowRecord,
    selected: Sequence[_NumberedMessage],
) -> Iterator[SentView]:
    weights = weights_for(turn.provider or "")

    def view(kind: Kind, message: Message, content: Any, **more: Any) -> SentView:
        tokens = estimate_tokens(message, weights)
        return SentView(kind=kind, role=message.role, content=content, tokens=tokens, **more)

    record, prompt = conversation.system_record, conversation.kept_prompt
    if record is not None and record.policy == "dynamic":
        yield SentView(kind="system", role="system", content=NOT_STORED)
    elif prompt is not None:
        yield view("system", prompt, prompt.text)
    if window.summary_through is not None:
        summary = _find_summary(conversation, window.summary_through)
        if summary is None:
            yield SentView(kind="summary", role="user", content=NOT_STORED)
        else:
            for message in build_summary_messages(summary.text):
                yield view("summary", message, message.text)
    hashes = iter(_find_client_hashes(conversation, turn))
    for one in selected:
        yield view(
            "history",
            one.message,
            one.message.json().get("content"),
            message_id=make_message_id(one.turn.id, one.ordinal),
            sequence_number=one.number,
            differs=_differs(one.message, next(hashes, None)),
        )
    if window.context:
        yield SentView(kind="context", role="user", content=NOT_STORED, tokens=window.context)
    for ordinal, message in enumerate(_list_input(turn, window, len(selected))):
        content = message.json().get("content")
        message_id = make_message_id(turn.id, ordinal)
        differs = _differs(message, next(hashes, None))
        yield view("request", message, content, message_id=message_id, differs=differs)


def _count_sent(window: WindowRecord) -> int:
    """Return the number of sent messages that can be stored."""
    client = window.client
    return window.sent_messages if isinstance(client, msgspec.UnsetType) else client.count


def _list_input(turn: Turn, window: WindowRecord, before: int) -> tuple[Message, ...]:
    """Return the messages of the turn that were sent; a client can send replies too."""
    if isinstance(window.client, msgspec.UnsetType):
        return turn.asked
    return turn.messages[: max(window.client.count - before, len(turn.asked))]


def _find_client_hashes(conversation: StoredConversation, turn: Turn) -> list[str]:
    """Return the hashes of the client's messages: those of the turn, and of the turns before it."""
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
    return hashes if needed == 0 else []


def _differs(message: Message, client_hash: str | None) -> bool:
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
        reason = _reason_left_out(one, window)
        if run is not None and run.reason == reason and run.last == one.number - 1:
            run = msgspec.structs.replace(run, last=one.number)
            continue
        if run is not None:
            yield run
        run = LeftOutView(first=one.number, last=one.number, reason=reason)
    if run is not None:
        yield run


def _reason_left_out(
    one: _NumberedMessage, window: WindowRecord
) -> Literal["window", "summary", "failed"]:
    if not one.turn.is_history:
        return "failed"
    in_summary = window.summary_through is not None and one.number <= window.summary_through
    return "summary" if in_summary else "window"
