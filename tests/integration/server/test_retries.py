"""Retried requests: which turn they replace, and when their idempotency key is free again."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from tests.fake_provider import FakeProvider
from tests.server_app import ServerApp, open_server_app
from tests.waits import wait_until_async

COMPLETIONS = "/v1/chat/completions"
QUEUE_SECONDS = 0.3
BODY = {"model": "openai/gpt-test", "messages": [{"role": "user", "content": "Hello."}]}
KEY = {"Idempotency-Key": "once"}


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    with FakeProvider() as provider:
        yield provider


@pytest.fixture
async def server(tmp_path: Path, provider: FakeProvider) -> AsyncIterator[ServerApp]:
    settings = (
        f"num_retries: 0\nproviders: {{openai: {{api_base: '{provider.url}'}}}}\n"
        f"server: {{limits: {{queue_seconds: {QUEUE_SECONDS}}}}}"
    )
    store = f"sqlite:{tmp_path / 'server.db'}?synchronous=normal"
    async with open_server_app(tmp_path, settings, store=store) as running:
        yield running


async def complete(
    server: ServerApp,
    headers: dict[str, str],
    conversation: str = "",
    *,
    stream: bool = False,
) -> httpx.Response:
    headers = {"X-Conversation-ID": conversation, **headers}
    return await server("POST", COMPLETIONS, json={**BODY, "stream": stream}, headers=headers)


def retry_count(number: int) -> dict[str, str]:
    return {"x-stainless-retry-count": str(number)}


def conversation_of(response: httpx.Response) -> str:
    return response.headers["x-conversation-id"]


def code_of(response: httpx.Response) -> str:
    code: str = response.json()["error"]["code"]
    return code


@pytest.mark.parametrize("stream", [False, True])
async def test_a_successful_attempt_stores_no_claim(
    server: ServerApp, tmp_path: Path, stream: bool
):
    response = await complete(server, retry_count(0), stream=stream)

    assert response.status_code == 200
    with closing(sqlite3.connect(tmp_path / "server.db")) as db:
        assert db.execute("SELECT count(*) FROM requests").fetchone() == (0,)


async def test_a_retry_replaces_the_failed_turn_and_not_one_with_equal_messages(
    server: ServerApp, provider: FakeProvider
):
    provider.queue_error(500, "Broken.")
    failed = await complete(server, retry_count(0))
    other = await complete(server, retry_count(0))

    again = await complete(server, retry_count(1))

    assert conversation_of(other) != conversation_of(failed)
    assert conversation_of(again) == conversation_of(failed)


async def test_a_retry_that_starts_no_turn_leaves_the_failed_turn_to_the_next_retry(
    server: ServerApp, provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
):
    provider.queue_error(500, "Broken.")
    failed = await complete(server, retry_count(0))
    with monkeypatch.context() as stopping:
        stopping.setattr(server.state.turns, "is_stopping", True)
        rejected = await complete(server, retry_count(1))

    response = await complete(server, retry_count(2))

    assert code_of(rejected) == "shutting_down"
    assert conversation_of(response) == conversation_of(failed)
    assert (await server.get("/v1/conversations"))["total"] == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_a_disconnect_does_not_release_the_key_of_a_running_turn(
    server: ServerApp, provider: FakeProvider, stream: bool
):
    gate = provider.queue_held_reply("Late reply.", at=0)
    waiting = asyncio.create_task(complete(server, KEY, stream=stream))
    await asyncio.to_thread(gate.wait_reached)
    waiting.cancel()
    await asyncio.wait((waiting,))

    meanwhile = await complete(server, KEY, stream=stream)
    gate.open()
    await wait_until_async(lambda: not len(server.state.turns))
    response = await complete(server, KEY, stream=stream)

    assert waiting.cancelled()
    assert code_of(meanwhile) == "idempotency_conflict"
    assert "Late reply." in response.text
    assert len(provider.requests) == 1


async def test_the_key_is_free_after_a_queued_turn_without_client_times_out(
    server: ServerApp, provider: FakeProvider
):
    conversation = conversation_of(await complete(server, {}))
    gate = provider.queue_held_reply("Slowly.", at=0)
    running = asyncio.create_task(complete(server, {}, conversation))
    await asyncio.to_thread(gate.wait_reached)
    queued = {**KEY, "X-On-Conflict": "queue"}
    waiting = asyncio.create_task(complete(server, queued, conversation))
    await wait_until_async(lambda: len(server.state.turns) == 2)
    waiting.cancel()
    await asyncio.wait((waiting,))
    await wait_until_async(lambda: len(server.state.turns) == 1)

    gate.open()
    await running
    response = await complete(server, queued, conversation)

    assert waiting.cancelled()
    assert response.status_code == 200


@pytest.mark.parametrize("stream", [False, True])
async def test_an_error_for_an_unknown_conversation_has_no_conversation_header(
    server: ServerApp, stream: bool
):
    conversation = conversation_of(await complete(server, {}))
    await server("DELETE", f"/v1/conversations/{conversation}")

    rejected = await complete(server, {}, conversation, stream=stream)

    assert (rejected.status_code, code_of(rejected)) == (404, "conversation_not_found")
    assert "x-conversation-id" not in rejected.headers


async def test_an_invalid_request_releases_its_key(server: ServerApp):
    body = {**BODY, "messages": []}

    responses = [await server("POST", COMPLETIONS, json=body, headers=KEY) for _ in range(2)]

    assert [code_of(response) for response in responses] == ["empty_messages_array"] * 2
