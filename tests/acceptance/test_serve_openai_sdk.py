"""OpenAI's Python SDK, unmodified, with `cllm serve` as its base URL."""

import json
from collections.abc import Iterator
from typing import Any

import openai
import pytest
from pydantic import BaseModel
from tests.fake_provider import FakeProvider, ToolCall
from tests.server_process import Server, list_messages

MODEL = "openai/gpt-test"
HELLO: Any = {"role": "user", "content": "Hello."}
LOOK: Any = {
    "type": "function",
    "function": {
        "name": "look",
        "parameters": {"type": "object", "properties": {"at": {"type": "string"}}},
    },
}


@pytest.fixture
def client(server: Server) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{server.address}/v1", api_key="any", max_retries=0) as made:
        yield made


def test_a_completion(client: openai.OpenAI):
    response = client.chat.completions.create(model=MODEL, messages=[HELLO])

    assert response.choices[0].message.content == "echo: Hello."
    assert response.choices[0].finish_reason == "stop"
    assert response.usage is not None
    assert response.usage.total_tokens == 18


def test_a_conversation_by_one_header(client: openai.OpenAI, server: Server):
    raw = client.chat.completions.with_raw_response.create(
        model=MODEL,
        messages=[{"role": "system", "content": "You are a helpful assistant."}, HELLO],
        extra_headers={"X-Conversation-ID": ""},
    )
    conversation = raw.headers["X-Conversation-ID"]
    client.chat.completions.create(
        model=MODEL,
        messages=[
            {"role": "system", "content": "You are now a technical expert."},
            {"role": "user", "content": "Explain quantum computing"},
        ],
        extra_headers={"X-Conversation-ID": conversation},
    )

    assert [content for _, content in list_messages(server, conversation)] == [
        "Hello.",
        "echo: Hello.",
        "Explain quantum computing",
        "echo: Explain quantum computing",
    ]


@pytest.mark.parametrize("headers", [{}, {"X-Conversation-ID": ""}])
def test_a_stream(client: openai.OpenAI, upstream: FakeProvider, headers: dict[str, str]):
    upstream.queue_reply("One ", "two ", "three.")

    stream = client.chat.completions.create(
        model=MODEL,
        messages=[HELLO],
        stream=True,
        stream_options={"include_usage": True},
        extra_headers=headers,
    )
    chunks = list(stream)

    assert (
        "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == "One two three."
    )
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] == "stop"
    assert chunks[-1].usage is not None


def test_the_streaming_helper_assembles_a_reply(client: openai.OpenAI, upstream: FakeProvider):
    upstream.queue_reply("One ", "two.")

    with client.chat.completions.stream(model=MODEL, messages=[HELLO]) as stream:
        response = stream.get_final_completion()

    assert response.choices[0].message.content == "One two."


@pytest.mark.parametrize("stream", [False, True])
def test_tools_over_two_requests_of_a_conversation(
    client: openai.OpenAI, upstream: FakeProvider, stream: bool
):
    calls = (
        ToolCall(id="call_a", name="look", arguments='{"at":"sky"}'),
        ToolCall(id="call_b", name="look", arguments='{"at":"sea"}'),
    )
    upstream.queue_reply(tool_calls=calls, finish="tool_calls")
    response: Any
    if stream:
        with client.chat.completions.stream(
            model=MODEL, messages=[HELLO], tools=[LOOK], extra_headers={"X-Conversation-ID": ""}
        ) as events:
            response = events.get_final_completion()
            conversation = events._response.headers["x-conversation-id"]
    else:
        raw = client.chat.completions.with_raw_response.create(
            model=MODEL, messages=[HELLO], tools=[LOOK], extra_headers={"X-Conversation-ID": ""}
        )
        response, conversation = raw.parse(), raw.headers["x-conversation-id"]
    requested_calls = response.choices[0].message.tool_calls or []

    last = client.chat.completions.create(
        model=MODEL,
        tools=[LOOK],
        messages=[
            {"role": "tool", "tool_call_id": call.id, "content": f"Blue {number}."}
            for number, call in enumerate(requested_calls)
        ],
        extra_headers={"X-Conversation-ID": conversation},
    )

    assert [json.loads(call.function.arguments) for call in requested_calls] == [
        {"at": "sky"},
        {"at": "sea"},
    ]
    sent = upstream.requests[-1].messages
    assert [message["role"] for message in sent] == ["user", "assistant", "tool", "tool"]
    assert [message["content"] for message in sent[2:]] == ["Blue 0.", "Blue 1."]
    assert last.choices[0].message.content == "echo: Hello."


def test_structured_output(client: openai.OpenAI, upstream: FakeProvider):
    class Cat(BaseModel):
        name: str
        lives: int

    upstream.queue_reply('{"name":"Luna","lives":9}')

    response = client.chat.completions.parse(model=MODEL, messages=[HELLO], response_format=Cat)

    assert response.choices[0].message.parsed == Cat(name="Luna", lives=9)
    schema = upstream.requests[-1].json["response_format"]["json_schema"]
    assert schema["strict"] is True
    assert set(schema["schema"]["properties"]) == {"name", "lives"}


def test_errors_are_the_sdks_own(client: openai.OpenAI, upstream: FakeProvider):
    with pytest.raises(openai.NotFoundError) as unknown:
        client.chat.completions.create(model="nobody/knows-it", messages=[HELLO])
    with pytest.raises(openai.UnprocessableEntityError) as empty:
        client.chat.completions.create(model=MODEL, messages=[])
    with pytest.raises(openai.BadRequestError) as header:
        client.chat.completions.create(
            model=MODEL, messages=[HELLO], extra_headers={"X-Conversation-ID": "de mo"}
        )
    upstream.queue_error(429, "Slow down.")
    with pytest.raises(openai.RateLimitError):
        client.chat.completions.create(model=MODEL, messages=[HELLO])

    assert unknown.value.code == "model_not_found"
    assert empty.value.code == "empty_messages_array"
    assert header.value.code == "invalid_conversation_id"


def test_an_error_in_the_middle_of_a_stream_is_raised(
    client: openai.OpenAI, upstream: FakeProvider
):
    upstream.queue_reply(
        "Half ", "an answer", stop_after=1, error=("server_error", "Out of cheese.")
    )

    with pytest.raises(openai.APIError):
        list(client.chat.completions.create(model=MODEL, messages=[HELLO], stream=True))


def test_a_retry_of_the_sdk_stores_no_message_twice(
    client: openai.OpenAI, upstream: FakeProvider, server: Server
):
    first_response = server.complete(("user", "Hello."), conversation="")
    upstream.queue_error(429, "Slow down.", retry_after="0")
    upstream.queue_error(500, "Broken.")

    response = client.with_options(max_retries=3).chat.completions.create(
        model=MODEL,
        messages=[{"role": "user", "content": "Again."}],
        extra_headers={"X-Conversation-ID": first_response.conversation},
    )

    assert response.choices[0].message.content == "echo: Again."
    assert upstream.requests[-1].message_pairs == [
        ("user", "Hello."),
        ("assistant", "echo: Hello."),
        ("user", "Again."),
    ]


async def test_the_async_client(server: Server):
    async with openai.AsyncOpenAI(base_url=f"{server.address}/v1", api_key="any") as client:
        stream = await client.chat.completions.create(model=MODEL, messages=[HELLO], stream=True)
        chunks = [chunk async for chunk in stream]

    assert "".join(c.choices[0].delta.content or "" for c in chunks) == "echo: Hello."
