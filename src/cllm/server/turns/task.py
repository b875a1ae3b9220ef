"""The task of one turn: encodes its events for the client and writes them to a bounded queue.

A client that disconnects ends a turn only if nothing of it is saved, or if `on_disconnect` says so.
A saved turn never waits for a client that reads slowly; a stateless one does.
"""

import asyncio
import json
from bisect import bisect_right
from collections.abc import Iterable
from contextlib import aclosing
from itertools import accumulate

from cllm.core.errors import CllmError, ConversationBusyError
from cllm.core.notice import Notice, NoticeCollector
from cllm.core.ports import CallRecord, Lease
from cllm.core.reply import Noticed, ReplyDelta, ReplyFinished, Verbatim
from cllm.engine.request import TurnBegan, TurnEnded, TurnEvent, TurnWaits
from cllm.engine.rounds import RoundEnded
from cllm.server.http.errors import UNEXPECTED, RefusedError, report_error
from cllm.server.http.request_log import RequestRecord
from cllm.server.serving import Serving
from cllm.server.turns.encoders import Voice
from cllm.server.turns.event_log import EventLog, EventQueue
from cllm.server.turns.headers import CONVERSATION, NOTICE, TURN
from cllm.server.turns.idempotency import Claim
from cllm.server.turns.prepare import PreparedTurn, engine_for
from cllm.settings.sections import Limits
from cllm.wire.malformed import MalformedError

JSON = "application/json"
STREAM = "text/event-stream; charset=utf-8"
LONGEST_NOTICES = 4096
LONGEST_WORDS = 400
"""As a header has them: a letter that is not ASCII takes six, or twelve."""
MORE = "..."
# A turn that is kept does not wait for its client, so that much is held for it; another one does.
MOST_UNREAD = 1024 * 1024
MOST_WAITING = 64 * 1024


class TurnTask:
    """Runs one turn and holds its response.

    `failure` is the error of a turn without a complete reply. `is_streaming`: events of the reply
    are in the queue.
    """

    def __init__(
        self,
        prepared: PreparedTurn,
        voice: Voice,
        *,
        serving: Serving,
        claim: Claim,
        record: RequestRecord,
    ) -> None:
        self.prepared = prepared
        self._voice = voice
        self._serving = serving
        self._claim = claim
        self._record = record
        self._log: EventLog | None = None
        self._lease: Lease | None = None
        self._said: list[bytes] = []
        self._last = b""
        self._notices = NoticeCollector(prepared.notices)
        self._turn: str | None = None
        self._started = asyncio.Event()
        self._is_done = asyncio.Event()
        self._is_saved = prepared.request.policy.ref is not None
        self.keep_alive = voice.sign
        self.queue = EventQueue(MOST_UNREAD if self._is_saved else MOST_WAITING)
        self.ended: TurnEnded | None = None
        self.failure: CllmError | MalformedError | None = None
        self.is_streaming = False
        self._is_alone = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start the task; RefusedError while the server stops."""
        self._task = self._serving.turns.start(self._run())
        self._task.add_done_callback(lambda _: self._is_done.set())

    async def wait_until_started(self) -> None:
        """Wait until the provider is called, or until the turn ends without a call."""
        await self._started.wait()

    async def wait(self) -> None:
        """Wait for the end and raise an unexpected error; to cancel this does not end the turn."""
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
        """Return a task for the same client and another prepared turn."""
        return TurnTask(
            prepared, self._voice, serving=self._serving, claim=self._claim, record=self._record
        )

    async def release(self) -> None:
        """No response is sent for this turn: its claim is released when it ends."""
        self._is_alone = True
        if (self._task is None or self._task.done()) and self.ended is None:
            await self._claim.drop()

    def headers(self) -> dict[str, str]:
        """The headers of the response, as far as they are known."""
        found = {CONVERSATION: self.prepared.shown, TURN: self._turn}
        headers = {name: value for name, value in found.items() if value is not None}
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
            self.failure = too_long(limits)
        except asyncio.CancelledError:
            self.failure = _cancelled(is_abandoned=self.queue.is_abandoned)
            raise
        finally:
            await self._close()

    async def _close(self) -> None:
        """Release everything. Whatever fails, the response does not wait for ever."""
        try:
            if self._log is not None:
                await self._log.close()
            if self._gives_back:
                await self._claim.drop()
        finally:
            if self._lease is not None:
                self._serving.turns.ended(self._lease)
            self._end_response()

    @property
    def _gives_back(self) -> bool:
        """Whether the claim is over with the turn: one that is busy may be answered in a branch."""
        if isinstance(self.failure, ConversationBusyError) and not self._is_alone:
            return False
        return self.ended is None or self._claim.keeps

    def _end_response(self) -> None:
        """Write the error of a failed turn and close the queue."""
        if self.ended is None:
            told = UNEXPECTED if self.failure is None else report_error(self.failure)
            self._record.outcome = told.code
            self.queue.put(self._voice.error(told))
        self.queue.close()
        self._started.set()

    async def _handle(self, event: TurnEvent) -> None:
        match event:
            case TurnBegan():
                self._begin(event)
                if self._turn is not None:
                    await self._claim.note(self.headers())
            case Noticed():
                self._notices.append(event.notice)
            case ReplyFinished():
                await self._record_reply(event)
            case TurnEnded():
                await self._end(event)
            case TurnWaits() | RoundEnded():
                pass
            case _:
                await self._stream(event)

    def _begin(self, event: TurnBegan) -> None:
        self._notices.extend(event.prompt.notices)
        record = self._record
        record.model, record.conversation = event.model, event.conversation
        if event.lease is not None:
            self._turn = record.turn = event.lease.turn.id
            self._lease = event.lease
            turns = self._serving.turns
            turns.began(event.lease)
            if self.prepared.events is not None and self.prepared.request.target.stream:
                self._log = EventLog(self.prepared.events, event.lease, when_kept=turns.went_on)
        self._started.set()

    async def _stream(self, event: ReplyDelta | Verbatim) -> None:
        if not self.prepared.request.target.stream:
            return
        data = self._voice.encode(event)
        if data:
            await self._put(self._note(data))
            if self._log is not None:
                await self._log.make_room()

    def _note(self, data: bytes) -> bytes:
        """Return the event as it is sent, recorded for a client that requests it again."""
        numbered = data if self._log is None else self._log.add(data)
        if self._claim.keeps:
            self._said.append(numbered)
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
        """End the response of a client that reads too slowly; the turn continues."""
        where = f"/v1/conversations/{self.prepared.shown}/turns/{self._turn}/events"
        slow = RefusedError(
            "stream_not_read",
            f"The stream was not read in time; the turn goes on, and its events are at {where}.",
        )
        self.queue.put(self._voice.error(report_error(slow)))
        self.queue.close()

    async def _record_reply(self, reply: ReplyFinished) -> None:
        """Save the last events before the turn; its lease does not allow it afterwards.

        So is the response to a request with an Idempotency-Key, which counts once the turn is
        saved.
        """
        if self.prepared.request.target.stream:
            self._last = self._note(self._voice.encode(reply))
        elif self._claim.keeps:
            self._last = self._voice.whole(reply)
        if self._log is not None:
            await self._log.flush()
        if self._claim.keeps and self._turn is not None:
            await self._claim.note(*self._answer())

    async def _end(self, event: TurnEnded) -> None:
        """The turn is saved: send the last event."""
        self.ended = event
        record_end(event, self._record)
        if event.turn is None:
            count_call(event, self.prepared, self._serving)
        if self._claim.keeps:
            await self._claim.keep(*self._answer())
        elif not self.prepared.request.target.stream:
            self._last = self._voice.whole(event.reply)
        if self.prepared.request.target.stream:
            await self._put(self._last)

    def _answer(self) -> tuple[dict[str, str], bytes]:
        """Headers and body of the response, for a client that repeats its request."""
        stream = self.prepared.request.target.stream
        headers = {"Content-Type": STREAM if stream else JSON, **self.headers()}
        return headers, b"".join(self._said) if stream else self._last

    @property
    def body(self) -> bytes:
        """The response body of a turn that is not streamed."""
        return self._last


def _cancelled(*, is_abandoned: bool) -> RefusedError:
    if is_abandoned:
        return RefusedError("request_timeout", "The client left.")
    return RefusedError("shutting_down", "The answer was broken off; ask again.")


def count_call(event: TurnEnded, prepared: PreparedTurn, serving: Serving) -> None:
    """Count what a call used that belongs to no conversation."""
    usage = event.reply.usage
    if usage is not None:
        call = CallRecord(model=event.model, usage=usage, cost=event.cost, ended_at=serving.clock())
        serving.calls.add(call, owner=prepared.request.policy.owner)


def too_long(limits: Limits) -> RefusedError:
    """What is said of a turn that took longer than any may."""
    return RefusedError(
        "turn_timeout",
        f"The answer took longer than {limits.turn_seconds:g} s and was broken off.",
    )


def record_end(event: TurnEnded, record: RequestRecord) -> None:
    """Note in the request's record what the turn used."""
    record.usage = event.reply.usage
    record.cost = event.cost
    record.model = event.model


def encode_notices(notices: Iterable[Notice]) -> str:
    """Notices as a header has them: JSON in ASCII, as many as fit, and that there are more."""
    collected = list(NoticeCollector(notices))
    shown: list[dict[str, str]] = []
    size = 0
    for index, notice in enumerate(collected):
        told = _told(notice)
        size += len(json.dumps(told)) + 2
        if size > LONGEST_NOTICES and shown:
            shown.append(_told(_more(sum(notice.count for notice in collected[index:]))))
            break
        shown.append(told)
    return json.dumps(shown)


def _told(notice: Notice) -> dict[str, str]:
    return {
        "code": notice.code,
        "path": _clipped(notice.path),
        "message": _clipped(notice.message),
    }


def _clipped(text: str) -> str:
    """A field of the client's has any name it likes; no client reads a header of any length."""
    start = text[: LONGEST_WORDS + 1]
    if _size(start) <= LONGEST_WORDS:
        return text
    sizes = list(accumulate(map(_size, start)))
    return f"{text[: bisect_right(sizes, LONGEST_WORDS - len(MORE))]}{MORE}"


def _size(text: str) -> int:
    return len(json.dumps(text)) - len('""')


def _more(count: int) -> Notice:
    return Notice(code="more_notices", path="", message=f"There are {count} notices more.")
