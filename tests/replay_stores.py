"""The stores that replays run on."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.postgres import Server, emptied_database, postgres_server, shared_database
from tests.sqlite_template import write_database

from cllm.core.ports import Store
from cllm.stores.json.store import JsonFileStore
from cllm.stores.memory import MemoryStore
from cllm.stores.postgres.store import PostgresStore
from cllm.stores.sqlite.store import SqliteStore
from cllm.testing.store_harness import TickingClock

__all__ = [
    "clock",
    "emptied_database",
    "opened_store",
    "postgres_server",
    "shared_database",
    "store",
]

KINDS = ("memory", "json", "sqlite", "postgres")


@pytest.fixture
def clock() -> TickingClock:
    return TickingClock()


@pytest.fixture(params=KINDS)
def opened_store(request: pytest.FixtureRequest, tmp_path: Path, clock: TickingClock) -> Store:
    if request.param == "memory":
        return MemoryStore(clock=clock)
    if request.param == "json":
        return JsonFileStore(tmp_path / "conversations", clock=clock, cache=tmp_path / "cache")
    if request.param == "sqlite":
        write_database(tmp_path / "cllm.db")
        return SqliteStore(tmp_path / "cllm.db", clock=clock, synchronous="NORMAL")
    # Only these tests start a server. It cannot start in a running event loop.
    server: Server = request.getfixturevalue("postgres_server")
    return PostgresStore(server.url(request.getfixturevalue("emptied_database")), clock=clock)


@pytest.fixture
async def store(opened_store: Store) -> AsyncIterator[Store]:
    yield opened_store
    await opened_store.close()
