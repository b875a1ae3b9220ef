"""Rows that were damaged after they were written: they can go, and nobody else is held up."""

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from typing import cast

import pytest
import sqlalchemy as sa

from cllm.core.errors import ConversationNotFoundError
from cllm.core.ports import Changes, ServerStore
from cllm.stores.registry import open_store
from cllm.stores.sql.database import Database
from cllm.testing.store_contract import say, say_again
from cllm.testing.store_harness import bring_results

OF_BAD = "WHERE message_group IN (SELECT message_group FROM turns WHERE conversation_id = 'bad')"
DAMAGES = {
    "no JSON": "UPDATE messages SET raw = '{' OF_BAD",
    "no object": "UPDATE messages SET raw = '7' OF_BAD",
    "a turn": "UPDATE turns SET \"window\" = '[]' WHERE conversation_id = 'bad'",
    "a blob": "UPDATE messages SET raw = x'ff00' OF_BAD",
    "no text": "UPDATE messages SET raw = CAST(x'ff7b' AS TEXT) OF_BAD",
    "a title": "UPDATE conversations SET title = CAST(x'ff' AS TEXT) WHERE id = 'bad'",
}
NUMBERED = "conversation = (SELECT number FROM conversations WHERE id = 'bad')"
"""How PostgreSQL's rows name the conversation."""
ONLY_SQLITE = {"a blob", "no text", "a title"}
"""PostgreSQL lets nobody write what is no text into a column of text."""


def damages(*names: str) -> pytest.MarkDecorator:
    """Each of them in each engine that can be damaged so."""
    cases = [("sqlite", name) for name in names]
    cases += [("postgresql", name) for name in names if name not in ONLY_SQLITE]
    return pytest.mark.parametrize(("url", "damage"), cases, indirect=["url"])


@pytest.fixture
async def store(url: str) -> AsyncIterator[ServerStore]:
    opened = cast("ServerStore", open_store(url, clock=lambda: datetime.now(UTC)))
    yield opened
    await opened.close()


def spoil(url: str, damage: str) -> None:
    statement = DAMAGES[damage].replace("OF_BAD", OF_BAD)
    if url.startswith("postgresql"):
        statement = statement.replace("conversation_id = 'bad'", NUMBERED)
        if "SET raw" in statement:
            # PostgreSQL computes the terms from the text, unless they are stored.
            statement = statement.replace(" WHERE", ", terms = 'zebra' WHERE", 1)
    Database(url).run(lambda bind: bind.execute(sa.text(statement)) and None)


async def two_conversations(store: ServerStore) -> None:
    await say(store, "good", "t1", "zebra")
    await say(store, "bad", "t1", "zebra")


@damages(*DAMAGES)
async def test_a_damaged_conversation_can_be_deleted(url: str, store: ServerStore, damage: str):
    await two_conversations(store)
    spoil(url, damage)
    await store.delete("bad")
    with pytest.raises(ConversationNotFoundError):
        await store.load("bad")
    assert {hit.conversation for hit in (await store.search("zebra")).items} == {"good"}
    await say(store, "bad", "t1", "lion")
    assert (await store.search("lion")).total == 2


@damages(*DAMAGES)
async def test_a_damaged_message_does_not_affect_others(url: str, store: ServerStore, damage: str):
    await two_conversations(store)
    spoil(url, damage)
    assert {item.id for item in (await store.list_conversations()).items} == {"good", "bad"}
    found = await store.search("zebra")
    assert {hit.conversation for hit in found.items} == {"good", "bad"}
    snippets = {hit.snippet for hit in found.items if hit.conversation == "good"}
    assert snippets == {"zebra", "zebra?"}
    await say(store, "good", "t2", "lion")
    assert len((await store.load("good")).turns) == 2


@damages("no JSON", "no object", "a blob", "no text")
async def test_the_damaged_end_of_a_conversation_can_be_deleted(
    url: str, store: ServerStore, damage: str
):
    await say(store, "bad", "t1", "zebra")
    await say(store, "bad", "t2", "lion")
    spoil(url, damage)
    await store.delete_from("bad", 1)
    assert (await store.load("bad")).message_count == 0


EDITS: dict[str, Callable[[ServerStore], Awaitable[object]]] = {
    "rename": lambda store: store.update("bad", Changes(title="Cats")),
    "archive": lambda store: store.update("bad", Changes(archived=True)),
    "pin": lambda store: store.update("bad", Changes(pins=(1,))),
    "undo the last turn": lambda store: store.delete_from("bad", 3),
    "cut a turn": lambda store: store.delete_from("bad", 4),
    "delete": lambda store: store.delete("bad"),
}


@pytest.mark.parametrize("edit", EDITS)
async def test_an_edit_reads_no_messages(url: str, store: ServerStore, edit: str):
    await say(store, "bad", "t1", "zebra")
    await say(store, "bad", "t2", "lion")
    spoil(url, "no object")
    await EDITS[edit](store)
    left = {"undo the last turn": 2, "cut a turn": 3, "delete": None}.get(edit, 4)
    listed = await store.list_conversations(archive_filter="all")
    assert [item.message_count for item in listed.items] == ([] if left is None else [left])


async def test_tool_results_of_a_replaced_answer_leave_the_path(store: ServerStore):
    """Turns that only brought results of tools leave the path with the answer they were for."""
    await say(store, "demo", "t1")
    await bring_results(store, "demo", "t2")
    await say_again(store, "demo", "t3", place="t1", text="anew")
    await say(store, "demo", "t4")
    assert {turn.id for turn in (await store.load("demo")).variants} == {"t1", "t2"}
    await store.delete_from("demo", 3)
    after = await store.load("demo")
    assert [turn.id for turn in after.turns] == ["t3"]
    assert {turn.id for turn in after.variants} == {"t1"}
