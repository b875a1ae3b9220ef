"""Servers on each store."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.postgres import Server as PostgresServer
from tests.postgres import emptied_database, postgres_server, shared_database
from tests.server_app import SETTINGS_WITH_KEYS, ServerApp, open_server_app
from tests.sqlite_template import write_database
from tests.torture import choose_size

__all__ = ["emptied_database", "postgres_server", "shared_database"]

PERSISTENT = ("sqlite", "postgresql")
STORES = choose_size(PERSISTENT, (pytest.param("memory", marks=pytest.mark.torture), *PERSISTENT))


@pytest.fixture(params=STORES)
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty store."""
    if request.param == "memory":
        return "memory:"
    if request.param == "sqlite":
        write_database(tmp_path / "server.db")
        return f"sqlite:{tmp_path / 'server.db'}?synchronous=normal"
    running: PostgresServer = request.getfixturevalue("postgres_server")
    return running.url(request.getfixturevalue("emptied_database"))


@pytest.fixture
async def server(tmp_path: Path, store_url: str) -> AsyncIterator[ServerApp]:
    """A server without keys."""
    async with open_server_app(
        tmp_path, "server: {silence_seconds: 0.2}", store=store_url
    ) as running:
        yield running


@pytest.fixture
async def keyed(tmp_path: Path, store_url: str) -> AsyncIterator[ServerApp]:
    """A server with keys of two owners."""
    async with open_server_app(tmp_path, SETTINGS_WITH_KEYS, store=store_url) as running:
        yield running
