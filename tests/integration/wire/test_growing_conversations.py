"""A client sends its whole conversation with every request, each time with more messages.

The request to a provider depends on the body alone, not on earlier requests. The messages of one
request are a prefix of the next, which a provider's prompt cache requires.
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.message_strategies import NONBLANK_TEXT, Json
from tests.request_strategies import anthropic_requests, openai_requests
from tests.torture import choose_size

from cllm.core.errors import CllmError
from cllm.core.message import Dialect
from cllm.core.prompt import Prompt
from cllm.providers.anthropic import AnthropicProvider
from cllm.providers.bedrock import AwsAccount, BedrockProvider
from cllm.providers.http.provider import HttpProvider, ProviderRequest
from cllm.providers.http.stdlib_transport import StdlibTransport
from cllm.providers.openai import OpenAIProvider
from cllm.wire.anthropic import request as anthropic_request
from cllm.wire.errors import FieldError
from cllm.wire.openai import request as openai_request

MODELS: dict[str, str] = {
    "anthropic": "claude-sonnet-4-5-20250929",
    "bedrock": "us.amazon.nova-pro-v1:0",
    "openai": "gpt-4o",
}
CODECS: dict[str, Any] = {"anthropic": anthropic_request, "openai": openai_request}
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]
OFTEN = settings(max_examples=choose_size(12, 500), deadline=None, suppress_health_check=SLOW)
EVERY_TARGET = pytest.mark.parametrize("target", list(MODELS))
EVERY_CLIENT = pytest.mark.parametrize("client", list(CODECS))


def provider(target: Dialect) -> HttpProvider:
    if target == "bedrock":
        return BedrockProvider(
            name="bedrock", account=AwsAccount(bearer="k"), http=StdlibTransport()
        )
    kind: Any = {"anthropic": AnthropicProvider, "openai": OpenAIProvider}[target]
    provider: HttpProvider = kind(
        name=target, base_url="https://x/v1", api_key="k", http=StdlibTransport()
    )
    return provider


def encode(body: bytes, client: str, target: Dialect) -> ProviderRequest | str:
    """The request with its notices, or the text of the error."""
    try:
        prompt: Prompt = CODECS[client].decode_request(body)
        return provider(target)._build_request(prompt)
    except (CllmError, FieldError) as error:
        return f"{type(error).__name__}: {error}"


def openai_exchange(number: int, texts: list[str]) -> list[Json]:
    call = {"id": f"c{number}", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    return [
        {"role": "user", "content": texts[0]},
        {"role": "assistant", "content": texts[1], "tool_calls": [call]},
        {"role": "tool", "tool_call_id": f"c{number}", "content": texts[2]},
        {"role": "assistant", "content": texts[3]},
    ]


def anthropic_exchange(number: int, texts: list[str]) -> list[Json]:
    call = {"type": "tool_use", "id": f"c{number}", "name": "f", "input": {}}
    result = {"type": "tool_result", "tool_use_id": f"c{number}", "content": texts[2]}
    return [
        {"role": "user", "content": texts[0]},
        {"role": "assistant", "content": [{"type": "text", "text": texts[1]}, call]},
        {"role": "user", "content": [result]},
        {"role": "assistant", "content": texts[3]},
    ]


@st.composite
def ordinary_requests(draw: st.DrawFn, client: str) -> Json:
    """Usual requests: questions, tool calls with their results, answers."""
    exchange = openai_exchange if client == "openai" else anthropic_exchange
    texts = draw(st.lists(st.lists(NONBLANK_TEXT, min_size=4, max_size=4), min_size=1, max_size=4))
    messages = [one for number, group in enumerate(texts) for one in exchange(number, group)]
    tool: Json = {"name": "f", "input_schema": {"type": "object"}}
    if client == "openai":
        tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    return {"messages": messages, "max_tokens": 100, "tools": [tool]}


def bodies_of(request: Json, model: str) -> Iterator[bytes]:
    """The request with its first message, with its first two, and so on."""
    messages = request["messages"]
    for end in range(1, len(messages) + 1):
        yield json.dumps(request | {"model": model, "messages": messages[:end]}).encode()


@EVERY_TARGET
@EVERY_CLIENT
@OFTEN
@given(data=st.data())
def test_equal_bodies_are_sent_as_equal_requests(client, target, data):
    odd = openai_requests() if client == "openai" else anthropic_requests()
    requests = data.draw(st.lists(ordinary_requests(client) | odd, min_size=1, max_size=3))
    bodies = [body for request in requests for body in bodies_of(request, MODELS[target])]

    growing = [encode(body, client, target) for body in bodies]
    shuffled = data.draw(st.permutations(range(len(bodies))))

    assert {place: encode(bodies[place], client, target) for place in shuffled} == dict(
        enumerate(growing)
    )


@EVERY_TARGET
@EVERY_CLIENT
@OFTEN
@given(data=st.data())
def test_the_next_request_starts_with_the_messages_of_the_last(client, target, data):
    request = data.draw(ordinary_requests(client))
    before: list[Json] = []

    for body in bodies_of(request, MODELS[target]):
        last = json.loads(body)["messages"][-1]
        if last["role"] == "assistant":
            continue
        answer = encode(body, client, target)
        assert isinstance(answer, ProviderRequest), answer
        assert answer.notices == ()
        messages = json.loads(answer.body)["messages"]
        assert messages[: len(before)] == before
        before = messages
