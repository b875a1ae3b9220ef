"""The bounded queue between a turn task and the response that sends its events."""

import asyncio


class EventQueue:
    """Bytes for one response, with one writer and one reader. The reader takes all of them at once.

    `is_closed`: the writer adds nothing more. `is_abandoned`: nobody reads any more.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._pieces: list[bytes] = []
        self._size = 0
        self._is_readable = asyncio.Event()
        self._has_room = asyncio.Event()
        self._has_room.set()
        self.is_closed = False
        self.is_abandoned = False

    @property
    def is_full(self) -> bool:
        return self._size >= self._max_bytes

    def put(self, data: bytes) -> None:
        """Add bytes, also to a full queue. A closed or abandoned queue ignores them."""
        if self.is_closed or self.is_abandoned or not data:
            return
        self._pieces.append(data)
        self._size += len(data)
        self._is_readable.set()
        if self.is_full:
            self._has_room.clear()

    async def wait_for_room(self) -> None:
        await self._has_room.wait()

    async def wait_until_readable(self) -> None:
        """Wait for bytes or for the end."""
        await self._is_readable.wait()

    async def get(self) -> bytes:
        """Wait for bytes and return all of them; return none at the end."""
        await self._is_readable.wait()
        data = b"".join(self._pieces)
        self._empty()
        return data

    def close(self) -> None:
        self.is_closed = True
        self._is_readable.set()

    def abandon(self) -> None:
        self.is_abandoned = True
        self._empty()

    def _empty(self) -> None:
        self._pieces.clear()
        self._size = 0
        self._has_room.set()
        if self.is_closed or self.is_abandoned:
            self._is_readable.set()
        else:
            self._is_readable.clear()
