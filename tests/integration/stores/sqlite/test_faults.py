"""What goes wrong with an SQLite file comes out as one of our errors, with nothing half-written."""

import asyncio
import resource
import sqlite3
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from cllm.core.errors import StoreUnavailableError, UsageError
from cllm.core.message import Message, plain_message
from cllm.core.ports import Changes, NewConversation
from cllm.stores.registry import open_store
from cllm.stores.sqlite.store import SqliteStore
from cllm.testing.store_contract import answered, say, start

WITH_NUL = Message(role="user", raw=b'{"role":"user","content":"a\\u0000b"}')


def opened(path: Path, **options) -> SqliteStore:
    return SqliteStore(path, clock=lambda: datetime.now(UTC), **options)


async def failure(awaitable) -> StoreUnavailableError:
    """The error that comes: one sentence that says what to do."""
    with pytest.raises(StoreUnavailableError) as caught:
        await awaitable
    assert "\n" not in str(caught.value)
    assert ";" in str(caught.value)
    return caught.value


async def test_a_full_disk_preserves_stored_data(database):
    """The size of files is limited for a while, as a full disk would."""
    store = opened(database)
    await say(store, "demo", "t1")
    lease = await store.begin_turn("demo", start("t2"))
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    limit = max(path.stat().st_size for path in database.parent.iterdir()) + 8192
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        error = await failure(store.finish_turn(lease, answered(lease, "x" * 1_000_000)))
        assert str(database) in str(error)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    loaded = await store.load("demo")
    assert [(turn.id, turn.state) for turn in loaded.turns] == [
        ("t1", "complete"),
        ("t2", "failed"),
    ]
    assert loaded.turns[1].messages == loaded.turns[1].asked != ()
    await say(store, "demo", "t3")
    assert [turn.id for turn in (await store.load("demo")).turns] == ["t1", "t2", "t3"]
    await store.close()


@pytest.mark.parametrize(
    "operation", ["create(NewConversation(id='new'))", "check_writable()"], ids=["create", "check"]
)
async def test_a_read_only_file_is_reported(database, operation):
    store = opened(database)
    await say(store, "demo", "t1")
    await store.close()
    own = sqlite3.connect(database)
    own.execute("PRAGMA journal_mode = DELETE")
    own.close()
    script = f"""
import asyncio, os
from datetime import UTC, datetime
from cllm.core.errors import StoreUnavailableError
from cllm.core.ports import NewConversation
from cllm.stores.sqlite.store import SqliteStore
os.chmod({str(database)!r}, 0o444)
os.chmod({str(database.parent)!r}, 0o555)
if os.getuid() == 0:
    os.setgid(65534)
    os.setuid(65534)
async def main():
    store = SqliteStore({str(database)!r}, clock=lambda: datetime.now(UTC))
    try:
        await store.{operation}
    except StoreUnavailableError as error:
        print(error)
asyncio.run(main())
"""
    for folder in list(database.parents)[:3]:
        folder.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    database.parent.chmod(0o755)
    assert "cannot be" in done.stdout
    assert done.stdout.count("\n") == 1
    database.chmod(0o644)
    store = opened(database)
    assert (await store.list_conversations()).items[0].id == "demo"
    await store.close()


async def test_a_locked_database_is_reported_after_a_timeout(database):
    store = opened(database, busy_seconds=0.2)
    await say(store, "demo", "t1")
    other = sqlite3.connect(database, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    error = await failure(store.update("demo", Changes(title="x")))
    assert "locked" in str(error)
    assert (await store.load("demo")).message_count == 2
    other.execute("ROLLBACK")
    other.close()
    await store.update("demo", Changes(title="x"))
    await store.close()


async def test_a_file_that_is_not_a_database_is_not_changed(database):
    text = b"Dear diary, today I bought milk.\n" * 200
    database.write_bytes(text)
    store = opened(database)
    assert "not an SQLite database" in str(await failure(store.list_conversations()))
    await store.close()
    assert database.read_bytes() == text


async def test_a_foreign_database_is_not_changed(database):
    own = sqlite3.connect(database)
    own.execute("CREATE TABLE recipes (name TEXT)")
    own.close()
    store = opened(database)
    assert "that cllm did not create" in str(await failure(store.list_conversations()))
    await store.close()
    own = sqlite3.connect(database)
    assert own.execute("SELECT name FROM sqlite_master").fetchall() == [("recipes",)]
    own.close()


async def test_a_folder_is_reported(tmp_path):
    store = opened(tmp_path)
    await failure(store.list_conversations())
    await store.close()


async def test_a_damaged_file_is_reported(database):
    store = opened(database)
    for number in range(20):
        await say(store, f"c{number}", "t1", "word " * 500)
    await store.close()
    size = database.stat().st_size
    with database.open("r+b") as file:
        file.seek(4096 * 3)
        file.write(b"\xff" * (size - 4096 * 4))
    store = opened(database)
    await failure(store.load("c3"))
    await store.close()


@pytest.mark.parametrize(
    "new",
    [
        NewConversation(id="x", title="a\0b"),
        NewConversation(id="x", model="a\0b"),
        NewConversation(id="x", metadata={"k": ["a\0b"]}),
        NewConversation(id="x", metadata={"a\0b": 1}),
        NewConversation(id="x", title="half \ud800"),
    ],
)
async def test_nul_in_text_is_refused(database, new):
    store = opened(database)
    with pytest.raises(UsageError, match="NUL"):
        await store.create(new)
    with pytest.raises(UsageError, match="NUL"):
        await store.begin_turn("x", start("t1"), create=new)
    assert (await store.list_conversations()).items == ()
    await store.close()


async def test_nul_is_refused_in_a_title_and_stored_in_messages(database):
    store = opened(database)
    await say(store, "demo", "t1")
    with pytest.raises(UsageError, match="NUL"):
        await store.update("demo", Changes(title="a\0b"))
    lease = await store.begin_turn("demo", start("t2", messages=(WITH_NUL,)))
    await store.finish_turn(lease, answered(lease, "yes\0no"))
    messages = (WITH_NUL, plain_message("assistant", "yes\0no"))
    assert (await store.load("demo")).messages[-2:] == messages
    assert (await store.search("yes")).total == 1
    await store.close()


async def test_a_cancelled_start_leaves_no_turn(database):
    store = opened(database, busy_seconds=5)
    await say(store, "demo", "t1")
    other = sqlite3.connect(database, isolation_level=None, check_same_thread=False)
    other.execute("BEGIN IMMEDIATE")
    beginning = asyncio.create_task(store.begin_turn("demo", start("t2")))
    await asyncio.sleep(0.05)
    beginning.cancel()
    threading.Timer(0.1, lambda: other.execute("ROLLBACK")).start()
    with pytest.raises(asyncio.CancelledError):
        await beginning
    await say(store, "demo", "t3")
    assert [turn.id for turn in (await store.load("demo")).turns] == ["t1", "t3"]
    await store.close()
    other.close()


async def test_a_cancelled_finish_is_committed(database):
    store = opened(database)
    lease = await store.begin_turn("demo", start("t1"), create=NewConversation(id="demo"))
    finishing = asyncio.create_task(store.finish_turn(lease, answered(lease)))
    await asyncio.sleep(0)
    finishing.cancel()
    with pytest.raises(asyncio.CancelledError):
        await finishing
    assert (await store.load("demo")).turns[0].state == "complete"
    await store.close()


async def test_deleted_text_is_not_in_the_file(database):
    store = opened(database)
    await say(store, "demo", "t1", "Zzyzzx the secret cat")
    await store.delete("demo")
    await store.close()
    for path in database.parent.iterdir():
        assert b"the secret cat" not in path.read_bytes()


def test_a_url_has_a_path_and_the_synchronous_mode(tmp_path):
    for query in ("", "?synchronous=normal", "?synchronous=FULL"):
        open_store(f"sqlite:{tmp_path}/c.db{query}", clock=lambda: datetime.now(UTC))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("ends", ["finish", "drop"])
async def test_a_cancelled_finish_ends_the_turn(tmp_path, ends):
    store = opened(tmp_path / "c.db")
    assert store.ends_turns_whole
    for number in range(10):
        lease = await store.begin_turn(
            "demo", start(f"t{number}"), create=NewConversation(id="demo")
        )
        ending = (
            store.finish_turn(lease, answered(lease))
            if ends == "finish"
            else store.drop_turn(lease)
        )
        task = asyncio.create_task(ending)
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await say(store, "demo", "last")
    found = await store.load("demo")
    assert len(found.turns) == (11 if ends == "finish" else 1)
    assert {turn.state for turn in found.turns} == {"complete"}
    await store.close()


async def test_a_cancelled_and_refused_finish_leaves_no_lease(tmp_path):
    store = opened(tmp_path / "c.db")
    lease = await store.begin_turn("demo", start("t1"), create=NewConversation(id="demo"))
    broken = Message(role="assistant", raw=b'{"role":"assistant","content":"\xff"}')
    turn = msgspec.structs.replace(answered(lease), messages=(*lease.turn.messages, broken))
    task = asyncio.create_task(store.finish_turn(lease, turn))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await say(store, "demo", "t2")
    assert [turn.state for turn in (await store.load("demo")).turns] == ["failed", "complete"]
    await store.close()
