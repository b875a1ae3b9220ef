"""Buffers of a turn's events: the log in the store, and the queue of the response."""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress

from cllm.core.errors import StaleLeaseError, StoreError
from cllm.core.ports import Lease, ServerStore, StreamEvent

BATCH_SECONDS = 0.15
"""With the time of a commit, an event is stored within 0.25 s."""
MAX_UNSAVED_BYTES = 256 * 1024
"""If the store is slower than the provider, the provider waits."""


class DelayedWriter(ABC):
    """Calls `_write` some seconds after `_schedule`; calls do not overlap."""

    def __init__(self, *, seconds: float) -> None:
        self._seconds = seconds
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    @abstractmethod
    async def _write(self) -> None: ...

    def _schedule(self) -> None:
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(self._seconds, self._start)

    async def flush(self) -> None:
        await self.close()
        await self._write()

    async def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._task is not None:
            await self._task

    def _start(self) -> None:
        self._timer = None
        self._task = asyncio.create_task(self._write_after(self._task))

    async def _write_after(self, previous: asyncio.Task[None] | None) -> None:
        if previous is not None:
            await previous
        await self._write()


class EventLog(DelayedWriter):
    """Adds an SSE `id` to each event and saves it. A failing store does not end the stream.

    `on_lost` is called if another process took the lease away.
    """

    def __init__(
        self,
        store: ServerStore,
        lease: Lease,
        *,
        on_save: Callable[[Lease], object],
        on_lost: Callable[[], object] = lambda: None,
    ) -> None:
        super().__init__(seconds=BATCH_SECONDS)
        self._store = store
        self._lease = lease
        self._on_save = on_save
        self._on_lost = on_lost
        self._number = 0
        self._pending: list[StreamEvent] = []
        self._size = 0

    def add(self, data: bytes) -> int:
        """Return the `id` of the event."""
        self._number += 1
        numbered = number_event(self._number, data)
        self._pending.append(StreamEvent(number=self._number, data=numbered))
        self._size += len(numbered)
        self._schedule()
        return self._number

    async def make_room(self) -> None:
        if self._size >= MAX_UNSAVED_BYTES:
            await self.flush()

    async def _write(self) -> None:
        batch, self._pending, self._size = self._pending, [], 0
        if batch:
            with suppress(StoreError):
                try:
                    await self._store.add_events(self._lease, batch)
                except StaleLeaseError:
                    self._on_lost()
                    raise
                self._on_save(self._lease)


def number_event(number: int, data: bytes) -> bytes:
    return b"id: %d\n%b" % (number, data)


class EventQueue:
    """Encoded events for one response. `is_abandoned`: the client has disconnected."""

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._pieces: list[bytes] = []
        self._size = 0
        self._is_readable = asyncio.Event()
        self._has_room = asyncio.Event()
        self.is_full = False
        self.is_closed = False
        self.is_abandoned = False

    def put(self, data: bytes) -> None:
        """Add bytes, even to a full queue, unless closed or abandoned."""
        if self.is_closed or self.is_abandoned or not data:
            return
        self._pieces.append(data)
        self._size += len(data)
        self._is_readable.set()
        self.is_full = self._size >= self._max_bytes

    async def wait_for_room(self) -> None:
        if self.is_full:
            self._has_room.clear()
            await self._has_room.wait()

    async def wait_until_readable(self, seconds: float) -> bool:
        """Wait for bytes or the end; return False on a timeout."""
        if not self._is_readable.is_set():
            try:
                async with asyncio.timeout(seconds):
                    await self._is_readable.wait()
            except TimeoutError:
                return False
        return True

    def take(self) -> bytes:
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
        self.is_full = False
        self._has_room.set()
        if self.is_closed or self.is_abandoned:
            self._is_readable.set()
        else:
            self._is_readable.clear()
