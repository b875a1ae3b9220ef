"""The response of a turn: JSON or SSE, headers, idempotent replay, conflicts and errors."""

import pytest
from tests.fake_provider import FakeProvider, closed_port
from tests.server_app import ServerApp, open_server_app

from cllm.core.message import plain_message
from cllm.core.ports import TurnStart

COMPLETIONS = "/v1/chat/completions"
BODY = {"model": "openai/gpt-test", "messages": [{"role": "user", "content": "Hello."}]}
START = {"X-Conversation-ID": ""}


@pytest.fixture
def provider():
    with FakeProvider() as provider:
        yield provider


@pytest.fixture
async def server(tmp_path, provider):
    settings = f"num_retries: 0\nproviders: {{openai: {{api_base: '{provider.url}'}}}}"
    async with open_server_app(tmp_path, settings) as server:
        yield server


async def lock(server: ServerApp, conversation: str) -> str:
    """Start a turn that never ends, and return its ID."""
    start = TurnStart(id=server.state.new_id(), messages=(plain_message("user", "Wait."),))
    lease = await server.state.store.begin_turn(conversation, start)
    return lease.turn.id


async def test_a_stateless_response_has_no_conversation(server):
    response = await server("POST", COMPLETIONS, json=BODY)

    assert response.json()["choices"][0]["message"]["content"] == "echo: Hello."
    assert "x-conversation-id" not in response.headers


async def test_a_stream_is_sent_as_server_sent_events(server):
    response = await server("POST", COMPLETIONS, json={**BODY, "stream": True}, headers=START)

    assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert response.headers["x-turn-id"]
    assert response.text.startswith("id: 1\ndata: {")
    assert response.text.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize("stream", [False, True])
async def test_the_same_idempotency_key_replays_the_response(server, provider, stream):
    headers = {**START, "Idempotency-Key": "once"}
    first, second = [
        await server("POST", COMPLETIONS, json={**BODY, "stream": stream}, headers=headers)
        for _ in range(2)
    ]

    assert first.content == second.content
    assert first.headers["x-conversation-id"] == second.headers["x-conversation-id"]
    assert len(provider.requests) == 1


async def test_a_busy_conversation_is_a_conflict_that_names_the_running_turn(server):
    conversation = await server.create_conversation()
    turn = await lock(server, conversation)

    response = await server(
        "POST", COMPLETIONS, json=BODY, headers={"X-Conversation-ID": conversation}
    )

    assert (response.status_code, response.json()["error"]["turn_id"]) == (409, turn)


async def test_a_busy_conversation_can_be_branched(server):
    conversation = await server.create_conversation()
    await lock(server, conversation)
    headers = {"X-Conversation-ID": conversation, "X-On-Conflict": "branch"}

    response = await server("POST", COMPLETIONS, json=BODY, headers=headers)

    branch = response.headers["x-conversation-id"]
    assert response.status_code == 200
    assert branch != conversation
    assert len((await server.load(branch)).turns) == 1


@pytest.mark.parametrize("stream", [False, True])
async def test_a_failed_turn_is_an_error_with_the_ids_of_what_was_saved(tmp_path, stream):
    url = f"http://127.0.0.1:{closed_port()}"
    settings = f"num_retries: 0\nproviders: {{openai: {{api_base: '{url}'}}}}"
    async with open_server_app(tmp_path, settings) as server:
        body = {**BODY, "stream": stream}
        response = await server("POST", COMPLETIONS, json=body, headers=START)
        stored = await server.load(response.headers["x-conversation-id"])

    assert (response.status_code, response.json()["error"]["code"]) == (502, "upstream_unreachable")
    assert [turn.state for turn in stored.turns] == ["failed"]
    assert response.headers["x-turn-id"] == stored.turns[0].id


async def test_an_unknown_conversation_is_an_error_without_ids(server):
    headers = {"X-Conversation-ID": server.state.new_id()}

    response = await server("POST", COMPLETIONS, json=BODY, headers=headers)

    assert response.status_code == 404
    assert "x-conversation-id" not in response.headers
