"""The API shows what an older deployment stored with its messages."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from tests import older_deployment as older
from tests.postgres import Server as PostgresServer
from tests.postgres import database, empty_database, postgres_server
from tests.server_app import ServerApp, open_server_app

from cllm.stores.sql import migrate
from cllm.stores.sql.database import Database

__all__ = ["database", "empty_database", "postgres_server"]

CONVERSATION = "/v1/conversations/00000000-0000-0000-0000-000000000100"


@pytest.fixture(params=["sqlite", "postgresql"])
def older_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:{tmp_path / 'older.db'}"
    running: PostgresServer = request.getfixturevalue("postgres_server")
    return running.url(request.getfixturevalue("empty_database"))


@pytest.fixture
async def server(tmp_path: Path, older_url: str) -> AsyncIterator[ServerApp]:
    def fill(bind: Any) -> None:
        migrate.upgrade(bind, "0001")
        older.fill(bind)

    Database(older_url).run(fill, create=True)
    Database(older_url).run(migrate.upgrade)
    async with open_server_app(tmp_path, store=older_url) as running:
        yield running


async def test_messages_have_the_metadata_events_cost_and_time_of_an_older_deployment(server):
    messages = (await server.get(CONVERSATION))["messages"]

    reply = messages[1]
    assert reply["content"] == "Hello, Luna! 猫"
    assert reply["metadata"] == {"model": "old"}
    assert reply["reasoning_events"] == [{"type": "thought", "text": "é"}]
    assert reply["created_at"] == "2025-05-01T12:30:17.250000Z"
    assert [one["cost"] for one in messages] == [
        None,
        0.00125,
        None,
        None,
        0.00025,
        None,
        0.0005,
        None,
    ]
    assert "reasoning_events" not in messages[0]
    assert messages[0]["metadata"] == {}


async def test_every_route_of_a_message_shows_the_same(server):
    first, second = (await server.get(CONVERSATION))["messages"][:2]

    assert (await server.get(f"{CONVERSATION}?after=1&limit=1"))["messages"] == [second]
    assert await server.get(f"{CONVERSATION}/messages/2") == second
    assert await server.get(f"{CONVERSATION}/messages/{second['id']}") == second
    turn = await server.get(f"{CONVERSATION}/turns/{second['turn_id']}")
    assert turn["messages"] == [first, second]


async def test_new_messages_have_empty_metadata(server):
    await server.add_turn("00000000-0000-0000-0000-000000000100", "One", "Two")

    newest = (await server.get(CONVERSATION))["messages"][-1]

    assert (newest["metadata"], newest["cost"]) == ({}, 0.25)
    assert "reasoning_events" not in newest
