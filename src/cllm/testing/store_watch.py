"""Tests for stores that a feed of changes can poll: subclass `WatchedStoreContract` as well."""

from cllm.core.ports import Changes, ConversationCounts, NewConversation, Store, WatchedStore
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

    async def test_archived_conversations_are_counted_and_side_conversations_are_not(
        self, store: Store
    ) -> None:
        assert isinstance(store, WatchedStore)
        for name in ("a", "b", "c"):
            await store.create(NewConversation(id=name))
        side = NewConversation(id="side", is_side=True)
        lease = await store.begin_turn("side", start("t1"), create=side)
        await store.finish_turn(lease, answered(lease))
        for name in ("a", "b"):
            await store.update(name, Changes(archived=True))
        assert await store.count_all() == ConversationCounts(total=3, archived=2)
        await store.update("b", Changes(archived=False))
        await store.delete("c")
        assert await store.count_all() == ConversationCounts(total=2, archived=1)
        assert await store.count_all(owner="eve") == ConversationCounts(total=0, archived=0)
