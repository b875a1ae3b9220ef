"""Background work: running and waiting turns, usage records, cleanup of expired events."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from typing import Any

from msgspec.structs import replace

from cllm.core.conversation import CANCELLATION
from cllm.core.errors import ConversationBusyError, StoreError
from cllm.core.ports import CallRecord, Clock, Lease, ServerStore
from cllm.engine.request import TurnStorage
from cllm.server.http.errors import ApiError
from cllm.server.turns.event_log import DelayedWriter

MAX_CLEANUP_SECONDS = 60.0
WRITE_SECONDS = 1.0
SAVE_SECONDS = 1.5
"""Time to save cancelled turns when the server stops."""

TurnKey = tuple[str, str, str]
"""Owner, conversation and turn."""


class _Line:
    """The turns of a conversation that run or wait with `X-On-Conflict: queue`."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self.length = 0


class TurnRegistry:
    """Runs turns as tasks and notifies the clients that follow them.

    `background`: store operations of turns that have not waited for them.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self.background: set[asyncio.Task[None]] = set()
        self._lines: dict[tuple[str, str], _Line] = {}
        self._changes: dict[TurnKey, asyncio.Event | None] = {}
        self._saved: dict[TurnKey, asyncio.Task[None]] = {}
        self.is_stopping = False
        self._stop: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        if self.is_stopping:
            work.close()
            raise ApiError(
                "shutting_down", "The server is shutting down; retry in a moment.", retry_after=1
            )
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def next_change(self, key: TurnKey) -> asyncio.Event | None:
        """Return an event that the next change sets; None if the turn does not run here."""
        if key in self._changes and self._changes[key] is None:
            self._changes[key] = asyncio.Event()
        return self._changes.get(key)

    def add(self, lease: Lease, task: asyncio.Task[None] | None = None) -> None:
        """Add a running turn; `task`: that of one that can be cancelled."""
        self._changes.setdefault(turn_key(lease))
        if task is not None:
            self._saved[turn_key(lease)] = task

    async def cancel(self, key: TurnKey) -> bool:
        """Cancel a turn and wait until it is saved; False if it does not run here."""
        task = self._saved.get(key)
        if task is None:
            return False
        task.cancel(CANCELLATION.code)
        await asyncio.wait((task,))
        return True

    def notify(self, lease: Lease) -> None:
        key = turn_key(lease)
        if (change := self._changes.get(key)) is not None:
            self._changes[key] = None
            change.set()

    def remove(self, lease: Lease) -> None:
        change = self._changes.pop(turn_key(lease), None)
        self._saved.pop(turn_key(lease), None)
        if change is not None:
            change.set()

    @asynccontextmanager
    async def wait_in_line(self, storage: TurnStorage) -> AsyncIterator[TurnStorage]:
        """Let the turns of a conversation that wait start in the order of their requests.

        Yield the storage with the rest of its `wait`; raise ConversationBusyError at the end of it.
        Turns of other processes are not in the line.
        """
        if storage.ref is None or not storage.wait:
            yield storage
            return
        line = self._lines.setdefault((storage.owner, storage.ref), _Line())
        line.length += 1
        now = asyncio.get_running_loop().time
        deadline = now() + storage.wait
        try:
            try:
                async with asyncio.timeout_at(deadline):
                    await line.lock.acquire()
            except TimeoutError:
                raise ConversationBusyError(storage.ref) from None
            try:
                yield replace(storage, wait=max(deadline - now(), 0))
            finally:
                line.lock.release()
        finally:
            line.length -= 1
            if not line.length:
                del self._lines[storage.owner, storage.ref]

    async def stop(self, *, within: float) -> None:
        """Start no more turns; after `within` seconds cancel and save the rest.

        A store that does not respond delays the end by at most SAVE_SECONDS. A second call waits
        for the first.
        """
        self.is_stopping = True
        if self._stop is None:
            self._stop = asyncio.create_task(self._stop_turns(within))
        await asyncio.shield(self._stop)

    async def _stop_turns(self, within: float) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=within)
        for task in self._tasks:
            task.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(SAVE_SECONDS):
                # The end of a turn can add a background task.
                while tasks := self._tasks | self.background:
                    await asyncio.wait(tasks)


def turn_key(lease: Lease) -> TurnKey:
    return lease.conversation.owner, lease.conversation.id, lease.turn.id


@asynccontextmanager
async def delete_expired_events(
    store: ServerStore, *, clock: Clock, keep_seconds: float
) -> AsyncIterator[None]:
    """Inside the block, delete events `keep_seconds` after their turn ends, at most 60 s late."""
    task = asyncio.create_task(_delete_events_forever(store, clock, keep_seconds))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _delete_events_forever(store: ServerStore, clock: Clock, keep_seconds: float) -> None:
    while True:
        await asyncio.sleep(min(keep_seconds, MAX_CLEANUP_SECONDS))
        with suppress(StoreError):
            await store.drop_old_events(clock() - timedelta(seconds=keep_seconds))


class UsageCounter(DelayedWriter):
    """Writes the usage of stateless calls to the store, with a delay."""

    def __init__(self, store: ServerStore) -> None:
        super().__init__(seconds=WRITE_SECONDS)
        self._store = store
        self._pending: dict[str, list[CallRecord]] = {}

    def add(self, call: CallRecord, *, owner: str) -> None:
        self._pending.setdefault(owner, []).append(call)
        self._schedule()

    async def _write(self) -> None:
        pending, self._pending = self._pending, {}
        for owner, calls in pending.items():
            with suppress(StoreError):
                await self._store.count_call(*calls, owner=owner)
