"""The edits that every store has."""

from datetime import UTC, datetime

import pytest

from cllm.core.conversation import SystemRecord
from cllm.core.errors import ConversationBusyError
from cllm.core.message import plain_message
from cllm.core.ports import Changes, NewConversation, Opening
from cllm.stores.memory import MemoryStore
from cllm.testing.store_harness import say

THEN = datetime(2026, 1, 1, tzinfo=UTC)
OPENING = Opening(
    system=plain_message("system", "Be brief."), system_record=SystemRecord(policy="captured")
)


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(clock=lambda: THEN)


async def test_an_update_returns_the_summary(store: MemoryStore):
    await store.create(NewConversation(id="demo"))

    assert (await store.update("demo", Changes(title="New"))).title == "New"


async def test_messages_are_deleted_only_from_an_unchanged_conversation(store: MemoryStore):
    await say(store, "demo", "t1")
    before = await store.load("demo")
    await say(store, "demo", "t2")

    with pytest.raises(ConversationBusyError):
        await store.delete_from("demo", 1, unchanged=before)
    await store.delete_from("demo", 3, unchanged=await store.load("demo"))

    assert (await store.load("demo")).message_count == 2


async def test_a_prompt_is_captured_only_in_an_old_conversation(store: MemoryStore):
    await say(store, "demo", "t1")

    assert await store.capture("demo", OPENING) is None
