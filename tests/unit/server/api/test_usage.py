"""GET /v1/usage: tokens and costs by day or by model."""

from datetime import UTC, datetime, timedelta

import pytest
from tests.server_app import open_server_app

from cllm.core.conversation import StoredConversation, Turn
from cllm.core.message import plain_message
from cllm.core.ports import CallRecord
from cllm.core.reply import Usage

DAY = datetime(2026, 11, 15, 12, tzinfo=UTC)


@pytest.fixture
async def server(tmp_path):
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


async def test_usage_is_summed_by_day_and_by_model(server):
    by_day = await server.get("/v1/usage")
    by_model = await server.get("/v1/usage?by=model")

    assert [one["key"] for one in by_day["usage"]] == ["2026-11-15", "2026-11-16", "2026-11-17"]
    assert {one["key"]: one["calls"] for one in by_model["usage"]} == {"a": 2, "b": 1}
    assert by_day["total"] == by_model["total"]
    assert by_day["total"]["total_tokens"] == 54
    assert by_day["total"]["cost"] == 0.75
    assert by_day["total"]["unpriced"] == 1
    assert None in [one["cost"] for one in by_day["usage"]]


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
async def test_a_date_includes_the_whole_day_and_a_time_is_exact(server, query, days):
    assert len((await server.get(f"/v1/usage?{query}"))["usage"]) == days


@pytest.mark.parametrize(
    ("query", "param"),
    [("from=yesterday", "from"), ("to=2026-13-01", "to"), ("by=week", "by")],
)
async def test_an_invalid_parameter_is_named(server, query, param):
    response = await server("GET", f"/v1/usage?{query}")

    assert (response.status_code, response.json()["error"]["param"]) == (422, param)


@pytest.fixture
async def combined(tmp_path):
    """A server on loopback without keys, which also lists the conversation files."""
    async with open_server_app(tmp_path, "server: {store: 'memory:'}", store=None) as server:
        call = CallRecord(model="a", usage=Usage(input=10), cost=0.5, ended_at=DAY)
        await server.state.store.count_call(call)
        yield server


async def test_usage_includes_the_conversation_files_that_lists_contain(combined):
    turn = Turn(
        id="t1",
        place="t1",
        state="complete",
        messages=(plain_message("user", "Hello"),),
        started_at=DAY,
        ended_at=DAY,
        model="a",
        usage=Usage(input=5),
        cost=0.25,
    )
    conversation = StoredConversation(id="cats", created_at=DAY, updated_at=DAY, turns=(turn,))
    await combined.state.files.add(conversation)

    by_model = await combined.get("/v1/usage?by=model")

    assert {one["key"]: one["calls"] for one in by_model["usage"]} == {"a": 2}
    assert by_model["total"]["cost"] == 0.75
    assert by_model["total"]["total_tokens"] == 15


async def test_unreadable_files_are_a_notice(combined, tmp_path):
    (tmp_path / "home/.cllm/conversations").write_text("not a folder", encoding="utf-8")

    response = await combined("GET", "/v1/usage")

    assert response.status_code == 200
    assert response.json()["total"]["calls"] == 1
    assert "store_unavailable" in response.headers["X-CLLM-Notice"]
