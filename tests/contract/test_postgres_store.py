"""The contract suites on a real PostgreSQL."""

import asyncio
from collections.abc import Iterator

import pytest
from tests.postgres import Server, postgres_server

from cllm.core.ports import Store
from cllm.stores.postgres.store import PostgresStore
from cllm.testing.server_store_contract import ServerStoreContract
from cllm.testing.store_contract import StoreHarness, TickingClock
from cllm.testing.store_watch import WatchedStoreContract

__all__ = ["postgres_server"]
TABLES = ("leases", "requests", "events", "calls", "messages", "turns", "conversations")


@pytest.fixture(scope="module")
def shared_database(postgres_server: Server) -> Iterator[str]:
    """The name of a database with our tables, for all tests: they use it only through stores."""
    template = asyncio.run(postgres_server.head_template())
    name = asyncio.run(postgres_server.create_database(template=template))
    yield name
    asyncio.run(postgres_server.drop_database(name))


@pytest.fixture
async def database(postgres_server: Server, shared_database: str) -> str:
    """The name of the shared database, without the rows of other tests."""
    deletions = "; ".join(f"DELETE FROM {table}" for table in TABLES)  # noqa: S608
    await postgres_server.execute_all(deletions, database=shared_database)
    return shared_database


class PostgresHarness:
    """Stores on one database. Leases expire by its clock, so `lose` changes them there."""

    def __init__(self, server: Server, database: str) -> None:
        self.clock = TickingClock()
        self._server = server
        self._database = database

    async def open(self) -> PostgresStore:
        url = self._server.url(self._database)
        return PostgresStore(url, clock=self.clock, patience=0.01)

    async def lose(self, _store: Store, /) -> None:
        self.clock.advance(61)
        await self._server.execute(
            "UPDATE leases SET expires_at = expires_at - interval '61 seconds'",
            database=self._database,
        )


class TestPostgresStore(ServerStoreContract, WatchedStoreContract):
    @pytest.fixture
    def harness(self, postgres_server: Server, database: str) -> StoreHarness:
        return PostgresHarness(postgres_server, database)
