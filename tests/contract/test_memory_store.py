import pytest

from cllm.core.errors import ConversationNotFoundError, StaleLeaseError
from cllm.core.ports import NewConversation, Store
from cllm.stores.memory import MemoryData, MemoryStore
from cllm.testing.server_store_contract import ServerStoreContract
from cllm.testing.store_contract import StoreHarness, TickingClock, answered, start
from cllm.testing.store_watch import WatchedStoreContract


class MemoryHarness:
    def __init__(self) -> None:
        self.clock = TickingClock()
        self._data = MemoryData()

    async def open(self) -> MemoryStore:
        return MemoryStore(clock=self.clock, data=self._data, patience=0.01)

    async def lose(self, _store: Store, /) -> None:
        self.clock.advance(61)


class TestMemoryStore(ServerStoreContract, WatchedStoreContract):
    @pytest.fixture
    def harness(self) -> StoreHarness:
        return MemoryHarness()


async def test_a_renewed_lease_expires_later():
    harness = MemoryHarness()
    store = await harness.open()
    lease = await store.begin_turn("demo", start("t1"), create=NewConversation(id="demo"))
    for _ in range(3):
        harness.clock.advance(50)
        lease = await store.renew_lease(lease)
    await store.finish_turn(lease, answered(lease))
    assert len((await store.load("demo")).turns) == 1


async def test_an_expired_lease_cannot_finish_a_turn():
    harness = MemoryHarness()
    store = await harness.open()
    lease = await store.begin_turn("demo", start("t1"), create=NewConversation(id="demo"))
    harness.clock.advance(61)
    with pytest.raises(StaleLeaseError):
        await store.finish_turn(lease, answered(lease))


async def test_two_owners_can_use_the_same_id():
    store = await MemoryHarness().open()
    await store.create(NewConversation(id="demo", title="Ann's"), owner="ann")
    await store.create(NewConversation(id="demo", title="Bob's"), owner="bob")
    assert (await store.load("demo", owner="ann")).title == "Ann's"
    await store.delete("demo", owner="ann")
    assert (await store.load("demo", owner="bob")).title == "Bob's"
    with pytest.raises(ConversationNotFoundError):
        await store.load("demo", owner="ann")
