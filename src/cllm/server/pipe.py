"""A pipe from a turn to its client: bytes in at one end, out at the other, so many at most.

Neither end knows what the bytes say. The reader takes all there are at once; while there are none
for long, it is given a sign of life. A reader with an outlet need not be woken for what it would
only put there.
"""

import asyncio
from typing import Protocol

from cllm.server.deadlines import Deadline, Deadlines


class Outlet(Protocol):
    """Where a reader puts what it takes; nothing more, while it is not open."""

    @property
    def is_open(self) -> bool: ...

    def write(self, data: bytes) -> None: ...


class Pipe:
    """One writer, one reader, in one event loop.

    While the reader waits, all that it took is out; what comes then goes straight to its `outlet`,
    if it has one and that is open.
    """

    def __init__(self, *, silence: Deadlines, sign: bytes, most: int) -> None:
        self._silence = silence
        self._sign = sign
        self._most = most
        self._pieces: list[bytes] = []
        self._size = 0
        self._ended = False
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None
        self._silent: Deadline | asyncio.TimerHandle | None = None
        self._since = self._last = 0.0
        self.outlet: Outlet | None = None
        self.left = False

    @property
    def is_over(self) -> bool:
        return self._ended

    @property
    def is_full(self) -> bool:
        return self._size >= self._most

    @property
    def is_straight(self) -> bool:
        """Whether what is handed on now is out at once."""
        waits = self._reader is not None and not self._reader.done()
        return waits and self.outlet is not None and self.outlet.is_open

    def push(self, data: bytes) -> None:
        """Hand something on, however much there is already; after the reader left, to nobody."""
        if self.left or self._ended or not data:
            return
        if self.outlet is not None and self.is_straight:
            self.outlet.write(data)
            self._last = self._loop.time()
            return
        self._pieces.append(data)
        self._size += len(data)
        _wake(self._reader)

    async def drained(self) -> None:
        """Wait until there is room again, or nobody reads any more."""
        while self.is_full and not self.left:
            self._writer = asyncio.get_running_loop().create_future()
            await self._writer

    def end(self) -> None:
        """Nothing more will come."""
        self._ended = True
        _wake(self._reader)

    def leave(self) -> None:
        """Nobody reads any more."""
        self.left = True
        self._pieces.clear()
        self._size = 0
        _wake(self._reader)
        _wake(self._writer)

    async def ready(self) -> None:
        """Wait until there is something to take: bytes, the end, or at last a sign of life."""
        if not self._pieces and not self._ended and not self.left:
            self._loop = asyncio.get_running_loop()
            self._reader = self._loop.create_future()
            self._listen()
            try:
                await self._reader
            finally:
                self._hear_no_more()
                self._reader = None

    def _listen(self) -> None:
        """From now on it is silent, until something comes."""
        self._since = self._last = self._loop.time()
        self._silent = self._silence.set(self._give_sign)

    def _hear_no_more(self) -> None:
        if isinstance(self._silent, Deadline):
            self._silent.met()
        elif self._silent is not None:
            self._silent.cancel()
        self._silent = None

    def _give_sign(self) -> None:
        """Say that the turn goes on, once it was silent since what came last for as long."""
        later = self._last - self._since
        if later > 0:
            self._since = self._last
            self._silent = self._loop.call_later(later, self._give_sign)
            return
        self.push(self._sign)
        if self._reader is not None and not self._reader.done():
            self._listen()

    async def take(self) -> bytes:
        """All there is; nothing at the end."""
        await self.ready()
        taken = b"".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        _wake(self._writer)
        return taken


def _wake(waiting: asyncio.Future[None] | None) -> None:
    if waiting is not None and not waiting.done():
        waiting.set_result(None)
