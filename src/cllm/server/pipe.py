"""A pipe from a turn to its client: bytes in at one end, out at the other, so many at most.

Neither end knows what the bytes say. The reader takes all there are at once; while there are none
for long, it is given a sign of life.
"""

import asyncio

from cllm.server.deadlines import Deadlines


class Pipe:
    """One writer, one reader, in one event loop."""

    def __init__(self, *, silence: Deadlines, sign: bytes, most: int) -> None:
        self._silence = silence
        self._sign = sign
        self._most = most
        self._pieces: list[bytes] = []
        self._size = 0
        self._ended = False
        self._reader: asyncio.Future[None] | None = None
        self._writer: asyncio.Future[None] | None = None
        self.left = False

    @property
    def is_over(self) -> bool:
        return self._ended

    @property
    def is_full(self) -> bool:
        return self._size >= self._most

    def push(self, data: bytes) -> None:
        """Hand something on, however much there is already; after the reader left, to nobody."""
        if self.left or self._ended or not data:
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
            self._reader = asyncio.get_running_loop().create_future()
            silence = self._silence.set(self._give_sign)
            try:
                await self._reader
            finally:
                silence.met()
                self._reader = None

    def _give_sign(self) -> None:
        self.push(self._sign)

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
