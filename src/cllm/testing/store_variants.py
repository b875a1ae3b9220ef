"""Variants of a turn, and branches."""

import pytest

from cllm.core.conversation import SystemRecord
from cllm.core.errors import ConversationExistsError, TurnNotFoundError, UsageError
from cllm.core.message import plain_message
from cllm.core.ports import Changes, NewConversation, Opening, Store
from cllm.testing.store_harness import (
    OPENING,
    SYSTEM,
    StoreHarness,
    StoreSuite,
    answered,
    bring_results,
    failed,
    say,
    say_again,
    start,
    texts,
)


class VariantContract(StoreSuite):
    async def test_a_finished_variant_replaces_the_turn_on_the_path(self, store: Store) -> None:
        await say(store, "demo", "t1", "one")
        await say(store, "demo", "t2", "two")
        await say_again(store, "demo", "t3", place="t2", text="better")
        loaded = await store.load("demo")
        assert [turn.id for turn in loaded.turns] == ["t1", "t3"]
        assert [turn.id for turn in loaded.variants] == ["t2"]
        assert {turn.place for turn in (loaded.turns[1], *loaded.variants)} == {"t2"}

    async def test_a_running_variant_does_not_change_the_path(
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
        await self._finish(store, start("t2", place="t1"), failed)
        loaded = await store.load("demo")
        assert [turn.id for turn in loaded.turns] == ["t1"]
        assert [turn.id for turn in loaded.variants] == ["t2"]

    async def test_a_failed_turn_can_be_regenerated(self, store: Store) -> None:
        await say(store, "demo", "t1")
        await self._finish(store, start("t2"), failed)
        await say_again(store, "demo", "t3", place="t2", text="now")
        loaded = await store.load("demo")
        assert [turn.id for turn in loaded.turns] == ["t1", "t3"]
        assert [turn.id for turn in loaded.variants] == ["t2"]

    async def test_the_last_answer_can_be_regenerated_after_a_failure(self, store: Store) -> None:
        await say(store, "demo", "t1")
        await self._finish(store, start("t2"), failed)
        await say_again(store, "demo", "t3", place="t1", text="now")
        assert [turn.id for turn in (await store.load("demo")).turns] == ["t3", "t2"]

    async def test_tool_results_leave_the_path_with_their_answer(
        self, store: Store, other: Store
    ) -> None:
        await say(store, "demo", "t1")
        await say(store, "demo", "t2", "And now?")
        await bring_results(store, "demo", "t3")
        await bring_results(store, "demo", "t4")
        await store.update("demo", Changes(pins=(1, 6)))
        await say_again(store, "demo", "t5", place="t2", text="Anew")
        loaded = await other.load("demo")
        assert [turn.id for turn in loaded.turns] == ["t1", "t5"]
        assert {turn.id for turn in loaded.variants} == {"t2", "t3", "t4"}
        assert (await other.summary("demo")).message_count == loaded.message_count == 4
        assert loaded.pins == (1,)
        await say(store, "demo", "t6")
        assert [turn.id for turn in (await other.load("demo", tail=1)).turns] == ["t6"]

    async def test_a_variant_of_an_earlier_or_unknown_turn_is_refused(self, store: Store) -> None:
        await say(store, "demo", "t1")
        await say(store, "demo", "t2")
        before = await store.load("demo")
        await self._refuse(UsageError, store.begin_turn("demo", start("t3", place="t1")))
        with pytest.raises(TurnNotFoundError):
            await store.begin_turn("demo", start("t3", place="nowhere"))
        assert await store.load("demo") == before
        await say(store, "demo", "t4")

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
        await self._finish(store, start("t2", place="t1"), failed)
        await self._refuse(UsageError, store.choose_variant("demo", "t2"))
        await self._refuse(TurnNotFoundError, store.choose_variant("demo", "t9"))

    async def test_a_branch_copies_the_path_up_to_its_message(
        self, store: Store, other: Store
    ) -> None:
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

    async def test_the_title_of_a_branch_names_its_origin(self, store: Store) -> None:
        await say(store, "demo", "t1", "Cats")
        first = await store.branch("demo", NewConversation(id="first"))
        second = await store.branch("first", NewConversation(id="second"))
        named = await store.branch("demo", NewConversation(id="named", title="Dogs"))
        titles = [(await store.load(branch.id)).title for branch in (first, second, named)]
        assert titles == ["Branch of 'Cats'", "Branch of 'Cats'", "Dogs"]

    async def test_a_branch_within_a_turn_has_an_incomplete_turn(self, store: Store) -> None:
        await say(store, "demo", "t1", "one")
        branch = await store.branch("demo", NewConversation(id="copy"), at=1)
        assert [(turn.state, len(turn.messages)) for turn in branch.turns] == [("incomplete", 1)]

    async def test_a_branch_is_independent_of_its_parent(self, store: Store) -> None:
        await say(store, "demo", "t1", "one")
        before = await store.load("demo")
        await store.branch("demo", NewConversation(id="copy"))
        await say(store, "copy", "t2", "two")
        assert await store.load("demo") == before
        await store.delete("demo")
        assert texts(await store.load("copy")) == ["one", "one?", "two", "two?"]

    async def test_a_branch_can_have_another_prompt(self, store: Store) -> None:
        await say(store, "demo", "t1")
        other_prompt = Opening(
            system=plain_message("system", "Be long."),
            system_record=SystemRecord(policy="captured", source="branch"),
        )
        branch = await store.branch("demo", NewConversation(id="copy"), opening=other_prompt)
        assert branch.system == other_prompt.system
        assert branch.system_record == other_prompt.system_record
        assert (await store.load("demo")).system == SYSTEM

    async def test_a_branch_does_not_copy_a_running_turn(self, store: Store, other: Store) -> None:
        await say(store, "demo", "t1", "one")
        lease = await store.begin_turn("demo", start("t2", "two"))
        branch = await other.branch("demo", NewConversation(id="copy"))
        assert texts(branch) == ["one", "one?"]
        await store.finish_turn(lease, answered(lease))

    async def test_a_branch_needs_an_unused_id(self, store: Store) -> None:
        await say(store, "demo", "t1")
        await say(store, "copy", "t1")
        with pytest.raises(ConversationExistsError):
            await store.branch("demo", NewConversation(id="copy"))
