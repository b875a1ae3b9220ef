"""The response of a streamed turn: server-sent events from the turn's queue."""

import asyncio

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from cllm.server.disconnects import DisconnectWatch
from cllm.server.turn_task import STREAM, TurnTask

HEADERS = {
    "Content-Type": STREAM,
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",
}


class SSEResponse(Response):
    """Sends the events of a turn until it ends or the client disconnects."""

    def __init__(self, task: TurnTask, *, silence_seconds: float) -> None:
        super().__init__(headers={**HEADERS, **task.headers()})
        del self.headers["content-length"]
        self._task = task
        self._silence_seconds = silence_seconds

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        watch = DisconnectWatch(receive, self._task.leave)
        queue = self._task.queue
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            while data := await self._next_data():
                await send({"type": "http.response.body", "body": data, "more_body": True})
            if not queue.is_abandoned:
                await send({"type": "http.response.body", "body": b"", "more_body": False})
            # The client has everything; it may disconnect from now on.
            watch.stop()
            if self._task.ended is None:
                await self._task.wait()
        finally:
            watch.stop()
            if not queue.is_closed:
                self._task.leave()

    async def _next_data(self) -> bytes:
        """Return what the queue holds, or a keep-alive comment after a silence."""
        try:
            async with asyncio.timeout(self._silence_seconds):
                return await self._task.queue.get()
        except TimeoutError:
            return self._task.keep_alive
