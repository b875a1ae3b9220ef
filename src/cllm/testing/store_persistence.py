"""Conversations: create, name, list, change and delete them."""

from collections.abc import Awaitable

import msgspec
import pytest

from cllm.core.conversation import LOCAL_OWNER
from cllm.core.errors import (
    ConversationBusyError,
    ConversationExistsError,
    ConversationNotFoundError,
    InvalidIdError,
    SequenceNotFoundError,
    UsageError,
)
from cllm.core.ports import Changes, NewConversation, Store
from cllm.testing.store_harness import (
    OPENING,
    SYSTEM,
    StoreSuite,
    answered,
    failed,
    say,
    say_again,
    start,
    texts,
)

replace = msgspec.structs.replace


def _call_all(store: Store, ref: str, owner: str = LOCAL_OWNER) -> list[Awaitable[object]]:
    return [
        store.load(ref, owner=owner),
        store.begin_turn(ref, start("t2"), owner=owner),
        store.update(ref, Changes(title="x"), owner=owner),
        store.capture(ref, OPENING, owner=owner),
        store.delete(ref, owner=owner),
        store.delete_from(ref, 1, owner=owner),
        store.choose_variant(ref, "t1", owner=owner),
        store.branch(ref, NewConversation(id="copy"), owner=owner),
    ]


class PersistenceContract(StoreSuite):
    async def test_a_created_conversation_can_be_loaded(self, store: Store, other: Store) -> None:
        new = NewConversation(id="demo", model="m", title="T", metadata={"a": [1, {"b": "é"}]})
        created = await store.create(new, opening=OPENING)
        assert await other.load("demo") == created
        assert (created.model, created.title, created.metadata) == ("m", "T", new.metadata)
        assert created.system == SYSTEM

    async def test_an_id_can_be_used_once(self, store: Store, other: Store) -> None:
        created = await store.create(NewConversation(id="demo"))
        with pytest.raises(ConversationExistsError):
            await other.create(NewConversation(id="demo", title="another"))
        assert await store.load("demo") == created

    async def test_a_conversation_is_added_in_one_step(self, store: Store, other: Store) -> None:
        for turn_id in ("t1", "t2", "t3"):
            await say(store, "source", turn_id, turn_id)
        await say_again(store, "source", "t4", place="t3", text="Another answer")
        await store.update("source", Changes(title="T", metadata={"a": 1}, pins=(1,)))
        source = await store.load("source")
        await store.add(replace(source, id="copy"))
        added = await other.load("copy")
        assert texts(added) == texts(source)
        assert (added.turns, added.variants) == (source.turns, source.variants)
        assert (added.system, added.system_record) == (source.system, source.system_record)
        assert (added.title, added.metadata, added.pins) == ("T", {"a": 1}, (1,))
        assert added.created_at > source.created_at
        assert (await other.summary("copy")).message_count == source.message_count

    async def test_an_added_conversation_can_have_its_own_times(
        self, store: Store, other: Store
    ) -> None:
        await say(store, "source", "t1")
        source = replace(await store.load("source"), id="copy")
        await say(store, "later", "t1")
        assert await store.add(source, preserve_times=True) == "copy"
        assert await other.load("copy") == source

    async def test_an_added_conversation_is_found_by_the_returned_id(self, store: Store) -> None:
        await say(store, "source", "t1")
        key = await store.add(replace(await store.load("source"), id="c-1", name="copy"))
        assert (await store.load("copy")).id == (await store.load(key)).id == key

    async def test_the_owners_of_conversations_are_listed(self, store: Store) -> None:
        assert await store.list_owners() == ()
        await say(store, "demo", "t1")
        assert await store.list_owners() == (LOCAL_OWNER,)

    async def test_an_added_conversation_can_continue(self, store: Store, other: Store) -> None:
        await say(store, "source", "t1", "apples")
        await store.add(replace(await store.load("source"), id="copy"))
        await say(other, "copy", "t2", "pears")
        assert texts(await store.load("copy")) == ["apples", "apples?", "pears", "pears?"]
        conversations = {hit.conversation for hit in (await store.search("apples")).items}
        assert conversations == {"source", "copy"}
        assert texts(await store.load("source")) == ["apples", "apples?"]

    async def test_a_running_turn_is_added_as_an_interrupted_one(self, store: Store) -> None:
        await say(store, "source", "t1")
        await store.begin_turn("source", start("t2"))
        await store.add(replace(await store.load("source"), id="copy"))
        assert [turn.state for turn in (await store.load("copy")).turns] == ["complete", "failed"]

    async def test_adding_under_a_used_id_changes_nothing(self, store: Store, other: Store) -> None:
        await say(store, "one", "t1", "one")
        await say(store, "two", "t1", "two")
        with pytest.raises(ConversationExistsError):
            await other.add(replace(await store.load("one"), id="two"))
        assert texts(await store.load("two")) == ["two", "two?"]

    async def test_an_added_conversation_has_distinct_turn_ids(self, store: Store) -> None:
        await say(store, "source", "t1")
        source = await store.load("source")
        with pytest.raises(UsageError, match="already has a turn 't1'"):
            await store.add(replace(source, id="copy", turns=source.turns * 2))
        await self._refuse(ConversationNotFoundError, store.load("copy"))

    @pytest.mark.parametrize("tail", [None, 0, 1])
    async def test_a_turn_id_can_be_used_once(self, store: Store, *, tail: int | None) -> None:
        await self._say_turns(store, 3)
        before = await store.load("demo")
        for visible in (True, False):
            with pytest.raises(UsageError, match="already has a turn 't1'"):
                await store.begin_turn("demo", start("t1", visible=visible), tail=tail)
        assert await store.load("demo") == before
        await say(store, "demo", "t4")

    async def test_a_conversation_is_found_by_its_name(self, store: Store, other: Store) -> None:
        created = await store.create(NewConversation(id="c-1", name="demo"))
        assert await other.load("demo") == created
        assert await other.load(created.id) == created
        with pytest.raises(ConversationExistsError):
            await other.create(NewConversation(id="c-2", name="demo"))

    @pytest.mark.parametrize("visible", [True, False])
    async def test_a_name_can_be_used_once(
        self, store: Store, other: Store, *, visible: bool
    ) -> None:
        new = NewConversation(id="c-1", name="demo")
        lease = await store.begin_turn("demo", start("t1", visible=visible), create=new)
        again = replace(new, id="c-2")
        with pytest.raises(ConversationBusyError):
            await other.begin_turn("demo", start("t2", visible=visible), create=again)
        await store.finish_turn(lease, answered(lease))
        second = await other.begin_turn("demo", start("t3"), create=replace(new, id="c-3"))
        assert not second.created
        await other.finish_turn(second, answered(second))
        loaded = await store.load("demo")
        assert [turn.id for turn in loaded.turns] == ["t1", "t3"]
        assert (await store.load(loaded.id)) == loaded

    @pytest.mark.parametrize("ref", ["", "../x", "a/b", "a.b", "ä", "a b", "a\n", "x" * 129, "\0"])
    async def test_an_invalid_id_is_refused(self, store: Store, ref: str) -> None:
        new = NewConversation(id=ref)
        begun = store.begin_turn(ref, start("t1"), create=new)
        await self._refuse(InvalidIdError, *_call_all(store, ref), begun, store.create(new))

    async def test_an_unknown_conversation_is_not_found(self, store: Store) -> None:
        await self._refuse(ConversationNotFoundError, *_call_all(store, "demo"))

    async def test_another_owner_does_not_find_the_conversation(self, store: Store) -> None:
        await say(store, "demo", "t1")
        assert (await store.list_conversations(owner="eve")).items == ()
        await self._refuse(ConversationNotFoundError, *_call_all(store, "demo", "eve"))

    async def test_a_tail_has_whole_turns_with_their_sequence_numbers(self, store: Store) -> None:
        await self._say_turns(store, 4)
        tail = await store.load("demo", tail=3)
        assert [turn.id for turn in tail.turns] == ["t3", "t4"]
        assert tail.first_sequence == 5
        assert tail.message_count == 8
        assert tail.system == SYSTEM
        assert (await store.load("demo", tail=100)).first_sequence == 1
        assert (await store.load("demo", tail=0)).turns == ()

    async def test_lists_are_newest_first_and_continue_at_the_cursor(self, store: Store) -> None:
        for name in ("a", "b", "c", "d", "e"):
            await store.create(NewConversation(id=name))
        await say(store, "b", "t1")
        first = await store.list_conversations(limit=2)
        second = await store.list_conversations(limit=2, cursor=first.next_cursor)
        third = await store.list_conversations(limit=2, cursor=second.next_cursor)
        pages = [[item.id for item in page.items] for page in (first, second, third)]
        assert pages == [["b", "e"], ["d", "c"], ["a"]]
        assert third.next_cursor is None

    async def test_a_list_entry_has_the_fields_of_the_conversation(self, store: Store) -> None:
        await store.create(NewConversation(id="demo", model="m", metadata={"k": "v"}))
        await say(store, "demo", "t1", "one")
        await self._finish(store, start("t2", "two"), failed)
        loaded = await store.load("demo")
        (entry,) = (await store.list_conversations()).items
        assert entry.message_count == loaded.message_count == 3
        for field in ("id", "title", "model", "created_at", "updated_at", "metadata"):
            assert getattr(entry, field) == getattr(loaded, field)

    @pytest.mark.parametrize("limit", [0, -1])
    async def test_a_page_has_at_least_one_entry(self, store: Store, limit: int) -> None:
        await self._refuse(UsageError, store.list_conversations(limit=limit))

    @pytest.mark.parametrize("cursor", ["", "x", "2026-01-01~a", "~"])
    async def test_an_invalid_cursor_is_refused(self, store: Store, cursor: str) -> None:
        await self._refuse(UsageError, store.list_conversations(cursor=cursor))

    async def test_lists_filter_archived_conversations(self, store: Store) -> None:
        await store.create(NewConversation(id="active"))
        await store.create(NewConversation(id="archived"))
        assert (await store.update("archived", Changes(archived=True))).archived_at is not None

        async def list_ids(**options: object) -> set[str]:
            page = await store.list_conversations(**options)  # type: ignore[arg-type]
            return {item.id for item in page.items}

        assert await list_ids() == {"active"}
        assert await list_ids(archive_filter="archived") == {"archived"}
        assert await list_ids(archive_filter="all") == {"active", "archived"}
        assert (await store.update("archived", Changes(archived=False))).archived_at is None
        assert await list_ids() == {"active", "archived"}

    async def test_archiving_does_not_change_the_time_of_the_last_update(
        self, store: Store
    ) -> None:
        for name in ("demo", "newer"):
            await store.create(NewConversation(id=name))
        before = (await store.summary("demo")).updated_at
        for archived in (True, False):
            assert (await store.update("demo", Changes(archived=archived))).updated_at == before
        assert [item.id for item in (await store.list_conversations()).items] == ["newer", "demo"]
        renamed = await store.update("demo", Changes(archived=True, title="New"))
        assert renamed.updated_at > before

    async def test_archiving_twice_keeps_the_first_time(self, store: Store) -> None:
        await store.create(NewConversation(id="demo"))
        first = await store.update("demo", Changes(archived=True))
        second = await store.update("demo", Changes(archived=True))
        assert second.archived_at == first.archived_at

    async def test_an_update_changes_only_its_fields(self, store: Store, other: Store) -> None:
        await store.create(NewConversation(id="demo", title="Old", metadata={"a": 1}))
        await say(store, "demo", "t1")
        summary = await store.update("demo", Changes(title="New"))
        assert (summary.title, summary.metadata, summary.message_count) == ("New", {"a": 1}, 2)
        summary = await store.update("demo", Changes(metadata={"b": 2}))
        assert (summary.title, summary.metadata) == ("New", {"b": 2})
        summary = await store.update("demo", Changes(model="b"))
        assert (summary.title, summary.model) == ("New", "b")
        loaded = await other.load("demo")
        assert (loaded.title, loaded.metadata, loaded.model) == ("New", {"b": 2}, "b")
        assert texts(loaded) == ["Hello", "Hello?"]

    async def test_a_deleted_conversation_is_not_found(self, store: Store, other: Store) -> None:
        await say(store, "demo", "t1")
        await store.delete("demo")
        await self._refuse(ConversationNotFoundError, other.load("demo"))
        assert (await other.list_conversations()).items == ()
        await say(other, "demo", "t1", "again")
        assert texts(await store.load("demo")) == ["again", "again?"]

    async def test_deleting_is_refused_while_a_turn_runs(self, store: Store, other: Store) -> None:
        await say(store, "demo", "t1")
        lease = await store.begin_turn("demo", start("t2"))
        await self._refuse(
            ConversationBusyError, other.delete("demo"), other.delete_from("demo", 1)
        )
        await store.finish_turn(lease, answered(lease))
        assert len((await other.load("demo")).turns) == 2

    async def test_deleting_is_refused_if_the_conversation_has_changed(
        self, store: Store, other: Store
    ) -> None:
        await say(store, "demo", "t1", "one")
        before = await store.load("demo")
        await say(other, "demo", "t2", "two")
        longer = await store.load("demo")
        await say_again(other, "demo", "t3", place="t2", text="other")
        await self._refuse(
            ConversationBusyError,
            store.delete_from("demo", 2, unchanged=before),
            store.delete_from("demo", 4, unchanged=longer),
        )
        assert len(texts(await other.load("demo"))) == 4
        await store.delete_from("demo", 4, unchanged=await store.load("demo"))
        assert len(texts(await other.load("demo"))) == 3

    async def test_deleting_from_a_message_deletes_all_later_ones(self, store: Store) -> None:
        for number in (1, 2, 3):
            await say(store, "demo", f"t{number}", str(number))
        await store.delete_from("demo", 3)
        assert texts(await store.load("demo")) == ["1", "1?"]
        await store.delete_from("demo", 1)
        loaded = await store.load("demo")
        assert (loaded.turns, loaded.system) == ((), SYSTEM)

    async def test_a_truncated_turn_is_incomplete(self, store: Store) -> None:
        await say(store, "demo", "t1", "one")
        await say_again(store, "demo", "t2", place="t1", text="other")
        await store.delete_from("demo", 2)
        loaded = await store.load("demo")
        assert [(turn.state, len(turn.messages)) for turn in loaded.turns] == [("incomplete", 1)]
        assert loaded.variants == ()

    @pytest.mark.parametrize("sequence", [0, 3, -1])
    async def test_an_unknown_sequence_is_refused(self, store: Store, sequence: int) -> None:
        await say(store, "demo", "t1")
        await self._refuse(
            SequenceNotFoundError,
            store.delete_from("demo", sequence),
            store.branch("demo", NewConversation(id="copy"), at=sequence),
        )
        await self._refuse(ConversationNotFoundError, store.load("copy"))
