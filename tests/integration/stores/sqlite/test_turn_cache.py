"""What is remembered of a conversation is what the file has, and writes that wait are one."""

import asyncio
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from cllm.core.conversation import INTERRUPTION, WindowRecord
from cllm.core.errors import ConversationNotFoundError, StaleLeaseError, StoreUnavailableError
from cllm.core.ports import Changes, NewConversation
from cllm.stores.sqlite import turns as sqlite_turns
from cllm.stores.sqlite.connection import BUSY_SECONDS, SqliteFile
from cllm.stores.sqlite.reader import load
from cllm.stores.sqlite.store import SqliteStore
from cllm.stores.sqlite.turn_cache import TurnCache
from cllm.testing.store_harness import answered, start


def opened(path: Path, busy_seconds: float = BUSY_SECONDS) -> SqliteStore:
    return SqliteStore(path, clock=lambda: datetime.now(UTC), busy_seconds=busy_seconds)


async def say(store: SqliteStore, ref: str, turn_id: str, text: str = "Hello") -> None:
    """One whole turn that loads what a window can use."""
    new = NewConversation(id=ref)
    lease = await store.begin_turn(ref, start(turn_id, text), create=new, tail="window")
    await store.finish_turn(lease, answered(lease))


@contextmanager
def refusing(database: Path) -> Iterator[None]:
    """No conversation can be written for a while."""
    with closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute(
            "CREATE TRIGGER refusing BEFORE UPDATE ON conversations BEGIN"
            " SELECT RAISE(ROLLBACK, 'no'); END"
        )
        yield
        other.execute("DROP TRIGGER refusing")


async def texts_found(store: SqliteStore, turn_id: str) -> list[str]:
    """What a turn finds that begins now, and is then dropped."""
    lease = await store.begin_turn("demo", start(turn_id), tail="window")
    await store.drop_turn(lease)
    return [message.text for message in lease.conversation.messages]


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The conversations that turns had to read from the file."""
    read: list[str] = []

    def noted(db, row, tail):
        read.append(row[1])
        return load(db, row, tail)

    monkeypatch.setattr(sqlite_turns, "load", noted)
    return read


async def test_a_turn_uses_the_cache_of_its_process(database, reads):
    store = opened(database)
    await say(store, "demo", "t1")
    await say(store, "demo", "t2")
    lease = await store.begin_turn("demo", start("t3"), tail="window")
    assert [turn.id for turn in lease.conversation.turns] == ["t1", "t2"]
    assert reads == []
    await store.close()


async def test_a_moved_window_is_cut_from_the_cache(database, reads):
    store = opened(database)
    for number in range(5):
        await say(store, "demo", f"t{number}")
    lease = await store.begin_turn("demo", start("t5"), tail="window")
    cut = WindowRecord(first_sequence=8, sent_messages=4)
    await store.finish_turn(lease, msgspec.structs.replace(answered(lease), window=cut))
    known = await store.begin_turn("demo", start("t6"), tail="window")
    assert reads == []
    await store.drop_turn(known)
    loaded = await store.load("demo", tail="window")
    assert known.conversation == loaded
    assert [turn.id for turn in loaded.turns] == ["t3", "t4", "t5"]
    await store.close()


@pytest.mark.parametrize("tail", [None, 1, 3, 4, 100, "window"])
async def test_any_cached_tail_equals_a_loaded_one(database, reads, tail):
    store = opened(database)
    for number in range(3):
        await say(store, "demo", f"t{number}")
    lease = await store.begin_turn("demo", start("t3"), tail=tail)
    assert reads == []
    await store.drop_turn(lease)
    assert lease.conversation == await store.load("demo", tail=tail)
    await store.close()


async def test_turns_of_another_process_are_read(database):
    one, other = opened(database), opened(database)
    await say(one, "demo", "t1")
    await say(other, "demo", "t2")
    lease = await one.begin_turn("demo", start("t3"), tail="window")
    assert [turn.id for turn in lease.conversation.turns] == ["t1", "t2"]
    await one.close()
    await other.close()


async def test_edits_of_another_process_are_read(database):
    """Of the same length, with the conversation's own row as it was."""
    store = opened(database)
    await say(store, "demo", "t1")
    with closing(sqlite3.connect(database)) as other, other:
        other.execute("UPDATE messages SET raw = replace(raw, 'user', 'USER')")
    other.close()
    lease = await store.begin_turn("demo", start("t2"), tail="window")
    assert b'"USER"' in lease.conversation.messages[0].raw
    await store.close()


async def test_edits_of_the_same_store_are_read(database):
    store = opened(database)
    for number in range(3):
        await say(store, "demo", f"t{number}")
    await store.delete_from("demo", 3)
    lease = await store.begin_turn("demo", start("t3"), tail="window")
    assert [turn.id for turn in lease.conversation.turns] == ["t0"]
    await store.finish_turn(lease, answered(lease))
    await store.update("demo", Changes(pins=(1,)))
    assert (await store.begin_turn("demo", start("t4"), tail="window")).conversation.pins == (1,)
    await store.close()


async def test_changes_while_the_store_was_closed_are_read(database):
    """A connection that is opened anew counts what others write from anew as well."""
    store, other = opened(database), opened(database)
    await say(store, "demo", "t1")
    await say(store, "demo", "t2")
    await store.close()
    await other.delete_from("demo", 3)
    await say(other, "demo", "t3", "Else")
    await other.close()
    assert await texts_found(store, "t4") == ["Hello", "Hi", "Else", "Hi"]
    await store.close()


async def test_a_hidden_turn_after_an_interrupted_one_matches_the_file(database):
    moment = [datetime(2026, 1, 1, tzinfo=UTC)]
    store = SqliteStore(database, clock=lambda: moment[0])
    await say(store, "demo", "t1")
    await store.begin_turn("demo", start("t2"), tail="window")
    moment[0] += timedelta(hours=2)
    hidden = await store.begin_turn("demo", start("t3", visible=False), tail="window")
    moment[0] += timedelta(seconds=7)
    await store.finish_turn(hidden, answered(hidden))
    loaded = await store.load("demo", tail="window")
    lease = await store.begin_turn("demo", start("t4"), tail="window")
    assert lease.conversation == loaded
    await store.close()


async def test_a_chosen_variant_is_read(database):
    """It has as many messages as the one that was in its place."""
    store = opened(database)
    await say(store, "demo", "t1")
    again = await store.begin_turn("demo", start("t2", place="t1"), tail="window")
    await store.finish_turn(again, answered(again, "Other"))
    await store.choose_variant("demo", "t1")
    assert await texts_found(store, "t3") == ["Hello", "Hi"]
    await say(store, "demo", "t4")
    await store.delete_from("demo", 3)
    await store.choose_variant("demo", "t2")
    assert await texts_found(store, "t5") == ["Hello", "Other"]
    await store.close()


async def test_a_turn_that_was_not_saved_is_not_cached(database):
    moment = [datetime(2026, 1, 1, tzinfo=UTC)]
    store = SqliteStore(database, clock=lambda: moment[0])
    await say(store, "demo", "t1")
    lease = await store.begin_turn("demo", start("t2"), tail="window")
    failed = msgspec.structs.replace(lease.turn, state="failed", ended_at=moment[0])
    with refusing(database), pytest.raises(StoreUnavailableError):
        await store.finish_turn(lease, failed)
    moment[0] += timedelta(hours=2)
    found = await store.begin_turn("demo", start("t3"), tail="window")
    await store.drop_turn(found)
    assert found.conversation == await store.load("demo")
    assert found.conversation.turns[1].failure == INTERRUPTION
    await store.close()


async def test_a_rolled_back_write_clears_the_cache(database):
    heard: list[str] = []
    file = SqliteFile(database, on_reset=lambda: heard.append("rolled back"))

    def break_a_promise_at_the_commit(db: sqlite3.Connection) -> None:
        db.execute("PRAGMA defer_foreign_keys = ON")
        db.execute(
            "INSERT INTO turns (owner, conversation_id, number, id, place, state, started_at)"
            " VALUES ('o', 'nobody', 1, 't', 't', 'running', '2026-01-01')"
        )

    await file.write(lambda db: db.execute("SELECT 1").fetchone())
    assert heard == []
    with pytest.raises(StoreUnavailableError):
        await file.write(break_a_promise_at_the_commit)
    assert heard == ["rolled back"]
    await file.close()


async def held_up(store: SqliteStore, *writes):
    """The writes, all of which wait while another is being done."""
    begun, free = threading.Event(), threading.Event()

    def hold(_db: sqlite3.Connection) -> None:
        begun.set()
        free.wait(5)

    holding = asyncio.ensure_future(store._file.write(hold))
    await asyncio.to_thread(begun.wait, 5)
    waiting = [asyncio.ensure_future(write) for write in writes]
    await asyncio.sleep(0)
    free.set()
    await holding
    return await asyncio.gather(*waiting, return_exceptions=True)


async def test_queued_writes_share_a_commit(database):
    store = opened(database)
    for number in range(8):
        await store.create(NewConversation(id=f"c{number}"))
    commits: list[str] = []
    await store._file.write(lambda db: db.set_trace_callback(commits.append))
    commits.clear()
    await held_up(
        store, *(store.begin_turn(f"c{number}", start(f"t{number}")) for number in range(8))
    )
    assert commits.count("COMMIT") == 2
    for number in range(8):
        assert [turn.id for turn in (await store.load(f"c{number}")).turns] == [f"t{number}"]
    await store.close()


async def test_a_failed_write_does_not_affect_others(database):
    store = opened(database)
    await say(store, "demo", "t1")
    lease = await store.begin_turn("demo", start("t2"))
    await store.finish_turn(lease, answered(lease))
    found = await held_up(
        store,
        store.begin_turn("one", start("o1"), create=NewConversation(id="one")),
        store.finish_turn(lease, answered(lease)),
        store.begin_turn("two", start("o2"), create=NewConversation(id="two")),
    )
    assert isinstance(found[1], StaleLeaseError)
    for lease, ref in ((found[0], "one"), (found[2], "two")):
        await store.finish_turn(lease, answered(lease))
        assert [turn.state for turn in (await store.load(ref)).turns] == ["complete"]
    await store.close()


async def test_a_refused_write_does_not_affect_others(database):
    store = opened(database)
    await say(store, "demo", "t1")
    commits: list[str] = []
    await store._file.write(lambda db: db.set_trace_callback(commits.append))
    found = await held_up(
        store,
        store.begin_turn("one", start("o1"), create=NewConversation(id="one")),
        store.begin_turn("nobody", start("o2")),
        store.begin_turn("two", start("o3"), create=NewConversation(id="two")),
    )
    assert isinstance(found[1], ConversationNotFoundError)
    assert [lease.turn.id for lease in (found[0], found[2])] == ["o1", "o3"]
    assert commits.count("COMMIT") == 3
    assert "ROLLBACK" not in commits
    await store.close()


async def test_queued_writes_wait_once_for_a_locked_file(database):
    store = opened(database, busy_seconds=0.2)
    await say(store, "demo", "t1")
    other = sqlite3.connect(database, isolation_level=None)
    begun: list[str] = []
    await store._file.write(lambda db: db.set_trace_callback(begun.append))
    other.execute("BEGIN IMMEDIATE")
    begun.clear()
    creating = [store.create(NewConversation(id=f"c{number}")) for number in range(20)]
    # The first one meets the lock while the others come.
    found = await asyncio.gather(*creating, return_exceptions=True)
    assert all(isinstance(error, StoreUnavailableError) for error in found)
    assert 1 <= begun.count("BEGIN IMMEDIATE") <= 2
    other.execute("ROLLBACK")
    other.close()
    await store.create(NewConversation(id="c1"))
    await store.close()


async def test_the_cache_never_exceeds_its_limit(database):
    store = opened(database)
    cache = TurnCache(max_bytes=20_000)
    for number in range(30):
        ref = f"c{number}"
        await say(store, ref, f"t{number}", text="x" * 1000)
        loaded = await store.load(ref)
        before = msgspec.structs.replace(loaded, turns=())
        cache.put(before, loaded.turns[0], message_count=loaded.message_count)
        assert cache._bytes <= 20_000
        assert cache._bytes == sum(entry.size for entry in cache._entries.values())
    assert 1 < len(cache._entries) < 10
    assert list(cache._entries)[-1][1] == "c29"
    await store.close()


async def test_a_very_long_conversation_is_not_cached(database, reads):
    store = opened(database)
    await say(store, "demo", "t1", text="x" * 2**21)
    await say(store, "demo", "t2")
    assert reads == ["demo"]
    await store.close()


async def test_the_cached_rows_of_a_dropped_turn_are_not_reused(database):
    store = opened(database)
    await say(store, "demo", "t1")
    dropped = await store.begin_turn("demo", start("t2"), tail="window")
    await store.drop_turn(dropped)
    hidden = await store.begin_turn("demo", start("t2", visible=False), tail="window")
    await store.finish_turn(hidden, answered(hidden))
    assert [turn.id for turn in (await store.load("demo")).turns] == ["t1", "t2"]
    await store.close()


async def test_a_turn_finishes_in_its_rows_after_the_cache_was_cleared(database):
    store, other = opened(database), opened(database)
    await say(store, "demo", "t1")
    lease = await store.begin_turn("demo", start("t2"), tail="window")
    await say(other, "another", "t1")
    await store.finish_turn(lease, answered(lease))
    assert [message.text for message in (await store.load("demo")).messages] == ["Hello", "Hi"] * 2
    found = (await store.search("Hello")).items
    assert sorted(hit.sequence for hit in found if hit.conversation == "demo") == [1, 3]
    await store.close()
    await other.close()
