"""Tests for stores that a feed of changes can poll: subclass `WatchedStoreContract` as well."""

from cllm.core.ports import NewConversation, Store, WatchedStore
from cllm.testing.store_harness import StoreHarness, StoreSuite, answered, say, start


class WatchedStoreContract(StoreSuite):
    async def test_a_running_turn_is_listed_until_it_ends(self, store: Store, other: Store) -> None:
        assert isinstance(store, WatchedStore)
        assert isinstance(other, WatchedStore)
        await say(store, "idle", "t1")
        lease = await store.begin_turn("demo", start("t1"), create=NewConversation(id="demo"))

        for one in (store, other):
            assert await one.list_running() == ("demo",)
            assert await one.list_running(owner="eve") == ()

        await store.finish_turn(lease, answered(lease))
        assert await other.list_running() == await store.list_running() == ()

    async def test_the_turn_of_a_dead_process_does_not_run(
        self, store: Store, other: Store, harness: StoreHarness
    ) -> None:
        assert isinstance(other, WatchedStore)
        await store.begin_turn("demo", start("t1"), create=NewConversation(id="demo"))
        await harness.lose(store)

        assert await other.list_running() == ()

    async def test_a_change_of_any_process_changes_the_version(
        self, store: Store, other: Store
    ) -> None:
        assert isinstance(store, WatchedStore)
        for turn, writer in (("t1", store), ("t2", other)):
            await store.list_conversations()
            before = await store.read_version()
            assert await store.read_version() == before
            await say(writer, "demo", turn)
            assert before is None or await store.read_version() != before
