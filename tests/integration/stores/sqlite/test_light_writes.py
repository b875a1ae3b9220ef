"""Small turns are written where they come from; only their commit waits for the disk."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cllm.core.errors import CllmError, ConversationNotFoundError, StoreUnavailableError
from cllm.core.ports import NewConversation
from cllm.stores.sql.sqlite import SqliteStore
from cllm.stores.sql.sqlite_file import SqliteFile
from cllm.stores.sql.sqlite_turns import MOST_LIGHT_BYTES
from cllm.testing.store_harness import answered, start

LOOP = "MainThread"
BEHIND = "cllm-sqlite"


def opened(path: Path) -> SqliteStore:
    return SqliteStore(path, clock=lambda: datetime.now(UTC))


async def say(store: SqliteStore, ref: str, turn_id: str, text: str = "Hello") -> None:
    new = NewConversation(id=ref)
    lease = await store.begin_turn(ref, start(turn_id, text), create=new, tail="window")
    await store.finish_turn(lease, answered(lease))


async def known(database: Path, *refs: str) -> SqliteStore:
    """A store that has just taken a turn in each of these."""
    store = opened(database)
    for ref in refs:
        await say(store, ref, f"{ref}-1")
    return store


async def watched(store: SqliteStore) -> list[tuple[str, str]]:
    """The statements from now on, each with the thread that it ran in."""
    seen: list[tuple[str, str]] = []

    def note(statement: str) -> None:
        seen.append((threading.current_thread().name, statement.partition(" (")[0]))

    await store._file.write(lambda db: db.set_trace_callback(note))
    seen.clear()
    return seen


def where(seen: list[tuple[str, str]], statement: str) -> list[str]:
    return [thread for thread, said in seen if said.startswith(statement)]


def texts(conversation) -> list[str]:
    return [message.text for message in conversation.messages]


async def test_a_small_turn_is_written_in_the_loop_and_committed_behind_it(database):
    store = await known(database, "demo")
    seen = await watched(store)

    await say(store, "demo", "t2")

    assert where(seen, "INSERT INTO messages") == [LOOP, LOOP]
    assert where(seen, "COMMIT") == [BEHIND, BEHIND]
    assert texts(await store.load("demo")) == ["Hello", "Hi", "Hello", "Hi"]
    await store.close()


@pytest.mark.parametrize("case", ["unknown", "long", "again", "first"])
async def test_what_may_take_longer_is_done_behind_the_loop(database, case):
    store = await known(database, "demo")
    if case == "unknown":
        await store.close()
    seen = await watched(store)

    if case == "again":
        lease = await store.begin_turn("demo", start("t2", place="demo-1"), tail="window")
        await store.finish_turn(lease, answered(lease))
    elif case == "first":
        await say(store, "new", "t2")
    else:
        text = "Hello" if case == "unknown" else "x" * MOST_LIGHT_BYTES
        lease = await store.begin_turn("demo", start("t2", text), tail="window")

    assert set(where(seen, "INSERT INTO messages")) == {BEHIND}
    await store.close()


async def test_turns_that_come_at_once_share_a_commit(database):
    refs = [f"c{number}" for number in range(8)]
    store = await known(database, *refs)
    seen = await watched(store)

    await asyncio.gather(*(say(store, ref, "t2") for ref in refs))

    assert where(seen, "COMMIT") == [BEHIND, BEHIND]
    for ref in refs:
        assert [turn.state for turn in (await store.load(ref)).turns] == ["complete"] * 2
    await store.close()


async def test_what_comes_during_a_commit_is_written_after_it(database):
    store = await known(database, "one", "two")
    seen = await watched(store)
    first = asyncio.ensure_future(store.begin_turn("one", start("t2"), tail="window"))
    while not where(seen, "INSERT INTO messages"):
        await asyncio.sleep(0)

    second = await store.begin_turn("two", start("t2"), tail="window")

    assert (await first).turn.id == second.turn.id == "t2"
    assert where(seen, "COMMIT") == [BEHIND, BEHIND]
    assert where(seen, "INSERT INTO messages") == [LOOP, LOOP]
    await store.close()


async def test_a_file_that_is_locked_does_not_hold_the_loop_up(database):
    store = await known(database, "demo")
    with closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        waiting = asyncio.ensure_future(store.begin_turn("demo", start("t2"), tail="window"))
        for _ in range(20):
            await asyncio.sleep(0.005)
        assert not waiting.done()
        other.execute("COMMIT")
    lease = await waiting
    await store.finish_turn(lease, answered(lease))

    assert texts(await store.load("demo")) == ["Hello", "Hi"] * 2
    await store.close()


async def test_one_that_is_refused_takes_no_other_with_it(database):
    store = await known(database, "one", "two")

    found = await asyncio.gather(
        store.begin_turn("one", start("one-1"), tail="window"),
        store.begin_turn("two", start("t2"), tail="window"),
        return_exceptions=True,
    )

    assert isinstance(found[0], CllmError)
    assert not isinstance(found[1], BaseException)
    await store.finish_turn(found[1], answered(found[1]))
    assert texts(await store.load("two")) == ["Hello", "Hi"] * 2
    assert texts(await store.load("one")) == ["Hello", "Hi"]
    await store.close()


async def test_one_that_was_deleted_meanwhile_is_not_found(database):
    store, other = await known(database, "demo"), opened(database)
    await other.delete("demo")

    with pytest.raises(ConversationNotFoundError):
        await store.begin_turn("demo", start("t2"), tail="window")
    await store.close()
    await other.close()


def add_turn(number: int, conversation: str = "demo") -> Callable[[sqlite3.Connection], object]:
    """A row that only the commit refuses, if there is no such conversation."""

    def add(db: sqlite3.Connection) -> None:
        db.execute("PRAGMA defer_foreign_keys = ON")
        db.execute(
            "INSERT INTO turns (owner, conversation_id, number, id, place, state, started_at)"
            " VALUES ('local', ?, ?, ?, 'p', 'complete', '2026-01-01T00:00:00.000000+00:00')",
            (conversation, number, f"t{number}"),
        )

    return add


async def test_a_commit_that_fails_is_told_to_whom_it_concerns(database):
    heard: list[str] = []
    await (await known(database, "demo")).close()
    file = SqliteFile(database, on_loss=lambda: heard.append("lost"))
    await file.write(lambda db: db.execute("SELECT 1").fetchone())

    found = await asyncio.gather(
        file.write(add_turn(2), is_light=True),
        file.write(add_turn(3, "nobody"), is_light=True),
        file.write(add_turn(4), is_light=True),
        return_exceptions=True,
    )

    assert [type(one) for one in found] == [type(None), StoreUnavailableError, type(None)]
    assert heard
    rows = await file.read(lambda db: db.execute("SELECT number FROM turns").fetchall())
    assert sorted(rows) == [(1,), (2,), (4,)]
    await file.close()


async def test_whoever_comes_between_a_write_and_its_commit_commits_it_first(database):
    await (await known(database, "demo")).close()
    file = SqliteFile(database)
    count = "SELECT count(*) FROM turns"
    await file.write(lambda db: db.execute(count).fetchone())
    free = threading.Event()

    holding = asyncio.ensure_future(file.write(lambda _: free.wait(0.05)))
    light = asyncio.ensure_future(file.write(add_turn(2), is_light=True))
    await asyncio.sleep(0)
    behind = asyncio.ensure_future(file.write(lambda db: db.execute(count).fetchone()))
    free.set()

    assert [await holding, await light, await behind] == [True, None, (2,)]
    made = file._write_here([add_turn(3)])
    assert made is not None
    assert await file.write(lambda db: db.execute(count).fetchone()) == (3,)
    assert await made == [(None, None)]
    await file.close()


async def test_a_turn_that_is_given_up_while_it_is_committed_was_never_begun(database):
    store = await known(database, "demo")
    seen = await watched(store)
    begun = asyncio.ensure_future(store.begin_turn("demo", start("t2"), tail="window"))
    while not where(seen, "INSERT INTO messages"):
        await asyncio.sleep(0)

    begun.cancel()
    with pytest.raises(asyncio.CancelledError):
        await begun

    assert texts(await store.load("demo")) == ["Hello", "Hi"]
    await say(store, "demo", "t3")
    assert texts(await store.load("demo")) == ["Hello", "Hi"] * 2
    await store.close()


async def test_a_file_that_is_closed_keeps_what_was_given_before(database):
    store = await known(database, "demo")
    lease = await store.begin_turn("demo", start("t2"), tail="window")
    finished = asyncio.ensure_future(store.finish_turn(lease, answered(lease)))
    await asyncio.sleep(0)

    await store.close()
    await finished

    store = opened(database)
    assert texts(await store.load("demo")) == ["Hello", "Hi"] * 2
    await store.close()


def test_loops_in_two_threads_write_to_one_file(database):
    """One of them has its small turns written behind it, as only one at a time can do without."""
    store = opened(database)
    turns, failures = 20, []

    async def talk(ref: str) -> None:
        for number in range(turns):
            await say(store, ref, f"t{number}")

    def run(ref: str) -> None:
        try:
            asyncio.run(talk(ref))
        except BaseException as error:
            failures.append(error)
            raise

    threads = [threading.Thread(target=run, args=(ref,)) for ref in ("one", "two")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    async def check() -> None:
        for ref in ("one", "two"):
            assert texts(await store.load(ref)) == ["Hello", "Hi"] * turns
        seen = await watched(store)
        await say(store, "one", "last")
        assert where(seen, "INSERT INTO messages") == [LOOP, LOOP]
        await store.close()

    assert failures == []
    asyncio.run(check())
