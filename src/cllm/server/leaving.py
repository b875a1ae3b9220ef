"""Noticing that a client has left, for answers that take long enough to wonder."""

import asyncio
from collections.abc import Callable

from starlette.types import Receive

from cllm.server.deadlines import Deadlines


class Watch:
    """Looks, after a moment, whether the client is still there, and calls when it is not."""

    def __init__(
        self, receive: Receive, deadlines: Deadlines, when_left: Callable[[], object]
    ) -> None:
        self._receive = receive
        self._when_left = when_left
        self._task: asyncio.Task[None] | None = None
        self._deadline = deadlines.set(self._begin)
        self.left = False

    def end(self) -> None:
        """Look no more."""
        self._deadline.met()
        if self._task is not None:
            self._task.cancel()

    def _begin(self) -> None:
        self._task = asyncio.create_task(self._look())

    async def _look(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.left = True
        self._when_left()
