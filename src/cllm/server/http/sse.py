"""The response of a streamed turn: server-sent events from the turn's queue."""

import asyncio
from collections.abc import Callable

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from cllm.server.turns.task import STREAM, TurnTask

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


DELAY_SECONDS = 0.5
"""Most responses end before this; for those no task is started."""


class DisconnectWatch:
    """Calls `on_disconnect` when the client disconnects, until `stop`."""

    def __init__(self, receive: Receive, on_disconnect: Callable[[], object]) -> None:
        self._receive = receive
        self._on_disconnect = on_disconnect
        self._task: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(DELAY_SECONDS, self._start)

    def stop(self) -> None:
        self._timer.cancel()
        if self._task is not None:
            self._task.cancel()

    def _start(self) -> None:
        self._task = asyncio.create_task(self._wait())

    async def _wait(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self._on_disconnect()
