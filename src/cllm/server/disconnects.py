"""Notices that a client disconnects while its response is prepared or sent."""

import asyncio
from collections.abc import Callable

from starlette.types import Receive

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
