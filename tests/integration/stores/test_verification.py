"""`cllm verify` finds damage of each kind in each store, and none in a store in use."""

# ruff: noqa: S608 - the values are constants

import asyncio
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import asyncpg
import pytest

from cllm.app import now
from cllm.core.conversation import StoredConversation, Turn
from cllm.core.message import plain_message
from cllm.core.ports import Changes, NewConversation, Store, TurnStart
from cllm.stores.registry import open_store
from cllm.transfer.verification import StoreCheck

WORDS = "Hello"


async def ask(store: Store, ref: str, turn_id: str, *, place: str | None = None) -> None:
    start = TurnStart(
        id=turn_id, messages=(plain_message("user", f"Ask {turn_id}"),), model="m", place=place
    )
    lease = await store.begin_turn(ref, start, create=NewConversation(id=ref))
    reply = plain_message("assistant", f"{WORDS} {turn_id}")
    turn = Turn(
        id=turn_id,
        place=lease.turn.place,
        state="complete",
        messages=(*start.messages, reply),
        started_at=now(),
        ended_at=now(),
    )
    await store.finish_turn(lease, turn)


async def fill(store: Store) -> None:
    """Add a conversation with a variant, a branch, an archived and a side conversation."""
    for turn_id in ("a1", "a2", "a3"):
        await ask(store, "cats", turn_id)
    await ask(store, "cats", "a3-v", place="a3")
    await store.branch("cats", NewConversation(id="branch"), at=4)
    await ask(store, "branch", "b1")
    await ask(store, "old", "o1")
    await store.update("old", Changes(archived=True))
    side = NewConversation(id="side", is_side=True, family="cats")
    await store.create(side)
    await ask(store, "side", "s1")


async def check(url: str) -> list[str]:
    store = open_store(url, clock=now)
    try:
        found = StoreCheck(store)
        await found.run()
    finally:
        await store.close()
    return found.problems


def fill_and_check(url: str, damage: Callable[[], Any]) -> list[str]:
    async def prepare() -> None:
        store = open_store(url, clock=now)
        await fill(store)
        await store.close()
        assert await check(url) == []

    asyncio.run(prepare())
    damage()
    return asyncio.run(check(url))


def execute(url: str, statement: str) -> None:
    """Change a database as a faulty program would, without its constraints."""
    if url.startswith("sqlite:"):
        connection = sqlite3.connect(url.removeprefix("sqlite:"))
        assert connection.execute(statement).rowcount > 0
        connection.commit()
        connection.close()
        return

    async def run() -> None:
        database = await asyncpg.connect(url)
        await database.execute("SET session_replication_role = replica")
        assert await database.execute(statement) not in ("UPDATE 0", "DELETE 0")
        await database.close()

    asyncio.run(run())


def of_turn(turn_id: str) -> str:
    return f"message_group = (SELECT max(message_group) FROM turns WHERE id = '{turn_id}')"


CHANGE = "UPDATE messages SET raw = replace(raw, 'Hello', 'Hallo') WHERE "
DAMAGE = {
    "a byte of a message": (
        CHANGE + of_turn("a2"),
        "cats: the path digest of message 2 of turn a2",
    ),
    "a byte of a variant": (
        CHANGE + of_turn("a3"),
        "cats: the path digest of message 2 of turn a3",
    ),
    "a byte of an archived message": (CHANGE + of_turn("o1"), "old: the path digest"),
    "a byte of a side message": (CHANGE + of_turn("s1"), "side: the path digest"),
    "a byte of a branch": (CHANGE + of_turn("b1"), "branch: the path digest of message 2"),
    "a broken message": (
        f"UPDATE messages SET raw = '{{' WHERE {of_turn('o1')} AND ordinal = 0",
        "old: ",
    ),
    "no message at all": (f"UPDATE messages SET raw = '[]' WHERE {of_turn('o1')}", "old: "),
    "a deleted message": (
        f"DELETE FROM messages WHERE {of_turn('a2')} AND ordinal = 0",
        "the message numbers of turn a2 have a gap",
    ),
    "a deleted last message": (
        f"DELETE FROM messages WHERE {of_turn('o1')} AND ordinal = 1",
        "old: it has 1 messages instead of 2",
    ),
    "a deleted turn": (
        "DELETE FROM turns WHERE id = 'a3'",
        "messages belong to no turn",
    ),
    "a deleted turn of the path": (
        "DELETE FROM turns WHERE id = 'o1'",
        "old: it has 0 messages instead of 2",
    ),
    "a deleted conversation": (
        "DELETE FROM conversations WHERE id = 'old'",
        "1 turns belong to the missing conversation",
    ),
    "a duplicate sequence number": (
        "UPDATE turns SET first_sequence = 1 WHERE id = 'a2'",
        "cats: turn a2 starts at message 1 instead of 3",
    ),
    "a gap in the message numbers": (
        f"UPDATE messages SET ordinal = 7 WHERE {of_turn('a2')} AND ordinal = 1",
        "the message numbers of turn a2 have a gap",
    ),
    "a wrong count": (
        "UPDATE conversations SET message_count = 9 WHERE id = 'old'",
        "old: it has 2 messages instead of 9",
    ),
    "turns in another order": (
        "UPDATE turns SET position = 50 WHERE id = 'a1'",
        "cats: turn ",
    ),
    "a variant of another turn": (
        "UPDATE turns SET place = 'a1' WHERE id = 'a3'",
        "cats: the path digest of message 1 of turn a3",
    ),
    "a turn of another conversation's messages": (
        "UPDATE turns SET message_group = (SELECT min(message_group) FROM turns) WHERE id = 'b1'",
        "branch: the path digest of message 1 of turn b1",
    ),
    "no digest": (
        f"UPDATE messages SET digest = NULL WHERE {of_turn('s1')}",
        "side: the path digest of message 1 of turn s1",
    ),
}


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_of_a_database_is_found(url: str, kind: str) -> None:
    statement, problem = DAMAGE[kind]
    problems = fill_and_check(url, lambda: execute(url, statement))
    assert any(problem in line for line in problems), problems
    assert all("\n" not in line for line in problems)


def test_a_damaged_page_of_an_sqlite_file_is_found(tmp_path: Path) -> None:
    path = tmp_path / "cllm.db"

    def damage() -> None:
        connection = sqlite3.connect(path)
        connection.execute("PRAGMA writable_schema = ON")
        # The index no longer has the entries of the table.
        connection.execute("DELETE FROM sqlite_master WHERE name = 'turns_by_end'")
        connection.commit()
        connection.close()

    problems = fill_and_check(f"sqlite:{path}", damage)
    assert any(line.startswith("The database file is damaged: ") for line in problems), problems


def change_file(path: Path, change: Callable[[Any], None]) -> None:
    document = json.loads(path.read_text(encoding="utf-8"))
    change(document)
    path.write_text(json.dumps(document), encoding="utf-8")


def set_content(document: Any) -> None:
    document["messages"][1]["content"] = "Hallo a1"


def repeat_turn(document: Any) -> None:
    turns = document["metadata"]["cllm"]["turns"]
    turns[1]["id"] = turns[0]["id"]


def move_variant(document: Any) -> None:
    document["metadata"]["cllm"]["variants"][0]["id"] = "a1"


FILE_DAMAGE: dict[str, tuple[str, Callable[[Any], None], str]] = {
    "a byte of a message": ("cats", set_content, "the messages of turn a1 were changed"),
    "a byte of an archived message": ("old", set_content, "old: the messages of turn o1"),
    "a byte of a side message": ("side", set_content, "side: the messages of turn s1"),
    "a byte of a branch": ("branch", set_content, "branch: the messages of turn a1"),
    "a deleted message": (
        "cats",
        lambda document: document["messages"].pop(2),
        "the messages of turn a2 were changed or deleted",
    ),
    "a deleted last message": (
        "cats",
        lambda document: document["messages"].pop(),
        "the messages of turn a3-v were changed or deleted",
    ),
    "a duplicate message": (
        "cats",
        lambda document: document["messages"].insert(2, document["messages"][1]),
        "belong to no turn",
    ),
    "turns in another order": (
        "cats",
        lambda document: document["metadata"]["cllm"]["turns"].reverse(),
        "were changed or deleted",
    ),
    "two turns with one ID": ("cats", repeat_turn, "two turns have the same ID"),
    "a variant with the ID of a turn": ("cats", move_variant, "two turns have the same ID"),
    "no messages": ("cats", lambda document: document.pop("messages"), "it has no messages"),
}


@pytest.mark.parametrize("kind", FILE_DAMAGE)
def test_damage_of_a_file_is_found(tmp_path: Path, kind: str) -> None:
    name, change, problem = FILE_DAMAGE[kind]
    path = tmp_path / f"{name}.json"
    problems = fill_and_check(f"json:{tmp_path}", lambda: change_file(path, change))
    assert len(problems) == 1
    assert problem in problems[0]


def test_a_broken_byte_of_a_file_is_found(tmp_path: Path) -> None:
    path = tmp_path / "cats.json"

    def damage() -> None:
        data = bytearray(path.read_bytes())
        data[len(data) // 2] ^= 0x80
        path.write_bytes(data)

    problems = fill_and_check(f"json:{tmp_path}", damage)
    assert len(problems) == 1
    assert str(path) in problems[0]


async def test_turns_that_run_during_a_check_are_no_problems(url: str) -> None:
    store, checked = open_store(url, clock=now), open_store(url, clock=now)
    await fill(store)
    is_done = asyncio.Event()

    async def use() -> None:
        count = 0
        while not is_done.is_set():
            count += 1
            await ask(store, "cats", f"more-{count}")
            await ask(store, "cats", f"again-{count}", place=f"more-{count}")
            await store.branch("cats", NewConversation(id=f"branch-{count}"))
            await store.delete_from(f"branch-{count}", 3)
            await store.choose_variant("cats", f"more-{count}")

    task = asyncio.create_task(use())
    try:
        for _ in range(10):
            check = StoreCheck(checked)
            await check.run()
            assert check.problems == []
    finally:
        is_done.set()
        await task
        await store.close()
        await checked.close()


async def test_a_conversation_of_another_owner_is_named(url: str) -> None:
    store = open_store(url, clock=now)
    moment = now()
    turn = Turn(
        id="t",
        place="t",
        state="complete",
        messages=(plain_message("user", "Hello"),),
        started_at=moment,
    )
    theirs = StoredConversation(id="x", created_at=moment, updated_at=moment, turns=(turn,))
    await store.add(theirs, owner="ann")
    await store.close()
    await asyncio.to_thread(execute, url, CHANGE + of_turn("t"))
    (problem,) = await check(url)
    assert problem.startswith("x (owner ann): the path digest of message 1")
