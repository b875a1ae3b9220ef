"""The opening of a conversation: system prompt, records and title."""

from datetime import UTC, datetime

import msgspec
import pytest

from cllm.core.conversation import ContextRecord, SystemRecord
from cllm.core.errors import ConversationBusyError, ConversationNotFoundError, StaleLeaseError
from cllm.core.message import plain_message
from cllm.core.ports import Changes, NewConversation, Opening, OpeningStore, Store
from cllm.testing.store_harness import (
    OPENING,
    SYSTEM,
    StoreHarness,
    StoreSuite,
    answered,
    say,
    start,
)

replace = msgspec.structs.replace


class OpeningContract(StoreSuite):
    async def test_an_opening_is_stored_once(self, store: Store) -> None:
        await say(store, "demo", "t1")
        second = Opening(
            system=plain_message("system", "Other."), system_record=SystemRecord(policy="captured")
        )
        await self._finish(store, start("t2"), opening=second)
        loaded = await store.load("demo")
        assert (loaded.system, loaded.system_record) == (SYSTEM, OPENING.system_record)

    async def test_an_opening_without_a_prompt_is_stored_too(self, store: Store) -> None:
        without_prompt = _opening_without_a_prompt()
        await self._finish(store, start("t1"), opening=without_prompt)
        await self._finish(store, start("t2"), opening=OPENING)
        loaded = await store.load("demo")
        assert loaded.system is None
        assert loaded.system_record == without_prompt.system_record
        assert loaded.context_record == without_prompt.context_record

    async def test_branches_copy_a_pinned_prompt(self, store: Store, other: Store) -> None:
        record = SystemRecord(policy="pinned", source="a program", prompt="Be kind. é")
        pinned = Opening(system=None, system_record=record)
        await self._finish(store, start("t1"), opening=pinned)
        branch = await other.branch("demo", NewConversation(id="branch"))
        for loaded in (await other.load("demo"), branch, await store.load("branch", tail=0)):
            assert (loaded.system, loaded.system_record) == (None, record)
            assert loaded.kept_prompt is not None
            assert loaded.kept_prompt.text == "Be kind. é"

    async def test_an_opening_can_be_replaced_before_the_first_message(self, store: Store) -> None:
        await store.create(NewConversation(id="demo"), opening=_opening_without_a_prompt())
        await self._finish(store, start("t1"), opening=OPENING)
        loaded = await store.load("demo")
        assert loaded.system == OPENING.system
        assert loaded.system_record == OPENING.system_record

    async def test_the_opening_of_a_new_conversation_is_saved_when_its_turn_starts(
        self, store: Store, other: Store
    ) -> None:
        new = NewConversation(id="demo", opening=OPENING)
        lease = await store.begin_turn("demo", start("t1"), create=new)
        running = await other.load("demo")
        assert (running.system, running.system_record) == (SYSTEM, OPENING.system_record)
        await store.finish_turn(lease, answered(lease), opening=replace(OPENING, system=None))
        assert (await other.load("demo")).system == SYSTEM
        dropped = await store.begin_turn("other", start("t1"), create=_new_with_opening("other"))
        await store.drop_turn(dropped)
        await self._refuse(ConversationNotFoundError, other.load("other"))

    async def test_an_opening_is_saved_during_the_first_turn(
        self, harness: StoreHarness, store: Store, other: Store
    ) -> None:
        if not isinstance(store, OpeningStore):
            pytest.skip("The store saves an opening when the turn ends.")
        new = NewConversation(id="demo")
        lease = await store.begin_turn("demo", start("t1"), create=new)
        lease = await store.save_opening(lease, OPENING)
        assert (await other.load("demo")).system == SYSTEM
        await store.finish_turn(lease, answered(lease))
        second = await store.begin_turn("demo", start("t2"))
        second = await store.save_opening(second, replace(OPENING, system=None))
        assert second.conversation.system == SYSTEM
        await store.finish_turn(second, answered(second))
        assert (await other.load("demo")).system == SYSTEM
        lost = await store.begin_turn("lost", start("t1"), create=NewConversation(id="lost"))
        await harness.lose(store)
        await self._refuse(StaleLeaseError, store.save_opening(lost, OPENING))

    async def test_dropping_a_first_turn_deletes_its_opening(
        self, store: Store, other: Store
    ) -> None:
        if not isinstance(store, OpeningStore):
            pytest.skip("The store saves an opening when the turn ends.")
        lease = await store.begin_turn("demo", start("t1"), create=NewConversation(id="demo"))
        lease = await store.save_opening(lease, OPENING)
        await store.drop_turn(lease)
        await self._refuse(ConversationNotFoundError, other.load("demo"))

    async def test_capture_adds_a_prompt_to_an_old_conversation(
        self, store: Store, other: Store
    ) -> None:
        await self._finish(store, start("t1"), ref="old")
        before = await store.load("old")
        captured = await store.capture("old", OPENING)
        loaded = await other.load("old")
        assert captured == loaded
        assert loaded == replace(before, system=SYSTEM, system_record=OPENING.system_record)
        await say(store, "old", "t2")
        assert len((await store.load("old")).turns) == len(before.turns) + 1

    async def test_capture_changes_only_old_conversations(self, store: Store) -> None:
        await say(store, "captured", "t1")
        await store.create(NewConversation(id="empty"))
        await self._finish(store, start("t1"), ref="none", opening=_opening_without_a_prompt())
        second = replace(OPENING, system=plain_message("system", "Other."))
        for ref in ("captured", "empty", "none"):
            before = await store.load(ref)
            assert await store.capture(ref, second) is None
            assert await store.load(ref) == before

    async def test_capture_is_refused_while_a_turn_runs(self, store: Store, other: Store) -> None:
        await self._finish(store, start("t1"), ref="old")
        lease = await store.begin_turn("old", start("t2"))
        await self._refuse(ConversationBusyError, other.capture("old", OPENING))
        await store.finish_turn(lease, answered(lease))
        assert (await other.load("old")).system is None

    async def test_the_title_is_made_from_the_first_user_message(self, store: Store) -> None:
        await say(store, "demo", "t1", "  My cat\nis called Luna. ")
        await say(store, "demo", "t2", "What is my cat called?")
        assert (await store.load("demo")).title == "My cat is called Luna."

    async def test_messages_that_a_client_adds_are_not_the_title(
        self, store: Store, other: Store
    ) -> None:
        added = (
            plain_message("user", "I have *added these files to the chat* so you can edit them."),
            plain_message("assistant", "Ok."),
            plain_message("user", "Fix the parser."),
        )
        lease = await store.begin_turn(
            "demo", start("t1", messages=added), create=NewConversation(id="demo")
        )
        await store.finish_turn(lease, answered(lease))
        assert (await other.load("demo")).title == "Fix the parser."
        await other.update("demo", Changes(title=None))
        lease = await store.begin_turn("demo", start("t2", "Thanks"), tail=1)
        await store.finish_turn(lease, answered(lease))
        assert (await other.load("demo")).title == "Fix the parser."

    async def test_a_title_from_creation_is_not_replaced(self, store: Store) -> None:
        await store.create(NewConversation(id="demo", title="Mine"))
        await say(store, "demo", "t1")
        assert (await store.load("demo")).title == "Mine"


def _new_with_opening(ref: str) -> NewConversation:
    return NewConversation(id=ref, opening=OPENING)


def _opening_without_a_prompt() -> Opening:
    return Opening(
        system=None,
        system_record=SystemRecord(policy="captured"),
        context_record=ContextRecord(executed_at=datetime(2026, 1, 1, tzinfo=UTC)),
    )
