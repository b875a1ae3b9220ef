"""What every store does, as tests: subclass `StoreContract` and give it a harness.

    class TestMyStore(StoreContract):
        @pytest.fixture
        def harness(self) -> StoreHarness:
            return MyHarness()

The suite knows stores by their port only. It never looks at what a store keeps where.
"""

import asyncio
from datetime import UTC, datetime

import msgspec
import pytest

from cllm.core.conversation import ContextRecord, SystemRecord
from cllm.core.errors import (
    ConversationBusyError,
    ConversationExistsError,
    ConversationNotFoundError,
    InvalidIdError,
    SequenceNotFoundError,
    StaleLeaseError,
    TurnNotFoundError,
    UsageError,
)
from cllm.core.message import Message, plain_message
from cllm.core.ports import Changes, NewConversation, Opening, Store
from cllm.testing.store_finding import FindingContract
from cllm.testing.store_harness import (
    OPENING,
    SYSTEM,
    StoreHarness,
    StoreSuite,
    TickingClock,
    answered,
    bring_results,
    failed,
    say,
    say_again,
    start,
    texts,
)
from cllm.testing.store_window import WindowContract

__all__ = [
    "OPENING",
    "SYSTEM",
    "StoreContract",
    "StoreHarness",
    "TickingClock",
    "answered",
    "failed",
    "say",
    "say_again",
    "start",
    "texts",
]

replace = msgspec.structs.replace


class StoreContract(FindingContract, WindowContract, StoreSuite):
    """The tests. A subclass gives the `harness`."""

    async def test_a_finished_turn_is_there_for_everybody(self, store: Store, other: Store) -> None:
        lease = await store.begin_turn("demo", start("t1"), create=NewConversation(id="demo"))
        turn = answered(lease)
        await store.finish_turn(lease, turn, opening=OPENING)
        loaded = await other.load("demo")
        assert loaded.turns == (turn,)
        assert loaded.system == SYSTEM
        assert loaded.system_record == OPENING.system_record
        assert loaded.total_tokens == 7

    async def test_messages_come_back_byte_for_byte(self, store: Store, other: Store) -> None:
        said = Message(role="user", raw='{"role":"user","content":"\\u00e9é","n":1.50e3}'.encode())
        reply = Message(
            role="assistant",
            dialect="anthropic",
            raw=b'{"role":"assistant","content":[{"type":"thinking","thinking":"x",'
            b'"signature":"s"},{"type":"text","text":"ok"}]}',
        )
        lease = await store.begin_turn(
            "demo", start("t1", messages=(said,)), create=NewConversation(id="demo")
        )
        turn = replace(lease.turn, state="complete", messages=(said, reply))
        await store.finish_turn(lease, turn)
        assert (await other.load("demo")).turns[0].messages == (said, reply)

    async def test_turns_follow_one_another(self, store: Store) -> None:
        await say(store, "demo", "t1", "one")
        await say(store, "demo", "t2", "two")
        loaded = await store.load("demo")
        assert texts(loaded) == ["one", "one?", "two", "two?"]
        assert [number for number, _, _ in loaded.numbered_messages()] == [1, 2, 3, 4]

    async def test_a_lease_shows_what_was_there_without_its_turn(self, store: Store) -> None:
        await say(store, "demo", "t1", "one")
        lease = await store.begin_turn("demo", start("t2", "two"))
        assert texts(lease.conversation) == ["one", "one?"]
        assert lease.turn.state == "running"
        assert not lease.created
        await store.drop_turn(lease)

    async def test_a_visible_turn_can_be_seen_while_it_runs(
        self, store: Store, other: Store
    ) -> None:
        lease = await store.begin_turn("demo", start("t1"), create=NewConversation(id="demo"))
        assert [turn.state for turn in (await other.load("demo")).turns] == ["running"]
        await store.drop_turn(lease)

    async def test_a_hidden_turn_leaves_nothing_until_it_is_finished(
        self, store: Store, other: Store
    ) -> None:
        lease = await store.begin_turn(
            "demo", start("t1", visible=False), create=NewConversation(id="demo")
        )
        with pytest.raises(ConversationNotFoundError):
            await other.load("demo")
        assert (await other.list_conversations()).items == ()
        await store.finish_turn(lease, answered(lease))
        assert texts(await other.load("demo")) == ["Hello", "Hi"]

    @pytest.mark.parametrize("visible", [True, False])
    async def test_a_dropped_turn_takes_the_conversation_it_made_with_it(
        self, store: Store, other: Store, *, visible: bool
    ) -> None:
        lease = await store.begin_turn(
            "demo", start("t1", visible=visible), create=NewConversation(id="demo")
        )
        await store.drop_turn(lease)
        with pytest.raises(ConversationNotFoundError):
            await other.load("demo")

    @pytest.mark.parametrize("visible", [True, False])
    async def test_a_dropped_turn_leaves_the_others_alone(
        self, store: Store, *, visible: bool
    ) -> None:
        await say(store, "demo", "t1")
        before = await store.load("demo")
        await store.drop_turn(await store.begin_turn("demo", start("t2", visible=visible)))
        assert await store.load("demo") == before

    async def test_there_is_no_turn_in_a_conversation_that_is_not_there(self, store: Store) -> None:
        with pytest.raises(ConversationNotFoundError):
            await store.begin_turn("demo", start("t1"))

    @pytest.mark.parametrize("visible", [True, False])
    async def test_a_second_turn_is_refused_while_one_runs(
        self, store: Store, other: Store, *, visible: bool
    ) -> None:
        new = NewConversation(id="demo")
        lease = await store.begin_turn("demo", start("t1", visible=visible), create=new)
        for another in (store, other):
            with pytest.raises(ConversationBusyError):
                await another.begin_turn("demo", start("t2"), create=new)
        await store.finish_turn(lease, answered(lease))
        await say(other, "demo", "t2")
        assert len((await store.load("demo")).turns) == 2

    async def test_a_second_turn_waits_for_the_first_and_sees_it(
        self, store: Store, other: Store
    ) -> None:
        new = NewConversation(id="demo")
        first = await store.begin_turn("demo", start("t1", visible=False), create=new)
        waiting = asyncio.create_task(other.begin_turn("demo", start("t2"), create=new, wait=None))
        await asyncio.sleep(0.02)
        assert not waiting.done()
        await store.finish_turn(first, answered(first))
        second = await waiting
        assert [turn.id for turn in second.conversation.turns] == ["t1"]
        assert not second.created
        await other.drop_turn(second)

    async def test_waiting_ends_when_its_time_is_over(self, store: Store, other: Store) -> None:
        lease = await store.begin_turn("demo", start("t1"), create=NewConversation(id="demo"))
        with pytest.raises(ConversationBusyError):
            await other.begin_turn("demo", start("t2"), wait=0.02)
        await store.drop_turn(lease)

    async def test_who_gives_up_waiting_leaves_nothing_behind(
        self, store: Store, other: Store
    ) -> None:
        lease = await store.begin_turn("demo", start("t1"), create=NewConversation(id="demo"))
        waiting = asyncio.create_task(other.begin_turn("demo", start("t2"), wait=None))
        await asyncio.sleep(0.01)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        await store.finish_turn(lease, answered(lease))
        await say(other, "demo", "t3")
        assert [turn.id for turn in (await store.load("demo")).turns] == ["t1", "t3"]

    async def test_turns_in_different_conversations_do_not_wait_for_one_another(
        self, store: Store
    ) -> None:
        one = await store.begin_turn("one", start("t1"), create=NewConversation(id="one"))
        two = await store.begin_turn("two", start("t1"), create=NewConversation(id="two"))
        await store.finish_turn(two, answered(two))
        await store.finish_turn(one, answered(one))
        assert len((await store.list_conversations()).items) == 2

    async def test_a_lease_is_good_for_one_ending(self, store: Store) -> None:
        lease = await store.begin_turn("demo", start("t1"), create=NewConversation(id="demo"))
        await store.finish_turn(lease, answered(lease))
        with pytest.raises(StaleLeaseError):
            await store.finish_turn(lease, answered(lease))
        with pytest.raises(StaleLeaseError):
            await store.drop_turn(lease)
        with pytest.raises(StaleLeaseError):
            await store.renew_lease(lease)

    async def test_a_lease_is_for_its_own_turn(self, store: Store) -> None:
        lease = await store.begin_turn("demo", start("t1"), create=NewConversation(id="demo"))
        with pytest.raises(UsageError):
            await store.finish_turn(lease, replace(answered(lease), id="t2", place="t2"))
        await store.finish_turn(await store.renew_lease(lease), answered(lease))
        assert [turn.id for turn in (await store.load("demo")).turns] == ["t1"]

    async def test_fencing_numbers_grow(self, store: Store, other: Store) -> None:
        first = await store.begin_turn("demo", start("t1"), create=NewConversation(id="demo"))
        await store.finish_turn(first, answered(first))
        second = await other.begin_turn("demo", start("t2"))
        assert second.fence > first.fence
        await other.drop_turn(second)

    async def test_who_lost_a_lease_writes_nothing(
        self, harness: StoreHarness, store: Store, other: Store
    ) -> None:
        lease = await store.begin_turn("demo", start("t1"), create=NewConversation(id="demo"))
        await harness.lose(store)
        await say(other, "demo", "t2")
        before = await other.load("demo")
        with pytest.raises(StaleLeaseError):
            await store.finish_turn(lease, answered(lease))
        with pytest.raises(StaleLeaseError):
            await store.drop_turn(lease)
        with pytest.raises(StaleLeaseError):
            await store.renew_lease(lease)
        assert await other.load("demo") == before

    async def test_who_lost_a_lease_cannot_end_the_turn_that_followed(
        self, harness: StoreHarness, store: Store, other: Store
    ) -> None:
        lost = await store.begin_turn("demo", start("t1"), create=NewConversation(id="demo"))
        await harness.lose(store)
        lease = await other.begin_turn("demo", start("t2"))
        for attempt in (
            store.finish_turn(lost, answered(lost)),
            store.drop_turn(lost),
            store.renew_lease(lost),
        ):
            with pytest.raises(StaleLeaseError):
                await attempt
        await other.finish_turn(lease, answered(lease))
        states = [(turn.id, turn.state) for turn in (await other.load("demo")).turns]
        assert states == [("t1", "failed"), ("t2", "complete")]

    async def test_a_turn_whose_holder_died_has_failed(
        self, harness: StoreHarness, store: Store, other: Store
    ) -> None:
        await store.begin_turn("demo", start("t1"), create=NewConversation(id="demo"))
        await harness.lose(store)
        await say(other, "demo", "t2")
        first, second = (await other.load("demo")).turns
        assert (first.id, first.state) == ("t1", "failed")
        assert first.failure is not None
        assert first.failure.code == "interrupted"
        assert second.state == "complete"

    async def test_a_hidden_turn_whose_holder_died_never_was(
        self, harness: StoreHarness, store: Store, other: Store
    ) -> None:
        new = NewConversation(id="demo")
        await store.begin_turn("demo", start("t1", visible=False), create=new)
        await harness.lose(store)
        with pytest.raises(ConversationNotFoundError):
            await other.begin_turn("demo", start("t2"))
        await say(other, "demo", "t2")
        assert [turn.id for turn in (await other.load("demo")).turns] == ["t2"]

    async def test_a_failed_turn_is_kept_and_is_not_history(self, store: Store) -> None:
        lease = await store.begin_turn("demo", start("t1"), create=NewConversation(id="demo"))
        await store.finish_turn(lease, failed(lease))
        turn = (await store.load("demo")).turns[0]
        assert turn == failed(lease)
        assert not turn.is_history

    async def test_an_incomplete_turn_is_history(self, store: Store) -> None:
        lease = await store.begin_turn("demo", start("t1"), create=NewConversation(id="demo"))
        await store.finish_turn(lease, replace(answered(lease), state="incomplete"))
        assert (await store.load("demo")).turns[0].is_history

    async def test_a_conversation_is_opened_once(self, store: Store) -> None:
        await say(store, "demo", "t1")
        second = Opening(
            system=plain_message("system", "Other."), system_record=SystemRecord(policy="captured")
        )
        lease = await store.begin_turn("demo", start("t2"))
        await store.finish_turn(lease, answered(lease), opening=second)
        loaded = await store.load("demo")
        assert (loaded.system, loaded.system_record) == (SYSTEM, OPENING.system_record)

    async def test_an_opening_without_a_prompt_is_remembered_too(self, store: Store) -> None:
        nothing = _opening_without_a_prompt()
        lease = await store.begin_turn("demo", start("t1"), create=NewConversation(id="demo"))
        await store.finish_turn(lease, answered(lease), opening=nothing)
        again = await store.begin_turn("demo", start("t2"))
        await store.finish_turn(again, answered(again), opening=OPENING)
        loaded = await store.load("demo")
        assert loaded.system is None
        assert loaded.system_record == nothing.system_record
        assert loaded.context_record == nothing.context_record

    async def test_a_pinned_prompt_is_kept_beside_the_messages_and_goes_into_branches(
        self, store: Store, other: Store
    ) -> None:
        record = SystemRecord(policy="pinned", source="a program", prompt="Be kind. é")
        pinned = Opening(system=None, system_record=record)
        lease = await store.begin_turn("demo", start("t1"), create=NewConversation(id="demo"))
        await store.finish_turn(lease, answered(lease), opening=pinned)
        branch = await other.branch("demo", NewConversation(id="branch"))
        for kept in (await other.load("demo"), branch, await store.load("branch", tail=0)):
            assert (kept.system, kept.system_record) == (None, record)
            assert kept.kept_prompt is not None
            assert kept.kept_prompt.text == "Be kind. é"

    async def test_as_long_as_nothing_was_said_an_opening_takes_the_place_of_another(
        self, store: Store
    ) -> None:
        await store.create(NewConversation(id="demo"), opening=_opening_without_a_prompt())
        lease = await store.begin_turn("demo", start("t1"))
        await store.finish_turn(lease, answered(lease), opening=OPENING)
        loaded = await store.load("demo")
        assert loaded.system == OPENING.system
        assert loaded.system_record == OPENING.system_record

    async def test_an_old_conversation_can_be_given_a_prompt_and_keeps_its_times(
        self, store: Store, other: Store
    ) -> None:
        lease = await store.begin_turn("old", start("t1"), create=NewConversation(id="old"))
        await store.finish_turn(lease, answered(lease))
        before = await store.load("old")
        captured = await store.capture("old", OPENING)
        loaded = await other.load("old")
        assert captured == loaded
        assert loaded == replace(before, system=SYSTEM, system_record=OPENING.system_record)
        await say(store, "old", "t2")
        assert len((await store.load("old")).turns) == len(before.turns) + 1

    async def test_only_an_old_conversation_is_given_a_prompt(self, store: Store) -> None:
        await say(store, "captured", "t1")
        await store.create(NewConversation(id="empty"))
        lease = await store.begin_turn("none", start("t1"), create=NewConversation(id="none"))
        await store.finish_turn(lease, answered(lease), opening=_opening_without_a_prompt())
        second = replace(OPENING, system=plain_message("system", "Other."))
        for ref in ("captured", "empty", "none"):
            before = await store.load(ref)
            assert await store.capture(ref, second) is None
            assert await store.load(ref) == before

    async def test_no_prompt_is_given_while_a_turn_runs(self, store: Store, other: Store) -> None:
        first = await store.begin_turn("old", start("t1"), create=NewConversation(id="old"))
        await store.finish_turn(first, answered(first))
        lease = await store.begin_turn("old", start("t2"))
        with pytest.raises(ConversationBusyError):
            await other.capture("old", OPENING)
        await store.finish_turn(lease, answered(lease))
        assert (await other.load("old")).system is None

    async def test_a_title_comes_from_the_first_thing_said(self, store: Store) -> None:
        await say(store, "demo", "t1", "  My cat\nis called Luna. ")
        await say(store, "demo", "t2", "What is my cat called?")
        assert (await store.load("demo")).title == "My cat is called Luna."

    async def test_a_given_title_stays(self, store: Store) -> None:
        await store.create(NewConversation(id="demo", title="Mine"))
        await say(store, "demo", "t1")
        assert (await store.load("demo")).title == "Mine"

    async def test_what_is_created_can_be_loaded(self, store: Store, other: Store) -> None:
        new = NewConversation(id="demo", model="m", title="T", metadata={"a": [1, {"b": "é"}]})
        created = await store.create(new, opening=OPENING)
        assert await other.load("demo") == created
        assert (created.model, created.title, created.metadata) == ("m", "T", new.metadata)
        assert created.system == SYSTEM

    async def test_an_id_is_taken_once(self, store: Store, other: Store) -> None:
        created = await store.create(NewConversation(id="demo"))
        with pytest.raises(ConversationExistsError):
            await other.create(NewConversation(id="demo", title="another"))
        assert await store.load("demo") == created

    async def test_a_name_finds_its_conversation(self, store: Store, other: Store) -> None:
        created = await store.create(NewConversation(id="c-1", name="demo"))
        assert await other.load("demo") == created
        assert await other.load(created.id) == created
        with pytest.raises(ConversationExistsError):
            await other.create(NewConversation(id="c-2", name="demo"))

    @pytest.mark.parametrize("visible", [True, False])
    async def test_a_conversation_can_be_begun_by_its_name(
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
    async def test_what_cannot_be_an_id_is_refused(self, store: Store, ref: str) -> None:
        new = NewConversation(id=ref)
        for attempt in (
            store.load(ref),
            store.begin_turn(ref, start("t1"), create=new),
            store.create(new),
            store.update(ref, Changes(title="x")),
            store.delete(ref),
            store.delete_from(ref, 1),
            store.choose_variant(ref, "t1"),
            store.branch(ref, NewConversation(id="copy")),
        ):
            with pytest.raises(InvalidIdError):
                await attempt

    async def test_what_is_not_there_is_not_found(self, store: Store) -> None:
        for attempt in (
            store.load("demo"),
            store.update("demo", Changes(title="x")),
            store.capture("demo", OPENING),
            store.delete("demo"),
            store.delete_from("demo", 1),
            store.choose_variant("demo", "t1"),
            store.branch("demo", NewConversation(id="copy")),
        ):
            with pytest.raises(ConversationNotFoundError):
                await attempt

    async def test_another_owner_finds_nothing(self, store: Store) -> None:
        await say(store, "demo", "t1")
        assert (await store.list_conversations(owner="eve")).items == ()
        for attempt in (
            store.load("demo", owner="eve"),
            store.begin_turn("demo", start("t2"), owner="eve"),
            store.update("demo", Changes(title="x"), owner="eve"),
            store.capture("demo", OPENING, owner="eve"),
            store.delete("demo", owner="eve"),
            store.delete_from("demo", 1, owner="eve"),
            store.choose_variant("demo", "t1", owner="eve"),
            store.branch("demo", NewConversation(id="copy"), owner="eve"),
        ):
            with pytest.raises(ConversationNotFoundError):
                await attempt

    async def test_the_tail_is_whole_turns_with_their_numbers(self, store: Store) -> None:
        for number in range(1, 5):
            await say(store, "demo", f"t{number}")
        tail = await store.load("demo", tail=3)
        assert [turn.id for turn in tail.turns] == ["t3", "t4"]
        assert tail.first_sequence == 5
        assert tail.message_count == 8
        assert tail.system == SYSTEM
        assert (await store.load("demo", tail=100)).first_sequence == 1
        assert (await store.load("demo", tail=0)).turns == ()

    async def test_lists_are_newest_first_and_go_on_where_they_stopped(self, store: Store) -> None:
        for name in ("a", "b", "c", "d", "e"):
            await store.create(NewConversation(id=name))
        await say(store, "b", "t1")
        first = await store.list_conversations(limit=2)
        second = await store.list_conversations(limit=2, cursor=first.next_cursor)
        third = await store.list_conversations(limit=2, cursor=second.next_cursor)
        pages = [[item.id for item in page.items] for page in (first, second, third)]
        assert pages == [["b", "e"], ["d", "c"], ["a"]]
        assert third.next_cursor is None

    async def test_a_list_entry_says_what_the_conversation_does(self, store: Store) -> None:
        await store.create(NewConversation(id="demo", model="m", metadata={"k": "v"}))
        await say(store, "demo", "t1", "one")
        lease = await store.begin_turn("demo", start("t2", "two"))
        await store.finish_turn(lease, failed(lease))
        loaded = await store.load("demo")
        (entry,) = (await store.list_conversations()).items
        assert entry.message_count == loaded.message_count == 3
        for field in ("id", "title", "model", "created_at", "updated_at", "metadata"):
            assert getattr(entry, field) == getattr(loaded, field)

    @pytest.mark.parametrize("limit", [0, -1])
    async def test_a_page_has_at_least_one_entry(self, store: Store, limit: int) -> None:
        with pytest.raises(UsageError):
            await store.list_conversations(limit=limit)

    @pytest.mark.parametrize("cursor", ["", "x", "2026-01-01~a", "~"])
    async def test_a_made_up_cursor_is_refused(self, store: Store, cursor: str) -> None:
        with pytest.raises(UsageError):
            await store.list_conversations(cursor=cursor)

    async def test_archived_conversations_are_listed_apart(self, store: Store) -> None:
        await store.create(NewConversation(id="kept"))
        await store.create(NewConversation(id="gone"))
        assert (await store.update("gone", Changes(archived=True))).archived_at is not None

        async def listed(**options: object) -> set[str]:
            page = await store.list_conversations(**options)  # type: ignore[arg-type]
            return {item.id for item in page.items}

        assert await listed() == {"kept"}
        assert await listed(archive_filter="archived") == {"gone"}
        assert await listed(archive_filter="all") == {"kept", "gone"}
        assert (await store.update("gone", Changes(archived=False))).archived_at is None
        assert await listed() == {"kept", "gone"}

    async def test_archiving_twice_keeps_the_first_time(self, store: Store) -> None:
        await store.create(NewConversation(id="demo"))
        first = await store.update("demo", Changes(archived=True))
        second = await store.update("demo", Changes(archived=True))
        assert second.archived_at == first.archived_at

    async def test_an_update_changes_what_it_names_only(self, store: Store, other: Store) -> None:
        await store.create(NewConversation(id="demo", title="Old", metadata={"a": 1}))
        await say(store, "demo", "t1")
        summary = await store.update("demo", Changes(title="New"))
        assert (summary.title, summary.metadata, summary.message_count) == ("New", {"a": 1}, 2)
        summary = await store.update("demo", Changes(metadata={"b": 2}))
        assert (summary.title, summary.metadata) == ("New", {"b": 2})
        loaded = await other.load("demo")
        assert (loaded.title, loaded.metadata) == ("New", {"b": 2})
        assert texts(loaded) == ["Hello", "Hello?"]

    async def test_what_is_deleted_is_gone(self, store: Store, other: Store) -> None:
        await say(store, "demo", "t1")
        await store.delete("demo")
        with pytest.raises(ConversationNotFoundError):
            await other.load("demo")
        assert (await other.list_conversations()).items == ()
        await say(other, "demo", "t1", "again")
        assert texts(await store.load("demo")) == ["again", "again?"]

    async def test_nothing_is_deleted_while_a_turn_runs(self, store: Store, other: Store) -> None:
        await say(store, "demo", "t1")
        lease = await store.begin_turn("demo", start("t2"))
        with pytest.raises(ConversationBusyError):
            await other.delete("demo")
        with pytest.raises(ConversationBusyError):
            await other.delete_from("demo", 1)
        await store.finish_turn(lease, answered(lease))
        assert len((await other.load("demo")).turns) == 2

    async def test_deleting_from_a_message_on_deletes_all_later_ones(self, store: Store) -> None:
        for number in (1, 2, 3):
            await say(store, "demo", f"t{number}", str(number))
        await store.delete_from("demo", 3)
        assert texts(await store.load("demo")) == ["1", "1?"]
        await store.delete_from("demo", 1)
        loaded = await store.load("demo")
        assert (loaded.turns, loaded.system) == ((), SYSTEM)

    async def test_a_turn_without_its_end_is_incomplete(self, store: Store) -> None:
        await say(store, "demo", "t1", "one")
        await say_again(store, "demo", "t2", place="t1", text="other")
        await store.delete_from("demo", 2)
        loaded = await store.load("demo")
        assert [(turn.state, len(turn.messages)) for turn in loaded.turns] == [("incomplete", 1)]
        assert loaded.variants == ()

    @pytest.mark.parametrize("sequence", [0, 3, -1])
    async def test_a_number_that_no_message_has_is_refused(
        self, store: Store, sequence: int
    ) -> None:
        await say(store, "demo", "t1")
        with pytest.raises(SequenceNotFoundError):
            await store.delete_from("demo", sequence)
        with pytest.raises(SequenceNotFoundError):
            await store.branch("demo", NewConversation(id="copy"), at=sequence)
        with pytest.raises(ConversationNotFoundError):
            await store.load("copy")

    async def test_a_finished_variant_takes_the_place_of_what_was_there(self, store: Store) -> None:
        await say(store, "demo", "t1", "one")
        await say(store, "demo", "t2", "two")
        await say_again(store, "demo", "t3", place="t2", text="better")
        loaded = await store.load("demo")
        assert [turn.id for turn in loaded.turns] == ["t1", "t3"]
        assert [turn.id for turn in loaded.variants] == ["t2"]
        assert {turn.place for turn in (loaded.turns[1], *loaded.variants)} == {"t2"}

    async def test_a_running_variant_leaves_the_path_alone(
        self, harness: StoreHarness, store: Store, other: Store
    ) -> None:
        await say(store, "demo", "t1")
        await store.begin_turn("demo", start("t2", place="t1"))
        assert [turn.id for turn in (await other.load("demo")).turns] == ["t1"]
        await harness.lose(store)
        await say(other, "demo", "t3")
        loaded = await other.load("demo")
        assert [turn.id for turn in loaded.turns] == ["t1", "t3"]
        assert [(turn.id, turn.state) for turn in loaded.variants] == [("t2", "failed")]

    async def test_a_failed_variant_stays_off_the_path(self, store: Store) -> None:
        await say(store, "demo", "t1")
        lease = await store.begin_turn("demo", start("t2", place="t1"))
        await store.finish_turn(lease, failed(lease))
        loaded = await store.load("demo")
        assert [turn.id for turn in loaded.turns] == ["t1"]
        assert [turn.id for turn in loaded.variants] == ["t2"]

    async def test_a_failed_turn_can_be_asked_again_in_its_place(self, store: Store) -> None:
        await say(store, "demo", "t1")
        lease = await store.begin_turn("demo", start("t2"))
        await store.finish_turn(lease, failed(lease))
        await say_again(store, "demo", "t3", place="t2", text="now")
        loaded = await store.load("demo")
        assert [turn.id for turn in loaded.turns] == ["t1", "t3"]
        assert [turn.id for turn in loaded.variants] == ["t2"]

    async def test_the_last_answer_can_be_asked_again_after_a_failure(self, store: Store) -> None:
        await say(store, "demo", "t1")
        lease = await store.begin_turn("demo", start("t2"))
        await store.finish_turn(lease, failed(lease))
        await say_again(store, "demo", "t3", place="t1", text="now")
        assert [turn.id for turn in (await store.load("demo")).turns] == ["t3", "t2"]

    async def test_what_went_on_with_tools_leaves_the_path_with_the_answer_they_were_for(
        self, store: Store, other: Store
    ) -> None:
        await say(store, "demo", "t1")
        await say(store, "demo", "t2", "And now?")
        await bring_results(store, "demo", "t3")
        await bring_results(store, "demo", "t4")
        await store.update("demo", Changes(pins=(1, 6)))
        await say_again(store, "demo", "t5", place="t2", text="Anew")
        found = await other.load("demo")
        assert [turn.id for turn in found.turns] == ["t1", "t5"]
        assert {turn.id for turn in found.variants} == {"t2", "t3", "t4"}
        assert (await other.summary("demo")).message_count == found.message_count == 4
        assert found.pins == (1,)
        await say(store, "demo", "t6")
        assert [turn.id for turn in (await other.load("demo", tail=1)).turns] == ["t6"]

    async def test_a_variant_of_an_earlier_or_unknown_turn_is_refused(self, store: Store) -> None:
        await say(store, "demo", "t1")
        await say(store, "demo", "t2")
        before = await store.load("demo")
        with pytest.raises(UsageError):
            await store.begin_turn("demo", start("t3", place="t1"))
        with pytest.raises(TurnNotFoundError):
            await store.begin_turn("demo", start("t3", place="nowhere"))
        assert await store.load("demo") == before
        await say(store, "demo", "t4")

    async def test_a_turn_id_is_used_once(self, store: Store) -> None:
        await say(store, "demo", "t1")
        with pytest.raises(UsageError):
            await store.begin_turn("demo", start("t1"))
        assert len((await store.load("demo")).turns) == 1

    async def test_another_variant_can_be_chosen(self, store: Store, other: Store) -> None:
        await say(store, "demo", "t1", "one")
        await say_again(store, "demo", "t2", place="t1", text="better")
        chosen = await store.choose_variant("demo", "t1")
        assert texts(chosen) == ["one", "one?"]
        assert [turn.id for turn in chosen.variants] == ["t2"]
        assert await other.load("demo") == chosen
        assert await store.choose_variant("demo", "t1") == chosen

    async def test_a_variant_without_an_answer_cannot_be_chosen(self, store: Store) -> None:
        await say(store, "demo", "t1")
        lease = await store.begin_turn("demo", start("t2", place="t1"))
        await store.finish_turn(lease, failed(lease))
        with pytest.raises(UsageError):
            await store.choose_variant("demo", "t2")
        with pytest.raises(TurnNotFoundError):
            await store.choose_variant("demo", "t9")

    async def test_a_branch_has_the_path_up_to_its_point(self, store: Store, other: Store) -> None:
        await store.create(NewConversation(id="demo", model="m"))
        for number in (1, 2, 3):
            await say(store, "demo", f"t{number}", str(number))
        branch = await store.branch("demo", NewConversation(id="copy"), at=4)
        assert texts(branch) == ["1", "1?", "2", "2?"]
        assert branch.parent is not None
        assert (branch.parent.conversation, branch.parent.sequence) == ("demo", 4)
        assert (branch.system, branch.system_record) == (SYSTEM, OPENING.system_record)
        assert branch.model == "m"
        assert await other.load("copy") == branch

    async def test_a_branch_in_a_turn_keeps_its_beginning(self, store: Store) -> None:
        await say(store, "demo", "t1", "one")
        branch = await store.branch("demo", NewConversation(id="copy"), at=1)
        assert [(turn.state, len(turn.messages)) for turn in branch.turns] == [("incomplete", 1)]

    async def test_a_branch_outlives_its_parent_and_leaves_it_alone(self, store: Store) -> None:
        await say(store, "demo", "t1", "one")
        before = await store.load("demo")
        await store.branch("demo", NewConversation(id="copy"))
        await say(store, "copy", "t2", "two")
        assert await store.load("demo") == before
        await store.delete("demo")
        assert texts(await store.load("copy")) == ["one", "one?", "two", "two?"]

    async def test_a_branch_can_go_on_under_another_prompt(self, store: Store) -> None:
        await say(store, "demo", "t1")
        other_prompt = Opening(
            system=plain_message("system", "Be long."),
            system_record=SystemRecord(policy="captured", source="branch"),
        )
        branch = await store.branch("demo", NewConversation(id="copy"), opening=other_prompt)
        assert branch.system == other_prompt.system
        assert branch.system_record == other_prompt.system_record
        assert (await store.load("demo")).system == SYSTEM

    async def test_a_branch_is_without_the_turn_that_runs(self, store: Store, other: Store) -> None:
        await say(store, "demo", "t1", "one")
        lease = await store.begin_turn("demo", start("t2", "two"))
        branch = await other.branch("demo", NewConversation(id="copy"))
        assert texts(branch) == ["one", "one?"]
        await store.finish_turn(lease, answered(lease))

    async def test_a_branch_needs_an_id_of_its_own(self, store: Store) -> None:
        await say(store, "demo", "t1")
        await say(store, "copy", "t1")
        with pytest.raises(ConversationExistsError):
            await store.branch("demo", NewConversation(id="copy"))


def _opening_without_a_prompt() -> Opening:
    return Opening(
        system=None,
        system_record=SystemRecord(policy="captured"),
        context_record=ContextRecord(executed_at=datetime(2026, 1, 1, tzinfo=UTC)),
    )
