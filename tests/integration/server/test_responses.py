"""The Responses API of a server on each store, over providers of other protocols."""

import json
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter
from tests.fake_provider import FakeProvider, ToolCall
from tests.server_app import ServerApp, open_server_app

from cllm.wire.sse import SseDecoder

PATH = "/v1/responses"
EVENT: TypeAdapter[Any] = TypeAdapter(ResponseStreamEvent)
MODELS = {
    "chat": "openai/gpt-test",
    "anthropic": "anthropic/claude-sonnet-4-5",
    "bedrock": "bedrock/claude-opus-4-6",
}
CALL = ToolCall(id="call_1", name="look", arguments='{"at": "the sky"}')
LOOK = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}
SECRET = "Speak like the pirate Blackbeard."


def settings_of(provider: FakeProvider, **server: Any) -> str:
    row = {"api_key": "x", "num_retries": 0}
    settings = {
        "num_retries": 0,
        "providers": {
            "openai": {**row, "api_base": provider.url},
            "anthropic": {**row, "api_base": provider.root},
            "bedrock": {**row, "api_base": provider.root},
        },
        "server": {"silence_seconds": 0.2, **server},
    }
    return msgspec.json.encode(settings).decode()


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    with FakeProvider() as running:
        yield running


@pytest.fixture
async def server(
    tmp_path: Path, store_url: str, provider: FakeProvider
) -> AsyncIterator[ServerApp]:
    async with open_server_app(tmp_path, settings_of(provider), store=store_url) as running:
        yield running


@pytest.fixture(params=list(MODELS.values()), ids=list(MODELS))
def model(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


async def create(server: ServerApp, text: Any, status: int = 200, **fields: Any) -> Any:
    headers = fields.pop("headers", {})
    body = {"model": MODELS["chat"], "input": text, **fields}
    response = await server("POST", PATH, json=body, headers=headers)
    assert response.status_code == status, response.text
    if status == 200:
        Response.model_validate(response.json(), strict=False)
    return response.json()


async def stream(server: ServerApp, text: Any, **fields: Any) -> list[dict[str, Any]]:
    body = {"model": MODELS["chat"], "input": text, "stream": True, **fields}
    response = await server("POST", PATH, json=body)
    assert response.status_code == 200, response.text
    return check_events(response.content)


def check_events(body: bytes, first: int = 0) -> list[dict[str, Any]]:
    """Return the events, each valid by the SDK's own model, numbered without a gap."""
    events = [json.loads(event.data) for event in SseDecoder().feed(body)]
    for event in events:
        EVENT.validate_python(event)
    numbers = [event["sequence_number"] for event in events]
    assert numbers == list(range(first, first + len(events)))
    return events


def text_of(response: Any) -> str:
    return Response.model_validate(response).output_text


async def test_a_stateless_response_is_not_saved(
    server: ServerApp, provider: FakeProvider, model: str
) -> None:
    response = await create(server, "Hello.", model=model, store=False, instructions=SECRET)

    assert text_of(response) == "echo: Hello."
    assert response["status"] == "completed"
    assert response["instructions"] == SECRET
    assert response["store"] is False
    assert len(response["id"]) == len("resp_") + 64
    assert response["usage"]["input_tokens"] == 11
    assert SECRET in json.dumps(provider.requests[-1].json)
    assert (await server.get("/v1/conversations"))["conversations"] == []


async def test_a_stream_has_every_event_in_order(server: ServerApp, model: str) -> None:
    events = await stream(server, "Hello.", model=model, store=False)

    assert [event["type"].removeprefix("response.") for event in events] == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert text_of(events[-1]["response"]) == "echo: Hello."
    assert {event["response"]["id"] for event in events if "response" in event} == {
        events[0]["response"]["id"]
    }


@pytest.mark.parametrize("streams", [False, True])
async def test_function_calls(
    server: ServerApp, provider: FakeProvider, model: str, streams: bool
) -> None:
    provider.queue_reply(tool_calls=(CALL,), finish="tool_calls")
    fields = {"model": model, "store": False, "tools": [LOOK]}
    if streams:
        events = await stream(server, "Look.", **fields)
        assert "response.function_call_arguments.done" in [event["type"] for event in events]
        response = events[-1]["response"]
    else:
        response = await create(server, "Look.", **fields)
    (call,) = response["output"]
    assert (call["type"], call["name"], call["call_id"]) == ("function_call", "look", "call_1")
    assert json.loads(call["arguments"]) == {"at": "the sky"}

    output = {"type": "function_call_output", "call_id": "call_1", "output": "blue"}
    await create(server, [{"role": "user", "content": "Look."}, call, output], **fields)

    sent = json.dumps(provider.requests[-1].json)
    assert "blue" in sent
    assert call["id"] not in sent


async def test_a_stored_response_continues(
    server: ServerApp, provider: FakeProvider, model: str
) -> None:
    first = await create(server, "My cat is called Luna.", model=model, instructions=SECRET)
    second = await create(
        server, "What is my cat called?", model=model, previous_response_id=first["id"]
    )

    assert second["previous_response_id"] == first["id"]
    assert second["instructions"] is None
    sent = json.dumps(provider.requests[-1].json)
    assert "Luna" in sent
    assert "echo: My cat" in sent
    assert SECRET not in sent
    (listed,) = (await server.get("/v1/conversations"))["conversations"]
    assert listed["message_count"] == 4


async def test_an_older_response_continues_in_a_branch(
    server: ServerApp, provider: FakeProvider
) -> None:
    first = await create(server, "One.")
    second = await create(server, "Two.", previous_response_id=first["id"])
    third = await create(server, "Three.", previous_response_id=first["id"])

    assert "Two." not in json.dumps(provider.requests[-1].json)
    assert "One." in json.dumps(provider.requests[-1].json)
    conversations = [one["id"][5:37] for one in (first, second, third)]
    assert conversations[0] == conversations[1] != conversations[2]
    fourth = await create(server, "Four.", previous_response_id=second["id"])
    assert fourth["id"][5:37] == conversations[0]


async def test_an_unknown_previous_response(server: ServerApp) -> None:
    for unknown in ("resp_" + "0" * 64, "resp_abc", "nothing"):
        error = await create(server, "Hello.", status=404, previous_response_id=unknown)
        assert error["error"]["code"] == "previous_response_not_found"
        assert error["error"]["param"] == "previous_response_id"
        assert error["error"]["type"] == "invalid_request_error"


async def test_a_previous_response_without_storage(
    server: ServerApp, provider: FakeProvider
) -> None:
    first = await create(server, "One.")
    await create(server, "Two.", previous_response_id=first["id"])
    third = await create(server, "Three.", previous_response_id=first["id"], store=False)

    sent = json.dumps(provider.requests[-1].json)
    assert "One." in sent
    assert "Two." not in sent
    assert third["store"] is False
    (listed,) = (await server.get("/v1/conversations"))["conversations"]
    assert listed["message_count"] == 4


async def test_a_developer_message_of_a_continued_response_is_sent_and_not_saved(
    server: ServerApp, provider: FakeProvider
) -> None:
    first = await create(server, "One.", instructions="Be brief.")
    items = [{"role": "developer", "content": SECRET}, {"role": "user", "content": "Two."}]
    second = await create(server, items, previous_response_id=first["id"], instructions="Be kind.")

    assert "Be kind." in json.dumps(provider.requests[-1].json)
    assert SECRET in json.dumps(provider.requests[-1].json)
    await create(server, "Three.", previous_response_id=second["id"])
    assert SECRET not in json.dumps(provider.requests[-1].json)


async def test_a_whole_history_is_recognised(server: ServerApp) -> None:
    first = await create(server, "One.")
    items = [{"role": "user", "content": "One."}, *first["output"]]
    second = await create(server, [*items, {"role": "user", "content": "Two."}])

    assert second["id"][5:37] == first["id"][5:37]
    (listed,) = (await server.get("/v1/conversations"))["conversations"]
    assert listed["message_count"] == 4


async def test_a_conversation_of_the_request(server: ServerApp) -> None:
    conversation = await server.create_conversation()
    first = await create(server, "One.", conversation=conversation)
    await create(server, "Two.", conversation={"id": "conv_" + conversation})
    await create(server, "Three.", conversation="conv_" + conversation.replace("-", ""))

    assert first["id"][5:37] == conversation.replace("-", "")
    assert len((await server.get(f"/v1/conversations/{conversation}"))["messages"]) == 6
    error = await create(
        server, "Four.", 400, conversation=conversation, previous_response_id=first["id"]
    )
    assert error["error"]["param"] == "previous_response_id"


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"input": 7}, "input"),
        ({"store": "yes"}, "store"),
        ({"background": True, "store": False}, "background"),
        ({"truncation": "some"}, "truncation"),
        ({"metadata": {"a": 1}}, "metadata"),
    ],
)
async def test_invalid_requests(server: ServerApp, fields: Any, param: str) -> None:
    error = await create(server, **{"text": "Hello.", "status": 400, **fields})

    assert error["error"]["type"] == "invalid_request_error"
    assert error["error"]["param"].startswith(param)
