"""The processor time of a search grows with the texts, and never with the square of a word."""

import json
from collections.abc import AsyncIterator

import httpx
import pytest
import pytest_asyncio
from tests.cpu_growth import MAX_LINEAR_GROWTH, MeasuredServer, start_measured_server

HEXADECIMAL = "0123456789abcdef"
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def measured(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[MeasuredServer]:
    async with start_measured_server(tmp_path_factory.mktemp("measured")) as server:
        yield server


async def test_the_time_of_a_search_grows_with_the_length_of_a_word(measured: MeasuredServer):
    async def send(body: bytes) -> httpx.Response:
        imported = await measured.server("POST", "/v1/conversations/import", content=body)
        found = await measured.server("GET", "/v1/messages/search?q=a")
        assert [hit["snippet"][-2:] for hit in found.json()["results"]] == [" a"]
        return httpx.Response(200, headers={"X-Conversation-ID": imported.json()["id"]})

    small, large = (
        json.dumps({"messages": [{"role": "user", "content": f"{HEXADECIMAL * n} a"}]}).encode()
        for n in (500, 2_000)
    )

    assert await measured.growth(small, large, send) <= MAX_LINEAR_GROWTH
