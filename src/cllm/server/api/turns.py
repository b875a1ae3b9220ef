"""Single turns of a conversation: what they are, what they sent, and their streams again."""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import suppress
from typing import Any, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from cllm.assembly.tokens import estimate_tokens, weights_for
from cllm.assembly.window.summary import summary_turn
from cllm.core.conversation import Conversation, StandingSummary, Turn, WindowRecord
from cllm.core.errors import CllmError, ConversationBusyError, TurnNotFoundError
from cllm.core.message import Message
from cllm.core.ports import ServerStore, TurnStart
from cllm.server.api.stores import Place, place_of, server_store
from cllm.server.api.views import NOT_KEPT, find_turn, message_id
from cllm.server.http.errors import RefusedError, encode_openai, report_error
from cllm.server.http.request_log import record_of
from cllm.server.http.responses import answer
from cllm.server.serving import Serving, serving_of

STREAM = "text/event-stream; charset=utf-8"
STREAM_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
FIRST_LOOK_SECONDS = 0.1
LAST_LOOK_SECONDS = 1.0
SLOWER = 1.5
SILENT_SECONDS = 600.0
SIGN_OF_LIFE = b": still running\n\n"
HIGHEST = 2**31 - 1


async def get_turn(request: Request) -> Response:
    """GET /v1/conversations/{conversation_id}/turns/{turn_id}."""
    place = await place_of(request)
    turn_id = request.path_params["turn_id"]
    view = find_turn(await place.store.load(place.id, owner=place.owner), turn_id)
    if view is None:
        raise TurnNotFoundError(place.id, turn_id)
    record_of(request).turn = turn_id
    return answer(view)


async def get_prompt(request: Request) -> Response:
    """GET /v1/conversations/{conversation_id}/turns/{turn_id}/prompt."""
    place = await place_of(request)
    conversation = await place.store.load(place.id, owner=place.owner)
    turn = _turn(conversation, request.path_params["turn_id"])
    record_of(request).turn = turn.id
    return answer(view_prompt(conversation, turn))


def _turn(conversation: Conversation, turn_id: str) -> Turn:
    for turn in (*conversation.turns, *conversation.variants):
        if turn.id == turn_id:
            return turn
    raise TurnNotFoundError(conversation.id, turn_id)


async def get_events(request: Request) -> Response:
    """GET /v1/conversations/{conversation_id}/turns/{turn_id}/events: from Last-Event-ID on.

    What was missed comes first; a turn that still runs is then followed to its end, whichever
    process it runs in.
    """
    seen = _last_event_id(request)
    serving = serving_of(request)
    place = await place_of(request)
    turn_id = request.path_params["turn_id"]
    store = server_store(place, serving)
    if store is None:
        await place.store.summary(place.id, owner=place.owner)
        raise _not_kept()
    if not await _is_running(place, turn_id):
        kept = await store.events_after(place.id, turn_id, 0, owner=place.owner)
        if not kept:
            raise _not_kept()
    record_of(request).turn = turn_id
    follower = _Follower(store, place, turn_id, serving)
    return StreamingResponse(follower.told(seen), media_type=STREAM, headers=STREAM_HEADERS)


def _last_event_id(request: Request) -> int:
    given = request.headers.get("last-event-id", "").strip()
    if not given:
        return 0
    if not (given.isascii() and given.isdigit()) or int(given) > HIGHEST:
        raise RefusedError(
            "invalid_header",
            "Last-Event-ID must be the number of an event, as the stream gave it.",
            param="Last-Event-ID",
        )
    return int(given)


def _not_kept() -> RefusedError:
    return RefusedError(
        "events_not_kept",
        "The stream of this turn is not kept any more; read the conversation instead.",
        param="turn_id",
    )


async def _is_running(place: Place, turn_id: str) -> bool:
    """Whether the turn goes on. One that runs is the newest in its place, so little is read."""
    newest = await place.store.load(place.id, owner=place.owner, tail=1)
    turns = (*newest.turns, *newest.variants)
    return any(turn.id == turn_id and turn.state == "running" for turn in turns)


class _Follower:
    """Follows the stream of one turn.

    A turn of this process says when there is more. One of another process is looked at, the less
    often the longer nothing came of it, until nobody runs it any more.
    """

    def __init__(self, store: ServerStore, place: Place, turn_id: str, serving: Serving) -> None:
        self._store = store
        self._place = place
        self._turn_id = turn_id
        self._turns = serving.turns
        self._new_id = serving.new_id
        self._silence = serving.settings.silence_seconds
        self._pause = FIRST_LOOK_SECONDS

    async def told(self, seen: int) -> AsyncIterator[bytes]:
        """The events after `seen`, those that come until the turn has ended, or why no more do."""
        try:
            async for data in self._events(seen):
                yield data
        except CllmError as error:
            yield b"data: %b\n\n" % encode_openai(report_error(error))

    async def _events(self, seen: int) -> AsyncIterator[bytes]:
        now = asyncio.get_running_loop().time
        heard = signed = now()
        while now() - heard < SILENT_SECONDS:
            # Asked before the events are read, so that none can come after the last look.
            change = self._turns.change_of((self._place.owner, self._place.id, self._turn_id))
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
                self._pause = FIRST_LOOK_SECONDS
            elif now() - signed >= self._silence:
                if change is None and await self._is_lost():
                    raise _lost()
                signed = now()
                yield SIGN_OF_LIFE
            await self._wait(change, signed + self._silence - now())
        raise _gone_silent()

    async def _is_lost(self) -> bool:
        """Whether nobody runs the turn any more, though it says that it runs.

        Its process is gone if its lease has run out: then another turn could begin.
        """
        try:
            # A lease that was given is given back, also if the client leaves meanwhile.
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
        """Until there is more, or it is time to look or for a sign of life."""
        if change is None:
            await asyncio.sleep(max(min(self._pause, most), 0))
            self._pause = min(self._pause * SLOWER, LAST_LOOK_SECONDS)
        else:
            with suppress(TimeoutError):
                await asyncio.wait_for(change.wait(), max(most, 0))


def _lost() -> RefusedError:
    return RefusedError(
        "request_timeout",
        "The turn was interrupted, the process that ran it is gone; read the conversation instead.",
    )


def _gone_silent() -> RefusedError:
    return RefusedError(
        "request_timeout", "The turn has been silent for too long; read the conversation instead."
    )


Kind = Literal["system", "context", "summary", "history", "request"]


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


class _Numbered(msgspec.Struct, frozen=True):
    number: int
    ordinal: int
    turn: Turn
    message: Message


def view_prompt(conversation: Conversation, turn: Turn) -> PromptView:
    """The prompt of the turn's first round: later ones add what the turn says itself."""
    window = turn.window or WindowRecord(first_sequence=1, sent_messages=0)
    before = list(_before(conversation, turn))
    pinned = _pinned_turns(conversation, before)
    chosen = [
        said
        for said in before
        if said.turn.is_history and (said.number >= window.first_sequence or said.turn.id in pinned)
    ]
    request = turn.asked
    provider = turn.provider or ""
    sent = (
        *_system(conversation, provider),
        *_summary(conversation, window, provider),
        *(_history(said, provider) for said in chosen),
        *_context(window),
        *(_said(turn, place, message, provider) for place, message in enumerate(request)),
    )
    record = conversation.system_record
    return PromptView(
        turn_id=turn.id,
        model=turn.model,
        provider=turn.provider,
        system_policy=None if record is None else record.policy,
        exact=turn.window is not None and len(chosen) + len(request) == window.sent_messages,
        sent=sent,
        left_out=tuple(_left_out(before, chosen, window)),
        estimated_tokens=sum(one.tokens or 0 for one in sent),
        counted_tokens=window.counted,
    )


def _before(conversation: Conversation, turn: Turn) -> Iterator[_Numbered]:
    """What stood before the turn on the default path."""
    number = conversation.first_sequence
    for earlier in conversation.turns:
        if earlier.place == turn.place:
            return
        for ordinal, message in enumerate(earlier.messages):
            yield _Numbered(number, ordinal, earlier, message)
            number += 1


def _pinned_turns(conversation: Conversation, before: Sequence[_Numbered]) -> set[str]:
    pins = set(conversation.pins)
    return {said.turn.id for said in before if said.number in pins}


def _system(conversation: Conversation, provider: str) -> Iterator[SentView]:
    record = conversation.system_record
    kept = conversation.kept_prompt
    if record is not None and record.policy == "dynamic":
        yield SentView(kind="system", role="system", content=NOT_KEPT)
    elif kept is not None:
        yield SentView(
            kind="system", role="system", content=kept.text, tokens=_tokens(kept, provider)
        )


def _summary(conversation: Conversation, window: WindowRecord, provider: str) -> Iterator[SentView]:
    if window.summary_through is None:
        return
    standing = _summary_through(conversation.summary, window.summary_through)
    if standing is None:
        yield SentView(kind="summary", role="user", content=NOT_KEPT)
        return
    for message in summary_turn(standing.text):
        yield SentView(
            kind="summary",
            role=message.role,
            content=message.text,
            tokens=_tokens(message, provider),
        )


def _summary_through(standing: StandingSummary | None, through: int) -> StandingSummary | None:
    while standing is not None and standing.through != through:
        standing = standing.before
    return standing


def _context(window: WindowRecord) -> Iterator[SentView]:
    if window.context:
        yield SentView(kind="context", role="user", content=NOT_KEPT, tokens=window.context)


def _history(said: _Numbered, provider: str) -> SentView:
    return SentView(
        kind="history",
        role=said.message.role,
        content=said.message.json().get("content"),
        tokens=_tokens(said.message, provider),
        message_id=message_id(said.turn, said.ordinal),
        sequence_number=said.number,
    )


def _said(turn: Turn, ordinal: int, message: Message, provider: str) -> SentView:
    return SentView(
        kind="request",
        role=message.role,
        content=message.json().get("content"),
        tokens=_tokens(message, provider),
        message_id=message_id(turn, ordinal),
    )


def _tokens(message: Message, provider: str) -> int:
    return estimate_tokens(message, weights_for(provider))


def _left_out(
    before: Sequence[_Numbered], chosen: Sequence[_Numbered], window: WindowRecord
) -> Iterator[LeftOutView]:
    """Runs of messages that did not go out for the same reason."""
    sent = {said.number for said in chosen}
    run: LeftOutView | None = None
    for said in before:
        if said.number in sent:
            continue
        reason = _reason(said, window)
        if run is not None and run.reason == reason and run.last == said.number - 1:
            run = msgspec.structs.replace(run, last=said.number)
            continue
        if run is not None:
            yield run
        run = LeftOutView(first=said.number, last=said.number, reason=reason)
    if run is not None:
        yield run


def _reason(said: _Numbered, window: WindowRecord) -> Literal["window", "summary", "failed"]:
    if not said.turn.is_history:
        return "failed"
    covered = window.summary_through is not None and said.number <= window.summary_through
    return "summary" if covered else "window"
