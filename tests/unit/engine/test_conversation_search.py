"""Searches in messages and titles."""

from datetime import UTC, datetime

from cllm.core.conversation import StoredConversation, Turn
from cllm.core.message import plain_message
from cllm.engine.conversation_search import describe_no_results, search_conversations
from cllm.stores.memory import MemoryStore

THEN = datetime(2026, 1, 1, tzinfo=UTC)


async def test_conversations_are_found_by_messages_and_titles():
    store = MemoryStore(clock=lambda: THEN)
    for name, text, title in (
        ("a", "My cat is Luna.", "Pets"),
        ("b", "Hello.", "Luna"),
        ("c", "Hello.", None),
    ):
        turn = Turn(
            id=name,
            place=name,
            state="complete",
            messages=(plain_message("user", text), plain_message("assistant", text)),
            started_at=THEN,
        )
        await store.add(
            StoredConversation(
                id=name, created_at=THEN, updated_at=THEN, turns=(turn,), title=title
            )
        )

    found = await search_conversations(store, "luna")

    by_id = {one.summary.id: one for one in found.items}
    assert set(by_id) == {"a", "b"}
    assert [hit.sequence for hit in sorted(by_id["a"].hits, key=lambda hit: hit.sequence)] == [1, 2]
    assert not by_id["a"].is_in_title
    assert by_id["b"].is_in_title
    assert not found.more


def test_a_search_without_results_says_whether_older_messages_match():
    nothing = describe_no_results("cats", "active", more=False)
    older = describe_no_results("cats", "archived", more=True)

    assert nothing == "No conversation contains 'cats'."
    assert "in no archived conversation" in older
