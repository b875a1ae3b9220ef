"""Lookups of a client's whole history in the store."""

import pytest
from tests.history_client import message, reply, user
from tests.unit.engine.conftest import Clock

from cllm.core.message import Message
from cllm.core.ports import NewConversation
from cllm.engine.path_lookup import PathLookup
from cllm.stores.memory import MemoryStore
from cllm.testing.store_contract import say
from cllm.wire.path_digest import read_content


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore(clock=Clock())


def lookup(store: MemoryStore, *messages: Message, owner: str = "local") -> PathLookup:
    contents = [read_content(one) for one in messages]
    return PathLookup(store, messages, contents, owner=owner)


async def save(store: MemoryStore, conversation: str, *questions: str) -> tuple[Message, ...]:
    """Save a turn for each question; return all messages."""
    for number, question in enumerate(questions):
        await say(store, conversation, f"{conversation}-{number}", question)
    stored = await store.load(conversation)
    return tuple(one for turn in stored.turns for one in turn.messages)


async def test_the_longest_stored_part_is_found(store: MemoryStore) -> None:
    stored = await save(store, "demo", "one", "two")
    found = await lookup(store, *stored, user("three"), reply("new"), user("four")).find()
    assert [(one.conversation, one.position) for one in found] == [("demo", len(stored) - 1)]
    assert await lookup(store, user("nothing")).find() == ()


async def test_a_long_new_part_does_not_hide_the_stored_one(store: MemoryStore) -> None:
    stored = await save(store, "demo", "one")
    new = [user(f"new {number}") for number in range(50)]
    found = await lookup(store, *stored, *new).find()
    assert found[0].position == len(stored) - 1


async def test_a_history_in_two_families_has_no_unique_match(store: MemoryStore) -> None:
    stored = await save(store, "demo", "one")
    assert (await lookup(store, *stored).find_unique()) is not None
    await save(store, "other", "one")
    assert (await lookup(store, *stored).find_unique()) is None


async def test_a_reply_after_the_match_is_no_unique_match(store: MemoryStore) -> None:
    stored = await save(store, "demo", "one")
    request = lookup(store, *stored, user("two"), reply("unknown"))
    assert request.last_reply == len(stored) + 1
    assert await request.find_unique() is None


async def test_only_branches_of_a_branch_are_its_descendants(store: MemoryStore) -> None:
    stored = await save(store, "demo", "one", "two")
    branch = await store.branch("demo", NewConversation(id="branch"), at=2)
    await save(store, "branch", "apart")
    request = lookup(store, *stored)
    match = await request.find_descendant(await store.load("demo"))
    assert match is not None
    assert match.conversation == "demo"
    match = await request.find_descendant(branch)
    assert match is not None
    assert (match.conversation, match.position) == ("branch", 1)


async def test_a_message_without_content_is_not_the_last_reply(store: MemoryStore) -> None:
    assert lookup(store, user("one")).last_reply == -1
    assert lookup(store, user("one"), message("assistant", "")).last_reply == -1
    assert lookup(store, user("one"), reply("two"), user("three")).last_reply == 1
