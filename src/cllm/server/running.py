"""A turn that runs for a client: its events become the client's bytes, and it is kept whole.

The turn runs in a task of its own. A client that leaves ends a turn only where nothing of it would
be kept, or where the operator wants it so; one that reads too slowly is left behind, never waited
for, if the turn is kept.
"""

import asyncio
import json
from bisect import bisect_right
from collections.abc import AsyncGenerator, Iterable
from contextlib import aclosing
from itertools import accumulate

from msgspec.structs import replace

from cllm.core.errors import CllmError, ConversationBusyError
from cllm.core.notice import Notice, NoticeCollector
from cllm.core.ports import CallRecord, Lease
from cllm.core.reply import Noticed, ReplyDelta, ReplyFinished, Verbatim
from cllm.engine.rounds import RoundEnded
from cllm.engine.turn import TurnBegan, TurnEnded, TurnEvent, TurnWaits
from cllm.server.asking import Asked
from cllm.server.errors import tell, unexpected
from cllm.server.events import EventLog
from cllm.server.idempotency import Claim
from cllm.server.limits import in_time
from cllm.server.pipe import Pipe
from cllm.server.refusal import RefusedError
from cllm.server.request_log import RequestRecord
from cllm.server.serving import Serving
from cllm.server.voices import Voice
from cllm.server.wish import CONVERSATION, NOTICE, TURN
from cllm.settings.server import Limits
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


class RunningTurn:
    """One turn and what its client is told of it.

    `failure` is why there is no whole reply; `is_spoken` says that some of it went out before.
    """

    def __init__(
        self, asked: Asked, voice: Voice, *, serving: Serving, claim: Claim, record: RequestRecord
    ) -> None:
        self.asked = asked
        self._voice = voice
        self._serving = serving
        self._claim = claim
        self._record = record
        self._log: EventLog | None = None
        self._lease: Lease | None = None
        self._said: list[bytes] = []
        self._last = b""
        self._notices = NoticeCollector(asked.notices)
        self._turn: str | None = None
        self._began: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        kept = asked.request.ref is not None
        self.pipe = Pipe(
            silence=serving.patience.silence,
            sign=voice.sign,
            most=MOST_UNREAD if kept else MOST_WAITING,
        )
        self.ended: TurnEnded | None = None
        self.failure: CllmError | MalformedError | None = None
        self.is_spoken = False
        self._is_alone = False
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Take the turn; RefusedError when no more are taken."""
        self._task = self._serving.turns.start(self._run())

    async def begun(self) -> None:
        """Wait until the provider is being asked, or nobody will be."""
        await self._began

    async def finished(self) -> None:
        """Wait for the end, and raise a mistake of ours; who stops waiting does not stop it."""
        task = self._task
        if task is None:
            return
        ended = asyncio.get_running_loop().create_future()
        task.add_done_callback(lambda _: None if ended.done() else ended.set_result(None))
        await ended
        if not task.cancelled() and (mistake := task.exception()) is not None:
            raise mistake

    def leave(self) -> None:
        """The client is gone."""
        self.pipe.leave()
        kept = self.asked.request.ref is not None
        ends = not kept or self._serving.settings.on_disconnect == "cancel"
        if ends and self._task is not None:
            self._task.cancel()

    def elsewhere(self, asked: Asked) -> "RunningTurn":
        """The same for the same client, in another place."""
        return RunningTurn(
            asked, self._voice, serving=self._serving, claim=self._claim, record=self._record
        )

    async def let_go(self) -> None:
        """Nobody answers with this turn any more: the claim is given back, once it has ended."""
        self._is_alone = True
        if (self._task is None or self._task.done()) and self.ended is None:
            await self._claim.drop()

    def headers(self) -> dict[str, str]:
        """What is told before the answer itself."""
        found = {CONVERSATION: self.asked.shown, TURN: self._turn}
        headers = {name: value for name, value in found.items() if value is not None}
        if self._notices:
            headers[NOTICE] = encode_notices(self._notices)
        return headers

    async def _run(self) -> None:
        serving = self._serving
        late = too_long(serving.settings.limits)
        try:
            await in_time(self._take(), serving.patience.turns, late)
        except (CllmError, MalformedError) as error:
            self.failure = error
        except asyncio.CancelledError:
            self.failure = RefusedError("shutting_down", "The answer was broken off; ask again.")
            raise
        finally:
            await self._close()

    async def _close(self) -> None:
        """Let go of everything; whatever comes between, nobody is left waiting."""
        try:
            if self._log is not None:
                await self._log.close()
            if self._gives_back:
                await self._claim.drop()
        finally:
            if self._lease is not None:
                self._serving.turns.ended(self._lease)
            self._tell_end()

    @property
    def _gives_back(self) -> bool:
        """Whether the claim is over with the turn: one that is busy may be answered in a branch."""
        if isinstance(self.failure, ConversationBusyError) and not self._is_alone:
            return False
        return self.ended is None or self._claim.keeps

    def _tell_end(self) -> None:
        """Tell the client of a failure, and that nothing more will come."""
        if self.ended is None:
            told = unexpected() if self.failure is None else tell(self.failure)
            self._record.outcome = told.code
            self.pipe.push(self._voice.error(told))
        self.pipe.end()
        if not self._began.done():
            self._began.set_result(None)

    async def _take(self) -> None:
        asked = self.asked
        if asked.request.stream or self._claim.keeps:
            asked = replace(asked, request=replace(asked.request, ending=self._ending))
        async with aclosing(events_of(asked, self._serving)) as events:
            async for event in events:
                await self._hear(event)

    async def _hear(self, event: TurnEvent) -> None:
        match event:
            case TurnBegan():
                self._begin(event)
                if self._turn is not None:
                    await self._claim.note(self.headers())
            case Noticed():
                self._notices.append(event.notice)
            case TurnEnded():
                await self._end(event)
            case TurnWaits() | RoundEnded():
                pass
            case _:
                await self._speak(event)

    def _begin(self, event: TurnBegan) -> None:
        self._notices.extend(event.prompt.notices)
        record = self._record
        record.model, record.conversation = event.model, event.conversation
        if event.lease is not None:
            self._turn = record.turn = event.lease.turn.id
            self._lease = event.lease
            turns = self._serving.turns
            turns.began(event.lease)
            if self.asked.events is not None and self.asked.request.stream:
                self._log = EventLog(self.asked.events, event.lease, when_kept=turns.went_on)
        if not self._began.done():
            self._began.set_result(None)

    async def _speak(self, event: ReplyDelta | Verbatim) -> None:
        if not self.asked.request.stream:
            return
        data = self._voice.encode(event)
        if data:
            await self._hand_on(self._note(data))
            if self._log is not None:
                await self._log.make_room()

    def _note(self, data: bytes) -> bytes:
        """The event as it goes out, remembered for whoever asks for it again."""
        numbered = data if self._log is None else self._log.add(data)
        if self._claim.keeps:
            self._said.append(numbered)
        return numbered

    async def _hand_on(self, data: bytes) -> None:
        self.is_spoken = True
        if self.pipe.is_full:
            if self.asked.request.ref is None:
                await self.pipe.drained()
            else:
                self._leave_behind()
        self.pipe.push(data)

    def _leave_behind(self) -> None:
        """Tell a client that reads too slowly where it can go on; the turn does."""
        where = f"/v1/conversations/{self.asked.shown}/turns/{self._turn}/events"
        slow = RefusedError(
            "stream_not_read",
            f"The stream was not read in time; the turn goes on, and its events are at {where}.",
        )
        self.pipe.push(self._voice.error(tell(slow)))
        self.pipe.end()

    async def _ending(self, reply: ReplyFinished) -> None:
        """The last events are kept with the turn, before it is: afterwards it cannot be written.

        So is the answer to a request with a key, which counts once the turn is kept.
        """
        if self.asked.request.stream:
            self._last = self._note(self._voice.encode(reply))
        else:
            self._last = self._voice.whole(reply)
        if self._log is not None:
            await self._log.flush()
        if self._claim.keeps and self._turn is not None:
            await self._claim.note(*self._answer())

    async def _end(self, event: TurnEnded) -> None:
        """The turn is kept; now the client may know that it is over."""
        self.ended = event
        record_end(event, self._record)
        if event.turn is None:
            count_call(event, self.asked, self._serving)
        if self._claim.keeps:
            await self._claim.keep(*self._answer())
        elif not self.asked.request.stream:
            self._last = self._voice.whole(event.reply)
        if self.asked.request.stream:
            await self._hand_on(self._last)

    def _answer(self) -> tuple[dict[str, str], bytes]:
        """All that goes out, head and body, for whoever asks again."""
        stream = self.asked.request.stream
        headers = {"Content-Type": STREAM if stream else JSON, **self.headers()}
        return headers, b"".join(self._said) if stream else self._last

    @property
    def body(self) -> bytes:
        """The whole answer, of a turn that is no stream."""
        return self._last


def events_of(asked: Asked, serving: Serving) -> AsyncGenerator[TurnEvent, None]:
    """The events of the turn, taken in its store, or by the shortest way where there is none."""
    request, engine = asked.request, serving.engine
    own = asked.store is None or asked.store is serving.store
    if not own or asked.callers_key is not None:
        engine = serving.app.engine(asked.store, callers_key=asked.callers_key)
    if asked.store is None and not request.fallbacks:
        return engine.pass_on(request)
    return engine.take_turn(request)


def count_call(event: TurnEnded, asked: Asked, serving: Serving) -> None:
    """Count what a call used that belongs to no conversation."""
    usage = event.reply.usage
    if usage is not None:
        call = CallRecord(model=event.model, usage=usage, cost=event.cost, ended_at=serving.clock())
        serving.calls.add(call, owner=asked.request.owner)


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
