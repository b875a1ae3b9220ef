"""Health checks: GET /health and GET /ready."""

import asyncio
import sqlite3
from contextlib import closing

from tests.server_app import open_server_app

from cllm.core.errors import StoreUnavailableError
from cllm.stores.sql import HEAD


async def test_a_server_with_its_store_is_ready(tmp_path):
    async with open_server_app(tmp_path) as server:
        assert await server.get("/health") == {"status": "ok"}
        assert await server.get("/ready") == {"status": "ready"}


async def test_without_its_store_a_server_is_healthy_but_not_ready(tmp_path, monkeypatch):
    async def fail(**_options):
        raise StoreUnavailableError("no connection to 10.1.2.3")

    async with open_server_app(tmp_path) as server:
        monkeypatch.setattr(server.state.store, "list_conversations", fail)
        health, ready = await server("GET", "/health"), await server("GET", "/ready")

    assert health.status_code == 200
    assert ready.status_code == 503
    assert ready.json()["error"]["code"] == "conversation_storage_unavailable"
    assert "10.1.2.3" not in ready.text


async def test_a_database_of_another_revision_is_not_ready(tmp_path):
    path = tmp_path / "cats.db"
    async with open_server_app(tmp_path, store=f"sqlite:{path}") as server:
        before = await server("GET", "/ready")
        for revision, status in (("0007", 503), (HEAD, 200)):
            with closing(sqlite3.connect(path, isolation_level=None)) as database:
                database.execute("UPDATE cllm_revision SET version_num = ?", (revision,))
            assert (await server("GET", "/ready")).status_code == status

    assert before.status_code == 200


async def test_the_timeout_also_applies_to_a_database_that_another_process_locks(
    tmp_path, monkeypatch
):
    monkeypatch.setattr("cllm.server.api.health.STORE_SECONDS", 0.05)
    path = tmp_path / "cats.db"
    async with open_server_app(tmp_path, store=f"sqlite:{path}") as server:
        await server.state.store.check_writable()
        database = sqlite3.connect(path, isolation_level=None)
        database.execute("BEGIN IMMEDIATE")
        locked = await server("GET", "/ready")
        database.execute("ROLLBACK")
        database.close()

    assert locked.status_code == 503


async def test_a_store_that_does_not_respond_is_not_ready(tmp_path, monkeypatch):
    async def hang(**_options):
        await asyncio.sleep(60)

    monkeypatch.setattr("cllm.server.api.health.STORE_SECONDS", 0.05)
    async with open_server_app(tmp_path) as server:
        monkeypatch.setattr(server.state.store, "list_conversations", hang)
        assert (await server("GET", "/ready")).status_code == 503
