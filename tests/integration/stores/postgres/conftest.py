"""What the tests of the PostgreSQL store share: a database each, and stores on it."""

from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime

import pytest
from tests.postgres import (
    Server,
    database,
    emptied_database,
    empty_database,
    postgres_server,
    shared_database,
)

from cllm.stores.postgres.store import PostgresStore

__all__ = [
    "database",
    "emptied_database",
    "empty_database",
    "postgres_server",
    "shared_database",
]

Open = Callable[..., Awaitable[PostgresStore]]


def now() -> datetime:
    return datetime.now(UTC)


@pytest.fixture
async def open_store(postgres_server: Server, database: str) -> AsyncIterator[Open]:
    """Open stores on the test's database, with options of the URL and of the store."""
    opened: list[PostgresStore] = []

    async def opening(query: str = "", **options: float) -> PostgresStore:
        url = postgres_server.url(database) + query
        store = PostgresStore(url, clock=now, **options)
        opened.append(store)
        return store

    yield opening
    for store in opened:
        await store.close()


@pytest.fixture
async def store(open_store: Open) -> PostgresStore:
    return await open_store()
