"""The stream of a turn: GET /v1/conversations/{conversation_id}/turns/{turn_id}/events.

Sends the saved events after `Last-Event-ID`, then follows a running turn of any process.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress

from starlette.responses import Response, StreamingResponse

from cllm.core.errors import CllmError, ConversationBusyError
from cllm.core.ports import TurnStart
from cllm.server.api.conversation_ref import ConversationRef, find_conversation
from cllm.server.http.errors import ApiError, encode_openai_error, report_error
from cllm.server.state import ApiRequest, ServerState
from cllm.server.turns.task import EVENT_STREAM

STREAM_HEADERS = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
FIRST_POLL_SECONDS = 0.1
MAX_POLL_SECONDS = 1.0
POLL_FACTOR = 1.5
MAX_SILENT_SECONDS = 600.0
KEEP_ALIVE = b": still running\n\n"
MAX_EVENT_ID = 2**31 - 1


async def get_events(request: ApiRequest) -> Response:
    """GET /v1/conversations/{conversation_id}/turns/{turn_id}/events."""
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
