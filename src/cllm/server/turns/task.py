"""The task of one turn: encodes its events and writes them to a bounded queue.

A disconnect ends a turn only if nothing of it is saved, or if `on_disconnect` says so. A saved turn
never waits for a slow client; a stateless one does.
"""

import asyncio
import json
from bisect import bisect_right
from collections.abc import Iterable
from contextlib import aclosing
from itertools import accumulate
from typing import Protocol

from cllm.core.errors import CllmError, ConversationBusyError, ErrorReport
from cllm.core.notice import Notice, NoticeCollector
from cllm.core.ports import CallRecord, Lease
from cllm.core.reply import Noticed, ReplyDelta, ReplyEvent, ReplyFinished, Verbatim
from cllm.engine.request import TurnEnded, TurnEvent, TurnQueued, TurnStarted
from cllm.engine.tool_rounds import ToolRoundEnded
from cllm.server.http.errors import JSON, UNEXPECTED, ApiError, report_error
from cllm.server.http.request_log import RequestRecord
from cllm.server.state import ServerState
from cllm.server.turns.event_log import EventLog, EventQueue
from cllm.server.turns.headers import CONVERSATION, NOTICE, TURN
from cllm.server.turns.idempotency import Claim
from cllm.server.turns.prepare import PreparedTurn, engine_for
from cllm.wire.errors import MalformedError

STREAM = "text/event-stream; charset=utf-8"
LONGEST_NOTICES = 4096
LONGEST_WORDS = 400
"""Characters in JSON: one that is not ASCII takes 6 or 12."""
MORE = "..."
# Bytes of the queue. A saved turn does not wait for its client; a stateless one does.
MOST_UNREAD = 1024 * 1024
MOST_WAITING = 64 * 1024


class ResponseEncoder(Protocol):
    """Encodes the reply to one request. `keep_alive` is the event of a silent stream."""

    keep_alive: bytes

    def encode(self, event: ReplyEvent) -> bytes: ...

    def error(self, report: ErrorReport) -> bytes: ...

    def whole(self, reply: ReplyFinished) -> bytes: ...


class TurnTask:
    """Runs one turn and holds its response.

    `is_streaming`: the reply has started. `body` is the response of a turn without a stream.
    """

    def __init__(
        self,
        prepared: PreparedTurn,
        encoder: ResponseEncoder,
        *,
        serving: ServerState,
        claim: Claim,
        record: RequestRecord,
    ) -> None:
        self.prepared = prepared
        self._encoder = encoder
        self._serving = serving
        self._claim = claim
        self._record = record
        self._log: EventLog | None = None
        self._lease: Lease | None = None
        self._sent: list[bytes] = []
        self.body = b""
        self._notices = NoticeCollector(prepared.notices)
        self._turn: str | None = None
        self._started = asyncio.Event()
        self._is_done = asyncio.Event()
        self._is_saved = prepared.request.policy.ref is not None
        self._is_stream = prepared.request.target.stream
        self.keep_alive = encoder.keep_alive
        self.queue = EventQueue(MOST_UNREAD if self._is_saved else MOST_WAITING)
        self.ended: TurnEnded | None = None
        self.failure: CllmError | MalformedError | None = None
        self.is_streaming = False
        self._is_released = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        self._task = self._serving.turns.start(self._run())
        self._task.add_done_callback(lambda _: self._is_done.set())

    async def wait_until_started(self) -> None:
        """Wait for the call of the provider or the end."""
        await self._started.wait()

    async def wait(self) -> None:
        """Wait for the end. Cancelling this does not cancel the turn."""
        if self._task is None:
            return
        await self._is_done.wait()
        if not self._task.cancelled() and (error := self._task.exception()) is not None:
            raise error

    def leave(self) -> None:
        """The client has disconnected."""
        self.queue.abandon()
        ends = not self._is_saved or self._serving.settings.on_disconnect == "cancel"
        if ends and self._task is not None:
            self._task.cancel()

    def with_turn(self, prepared: PreparedTurn) -> "TurnTask":
        return TurnTask(
            prepared, self._encoder, serving=self._serving, claim=self._claim, record=self._record
        )

    async def release(self) -> None:
        """Release the claim at the end: no response is sent."""
        self._is_released = True
        if (self._task is None or self._task.done()) and self.ended is None:
            await self._claim.drop()

    def headers(self) -> dict[str, str]:
        headers: dict[str, str] = {}
        if self.prepared.shown is not None:
            headers[CONVERSATION] = self.prepared.shown
        if self._turn is not None:
            headers[TURN] = self._turn
        if self._notices:
            headers[NOTICE] = encode_notices(self._notices)
        return headers

    async def _run(self) -> None:
        limits = self._serving.settings.limits
        turn = engine_for(self.prepared, self._serving).run_turn(self.prepared.request)
        try:
            async with asyncio.timeout(limits.turn_seconds) as limit, aclosing(turn) as events:
                async for event in events:
                    await self._handle(event)
        except (CllmError, MalformedError) as error:
            self.failure = error
        except TimeoutError:
            if not limit.expired():
                raise
            self.failure = ApiError(
                "turn_timeout",
                f"The answer took longer than {limits.turn_seconds:g} s and was broken off.",
            )
        except asyncio.CancelledError:
            self.failure = (
                ApiError("request_timeout", "The client left.")
                if self.queue.is_abandoned
                else ApiError("shutting_down", "The answer was broken off; ask again.")
            )
            raise
        finally:
            await self._close()

    async def _close(self) -> None:
        """Close the queue even if the rest fails: the response waits for it."""
        try:
            if self._log is not None:
                await self._log.close()
            # Busy: the handler may run the turn in a branch with the same claim.
            may_branch = isinstance(self.failure, ConversationBusyError) and not self._is_released
            if not may_branch and (self.ended is None or self._claim.keeps):
                await self._claim.drop()
        finally:
            if self._lease is not None:
                self._serving.turns.ended(self._lease)
            self._end_response()

    def _end_response(self) -> None:
        if self.ended is None:
            report = UNEXPECTED if self.failure is None else report_error(self.failure)
            self._record.outcome = report.code
            self.queue.put(self._encoder.error(report))
        self.queue.close()
        self._started.set()

    async def _handle(self, event: TurnEvent) -> None:
        match event:
            case TurnStarted():
                self._begin(event)
                if self._turn is not None:
                    await self._claim.note(self.headers())
            case Noticed():
                self._notices.append(event.notice)
            case ReplyFinished():
                await self._record_reply(event)
            case TurnEnded():
                await self._end(event)
            case TurnQueued() | ToolRoundEnded():
                pass
            case _ if self._is_stream:
                await self._stream(event)

    def _begin(self, event: TurnStarted) -> None:
        self._notices.extend(event.prompt.notices)
        record = self._record
        record.model, record.conversation = event.model, event.conversation
        if event.lease is not None:
            self._turn = record.turn = event.lease.turn.id
            self._lease = event.lease
            turns = self._serving.turns
            turns.began(event.lease)
            if self.prepared.events is not None and self._is_stream:
                self._log = EventLog(self.prepared.events, event.lease, on_save=turns.went_on)
        self._started.set()

    async def _stream(self, event: ReplyDelta | Verbatim) -> None:
        data = self._encoder.encode(event)
        if data:
            await self._put(self._note(data))
            if self._log is not None:
                await self._log.make_room()

    def _note(self, data: bytes) -> bytes:
        """Record the event for a client that requests it again."""
        numbered = data if self._log is None else self._log.add(data)
        if self._claim.keeps:
            self._sent.append(numbered)
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
        where = f"/v1/conversations/{self.prepared.shown}/turns/{self._turn}/events"
        slow = ApiError(
            "stream_not_read",
            f"The stream was not read in time; the turn goes on, and its events are at {where}.",
        )
        self.queue.put(self._encoder.error(report_error(slow)))
        self.queue.close()

    async def _record_reply(self, reply: ReplyFinished) -> None:
        """Save the last events and the response before the turn: the lease ends with it."""
        if self._is_stream:
            self.body = self._note(self._encoder.encode(reply))
        elif self._claim.keeps:
            self.body = self._encoder.whole(reply)
        if self._log is not None:
            await self._log.flush()
        if self._claim.keeps and self._turn is not None:
            await self._claim.note(*self._stored_response())

    async def _end(self, event: TurnEnded) -> None:
        self.ended = event
        record, usage = self._record, event.reply.usage
        record.usage, record.cost, record.model = usage, event.cost, event.model
        if event.turn is None and usage is not None:
            # A call of no conversation is counted on its own.
            ended_at = self._serving.clock()
            call = CallRecord(model=event.model, usage=usage, cost=event.cost, ended_at=ended_at)
            self._serving.calls.add(call, owner=self.prepared.request.policy.owner)
        if self._claim.keeps:
            await self._claim.keep(*self._stored_response())
        elif not self._is_stream:
            self.body = self._encoder.whole(event.reply)
        if self._is_stream:
            await self._put(self.body)

    def _stored_response(self) -> tuple[dict[str, str], bytes]:
        headers = {"Content-Type": STREAM if self._is_stream else JSON, **self.headers()}
        return headers, b"".join(self._sent) if self._is_stream else self.body


def encode_notices(notices: Iterable[Notice]) -> str:
    """Return JSON in ASCII with the notices that fit, then the number of others."""
    collected = list(NoticeCollector(notices))
    shown: list[dict[str, str]] = []
    size = 0
    for index, notice in enumerate(collected):
        fields = _notice_fields(notice)
        size += len(json.dumps(fields)) + 2
        if size > LONGEST_NOTICES and shown:
            count = sum(notice.count for notice in collected[index:])
            more = Notice(code="more_notices", message=f"There are {count} notices more.")
            shown.append(_notice_fields(more))
            break
        shown.append(fields)
    return json.dumps(shown)


def _notice_fields(notice: Notice) -> dict[str, str]:
    return {
        "code": notice.code,
        "path": _clip(notice.path),
        "message": _clip(notice.message),
    }


def _clip(text: str) -> str:
    """Shorten text of a client to LONGEST_WORDS characters of JSON."""
    start = text[: LONGEST_WORDS + 1]
    if len(json.dumps(start)) - len('""') <= LONGEST_WORDS:
        return text
    sizes = list(accumulate(len(json.dumps(letter)) - len('""') for letter in start))
    return f"{text[: bisect_right(sizes, LONGEST_WORDS - len(MORE))]}{MORE}"
