"""Keeping a lease alive while its turn runs."""

import asyncio
from contextlib import suppress
from datetime import datetime

from cllm.core.errors import StaleLeaseError, StoreUnavailableError
from cllm.core.ports import Clock, Lease, Store

SHORTEST_PAUSE = 0.05


class Renewal:
    """Renews the lease three times in its life, from its beginning to its end.

    A lease that is lost is not an error here: the store refuses what is written with it. Most
    turns end before there is anything to do, and have cost no more than a timer.
    """

    def __init__(self, store: Store, lease: Lease, *, clock: Clock) -> None:
        self._store = store
        self._lease = lease
        self._clock = clock
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        if self._lease.expires_at is not None:
            pause = _pause(self._lease.expires_at, self._clock)
            self._timer = asyncio.get_running_loop().call_later(pause, self._start)

    async def end(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            with suppress(asyncio.CancelledError):
                await self._task

    def _start(self) -> None:
        self._task = asyncio.create_task(_renew(self._store, self._lease, self._clock))


async def _renew(store: Store, lease: Lease, clock: Clock) -> None:
    with suppress(StaleLeaseError):
        while lease.expires_at is not None:
            # A store that is away for a moment is asked again while the lease lasts.
            with suppress(StoreUnavailableError):
                lease = await store.renew_lease(lease)
            if lease.expires_at is not None:
                await asyncio.sleep(_pause(lease.expires_at, clock))


def _pause(expires_at: datetime, clock: Clock) -> float:
    """The seconds until the lease is to be renewed."""
    left = (expires_at - clock()).total_seconds()
    return max(left / 3, SHORTEST_PAUSE)
