"""Keeping a lease alive while its turn runs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from cllm.core.errors import StaleLeaseError, StoreUnavailableError
from cllm.core.ports import Clock, Lease, Store

SHORTEST_PAUSE = 0.05


@asynccontextmanager
async def renewed(store: Store, lease: Lease, *, clock: Clock) -> AsyncIterator[None]:
    """Renew the lease three times in its life for as long as the block runs.

    A lease that is lost is not an error here: the store refuses what is written with it.
    """
    if lease.expires_at is None:
        yield
        return
    task = asyncio.create_task(_renew(store, lease, clock))
    try:
        yield
    finally:
        task.cancel()
        with suppress(asyncio.CancelledError):
            await task


async def _renew(store: Store, lease: Lease, clock: Clock) -> None:
    with suppress(StaleLeaseError):
        while lease.expires_at is not None:
            left = (lease.expires_at - clock()).total_seconds()
            await asyncio.sleep(max(left / 3, SHORTEST_PAUSE))
            # A store that is away for a moment is asked again while the lease lasts.
            with suppress(StoreUnavailableError):
                lease = await store.renew_lease(lease)
