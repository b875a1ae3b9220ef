"""A lease is renewed while its turn runs."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from tests.virtual_time import loop_clock

from cllm.core.errors import StaleLeaseError
from cllm.core.ports import Clock, Lease, NewConversation, Store, TurnStart
from cllm.engine.recorder import MIN_PAUSE, LeaseRenewal
from cllm.stores.json.store import JsonFileStore
from cllm.stores.memory import MemoryStore

__all__ = ["loop_clock"]

START = TurnStart(id="t", messages=())


class Recording(MemoryStore):
    """Records each renewal, successful or not."""

    def __init__(self, **options) -> None:
        super().__init__(**options)
        self.tries = asyncio.Queue[Lease | None]()

    async def renew_lease(self, lease: Lease) -> Lease:
        try:
            fresh = await super().renew_lease(lease)
        except StaleLeaseError:
            self.tries.put_nowait(None)
            raise
        self.tries.put_nowait(fresh)
        return fresh


@asynccontextmanager
async def renewed(store: Store, lease: Lease, clock: Clock) -> AsyncIterator[None]:
    renewal = LeaseRenewal(store, lease, clock=clock)
    renewal.start()
    try:
        yield
    finally:
        await renewal.stop()


async def started_turn(store: MemoryStore) -> Lease:
    return await store.begin_turn("demo", START, create=NewConversation(id="demo"))


async def test_each_renewal_uses_the_newest_lease(clock):
    store = Recording(clock=clock, lease_seconds=0.1)
    lease = await started_turn(store)

    async with renewed(store, lease, clock):
        clock.advance(0.05)
        first = await store.tries.get()
        clock.advance(0.09)
        second = await store.tries.get()

    assert first is not None
    assert second is not None
    times = [lease.expires_at, first.expires_at, second.expires_at]
    assert times == sorted(set(filter(None, times)))
    await store.finish_turn(lease, lease.turn)


async def test_a_lost_lease_only_stops_the_renewal(clock):
    store = Recording(clock=clock, lease_seconds=0.1)
    lease = await started_turn(store)

    async with renewed(store, lease, clock):
        clock.advance(1)
        assert await store.tries.get() is None
        await asyncio.sleep(0)
    assert store.tries.empty()


async def test_the_owner_of_a_lost_lease_is_called(clock):
    store = Recording(clock=clock, lease_seconds=0.1)
    lease = await started_turn(store)
    is_lost = asyncio.Event()
    renewal = LeaseRenewal(store, lease, clock=clock, on_lost=is_lost.set)
    renewal.start()
    clock.advance(0.05)
    assert await store.tries.get() is not None
    assert not is_lost.is_set()

    assert await store.cancel_turn("demo", "t")

    async with asyncio.timeout(10):
        await is_lost.wait()
    await renewal.stop()


async def test_renewal_stops_with_the_turn_also_after_an_error(loop_clock):
    store = Recording(clock=loop_clock, lease_seconds=0.1)
    lease = await started_turn(store)

    with pytest.raises(ZeroDivisionError):
        async with renewed(store, lease, loop_clock):
            raise ZeroDivisionError
    await asyncio.sleep(3 * MIN_PAUSE)
    assert store.tries.empty()
    assert len(asyncio.all_tasks()) == 1


async def test_a_lease_without_expiry_is_not_renewed(loop_clock, tmp_path):
    store = JsonFileStore(str(tmp_path), clock=loop_clock)
    lease = await store.begin_turn("demo", START, create=NewConversation(id="demo"))
    assert lease.expires_at is None

    async with renewed(store, lease, loop_clock):
        await asyncio.sleep(2 * MIN_PAUSE)
        assert len(asyncio.all_tasks()) == 1
    await store.drop_turn(lease)
