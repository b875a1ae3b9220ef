from collections.abc import AsyncIterator

import pytest
from tests.postgres import Server, database, postgres_server

from cllm.stores.postgres.store import PostgresStore
from cllm.testing.store_harness import TickingClock

__all__ = ["database", "postgres_server"]


@pytest.fixture
async def store(postgres_server: Server, database: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(postgres_server.url(database), clock=TickingClock(), patience=0.01)
    yield store
    await store.close()
