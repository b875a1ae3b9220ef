"""OpenAI's Python SDK, unmodified, with the Responses API of `cllm serve`, over four protocols."""

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import openai
import pytest
from pydantic import BaseModel
from tests.fake_provider import FakeProvider, ToolCall
from tests.fake_responses import PATH
from tests.messages_api import MODELS, make_settings, start_server
from tests.server_process import Server, list_messages
from tests.waits import wait_until

assert PATH == "/v1/responses", "importing it adds the route to the fake provider"
CALL = ToolCall(id="call_1", name="look", arguments='{"at": "the sky"}')
LOOK: Any = {
    "type": "function",
    "name": "look",
    "parameters": {"type": "object", "properties": {"at": {"type": "string"}}},
    "strict": False,
}
SECRET = "Speak like the pirate Blackbeard."


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("responses")


@pytest.fixture(scope="module")
def server(upstream: FakeProvider, folder: Path) -> Iterator[Server]:
    settings = make_settings(upstream)
    settings["providers"]["lab"] = {
        "type": "openai",
        "api": "responses",
        "api_base": upstream.url,
        "api_key": "x",
    }
    with start_server(folder, settings, store=f"sqlite:{folder / 'served.db'}") as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.address}/v1", api_key="any", max_retries=0) as made:
        yield made


@pytest.fixture(params=[*MODELS.values(), "lab/gpt-test"], ids=[*MODELS, "responses"])
def model(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


def test_a_response(client: openai.OpenAI, model: str):
    response = client.responses.create(model=model, input="Hello.", instructions=SECRET)

    assert "Hello." in response.output_text
    assert response.status == "completed"
    assert response.instructions == SECRET
    assert response.usage is not None
    assert (response.usage.input_tokens, response.usage.output_tokens) == (11, 7)


def test_a_conversation_by_the_previous_response(
    client: openai.OpenAI, model: str, server: Server, upstream: FakeProvider
):
    first = client.responses.create(model=model, input="My cat is called Luna.")
    second = client.responses.create(
        model=model, input="What is my cat called?", previous_response_id=first.id
    )

    assert "Luna" in json.dumps(upstream.requests[-1].json)
    retrieved = client.responses.retrieve(second.id)
    assert retrieved.output_text == second.output_text
    assert retrieved.instructions is None
    assert retrieved.previous_response_id == first.id
    hexadecimal = second.id.removeprefix("resp_")[:32]
    parts = (hexadecimal[:8], hexadecimal[8:12], hexadecimal[12:16], hexadecimal[16:20])
    conversation = "-".join((*parts, hexadecimal[20:]))
    assert [role for role, _ in list_messages(server, conversation)] == ["user", "assistant"] * 2


def test_the_streaming_helper(client: openai.OpenAI, model: str):
    with client.responses.stream(model=model, input="Hello.", instructions=SECRET) as stream:
        events = list(stream)
        final = stream.get_final_response()

    assert events[0].type == "response.created"
    assert events[-1].type == "response.completed"
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == (
        final.output_text
    )
    again = client.responses.retrieve(final.id, stream=True, starting_after=3)
    rest = list(again)
    assert [event.sequence_number for event in rest] == list(range(4, len(rest) + 4))
    assert rest[-1].type == "response.completed"
    assert rest[-1].response.output_text == final.output_text
    assert rest[-1].response.instructions is None


def test_a_plain_stream(client: openai.OpenAI, model: str):
    stream = client.responses.create(model=model, input="Hello.", stream=True, store=False)

    events = list(stream)

    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[-1].type == "response.completed"
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(events[-1].response.id)


class Capital(BaseModel):
    city: str
    inhabitants: int


def test_parsed_output(client: openai.OpenAI, upstream: FakeProvider):
    upstream.queue_reply('{"city": "Paris", "inhabitants": 2100000}')

    response = client.responses.parse(
        model=MODELS["openai"], input="The capital of France?", text_format=Capital
    )

    assert response.output_parsed == Capital(city="Paris", inhabitants=2100000)
    assert upstream.requests[-1].json["response_format"]["type"] == "json_schema"


@pytest.mark.parametrize("name", list(MODELS))
def test_a_tool_loop(client: openai.OpenAI, upstream: FakeProvider, name: str):
    upstream.queue_reply(tool_calls=(CALL,), finish="tool_calls")
    model = MODELS[name]
    first = client.responses.create(model=model, input="Look.", tools=[LOOK])
    (call,) = (item for item in first.output if item.type == "function_call")
    assert json.loads(call.arguments) == {"at": "the sky"}

    upstream.queue_reply("Blue.")
    second = client.responses.create(
        model=model,
        previous_response_id=first.id,
        tools=[LOOK],
        input=[{"type": "function_call_output", "call_id": call.call_id, "output": "blue"}],
    )

    assert second.output_text == "Blue."
    assert "blue" in json.dumps(upstream.requests[-1].json)


def test_input_items(client: openai.OpenAI):
    items: Any = [{"role": "user", "content": f"Text {number}."} for number in range(5)]
    response = client.responses.create(
        model=MODELS["openai"], input=[{"role": "developer", "content": SECRET}, *items]
    )

    listed = list(client.responses.input_items.list(response.id, limit=2, order="asc"))

    texts = [item.content[0].text for item in listed if item.type == "message"]  # type: ignore[union-attr]
    assert texts == [f"Text {number}." for number in range(5)]


def test_a_response_is_deleted(client: openai.OpenAI):
    response = client.responses.create(model=MODELS["openai"], input="Hello.")

    client.responses.delete(response.id)

    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(response.id)
    with pytest.raises(openai.NotFoundError) as error:
        client.responses.create(
            model=MODELS["openai"], input="Hello.", previous_response_id=response.id
        )
    assert error.value.code == "previous_response_not_found"


@pytest.mark.parametrize("name", list(MODELS))
def test_a_background_response_is_polled(client: openai.OpenAI, upstream: FakeProvider, name: str):
    gate = upstream.queue_held_reply("Held.", at=0)
    response = client.responses.create(model=MODELS[name], input="Hello.", background=True)
    assert response.status == "in_progress"
    gate.open()

    for _ in range(200):
        response = client.responses.retrieve(response.id)
        if response.status != "in_progress":
            break
        time.sleep(0.05)

    assert (response.status, response.output_text) == ("completed", "Held.")


def test_a_background_response_is_cancelled(client: openai.OpenAI, upstream: FakeProvider):
    gate = upstream.queue_held_reply("Held.", at=0)
    count = len(upstream.requests)
    response = client.responses.create(model=MODELS["openai"], input="Hello.", background=True)
    upstream.wait_for(count + 1)

    cancelled = client.responses.cancel(response.id)

    gate.open()
    assert cancelled.status == "cancelled"
    assert client.responses.retrieve(response.id).status == "cancelled"


def test_a_background_stream_is_resumed(client: openai.OpenAI, upstream: FakeProvider):
    gate = upstream.queue_held_reply("One. ", "Two.", at=1)
    stream = client.responses.create(
        model=MODELS["openai"], input="Count.", background=True, stream=True
    )
    seen = []
    for event in stream:
        seen.append(event)
        if event.type == "response.output_text.delta":
            break
    stream.close()
    assert seen[0].type == "response.created"
    gate.open()

    resumed = list(
        client.responses.retrieve(
            seen[0].response.id, stream=True, starting_after=seen[-1].sequence_number
        )
    )

    numbers = [event.sequence_number for event in (*seen, *resumed)]
    assert numbers == list(range(len(numbers)))
    assert resumed[-1].type == "response.completed"
    assert resumed[-1].response.output_text == "One. Two."


def test_errors(client: openai.OpenAI, upstream: FakeProvider):
    with pytest.raises(openai.BadRequestError) as invalid:
        client.responses.create(model=MODELS["openai"], input="Hello.", temperature="hot")  # type: ignore[call-overload]
    assert invalid.value.param == "temperature"
    with pytest.raises(openai.BadRequestError) as hosted:
        client.responses.create(
            model=MODELS["anthropic"], input="Hello.", tools=[{"type": "web_search"}]
        )
    assert "OpenAI's Responses API" in hosted.value.message
    upstream.queue_reply("Half", " of it", stop_after=1)
    with pytest.raises(openai.APIError):
        list(client.responses.create(model=MODELS["openai"], input="Hello.", stream=True))


def test_the_apis_share_a_conversation(
    client: openai.OpenAI, server: Server, upstream: FakeProvider
):
    first = client.responses.with_raw_response.create(
        model=MODELS["anthropic"], input="My cat is called Luna."
    )
    conversation = first.headers["X-Conversation-ID"]
    client.chat.completions.create(
        model=MODELS["anthropic"],
        messages=[{"role": "user", "content": "She is black."}],
        extra_headers={"X-Conversation-ID": conversation},
    )
    client.responses.create(
        model=MODELS["anthropic"], input="Describe her.", conversation=conversation
    )

    assert "black" in json.dumps(upstream.requests[-1].json)
    assert len(list(list_messages(server, conversation))) == 6


def test_a_websocket_is_refused_at_once(server: Server):
    host, port = server.address.removeprefix("http://").split(":")
    head = (
        f"GET /v1/responses HTTP/1.1\r\nHost: {host}:{port}\r\nConnection: Upgrade\r\n"
        "Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
    )
    with socket.create_connection((host, int(port)), timeout=10) as connection:
        connection.sendall(head.encode())
        status = connection.recv(4096).split(b"\r\n")[0]

    assert status.startswith(b"HTTP/1.1 426")
    assert wait_until(lambda: "upgrade_required" in server.log)
    assert "Unsupported upgrade" not in server.log
    assert "WARNING" not in server.log


def test_no_system_text_is_stored(client: openai.OpenAI, server: Server, folder: Path):
    """The last test: nothing of the others is stored either."""
    key = {"Idempotency-Key": "pirate"}
    developer: Any = [
        {"role": "developer", "content": SECRET},
        {"role": "user", "content": "Hello."},
    ]
    for stream in (False, True):
        for name in ("openai", "anthropic", "bedrock"):
            result = client.responses.create(
                model=MODELS[name],
                input=developer,
                instructions=SECRET,
                stream=stream,
                extra_headers={"Idempotency-Key": f"{key['Idempotency-Key']}-{name}-{stream}"},
            )
            if stream:
                list(result)

    files = [path for path in folder.rglob("*") if path.is_file()]
    assert any(path.name == "served.db" for path in files)
    for path in files:
        assert b"Blackbeard" not in path.read_bytes(), path
