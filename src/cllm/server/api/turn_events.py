"""The event stream of a turn: saved events after `Last-Event-ID`, then those of a running turn."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

from starlette.responses import Response, StreamingResponse

from cllm.core.conversation import INTERRUPTION, Turn, find_turn
from cllm.core.errors import CllmError, ErrorReport
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
UNFINISHED = ("running", "incomplete", "failed")
MAX_EVENT_ID = 2**31 - 1


async def get_events(request: ApiRequest) -> Response:
    """GET /v1/conversations/{conversation_id}/turns/{turn_id}/events."""
    last_id = _read_last_event_id(request)
    state = request.server
    ref = await find_conversation(request)
    turn_id = request.path_params["turn_id"]
    if ref.prefix:
        # The folder of files stores no events.
        await ref.store.summary(ref.id, owner=ref.owner)
        raise events_not_stored()
    newest = await _find_newest(ref, turn_id)
    is_followed = newest is not None and (
        newest.state == "running" or newest.failure == INTERRUPTION
    )
    if not is_followed:
        events = await state.store.events_after(ref.id, turn_id, 0, owner=ref.owner)
        if not events:
            raise events_not_stored()
    request.record.turn = turn_id
    follower = TurnFollower(ref, turn_id, state)
    return StreamingResponse(
        follower.stream(last_id), media_type=EVENT_STREAM, headers=STREAM_HEADERS
    )


def _read_last_event_id(request: ApiRequest) -> int:
    value = request.headers.get("last-event-id", "").strip()
    if not value:
        return 0
    if not (value.isascii() and value.isdigit()) or int(value) > MAX_EVENT_ID:
        raise ApiError(
            "invalid_header",
            "Last-Event-ID must be the `id` of an event of this stream.",
            param="Last-Event-ID",
        )
    return int(value)


def events_not_stored() -> ApiError:
    return ApiError(
        "events_not_kept",
        "The events of this turn are not stored or have expired; read the conversation instead.",
        param="turn_id",
    )


async def _find_newest(ref: ConversationRef, turn_id: str) -> Turn | None:
    """Load one message only: a running turn is the newest. Return None for an older turn."""
    newest = await ref.store.load(ref.id, owner=ref.owner, tail=1)
    return find_turn(newest, turn_id)


def encode_error_event(report: ErrorReport) -> bytes:
    return b"data: %b\n\n" % encode_openai_error(report)


class TurnFollower:
    """Follows a turn of this process by notifications, of another by polling."""

    def __init__(
        self,
        ref: ConversationRef,
        turn_id: str,
        state: ServerState,
        *,
        encode_error: Callable[[ErrorReport], bytes] = encode_error_event,
    ) -> None:
        self._encode_error = encode_error
        self._store = state.store
        self._ref = ref
        self._turn_id = turn_id
        self._turns = state.turns
        self._silence = state.settings.silence_seconds
        self._pause = FIRST_POLL_SECONDS

    async def stream(self, last_id: int) -> AsyncIterator[bytes]:
        try:
            async for data in self._events(last_id):
                yield data
        except CllmError as error:
            yield self._encode_error(report_error(error))

    async def _events(self, last_id: int) -> AsyncIterator[bytes]:
        now = asyncio.get_running_loop().time
        last_event = last_sent = now()
        while now() - last_event < MAX_SILENT_SECONDS:
            # Before the events are read, so that none is missed.
            change = self._turns.next_change((self._ref.owner, self._ref.id, self._turn_id))
            turn = None
            if change is None:
                turn = await _find_newest(self._ref, self._turn_id)
            events = await self._store.events_after(
                self._ref.id, self._turn_id, last_id, owner=self._ref.owner
            )
            for event in events:
                last_id = event.number
                yield event.data
            if turn is not None and turn.state in UNFINISHED and self._turns.is_stopping:
                raise ApiError("shutting_down", "The server shut down during the reply; resume.")
            if turn is not None and turn.failure == INTERRUPTION:
                raise ApiError(
                    "request_timeout",
                    "The turn was interrupted; read the conversation instead.",
                )
            if change is None and (turn is None or turn.state != "running"):
                return
            if events:
                last_event = last_sent = now()
                self._pause = FIRST_POLL_SECONDS
            elif now() - last_sent >= self._silence:
                last_sent = now()
                yield KEEP_ALIVE
            await self._wait(change, last_sent + self._silence - now())
        raise ApiError(
            "request_timeout",
            "The turn sent no event for too long; read the conversation instead.",
        )

    async def _wait(self, change: asyncio.Event | None, max_seconds: float) -> None:
        if change is None:
            await asyncio.sleep(max(min(self._pause, max_seconds), 0))
            self._pause = min(self._pause * POLL_FACTOR, MAX_POLL_SECONDS)
        else:
            with suppress(TimeoutError):
                await asyncio.wait_for(change.wait(), max(max_seconds, 0))
