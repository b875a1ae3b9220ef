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
