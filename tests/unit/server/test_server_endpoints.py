"""What is about the server and not about one conversation: usage, models, whether it is there."""

import asyncio
from datetime import UTC, datetime, timedelta

import pytest
from tests.server_app import open_server_app

from cllm.core.errors import StoreUnavailableError
from cllm.core.ports import CallRecord
from cllm.core.reply import Usage

DAY = datetime(2026, 11, 15, 12, tzinfo=UTC)


class TestUsage:
    @pytest.fixture
    async def server(self, tmp_path):
        async with open_server_app(tmp_path) as server:
            for days, model, cost in ((0, "a", 0.5), (1, "a", None), (2, "b", 0.25)):
                call = CallRecord(
                    model=model,
                    usage=Usage(input=10, output=5, cache_read=3),
                    cost=cost,
                    ended_at=DAY + timedelta(days=days),
                )
                await server.state.store.count_call(call)
            yield server

    async def test_days_and_models_add_up(self, server):
        by_day = await server.get("/v1/usage")
        by_model = await server.get("/v1/usage?by=model")

        assert [one["key"] for one in by_day["usage"]] == ["2026-11-15", "2026-11-16", "2026-11-17"]
        assert {one["key"]: one["calls"] for one in by_model["usage"]} == {"a": 2, "b": 1}
        assert by_day["total"] == by_model["total"]
        assert by_day["total"]["total_tokens"] == 54
        assert by_day["total"]["cost"] == 0.75
        assert by_day["total"]["unpriced"] == 1

    @pytest.mark.parametrize(
        ("query", "days"),
        [
            ("from=2026-11-16", 2),
            ("to=2026-11-16", 2),
            ("from=2026-11-16&to=2026-11-16", 1),
            ("from=2026-11-15T12:00:01Z", 2),
            ("to=2026-11-15T13:00:00%2B01:00", 0),
            ("from=2026-11-15T14:00:01+02:00", 2),
            ("from=2027-01-01", 0),
        ],
    )
    async def test_a_day_is_counted_whole_and_a_moment_is_one(self, server, query, days):
        assert len((await server.get(f"/v1/usage?{query}"))["usage"]) == days

    @pytest.mark.parametrize(
        ("query", "param"),
        [("from=yesterday", "from"), ("to=2026-13-01", "to"), ("by=week", "by")],
    )
    async def test_a_wrong_time_is_named(self, server, query, param):
        answer = await server("GET", f"/v1/usage?{query}")

        assert (answer.status_code, answer.json()["error"]["param"]) == (422, param)


class TestModels:
    SETTINGS = (
        "model: openai/gpt-test\n"
        "providers: {mine: {type: openai, api_base: 'http://127.0.0.1:1/v1', models: [small]}}\n"
    )

    async def test_configured_and_local_models_are_listed(self, tmp_path):
        async with open_server_app(tmp_path, self.SETTINGS) as server:
            listed = await server.get("/v1/models")
            names = [one["id"] for one in listed["data"]]
            one = await server.get("/v1/models/mine/small")

        assert listed["object"] == "list"
        assert names[0] == "openai/gpt-test"
        assert {"mine/small", "local/smollm2-135m"} <= set(names)
        assert len(set(names)) == len(names)
        assert one == {"id": "mine/small", "object": "model", "created": 0, "owned_by": "mine"}

    async def test_an_unknown_model_is_not_found_and_the_known_ones_are_named(self, tmp_path):
        async with open_server_app(tmp_path, self.SETTINGS) as server:
            answer = await server("GET", "/v1/models/nobody/x")

        assert answer.status_code == 404
        assert answer.json()["error"]["code"] == "model_not_found"
        assert "mine/small" in answer.json()["error"]["message"]

    async def test_the_path_of_a_model_file_is_not_told(self, tmp_path):
        async with open_server_app(tmp_path, "model: local//home/somebody/model.gguf") as server:
            assert "somebody" not in (await server("GET", "/v1/models")).text


class TestReadiness:
    async def test_a_server_with_its_store_is_ready(self, tmp_path):
        async with open_server_app(tmp_path) as server:
            assert await server.get("/health") == {"status": "ok"}
            assert await server.get("/ready") == {"status": "ready"}

    async def test_without_its_store_it_is_alive_and_not_ready(self, tmp_path, monkeypatch):
        async def gone(**_options):
            raise StoreUnavailableError("no connection to 10.1.2.3")

        async with open_server_app(tmp_path) as server:
            monkeypatch.setattr(server.state.store, "list_conversations", gone)
            alive, ready = await server("GET", "/health"), await server("GET", "/ready")

        assert alive.status_code == 200
        assert ready.status_code == 503
        assert ready.json()["error"]["code"] == "conversation_storage_unavailable"
        assert "10.1.2.3" not in ready.text

    async def test_a_store_that_never_answers_is_not_ready(self, tmp_path, monkeypatch):
        async def hang(**_options):
            await asyncio.sleep(60)

        monkeypatch.setattr("cllm.server.api.health.STORE_SECONDS", 0.05)
        async with open_server_app(tmp_path) as server:
            monkeypatch.setattr(server.state.store, "list_conversations", hang)
            assert (await server("GET", "/ready")).status_code == 503
