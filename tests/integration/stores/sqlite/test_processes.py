"""Several processes on one SQLite file, and processes that are killed."""

import random
import sqlite3
import subprocess
import sys
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.torture import choose_size

from cllm.core.errors import ConversationNotFoundError
from cllm.core.ports import NewConversation
from cllm.stores.sqlite.store import SqliteStore
from cllm.testing.store_contract import start

ENDLESS = 1_000_000


def open_store(path: Path) -> SqliteStore:
    return SqliteStore(path, clock=lambda: datetime.now(UTC))


@pytest.mark.torture
async def test_eight_processes_open_a_new_file_in_parallel(database, work):
    turns = choose_size(3, full=25)
    processes = [work(f"p{number}", turns) for number in range(8)]
    for process in processes:
        output, errors = process.communicate(timeout=200)
        assert (process.returncode, errors) == (0, "")
        assert len(output.split()) == turns + 1
    store = open_store(database)
    loaded = await store.load("demo")
    await store.close()
    stored = [turn.id for turn in loaded.turns]
    assert sorted(stored) == sorted(f"p{one}-{two}" for one in range(8) for two in range(turns))
    assert {turn.state for turn in loaded.turns} == {"complete"}
    for number in range(8):
        own = [turn_id for turn_id in stored if turn_id.startswith(f"p{number}-")]
        assert own == sorted(own, key=lambda turn_id: int(turn_id.partition("-")[2]))


async def test_another_process_can_close_the_file(database):
    """Only the process that closes the file last deletes its write-ahead log."""
    store = open_store(database)
    await store.begin_turn("demo", start("t1"), create=NewConversation(id="demo"))
    await store.load("demo")
    for _ in range(2):
        look = "import sqlite3, sys; sqlite3.connect(sys.argv[1]).execute('SELECT * FROM turns')"
        subprocess.run([sys.executable, "-c", look, str(database)], check=True)
    await store.create(NewConversation(id="later"))

    assert Path(f"{database}-wal").exists()
    other = open_store(database)
    assert (await other.load("later")).id == "later"
    await other.close()
    await store.close()


@pytest.mark.torture
@pytest.mark.timeout(1800)
async def test_kill_9_at_any_moment_loses_nothing_that_was_acknowledged(database, work):
    kills = choose_size(8, full=200)
    moments = random.Random(7)  # noqa: S311
    acknowledged: list[str] = []
    for number in range(kills):
        process = work(f"p{number}", ENDLESS, "visible" if number % 2 else "hidden")
        assert process.stdout.readline() == "ready\n"
        time.sleep(moments.uniform(0, 0.3))
        process.kill()
        output, _ = process.communicate()
        whole, _, _ = output.rpartition("\n")
        acknowledged += whole.split()
        await check_kept(database, acknowledged)
    assert acknowledged
    last = work("last", 1)
    last.communicate(timeout=100)
    assert last.returncode == 0
    store = open_store(database)
    states = {turn.state for turn in (await store.load("demo")).turns}
    await store.close()
    assert states <= {"complete", "failed"}


async def check_kept(database: Path, acknowledged: list[str]) -> None:
    """Everything that was acknowledged is whole, and the file is."""
    store = open_store(database)
    try:
        loaded = await store.load("demo")
    except ConversationNotFoundError:
        assert not acknowledged
        return
    finally:
        await store.close()
    stored = [turn.id for turn in loaded.turns if turn.state == "complete"]
    assert set(acknowledged) <= set(stored)
    assert len(set(stored)) == len(stored)
    assert all(len(turn.messages) == 2 for turn in loaded.turns if turn.state == "complete")
    assert sum(turn.state == "running" for turn in loaded.turns) <= 1
    numbers = [number for number, _, _ in loaded.numbered_messages()]
    assert numbers == list(range(1, loaded.message_count + 1))
    own = sqlite3.connect(database)
    assert own.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
    assert own.execute("PRAGMA foreign_key_check").fetchall() == []
    own.close()
