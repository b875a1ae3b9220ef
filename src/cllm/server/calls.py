"""Counting calls that belong to no conversation: noted at once, written a moment later, together.

A request does not wait for the count of what it used.
"""

import asyncio
from contextlib import suppress

from cllm.core.errors import StoreError
from cllm.core.ports import CallRecord, ServerStore

WRITE_SECONDS = 1.0


class CallCounter:
    """Hands calls on to the store, some time after they were made."""

    def __init__(self, store: ServerStore) -> None:
        self._store = store
        self._waiting: dict[str, list[CallRecord]] = {}
        self._writing: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None

    def add(self, call: CallRecord, *, owner: str) -> None:
        """Note a call."""
        self._waiting.setdefault(owner, []).append(call)
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._timer = loop.call_later(WRITE_SECONDS, self._begin)

    async def flush(self) -> None:
        """Write what was noted."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._writing is not None:
            await self._writing
        await self._write()

    def _begin(self) -> None:
        self._timer = None
        self._writing = asyncio.create_task(self._write_after(self._writing))

    async def _write_after(self, before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await before
        await self._write()

    async def _write(self) -> None:
        waiting, self._waiting = self._waiting, {}
        for owner, calls in waiting.items():
            with suppress(StoreError):
                await self._store.count_call(*calls, owner=owner)
