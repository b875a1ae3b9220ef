"""Now and then, what was kept only for a while is deleted: events of streams, and old requests."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta

from cllm.core.errors import StoreError
from cllm.core.ports import Clock, ServerStore

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
