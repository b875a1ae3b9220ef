"""The turns endpoints: one turn, the prompt that it sent, and its stream of events."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from typing import Any, Literal

import msgspec
from starlette.responses import Response, StreamingResponse

from cllm.core.conversation import StandingSummary, StoredConversation, Turn, WindowRecord
from cllm.core.errors import CllmError, ConversationBusyError, TurnNotFoundError
from cllm.core.message import Message
from cllm.core.ports import TurnStart
from cllm.server.api.conversation_ref import ConversationRef, find_conversation
from cllm.server.api.views import NOT_STORED, find_turn, json_response, make_message_id
from cllm.server.http.errors import ApiError, encode_openai_error, report_error
from cllm.server.state import ApiRequest, ServerState
from cllm.server.turns.task import EVENT_STREAM
from cllm.window.summary import build_summary_messages
from cllm.window.tokens import estimate_tokens, weights_for

STREAM_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
FIRST_POLL_SECONDS = 0.1
MAX_POLL_SECONDS = 1.0
POLL_FACTOR = 1.5
MAX_SILENT_SECONDS = 600.0
KEEP_ALIVE = b": still running\n\n"
MAX_EVENT_ID = 2**31 - 1

Kind = Literal["system", "context", "summary", "history", "request"]


async def get_turn(request: ApiRequest) -> Response:
    """GET /v1/conversations/{conversation_id}/turns/{turn_id}."""
    place = await find_conversation(request)
    turn_id = request.path_params["turn_id"]
    view = find_turn(await place.store.load(place.id, owner=place.owner), turn_id)
    if view is None:
        raise TurnNotFoundError(place.id, turn_id)
    request.record.turn = turn_id
    return json_response(view)


async def get_prompt(request: ApiRequest) -> Response:
    """GET /v1/conversations/{conversation_id}/turns/{turn_id}/prompt."""
    place = await find_conversation(request)
    conversation = await place.store.load(place.id, owner=place.owner)
    turn_id = request.path_params["turn_id"]
    for turn in (*conversation.turns, *conversation.variants):
        if turn.id == turn_id:
            request.record.turn = turn_id
            return json_response(_view_prompt(conversation, turn))
    raise TurnNotFoundError(conversation.id, turn_id)


async def get_events(request: ApiRequest) -> Response:
    """GET /v1/conversations/{conversation_id}/turns/{turn_id}/events.

    Sends the saved events, then follows a running turn of any process.
    """
    seen = _last_event_id(request)
    state = request.server
    place = await find_conversation(request)
    turn_id = request.path_params["turn_id"]
    if place.prefix:
        # The folder of files stores no events.
        await place.store.summary(place.id, owner=place.owner)
        raise _events_not_stored()
    if not await _is_running(place, turn_id):
        saved = await state.store.events_after(place.id, turn_id, 0, owner=place.owner)
        if not saved:
            raise _events_not_stored()
    request.record.turn = turn_id
    follower = _TurnFollower(place, turn_id, state)
    return StreamingResponse(follower.stream(seen), media_type=EVENT_STREAM, headers=STREAM_HEADERS)


def _last_event_id(request: ApiRequest) -> int:
    value = request.headers.get("last-event-id", "").strip()
    if not value:
        return 0
    if not (value.isascii() and value.isdigit()) or int(value) > MAX_EVENT_ID:
        raise ApiError(
            "invalid_header",
            "Last-Event-ID must be the number of an event, as the stream gave it.",
            param="Last-Event-ID",
        )
    return int(value)


def _events_not_stored() -> ApiError:
    return ApiError(
        "events_not_kept",
        "The stream of this turn is not kept any more; read the conversation instead.",
        param="turn_id",
    )


async def _is_running(place: ConversationRef, turn_id: str) -> bool:
    """A running turn is the newest: loading one message is enough."""
    newest = await place.store.load(place.id, owner=place.owner, tail=1)
    turns = (*newest.turns, *newest.variants)
    return any(turn.id == turn_id and turn.state == "running" for turn in turns)


class _TurnFollower:
    """Follows one turn: of this process by its signals, of another by polling."""

    def __init__(self, place: ConversationRef, turn_id: str, state: ServerState) -> None:
        self._store = state.store
        self._place = place
        self._turn_id = turn_id
        self._turns = state.turns
        self._new_id = state.new_id
        self._silence = state.settings.silence_seconds
        self._pause = FIRST_POLL_SECONDS

    async def stream(self, seen: int) -> AsyncIterator[bytes]:
        try:
            async for data in self._events(seen):
                yield data
        except CllmError as error:
            yield b"data: %b\n\n" % encode_openai_error(report_error(error))

    async def _events(self, seen: int) -> AsyncIterator[bytes]:
        now = asyncio.get_running_loop().time
        heard = signed = now()
        while now() - heard < MAX_SILENT_SECONDS:
            # Before the events are read, so that none is missed.
            change = self._turns.next_change((self._place.owner, self._place.id, self._turn_id))
            runs = change is not None or await _is_running(self._place, self._turn_id)
            events = await self._store.events_after(
                self._place.id, self._turn_id, seen, owner=self._place.owner
            )
            for event in events:
                seen = event.number
                yield event.data
            if not runs:
                return
            if events:
                heard = signed = now()
                self._pause = FIRST_POLL_SECONDS
            elif now() - signed >= self._silence:
                if change is None and await self._is_lost():
                    raise ApiError(
                        "request_timeout",
                        "The turn was interrupted, the process that ran it is gone; read the "
                        "conversation instead.",
                    )
                signed = now()
                yield KEEP_ALIVE
            await self._wait(change, signed + self._silence - now())
        raise ApiError(
            "request_timeout",
            "The turn has been silent for too long; read the conversation instead.",
        )

    async def _is_lost(self) -> bool:
        """Whether the process of the turn is gone: then its lease is free."""
        try:
            # Shielded, so that the lease is released even if the client disconnects.
            await asyncio.shield(self._try_lease())
        except ConversationBusyError:
            return False
        return await _is_running(self._place, self._turn_id)

    async def _try_lease(self) -> None:
        start = TurnStart(id=self._new_id(), messages=(), visible=False)
        place = self._place
        lease = await self._store.begin_turn(place.id, start, owner=place.owner, tail=0)
        await self._store.drop_turn(lease)

    async def _wait(self, change: asyncio.Event | None, most: float) -> None:
        if change is None:
            await asyncio.sleep(max(min(self._pause, most), 0))
            self._pause = min(self._pause * POLL_FACTOR, MAX_POLL_SECONDS)
        else:
            with suppress(TimeoutError):
                await asyncio.wait_for(change.wait(), max(most, 0))


class SentView(msgspec.Struct, frozen=True, kw_only=True):
    """One message of a prompt, in its place; `tokens` is an estimate."""

    kind: Kind
    role: str
    content: Any
    tokens: int | None = None
    message_id: str | None = None
    sequence_number: int | None = None


class LeftOutView(msgspec.Struct, frozen=True, kw_only=True):
    """Messages that were there and were not sent, and why."""

    first: int
    last: int
    reason: Literal["window", "summary", "failed"]


class PromptView(msgspec.Struct, frozen=True, kw_only=True):
    """What was sent, in order, and what was left out.

    `counted_tokens` is what the provider counted in the turn's last prompt, if it said so.
    """

    turn_id: str
    model: str | None
    provider: str | None
    system_policy: str | None
    exact: bool
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
    """Return the prompt of the turn's first call."""
    window = turn.window or WindowRecord(first_sequence=1, sent_messages=0)
    before = list(_earlier_messages(conversation, turn))
    pinned = {said.turn.id for said in before if said.number in conversation.pins}
    chosen = [
        said
        for said in before
        if said.turn.is_history and (said.number >= window.first_sequence or said.turn.id in pinned)
    ]
    sent = tuple(_view_sent(conversation, turn, window, chosen))
    record = conversation.system_record
    return PromptView(
        turn_id=turn.id,
        model=turn.model,
        provider=turn.provider,
        system_policy=None if record is None else record.policy,
        exact=turn.window is not None and len(chosen) + len(turn.asked) == window.sent_messages,
        sent=sent,
        left_out=tuple(_view_left_out(before, chosen, window)),
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
    chosen: Sequence[_NumberedMessage],
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
    for said in chosen:
        yield view(
            "history",
            said.message,
            said.message.json().get("content"),
            message_id=make_message_id(said.turn, said.ordinal),
            sequence_number=said.number,
        )
    if window.context:
        yield SentView(kind="context", role="user", content=NOT_STORED, tokens=window.context)
    for ordinal, message in enumerate(turn.asked):
        content = message.json().get("content")
        yield view("request", message, content, message_id=make_message_id(turn, ordinal))


def _find_summary(conversation: StoredConversation, through: int) -> StandingSummary | None:
    summary = conversation.summary
    while summary is not None and summary.through != through:
        summary = summary.before
    return summary


def _view_left_out(
    before: Sequence[_NumberedMessage], chosen: Sequence[_NumberedMessage], window: WindowRecord
) -> Iterator[LeftOutView]:
    """Yield runs of messages with the same reason."""
    sent = {said.number for said in chosen}
    run: LeftOutView | None = None
    for said in before:
        if said.number in sent:
            continue
        reason = _reason_left_out(said, window)
        if run is not None and run.reason == reason and run.last == said.number - 1:
            run = msgspec.structs.replace(run, last=said.number)
            continue
        if run is not None:
            yield run
        run = LeftOutView(first=said.number, last=said.number, reason=reason)
    if run is not None:
        yield run


def _reason_left_out(
    said: _NumberedMessage, window: WindowRecord
) -> Literal["window", "summary", "failed"]:
    if not said.turn.is_history:
        return "failed"
    covered = window.summary_through is not None and said.number <= window.summary_through
    return "summary" if covered else "window"
