"""The turns that run in this process, each in a task of its own: a client's leaving ends none.

Who follows the stream of one is woken when more of it is kept, and when it has ended.
"""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

from cllm.core.errors import StoreError
from cllm.core.ports import CallRecord, Clock, Lease, ServerStore
from cllm.server.http.errors import RefusedError

TurnKey = tuple[str, str, str]
"""The owner, the conversation and the turn."""


class RunningTurns:
    """Starts turns, and sees them to their end when the server stops."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._changes: dict[TurnKey, asyncio.Event | None] = {}
        self._stopping = False

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a turn; RefusedError when no more are taken."""
        if self._stopping:
            work.close()
            raise RefusedError(
                "shutting_down", "The server is stopping; ask again in a moment.", retry_after=1
            )
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def change_of(self, key: TurnKey) -> asyncio.Event | None:
        """What is set when the turn goes on or ends; None if it does not run here."""
        if key in self._changes and self._changes[key] is None:
            self._changes[key] = asyncio.Event()
        return self._changes.get(key)

    def began(self, lease: Lease) -> None:
        """The turn of the lease is kept from now on, and can be followed."""
        self._changes.setdefault(key_of(lease))

    def went_on(self, lease: Lease) -> None:
        """Wake who follows: more of the turn is kept."""
        key = key_of(lease)
        if (change := self._changes.get(key)) is not None:
            self._changes[key] = None
            change.set()

    def ended(self, lease: Lease) -> None:
        """Wake who follows: nothing more will come."""
        change = self._changes.pop(key_of(lease), None)
        if change is not None:
            change.set()

    async def stop(self, *, within: float) -> None:
        """Take no more turns, let those that run end, and break off what runs after so long.

        What is broken off is kept as incomplete before this returns.
        """
        self._stopping = True
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=within)
        left = list(self._tasks)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)


def key_of(lease: Lease) -> TurnKey:
    return lease.conversation.owner, lease.conversation.id, lease.turn.id


LONGEST_PAUSE = 60.0


@asynccontextmanager
async def swept(store: ServerStore, *, clock: Clock, keep_seconds: float) -> AsyncIterator[None]:
    """Meanwhile, events go some time after the end of their turn, at most a minute late."""
    task = asyncio.create_task(_sweep(store, clock, keep_seconds))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _sweep(store: ServerStore, clock: Clock, keep_seconds: float) -> None:
    while True:
        await asyncio.sleep(min(keep_seconds, LONGEST_PAUSE))
        # A store that is away is swept the next time.
        with suppress(StoreError):
            await store.drop_old_events(clock() - timedelta(seconds=keep_seconds))


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
