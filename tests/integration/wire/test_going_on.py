"""A conversation that is sent again, longer each time: what is remembered of it changes nothing.

Every request is read and encoded twice: as it is in a server, with all that was remembered of the
requests before, and the long way, with nothing remembered. Both have to come to the same bytes, the
same notices, or the same error; whether there is room to remember much, little or nothing, and
whatever else was sent in between.
"""

import json
from collections.abc import Iterator
from typing import Any
from unittest.mock import patch

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.client_requests import anthropic_requests, openai_requests
from tests.conversations import SAID, Json
from tests.scale import scaled

from cllm.core.errors import CllmError
from cllm.core.message import Dialect
from cllm.core.prompt import Prompt
from cllm.providers import recalling
from cllm.providers.anthropic import AnthropicProvider
from cllm.providers.asking import HttpProvider, Request
from cllm.providers.bedrock import Account, BedrockProvider
from cllm.providers.http_once import OnceHttp
from cllm.providers.openai import OpenAIProvider
from cllm.providers.recalling import Recalling
from cllm.wire import anthropic_request, beginnings, framing, openai_request
from cllm.wire.beginnings import Beginnings
from cllm.wire.malformed import FieldError
from cllm.wire.memo import Memo

MODELS: dict[str, tuple[str, ...]] = {
    "anthropic": ("claude-3-7-sonnet-20250219", "claude-sonnet-4-5-20250929", "claude-opus-4-8"),
    "bedrock": ("claude-opus-4-6", "us.amazon.nova-pro-v1:0", "meta.llama3-3-70b-instruct-v1:0"),
    "openai": ("gpt-4o", "o3"),
}
CODECS: dict[str, Any] = {"anthropic": anthropic_request, "openai": openai_request}
ROOMS = (0, 3_000, 16_000_000)
SEPARATORS = ((",", ":"), (", ", ": "))
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture]
OFTEN = settings(max_examples=scaled(40, 1500), deadline=None, suppress_health_check=SLOW)
EVERY_TARGET = pytest.mark.parametrize("target", list(MODELS))
EVERY_CLIENT = pytest.mark.parametrize("client", list(CODECS))
TOOLS: dict[str, list[Json]] = {
    "openai": [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}],
    "anthropic": [{"name": "f", "input_schema": {"type": "object"}}],
}


def provider(target: Dialect) -> HttpProvider:
    if target == "bedrock":
        return BedrockProvider(name="bedrock", account=Account(bearer="k"), http=OnceHttp())
    kind: Any = {"anthropic": AnthropicProvider, "openai": OpenAIProvider}[target]
    made: HttpProvider = kind(name=target, base_url="https://x/v1", api_key="k", http=OnceHttp())
    return made


@pytest.fixture
def short_bodies(monkeypatch):
    monkeypatch.setattr(beginnings, "SHORTEST", 0)


class Remembering:
    """A server's memory, with so much room."""

    def __init__(self, room: int) -> None:
        self._told: Memo[Any, Any] = Memo(room)
        self._frames: Memo[Any, Any] = Memo(room)
        self._begun = {
            client: Beginnings(codec._decode_whole, limit=room) for client, codec in CODECS.items()
        }

    def sent(self, body: bytes, client: str, target: Dialect) -> Request | str:
        with (
            patch.object(recalling, "remembered", self._told),
            patch.object(framing, "_frames", self._frames),
            patch.object(CODECS[client], "_beginnings", self._begun[client]),
        ):
            return sent(body, client, target)


def sent(body: bytes, client: str, target: Dialect) -> Request | str:
    """The request, with its notices; or the error that there is instead."""
    try:
        prompt: Prompt = CODECS[client].decode_request(body)
        return provider(target)._encoded(prompt)
    except (CllmError, FieldError) as error:
        return f"{type(error).__name__}: {error}"


def sent_the_long_way(body: bytes, client: str, target: Dialect) -> Request | str:
    nothing = Beginnings(CODECS[client]._decode_whole, limit=0)
    with (
        patch.object(Recalling, "__call__", return_value=None),
        patch.object(CODECS[client], "_beginnings", nothing),
    ):
        return sent(body, client, target)


def openai_exchange(number: int, said: list[str]) -> Iterator[Json]:
    calls = [
        {"id": f"c{n}", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
        for n in range(number, number + 2)
    ]
    yield {"role": "user", "content": said[0]}
    yield {"role": "assistant", "content": said[1], "tool_calls": calls}
    for call in calls if number % 3 else reversed(calls):
        yield {"role": "tool", "tool_call_id": call["id"], "content": said[2]}
    yield {"role": "assistant", "content": said[3]}


def anthropic_exchange(number: int, said: list[str]) -> Iterator[Json]:
    ids = [f"t{n}" for n in range(number, number + 2)]
    calls = [{"type": "tool_use", "id": id_, "name": "f", "input": {"x": 1}} for id_ in ids]
    results = [{"type": "tool_result", "tool_use_id": id_, "content": said[2]} for id_ in ids]
    yield {"role": "user", "content": said[0]}
    yield {"role": "assistant", "content": [{"type": "text", "text": said[1]}, *calls]}
    if number % 3:
        yield {"role": "user", "content": results}
    else:
        yield from ({"role": "user", "content": [result]} for result in reversed(results))
    yield {"role": "assistant", "content": [{"type": "text", "text": said[3]}]}


@st.composite
def orderly_requests(draw: st.DrawFn, client: str) -> Json:
    """Requests as most are: questions, calls that are answered, answers."""
    exchange = openai_exchange if client == "openai" else anthropic_exchange
    exchanges = draw(st.lists(st.lists(SAID, min_size=4, max_size=4), min_size=1, max_size=4))
    messages = [one for number, said in enumerate(exchanges) for one in exchange(number, said)]
    if client == "openai" and draw(st.booleans()):
        messages.insert(0, {"role": "system", "content": draw(SAID)})
    body: Json = {"messages": messages, "max_tokens": 100}
    if draw(st.booleans()):
        body["tools"] = TOOLS[client]
    if client == "anthropic" and draw(st.booleans()):
        body["system"] = [{"type": "text", "text": "Be brief."}]
    return body


MARK = {"type": "ephemeral"}
FOUND: Json = {
    "type": "search_result",
    "source": "s",
    "title": "t",
    "content": [{"type": "text", "text": "x"}],
}
PICTURE: dict[str, Json] = {
    "openai": {"type": "image_url", "image_url": {"url": "https://x/b.png"}},
    "anthropic": {"type": "image", "source": {"type": "url", "url": "https://x/b.png"}},
}


def marked_results() -> list[Json]:
    """More marks than Anthropic takes, in blocks that only Anthropic has."""
    messages: list[Json] = [{"role": "user", "content": "Look."}]
    for number in range(6):
        call = {"type": "tool_use", "id": f"t{number}", "name": "f", "input": {}}
        found = [FOUND | {"cache_control": MARK}]
        result = {"type": "tool_result", "tool_use_id": f"t{number}", "content": found}
        messages.append({"role": "assistant", "content": [call]})
        messages.append({"role": "user", "content": [result]})
    return [*messages, {"role": "assistant", "content": "So."}, {"role": "user", "content": "Yes?"}]


def with_a_field(content: list[Json]) -> list[Json]:
    """A message with a field that no other protocol has, between plain ones."""
    return [
        {"role": "user", "content": content, "foo": 1},
        {"role": "assistant", "content": "I see."},
        {"role": "user", "content": "And?"},
    ]


def text(said: str) -> Json:
    return {"type": "text", "text": said}


ODD: dict[str, tuple[str, list[Json]]] = {
    "marks in a result": ("anthropic", marked_results()),
    "a picture and a field": ("anthropic", with_a_field([text("x"), PICTURE["anthropic"]])),
    "an empty text and a field": ("anthropic", with_a_field([text(""), text("x")])),
    "openai, a picture and a field": ("openai", with_a_field([text("x"), PICTURE["openai"]])),
    "openai, an empty text and a field": ("openai", with_a_field([text(""), text("x")])),
}


def requests_of(client: str) -> st.SearchStrategy[Json]:
    odd = openai_requests() if client == "openai" else anthropic_requests()
    return orderly_requests(client) | odd


def bodies_of(
    request: Json, model: str, separators: tuple[str, str] = SEPARATORS[0]
) -> Iterator[bytes]:
    """The request as it came to be: with one message, with two, with all of them."""
    messages = request["messages"]
    for end in range(1, len(messages) + 1):
        body = {"model": model} | request | {"model": model, "messages": messages[:end]}
        yield json.dumps(body, separators=separators, ensure_ascii=False).encode()


def nearly(request: Json, place: int) -> Json:
    """The same request with one more sign in every text and id of one message."""
    messages = [*request["messages"]]
    messages[place] = changed(messages[place])
    return request | {"messages": messages}


def changed(value: Any) -> Any:
    if isinstance(value, list):
        return list(map(changed, value))
    if not isinstance(value, dict):
        return value
    told = ("content", "text", "id", "tool_call_id", "tool_use_id")
    return {
        name: f"{said}x" if name in told and isinstance(said, str) else changed(said)
        for name, said in value.items()
    }


@EVERY_TARGET
@EVERY_CLIENT
@OFTEN
@given(data=st.data())
def test_a_conversation_that_grows_is_sent_as_if_nothing_were_remembered(
    client, target, data, short_bodies
):
    request = data.draw(requests_of(client))
    model = data.draw(st.sampled_from(MODELS[target]))
    remembering = Remembering(data.draw(st.sampled_from(ROOMS)))
    other = nearly(request, data.draw(st.integers(0, len(request["messages"]) - 1)))
    written = data.draw(st.sampled_from(SEPARATORS))
    steps = zip(bodies_of(request, model, written), bodies_of(other, model, written), strict=True)

    for step in steps:
        for body in step:
            seen = remembering.sent(body, client, target)
            assert seen == sent_the_long_way(body, client, target)


@EVERY_TARGET
@pytest.mark.parametrize("shape", list(ODD))
def test_what_is_told_of_one_message_is_told_however_it_goes(target, shape, short_bodies):
    client, messages = ODD[shape]
    request: Json = {"messages": messages, "max_tokens": 100, "tools": TOOLS[client]}
    growing = Remembering(ROOMS[-1])

    for body in bodies_of(request, MODELS[target][0]):
        seen = sent_the_long_way(body, client, target)
        assert growing.sent(body, client, target) == seen
        assert Remembering(ROOMS[-1]).sent(body, client, target) == seen


@EVERY_TARGET
@EVERY_CLIENT
@OFTEN
@given(data=st.data())
def test_a_conversation_that_goes_to_several_models_is_sent_to_each_as_if_it_were_new(
    client, target, data, short_bodies
):
    request = data.draw(orderly_requests(client))
    remembering = Remembering(ROOMS[-1])
    bodies = [list(bodies_of(request, model)) for model in MODELS[target]]

    for step in zip(*bodies, strict=True):
        for body in step:
            seen = remembering.sent(body, client, target)
            assert seen == sent_the_long_way(body, client, target)


@EVERY_CLIENT
@OFTEN
@given(data=st.data())
def test_a_body_that_goes_on_is_read_as_any_body_is(client, data, short_bodies):
    begun = Beginnings(CODECS[client]._decode_whole)
    request = data.draw(requests_of(client))

    for body in bodies_of(request, "m", data.draw(st.sampled_from(SEPARATORS))):
        assert begun.read(body) == CODECS[client]._decode_whole(body)
