"""The contract suites on a real PostgreSQL."""

import pytest
from tests.postgres import Server, emptied_database, postgres_server, shared_database

from cllm.core.ports import Store
from cllm.stores.postgres.store import PostgresStore
from cllm.testing.server_store_contract import ServerStoreContract
from cllm.testing.store_contract import StoreHarness, TickingClock
from cllm.testing.store_watch import WatchedStoreContract

__all__ = ["emptied_database", "postgres_server", "shared_database"]


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
    def harness(self, postgres_server: Server, emptied_database: str) -> StoreHarness:
        return PostgresHarness(postgres_server, emptied_database)
