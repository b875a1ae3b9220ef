"""Requests that come again, and who gives back the right to answer them: the turn, once it runs."""

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


async def ask(
    server: ServerApp,
    headers: dict[str, str],
    conversation: str = "",
    *,
    stream: bool = False,
) -> httpx.Response:
    headers = {"X-Conversation-ID": conversation, **headers}
    return await server("POST", COMPLETIONS, json={**BODY, "stream": stream}, headers=headers)


def attempt(number: int) -> dict[str, str]:
    return {"x-stainless-retry-count": str(number)}


def conversation_of(answer: httpx.Response) -> str:
    return answer.headers["x-conversation-id"]


def code_of(answer: httpx.Response) -> str:
    code: str = answer.json()["error"]["code"]
    return code


@pytest.mark.parametrize("stream", [False, True])
async def test_of_an_attempt_that_is_answered_nothing_is_noted(
    server: ServerApp, tmp_path: Path, stream: bool
):
    answered = await ask(server, attempt(0), stream=stream)

    assert answered.status_code == 200
    with closing(sqlite3.connect(tmp_path / "server.db")) as db:
        assert db.execute("SELECT count(*) FROM requests").fetchone() == (0,)


async def test_the_same_words_answered_take_nothing_from_an_attempt_that_failed(
    server: ServerApp, provider: FakeProvider
):
    provider.fail(500, "Broken.")
    failed = await ask(server, attempt(0))
    other = await ask(server, attempt(0))

    again = await ask(server, attempt(1))

    assert conversation_of(other) != conversation_of(failed)
    assert conversation_of(again) == conversation_of(failed)


async def test_an_attempt_for_which_no_turn_began_leaves_the_one_before_to_the_next(
    server: ServerApp, provider: FakeProvider, monkeypatch: pytest.MonkeyPatch
):
    provider.fail(500, "Broken.")
    failed = await ask(server, attempt(0))
    with monkeypatch.context() as stopping:
        stopping.setattr(server.state.turns, "_stopping", True)
        refused = await ask(server, attempt(1))

    answered = await ask(server, attempt(2))

    assert code_of(refused) == "shutting_down"
    assert conversation_of(answered) == conversation_of(failed)
    assert (await server.get("/v1/conversations"))["total"] == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_who_stops_waiting_for_a_turn_does_not_give_its_key_back(
    server: ServerApp, provider: FakeProvider, stream: bool
):
    gate = provider.say_held("Said at last.", at=0)
    waiting = asyncio.create_task(ask(server, KEY, stream=stream))
    await asyncio.to_thread(gate.wait_reached)
    waiting.cancel()
    await asyncio.wait((waiting,))

    meanwhile = await ask(server, KEY, stream=stream)
    gate.open()
    await wait_until_async(lambda: not len(server.state.turns))
    answered = await ask(server, KEY, stream=stream)

    assert waiting.cancelled()
    assert code_of(meanwhile) == "idempotency_conflict"
    assert "Said at last." in answered.text
    assert len(provider.requests) == 1


async def test_the_key_is_free_when_a_turn_that_nobody_waits_for_finds_no_place(
    server: ServerApp, provider: FakeProvider
):
    begun = conversation_of(await ask(server, {}))
    gate = provider.say_held("Slowly.", at=0)
    running = asyncio.create_task(ask(server, {}, begun))
    await asyncio.to_thread(gate.wait_reached)
    queued = {**KEY, "X-On-Conflict": "queue"}
    waiting = asyncio.create_task(ask(server, queued, begun))
    await wait_until_async(lambda: len(server.state.turns) == 2)
    waiting.cancel()
    await asyncio.wait((waiting,))
    await wait_until_async(lambda: len(server.state.turns) == 1)

    gate.open()
    await running
    answered = await ask(server, queued, begun)

    assert waiting.cancelled()
    assert answered.status_code == 200


@pytest.mark.parametrize("stream", [False, True])
async def test_a_conversation_that_is_not_found_is_not_named_as_the_place_of_a_turn(
    server: ServerApp, stream: bool
):
    begun = conversation_of(await ask(server, {}))
    await server("DELETE", f"/v1/conversations/{begun}")

    refused = await ask(server, {}, begun, stream=stream)

    assert (refused.status_code, code_of(refused)) == (404, "conversation_not_found")
    assert "x-conversation-id" not in refused.headers


async def test_a_request_for_which_no_turn_can_begin_gives_its_key_back(server: ServerApp):
    body = {**BODY, "messages": []}

    answers = [await server("POST", COMPLETIONS, json=body, headers=KEY) for _ in range(2)]

    assert [code_of(answer) for answer in answers] == ["empty_messages_array"] * 2
