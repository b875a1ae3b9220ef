"""A server for the tests of the page."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.server_app import SETTINGS_WITH_KEYS, ServerApp, open_server_app


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ServerApp]:
    """A server without keys."""
    async with open_server_app(tmp_path) as running:
        yield running


@pytest.fixture
async def keyed(tmp_path: Path) -> AsyncIterator[ServerApp]:
    """A server with keys of two owners."""
    async with open_server_app(tmp_path, SETTINGS_WITH_KEYS) as running:
        yield running
