"""OpenAI's own library for Python, unmodified, as a client of `cllm serve`."""

import json
from collections.abc import Iterator
from typing import Any

import openai
import pydantic
import pytest
from openai.types.chat import ChatCompletion
from tests.fake_provider import FakeProvider, ToolCall
from tests.home import Home, write_settings
from tests.server_process import Server, list_messages

MODEL = "openai/gpt-test"
UNKNOWN = "5f0c3a52-9d6f-4a57-8f53-d7c3e8f1a7aa"
CAT = ("user", "My cat is called Luna.")
QUESTION = ("user", "What is my cat called?")
CALL = ToolCall(id="call_1", name="weather", arguments='{"city": "Paris"}')


class Capital(pydantic.BaseModel):
    city: str
    inhabitants: int


@pytest.fixture(scope="module")
def server(upstream: FakeProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that sends the head of a silent stream soon."""
    home = Home(tmp_path_factory.mktemp("served"))
    write_settings(home, upstream, server={"silence_seconds": 0.5})
    with Server(
        environment=home.environment,
        directory=home.work,
        store=f"sqlite:{home.path / 'served.db'}",
    ) as running:
        yield running


@pytest.fixture
def client(server: Server) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{server.address}/v1", api_key="any")


def ask(client: openai.OpenAI, text: str, **options: Any) -> Any:
    said: list[Any] = [{"role": "user", "content": text}]
    return client.chat.completions.create(model=MODEL, messages=said, **options)


def test_a_completion_is_read_whole_and_streamed(client: openai.OpenAI):
    whole: ChatCompletion = ask(client, "Hello.")
    chunks = list(ask(client, "Hello.", stream=True, stream_options={"include_usage": True}))

    assert whole.choices[0].message.content == "echo: Hello."
    assert whole.usage is not None
    assert whole.usage.total_tokens == 18
    said = [choice.delta.content or "" for chunk in chunks for choice in chunk.choices]
    assert "".join(said) == "echo: Hello."
    assert chunks[-1].usage.total_tokens == 18


def test_a_conversation_goes_on_by_a_header(
    client: openai.OpenAI, server: Server, upstream: FakeProvider
):
    upstream.queue_reply("A good name.")
    upstream.queue_reply("Luna.")
    raw = client.chat.completions.with_raw_response
    begun = raw.create(
        model=MODEL,
        messages=[{"role": "user", "content": CAT[1]}],
        extra_headers={"X-Conversation-ID": ""},
    )
    conversation = begun.headers["x-conversation-id"]

    following = client.with_options(default_headers={"X-Conversation-ID": conversation})
    answer = ask(following, QUESTION[1])

    said = [CAT, ("assistant", "A good name."), QUESTION]
    assert answer.choices[0].message.content == "Luna."
    assert upstream.requests[-1].message_pairs == said
    assert list(list_messages(server, conversation)) == [*said, ("assistant", "Luna.")]


def test_the_head_of_a_stream_is_there_before_its_first_chunk(
    client: openai.OpenAI, upstream: FakeProvider
):
    gate = upstream.queue_held_reply("Held.", at=0)

    stream = ask(client, "Hello.", stream=True, extra_headers={"X-Conversation-ID": ""})
    conversation = stream.response.headers["x-conversation-id"]
    gate.open()

    said = [choice.delta.content or "" for chunk in stream for choice in chunk.choices]
    assert "".join(said) == "Held."
    assert conversation


def test_a_tool_is_called_and_its_result_is_answered(client: openai.OpenAI, upstream: FakeProvider):
    upstream.queue_reply(tool_calls=(CALL,), finish="tool_calls")
    upstream.queue_reply("It rains.")
    tool = {"type": "function", "function": {"name": "weather", "parameters": {"type": "object"}}}
    said: list[Any] = [{"role": "user", "content": "The weather in Paris?"}]

    asked = client.chat.completions.create(model=MODEL, messages=said, tools=[tool])  # type: ignore[list-item]
    message = asked.choices[0].message
    assert message.tool_calls is not None
    result = {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "Rain."}
    said += [message, result]
    answer = client.chat.completions.create(model=MODEL, messages=said)

    assert json.loads(message.tool_calls[0].function.arguments) == {"city": "Paris"}  # type: ignore[union-attr]
    assert answer.choices[0].message.content == "It rains."
    assert [sent["role"] for sent in upstream.requests[-1].messages] == [
        "user",
        "assistant",
        "tool",
    ]


def test_an_answer_fits_the_type_that_it_was_asked_for(
    client: openai.OpenAI, upstream: FakeProvider
):
    upstream.queue_reply('{"city": "Paris", "inhabitants": 2100000}')
    said: list[Any] = [{"role": "user", "content": "The capital of France?"}]

    answer = client.chat.completions.parse(model=MODEL, messages=said, response_format=Capital)

    assert answer.choices[0].message.parsed == Capital(city="Paris", inhabitants=2_100_000)
    assert upstream.requests[-1].json["response_format"]["type"] == "json_schema"


@pytest.mark.parametrize(
    ("conversation", "kind", "code"),
    [
        ("not an id", openai.BadRequestError, "invalid_conversation_id"),
        (UNKNOWN, openai.NotFoundError, "conversation_not_found"),
    ],
)
def test_a_refusal_has_its_class_and_its_code(
    client: openai.OpenAI, conversation: str, kind: type[openai.APIStatusError], code: str
):
    with pytest.raises(kind) as raised:
        ask(client, "Hello.", extra_headers={"X-Conversation-ID": conversation})

    assert raised.value.code == code
    assert raised.value.request_id


def test_the_library_asks_again_after_what_passes(client: openai.OpenAI, upstream: FakeProvider):
    count = len(upstream.requests)
    upstream.queue_error(429, "Slowly.", Retry_After="1")
    upstream.queue_error(500, "Broken.")

    answer = ask(client, "Hello.")

    first, second, _ = upstream.requests[count:]
    assert answer.choices[0].message.content == "echo: Hello."
    assert second.received_at - first.received_at >= 0.95


def test_what_failed_at_once_is_asked_again_in_the_conversation_that_kept_it(
    client: openai.OpenAI, server: Server, upstream: FakeProvider
):
    upstream.queue_error(500, "Broken.")
    once = client.with_options(max_retries=0)

    with pytest.raises(openai.InternalServerError) as raised:
        ask(once, CAT[1], extra_headers={"X-Conversation-ID": ""})
    conversation = raised.value.response.headers["x-conversation-id"]
    following = client.with_options(default_headers={"X-Conversation-ID": conversation})
    answer = following.chat.completions.create(model=MODEL, messages=[])

    said = [CAT, ("assistant", f"echo: {CAT[1]}")]
    assert answer.choices[0].message.content == said[-1][1]
    assert list(list_messages(server, conversation)) == said
