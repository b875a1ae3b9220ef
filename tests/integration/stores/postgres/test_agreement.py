"""Any series of operations has the same outcome in the PostgreSQL store as in memory."""

import asyncio
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
from hypothesis import settings
from hypothesis.stateful import rule
from tests.postgres import Server
from tests.store_machine import LEASE_SECONDS, StoreMachine
from tests.torture import choose_size

from cllm.core.ports import Clock, Store
from cllm.stores.postgres.store import PostgresStore

UNUSED_MESSAGES = """SELECT count(*) FROM messages m WHERE NOT EXISTS (
    SELECT FROM turns t WHERE t.owner = m.owner AND t.message_group = m.message_group)"""


class PostgresAgrees(StoreMachine):
    server: ClassVar[Server]
    database: ClassVar[str]

    def prepare(self) -> None:
        self.execute("TRUNCATE conversations, messages, leases, requests, events, calls CASCADE")

    def open_store(self, clock: Clock) -> Store:
        url = self.server.url(self.database)
        return PostgresStore(url, clock=clock, lease_seconds=LEASE_SECONDS, patience=0)

    @rule()
    def lose_all_leases(self) -> None:
        """Leases run out by the database's clock, which nobody here can turn."""
        self.execute("UPDATE leases SET expires_at = clock_timestamp()")
        super().lose_all_leases()

    def check_rows(self) -> None:
        assert self.execute(UNUSED_MESSAGES)[0][0] == 0

    def execute(self, sql: str) -> list[Any]:
        rows: list[Any] = self.step(self.server.execute(sql, database=self.database))
        return rows


@pytest.fixture(scope="module", autouse=True)
def database_of_the_machine(postgres_server: Server) -> Iterator[None]:
    async def made() -> str:
        template = await postgres_server.head_template()
        return await postgres_server.create_database(template=template)

    PostgresAgrees.server = postgres_server
    PostgresAgrees.database = asyncio.run(made())
    yield
    asyncio.run(postgres_server.drop_database(PostgresAgrees.database))


TestPostgresAgrees = PostgresAgrees.TestCase
TestPostgresAgrees.settings = settings(
    max_examples=choose_size(5, full=300), stateful_step_count=25, deadline=None
)
