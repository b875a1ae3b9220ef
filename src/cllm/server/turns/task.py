"""The task of one turn: encodes its events and writes them to a bounded queue.

A disconnect cancels a stateless turn, a saved one only if `on_disconnect` is `cancel`, and never a
background turn. A saved turn never waits for a slow client; a stateless one does. A turn that is
only recorded runs as a stateless one.
"""

import asyncio
import json
from bisect import bisect_right
from collections.abc import Coroutine, Iterable
from contextlib import aclosing
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Protocol

from msgspec.structs import replace

from cllm.core.conversation import CANCELLATION, FILES_PREFIX, find_turn
from cllm.core.errors import CllmError, ConversationBusyError, ErrorReport
from cllm.core.notice import Notice, NoticeCollector
from cllm.core.ports import CallRecord, Lease
from cllm.core.reply import (
    ModelReported,
    Noticed,
    ReplyDelta,
    ReplyEvent,
    ReplyFinished,
    Usage,
    UsageReported,
    Verbatim,
)
from cllm.engine.request import NOT_RECORDED, TurnEnded, TurnEvent, TurnQueued, TurnStarted
from cllm.engine.tool_rounds import ToolRoundEnded
from cllm.server.http.errors import JSON, UNEXPECTED, ApiError, report_error
from cllm.server.http.request_log import RequestRecord
from cllm.server.state import ServerState
from cllm.server.turns.event_log import EventLog, EventQueue, number_event
from cllm.server.turns.headers import CONVERSATION, NOTICE, TURN
from cllm.server.turns.idempotency import Claim
from cllm.server.turns.prepare import PreparedTurn, select_engine
from cllm.server.turns.registry import turn_key
from cllm.wire.errors import MalformedError

if TYPE_CHECKING:
    from cllm.engine.optional_steps import OptionalSteps

EVENT_STREAM = "text/event-stream; charset=utf-8"
MAX_NOTICES_LENGTH = 4096
MAX_TEXT_LENGTH = 400
"""Characters of JSON: a character outside ASCII takes 6 or 12."""
ELLIPSIS = "..."
# Bytes in the queue. At the limit a saved turn ends the response; a stateless turn waits.
MAX_UNREAD_SAVED = 1024 * 1024
MAX_UNREAD_STATELESS = 64 * 1024


class ResponseEncoder(Protocol):
    """Encodes the response to one request; events are whole server-sent events.

    `keep_alive` is sent while a stream is silent. `start` precedes all events. `redact` returns
    events or a response without the text that is never stored.
    """

    keep_alive: bytes

    def start(self, turn: TurnStarted) -> None: ...

    def encode_event(self, event: ReplyEvent) -> bytes: ...

    def encode_error(self, report: ErrorReport) -> bytes: ...

    def encode_response(self, reply: ReplyFinished) -> bytes: ...

    def redact(self, data: bytes) -> bytes: ...


class TurnTask:
    """Runs one turn.

    `is_streaming`: the reply has started. `body` is the response without a stream.
    """

    def __init__(
        self,
        prepared: PreparedTurn,
        encoder: ResponseEncoder,
        *,
        state: ServerState,
        claim: Claim,
        record: RequestRecord,
    ) -> None:
        self.prepared = prepared
        self._encoder = encoder
        self._state = state
        self._claim = claim
        self._record = record
        self._log: EventLog | None = None
        self._lease: Lease | None = None
        self._steps: OptionalSteps | None = None
        self._saved_events: list[bytes] = []
        self.body = b""
        self._notices = NoticeCollector(prepared.notices)
        self._turn: str | None = None
        self._public_id = prepared.public_id
        self._started = asyncio.Event()
        self._is_done = asyncio.Event()
        self._is_background = prepared.is_background
        is_named = prepared.request.storage.ref is not None
        self._is_saved = self._is_background or (
            is_named and not prepared.request.storage.read_only
        )
        self._is_stream = prepared.request.target.stream
        self.keep_alive = encoder.keep_alive
        self.queue = EventQueue(MAX_UNREAD_SAVED if self._is_saved else MAX_UNREAD_STATELESS)
        self.result: TurnEnded | None = None
        self.failure: CllmError | MalformedError | None = None
        self.is_streaming = False
        self._is_released = False
        self._is_cancelled = False
        self._loss_check: asyncio.Task[None] | None = None
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = self._state.turns.start(self._run())
        self._task.add_done_callback(lambda _: self._is_done.set())

    async def wait_until_started(self) -> None:
        """Wait until the provider is called or the turn ends."""
        await self._started.wait()

    async def wait(self) -> None:
        """Wait until the turn ends. Cancelling the wait does not cancel the turn."""
        if self._task is None:
            return
        await self._is_done.wait()
        if not self._task.cancelled() and (error := self._task.exception()) is not None:
            raise error

    def handle_disconnect(self) -> None:
        """Cancel a stateless turn, or any if so configured."""
        self.queue.abandon()
        cancels = not self._is_saved or self._state.settings.on_disconnect == "cancel"
        if cancels and not self._is_background and self._task is not None:
            self._task.cancel()

    def _stop_after_loss(self) -> None:
        """Stop a turn whose lease is lost, if another process has cancelled it."""
        if self._is_saved and self._loss_check is None:
            self._loss_check = asyncio.create_task(self._stop_if_cancelled())

    async def _stop_if_cancelled(self) -> None:
        store, lease = self.prepared.store, self._lease
        if store is None or lease is None or self._task is None:
            return
        owner, conversation_id, turn_id = turn_key(lease)
        try:
            newest = await store.load(conversation_id, owner=owner, tail=1)
        except CllmError:
            return
        turn = find_turn(newest, turn_id)
        if turn is not None and turn.failure == CANCELLATION:
            self._is_cancelled = True
            self._task.cancel(CANCELLATION.code)

    def with_turn(self, prepared: PreparedTurn) -> "TurnTask":
        return TurnTask(
            prepared, self._encoder, state=self._state, claim=self._claim, record=self._record
        )

    async def release(self) -> None:
        """Release the claim, now or at the end of the turn."""
        self._is_released = True
        if (self._task is None or self._task.done()) and self.result is None:
            await self._claim.release()

    def headers(self) -> dict[str, str]:
        headers: dict[str, str] = {}
        if self._public_id is not None:
            headers[CONVERSATION] = self._public_id
        if self._turn is not None:
            headers[TURN] = self._turn
        if self._notices:
            headers[NOTICE] = encode_notices(self._notices)
        return headers

    async def _run(self) -> None:
        limits = self._state.settings.limits
        engine = select_engine(self.prepared, self._state)
        request = self.prepared.request.with_storage(count_unsaved=self._count_usage)
        if self._is_saved:
            request = request.with_storage(on_lost=self._stop_after_loss)
        if request.storage.client_history is not None and not self._is_saved:
            self._steps = self._make_steps()
            request = request.with_storage(optional_steps=self._steps)
        try:
            async with (
                asyncio.timeout(limits.turn_seconds) as limit,
                self._state.turns.wait_in_line(request.storage) as storage,
                aclosing(engine.run_turn(replace(request, storage=storage))) as events,
            ):
                async for event in events:
                    await self._handle(event)
        except (CllmError, MalformedError) as error:
            self.failure = error
        except TimeoutError:
            if not limit.expired():
                raise
            self.failure = ApiError(
                "turn_timeout",
                f"The reply took longer than {limits.turn_seconds:g} s and was cancelled; retry.",
            )
        except asyncio.CancelledError as error:
            self.failure = self._explain_cancellation(error)
            raise
        finally:
            await self._close()

    def _explain_cancellation(self, error: asyncio.CancelledError) -> ApiError:
        if error.args == (CANCELLATION.code,):
            return ApiError("response_cancelled", CANCELLATION.message)
        if self.queue.is_abandoned:
            return ApiError("request_timeout", "The client disconnected.")
        return ApiError(
            "shutting_down", "The server shut down during the reply; retry.", retry_after=1
        )

    async def _close(self) -> None:
        """Close the queue even after an exception: the response waits for it."""
        try:
            if self._log is not None:
                await self._run_step(self._log.close())
            if self._loss_check is not None:
                await self._loss_check
            # If busy, the handler may run the turn in a branch with the same claim.
            may_branch = isinstance(self.failure, ConversationBusyError) and not self._is_released
            if not may_branch and (self.result is None or self._claim.saves_response):
                await self._claim.release()
        finally:
            if self._lease is not None:
                self._state.turns.remove(self._lease)
            self._end_response()

    def _end_response(self) -> None:
        if self.result is None:
            if self._is_cancelled:
                self.failure = ApiError("response_cancelled", CANCELLATION.message)
            report = UNEXPECTED if self.failure is None else report_error(self.failure)
            self._record.outcome = report.code
            if self.failure is not None:
                self._record.record_error(self.failure)
            self.queue.put(self._encoder.encode_error(report))
        self.queue.close()
        self._started.set()

    async def _handle(self, event: TurnEvent) -> None:
        match event:
            case TurnStarted():
                self._on_started(event)
                if self._turn is not None:
                    await self._claim.save_progress(self.headers())
            case Noticed():
                self._notices.append(event.notice)
            case ReplyFinished():
                await self._record_reply(event)
            case TurnEnded():
                await self._on_ended(event)
            case TurnQueued() | ToolRoundEnded() | UsageReported():
                pass
            case _ if self._is_stream:
                await self._stream(event)

    def _on_started(self, event: TurnStarted) -> None:
        self._notices.extend(event.prompt.notices)
        self._encoder.start(event)
        record = self._record
        record.conversation = event.conversation
        self._record_model(event.model)
        if event.lease is not None:
            self._turn = record.turn = event.lease.turn.id
            self._lease = event.lease
            prefix = FILES_PREFIX if self.prepared.events is None else ""
            self._public_id = f"{prefix}{event.lease.conversation.id}"
            turns = self._state.turns
            turns.add(event.lease, self._task if self._is_saved else None)
            if self.prepared.events is not None and self._is_stream:
                self._log = EventLog(
                    self.prepared.events,
                    event.lease,
                    on_save=turns.notify,
                    on_lost=self._stop_after_loss,
                )
        self._started.set()

    def _make_steps(self) -> "OptionalSteps":
        from cllm.engine.optional_steps import OptionalSteps  # noqa: PLC0415 - only for recording

        turns = self._state.turns
        return OptionalSteps(self._on_unrecorded, background=turns.background)

    def _on_unrecorded(self, error: CllmError) -> None:
        self._record.record_unrecorded(error)
        self._notices.append(NOT_RECORDED)

    async def _run_step(self, step: Coroutine[Any, Any, None]) -> None:
        """Run a store operation; a turn that is only recorded waits a short time for it."""
        await (step if self._steps is None else self._steps.run(step))

    def _record_model(self, model: str) -> None:
        self._record.model = model
        self._record.provider = self._state.app.provider_of(model)

    async def _stream(self, event: ReplyDelta | ModelReported | Verbatim) -> None:
        data = self._encoder.encode_event(event)
        if data:
            await self._put(self._record_event(data))
            # The reply of a turn that is only recorded does not wait for the store.
            if self._log is not None and self._is_saved:
                await self._log.make_room()

    def _record_event(self, data: bytes) -> bytes:
        """Add the event to the log and to the saved response.

        The stream of a turn that is only recorded has no event IDs, as that of a stateless one.
        """
        numbered = data
        if self._log is not None:
            number = self._log.add(self._encoder.redact(data))
            numbered = number_event(number, data) if self._is_saved else data
        if self._claim.saves_response:
            self._saved_events.append(self._encoder.redact(numbered))
        return numbered

    async def _put(self, data: bytes) -> None:
        self.is_streaming = True
        if self.queue.is_full:
            if self._is_saved:
                self._end_unread_stream()
            else:
                await self.queue.wait_for_room()
        self.queue.put(data)

    def _end_unread_stream(self) -> None:
        """End the response of a slow client; the turn continues."""
        path = f"/v1/conversations/{self._public_id}/turns/{self._turn}/events"
        slow = ApiError(
            "stream_not_read",
            f"The stream was read too slowly; the turn continues, read its events at {path}.",
        )
        self.queue.put(self._encoder.encode_error(report_error(slow)))
        self.queue.close()

    async def _record_reply(self, reply: ReplyFinished) -> None:
        """Save events and response before the turn ends, and its lease with it."""
        if self._is_stream:
            self.body = self._record_event(self._encoder.encode_event(reply))
        elif self._claim.saves_response:
            self.body = self._encoder.encode_response(reply)
        if self._log is not None:
            await self._run_step(self._log.flush())
        if self._claim.saves_response and self._turn is not None:
            await self._claim.save_progress(*self._build_stored_response())

    async def _on_ended(self, event: TurnEnded) -> None:
        self.result = event
        record, usage = self._record, event.reply.usage
        record.usage, record.cost = usage, event.cost
        self._record_model(event.model)
        if event.turn is None and usage is not None:
            # The usage of a saved turn is stored with the turn.
            self._count_usage(event.model, usage, event.cost)
        if self._claim.saves_response:
            await self._claim.save_response(*self._build_stored_response())
        elif not self._is_stream:
            self.body = self._encoder.encode_response(event.reply)
        if self._is_stream:
            await self._put(self.body)

    def _count_usage(self, model: str, usage: Usage, cost: float | None) -> None:
        """Count a stateless call, also one that its client or provider broke off."""
        self._record.usage, self._record.cost = usage, cost
        call = CallRecord(model=model, usage=usage, cost=cost, ended_at=self._state.clock())
        self._state.usage_counter.add(call, owner=self.prepared.request.storage.owner)

    def _build_stored_response(self) -> tuple[dict[str, str], bytes]:
        headers = {"Content-Type": EVENT_STREAM if self._is_stream else JSON, **self.headers()}
        body = b"".join(self._saved_events) if self._is_stream else self._encoder.redact(self.body)
        return headers, body


def encode_notices(notices: Iterable[Notice]) -> str:
    """Return ASCII JSON with the notices that fit, then the number of the others."""
    collected = list(NoticeCollector(notices))
    encoded: list[dict[str, str]] = []
    size = 0
    for index, notice in enumerate(collected):
        fields = _notice_fields(notice)
        size += len(json.dumps(fields)) + 2
        if size > MAX_NOTICES_LENGTH and encoded:
            count = sum(notice.count for notice in collected[index:])
            more = Notice(code="more_notices", message=f"{count} more notices are not shown.")
            encoded.append(_notice_fields(more))
            break
        encoded.append(fields)
    return json.dumps(encoded)


def _notice_fields(notice: Notice) -> dict[str, str]:
    return {
        "code": notice.code,
        "path": _clip(notice.path),
        "message": _clip(notice.message),
    }


def _clip(text: str) -> str:
    """Shorten client text to MAX_TEXT_LENGTH characters of JSON."""
    start = text[: MAX_TEXT_LENGTH + 1]
    if len(json.dumps(start)) - len('""') <= MAX_TEXT_LENGTH:
        return text
    sizes = list(accumulate(len(json.dumps(character)) - len('""') for character in start))
    return f"{text[: bisect_right(sizes, MAX_TEXT_LENGTH - len(ELLIPSIS))]}{ELLIPSIS}"
