"""The events of a turn's stream, kept in batches, so that a client can pick the stream up again."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

from cllm.core.errors import StoreError
from cllm.core.ports import Lease, ServerStore, StreamEvent

BATCH_SECONDS = 0.25
MOST_WAITING = 256 * 1024
"""Bytes that may wait to be kept; where a store is slower than the provider, the provider waits."""


class EventLog:
    """Numbers the events of one stream and keeps them, at most so many seconds after they came.

    What cannot be kept is not: a stream is worth more than its record.
    """

    def __init__(
        self, store: ServerStore, lease: Lease, *, when_kept: Callable[[Lease], object]
    ) -> None:
        """`when_kept` is called whenever more of the stream is kept."""
        self._store = store
        self._lease = lease
        self._when_kept = when_kept
        self._number = 0
        self._waiting: list[StreamEvent] = []
        self._size = 0
        self._timer: asyncio.TimerHandle | None = None
        self._writing: asyncio.Task[None] | None = None

    def add(self, data: bytes) -> bytes:
        """The event with its number, as it is kept and goes out."""
        self._number += 1
        numbered = b"id: %d\n%b" % (self._number, data)
        self._waiting.append(StreamEvent(number=self._number, data=numbered))
        self._size += len(numbered)
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(BATCH_SECONDS, self._begin_writing)
        return numbered

    async def make_room(self) -> None:
        """Wait, where too much waits to be kept."""
        if self._size >= MOST_WAITING:
            await self.flush()

    async def flush(self) -> None:
        """Keep all there is so far."""
        self._stop_timer()
        if self._writing is not None:
            await self._writing
        await self._write()

    async def close(self) -> None:
        """Write no more."""
        self._stop_timer()
        if self._writing is not None:
            await self._writing

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _begin_writing(self) -> None:
        self._timer = None
        self._writing = asyncio.create_task(self._write_after(self._writing))

    async def _write_after(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await before
        await self._write()

    async def _write(self) -> None:
        batch, self._waiting, self._size = self._waiting, [], 0
        if batch:
            with suppress(StoreError):
                await self._store.add_events(self._lease, batch)
                self._when_kept(self._lease)


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
