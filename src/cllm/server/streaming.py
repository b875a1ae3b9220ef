"""A response that is a stream of events, as they come through a turn's pipe.

Where nothing of a stream is kept, its words may come to the pipe by a shorter way than the turn's
events do.
"""

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from cllm.core.reply import ReplyEvent
from cllm.server.connection import OUTLET
from cllm.server.deadlines import Deadlines
from cllm.server.leaving import Watch
from cllm.server.running import STREAM, RunningTurn
from cllm.server.voices import Voice

HEADERS = {
    "Content-Type": STREAM,
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",
}


class StreamRelay:
    """The short way of one turn: events in its voice, into its pipe while a client waits there."""

    def __init__(self, turn: RunningTurn, voice: Voice) -> None:
        self._turn = turn
        self._voice = voice

    @property
    def is_open(self) -> bool:
        return self._turn.is_spoken and self._turn.pipe.is_straight

    def take(self, event: ReplyEvent) -> bool:
        data = self._voice.encode_plain(event)
        if data is None:
            return False
        if data:
            self._turn.pipe.push(data)
        return True


class EventStream(Response):
    """Sends what a turn says until it ends or the client leaves."""

    def __init__(self, turn: RunningTurn, *, leaving: Deadlines) -> None:
        super().__init__(headers={**HEADERS, **turn.headers()})
        del self.headers["content-length"]
        self._turn = turn
        self._leaving = leaving

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        head = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
        watch = Watch(receive, self._leaving, self._turn.leave)
        pipe = self._turn.pipe
        try:
            await send(head)
            pipe.outlet = scope.get(OUTLET)
            while data := await pipe.take():
                await send({"type": "http.response.body", "body": data, "more_body": True})
            if not pipe.left:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
            # From here on the client may leave: it was told all that there is for it.
            watch.end()
            if self._turn.ended is None:
                await self._turn.finished()
        finally:
            watch.end()
            if not pipe.is_over:
                self._turn.leave()
