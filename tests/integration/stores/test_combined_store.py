"""A folder of files and an SQLite database as one store: locked and damaged databases."""

import sqlite3
from pathlib import Path

import pytest
from tests.sqlite_template import write_database

from cllm.core.notice import Notice
from cllm.stores.combined import CombinedStore
from cllm.stores.json.store import JsonFileStore
from cllm.stores.sqlite.store import SqliteStore
from cllm.testing.store_contract import TickingClock, say


class Place:
    def __init__(self, folder: Path) -> None:
        self.database = folder / "cllm.db"
        write_database(self.database)
        clock = TickingClock()
        self.warnings: list[Notice] = []
        self.store = CombinedStore(
            JsonFileStore(folder / "conversations", clock=clock),
            lambda: SqliteStore(self.database, clock=clock, busy_seconds=0.05),
            locations=("conversations", str(self.database)),
            warn=self.warnings.append,
        )


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


async def list_refs(store: CombinedStore) -> list[str]:
    return [item.ref for item in (await store.list_conversations()).items]


async def test_a_locked_database_is_left_out_until_it_is_free(place):
    await say(place.store.own, "cats", "t1")
    other = SqliteStore(place.database, clock=TickingClock())
    await say(other, "dogs", "t2")
    await other.close()
    lock = sqlite3.connect(place.database, isolation_level=None)
    lock.execute("PRAGMA locking_mode = EXCLUSIVE")
    lock.execute("BEGIN EXCLUSIVE")
    try:
        page = await place.store.list_conversations()
        await say(place.store, "new", "t3")
    finally:
        lock.close()

    assert [item.ref for item in page.items] == ["cats"]
    assert "is locked by another program" in page.notices[0].message
    assert [notice.code for notice in place.warnings] == ["store_unavailable"]
    assert await list_refs(place.store) == ["new", "cats", "dogs"]
    await place.store.close()


async def test_a_database_that_is_damaged_while_it_is_open_is_left_out(place):
    await say(place.store, "cats", "t1")
    assert await list_refs(place.store) == ["cats"]
    data = place.database.read_bytes()
    place.database.write_bytes(data[:100] + b"\xff" * (len(data) - 100))

    assert await list_refs(place.store) == ["cats"]
    await place.store.close()
