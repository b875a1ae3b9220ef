"""Health checks: GET /health and GET /ready."""

import asyncio

from tests.server_app import open_server_app

from cllm.core.errors import StoreUnavailableError


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


async def test_a_store_that_does_not_respond_is_not_ready(tmp_path, monkeypatch):
    async def hang(**_options):
        await asyncio.sleep(60)

    monkeypatch.setattr("cllm.server.api.health.STORE_SECONDS", 0.05)
    async with open_server_app(tmp_path) as server:
        monkeypatch.setattr(server.state.store, "list_conversations", hang)
        assert (await server("GET", "/ready")).status_code == 503
