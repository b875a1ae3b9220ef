"""Strict mode and unsendable prompts: an error before any request."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from tests.fake_provider import WAIT, FakeProvider, ToolCall

from cllm.core.errors import StrictError, UnsendableError
from cllm.core.message import Message, plain_message
from cllm.core.notice import LEFT_OUT, MAX_NOTICES
from cllm.core.prompt import Prompt
from cllm.core.reply import Noticed, ReplyEvent, ReplyFinished, ToolCallDelta
from cllm.providers.anthropic import AnthropicProvider
from cllm.providers.bedrock import AwsAccount, BedrockProvider
from cllm.providers.http.provider import HttpProvider
from cllm.providers.http.stdlib_transport import StdlibTransport
from cllm.providers.openai import OpenAIProvider

HELLO = plain_message("user", "Hello")
OPEN_CALL = Message(
    role="assistant",
    raw=json.dumps(
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
            ],
        }
    ).encode(),
)
NAME = "mcp.files/read"
TOOL = {"name": NAME, "input_schema": {"type": "object"}}
PARAMETERS = {"max_tokens": 99, "tools": [{**TOOL, "name": "f"}]}
MODELS = {
    "anthropic": "claude-3-7-sonnet-20250219",
    "bedrock": "us.anthropic.claude-3-7-sonnet-20250219-v1:0",
    "openai": "gpt-4o",
}
every_provider = pytest.mark.parametrize("kind", list(MODELS))
both_ways = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])


@pytest.fixture
def server() -> Iterator[FakeProvider]:
    with FakeProvider() as provider:
        # A server that is stopped before its loop runs for good would be waited for in vain.
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), provider._loop).result(WAIT)
        yield provider


@pytest.fixture
async def make(server: FakeProvider) -> AsyncIterator[Any]:
    providers: list[HttpProvider] = []

    def make(kind: str) -> HttpProvider:
        provider: HttpProvider
        if kind == "bedrock":
            account = AwsAccount(endpoint_url=server.root, bearer="key-of-tests")
            provider = BedrockProvider(name="test", account=account, http=StdlibTransport())
        else:
            cls: Any = {"anthropic": AnthropicProvider, "openai": OpenAIProvider}[kind]
            url = server.root if kind == "anthropic" else server.url
            provider = cls(
                name="test", base_url=url, api_key="key-of-tests", http=StdlibTransport()
            )
        providers.append(provider)
        return provider

    yield make
    for provider in providers:
        await provider.close()


async def ask(provider: HttpProvider, kind: str, **fields: Any) -> list[ReplyEvent]:
    options: dict[str, Any] = {
        "messages": (HELLO,),
        "parameters": PARAMETERS,
        "dialect": "anthropic",
    } | fields
    return [event async for event in provider.ask(Prompt(model=MODELS[kind], **options))]


@every_provider
async def test_strict_mode_refuses_a_change_before_sending(server, make, kind):
    with pytest.raises(StrictError) as caught:
        await ask(make(kind), kind, messages=(HELLO, OPEN_CALL, HELLO), strict=True)

    assert server.requests == []
    assert [notice.code for notice in caught.value.notices] == ["interrupted_call_answered"]
    assert "messages[1]: An error result was added for a tool call without a result" in str(
        caught.value
    )
    assert caught.value.status is None


@every_provider
async def test_strict_mode_refuses_an_omission_before_sending(server, make, kind):
    foreign: dict[str, Any] = (
        {"parameters": {"max_tokens": 9, "seed": 1}, "dialect": "openai"}
        if kind == "anthropic"
        else {"parameters": {"max_tokens": 9, "container": "c"}, "dialect": "anthropic"}
    )
    with pytest.raises(StrictError) as caught:
        await ask(make(kind), kind, strict=True, **foreign)

    assert server.requests == []
    assert caught.value.notices


@every_provider
async def test_without_strict_mode_the_change_is_sent_with_a_notice(server, make, kind):
    server.queue_reply("Hi")
    events = await ask(make(kind), kind, messages=(HELLO, OPEN_CALL, HELLO))

    assert len(server.requests) == 1
    assert any(isinstance(event, Noticed) for event in events)
    assert isinstance(events[-1], ReplyFinished)


@every_provider
async def test_an_unchanged_prompt_is_sent_in_strict_mode(server, make, kind):
    server.queue_reply("Hi")
    await ask(make(kind), kind, strict=True)

    assert len(server.requests) == 1


@every_provider
async def test_an_unsendable_prompt_is_refused_before_sending(server, make, kind):
    with pytest.raises(UnsendableError) as caught:
        await ask(make(kind), kind, messages=())

    assert server.requests == []
    assert caught.value.path == "messages[0]"
    assert caught.value.status is None


@every_provider
@both_ways
async def test_the_client_gets_its_own_tool_name(server, make, kind, stream):
    parameters = {**PARAMETERS, "tools": [TOOL]}
    server.queue_reply("Hi")
    await ask(make(kind), kind, parameters=parameters, stream=stream)
    sent = json.loads(server.requests[0].body)
    tools = sent["toolConfig"]["tools"] if kind == "bedrock" else sent["tools"]
    tool = tools[0].get("function") or tools[0].get("toolSpec") or tools[0]
    server.queue_reply(tool_calls=(ToolCall(id="c", name=tool["name"], arguments="{}"),))
    events = await ask(make(kind), kind, parameters=parameters, stream=stream)
    names = [e.name for e in events if isinstance(e, ToolCallDelta) and e.name]
    last = events[-1]

    assert tool["name"] != NAME
    assert names == [NAME]
    assert isinstance(last, ReplyFinished)
    assert NAME.encode() in last.message.raw
    assert tool["name"].encode() not in last.message.raw


@every_provider
async def test_an_error_of_strict_mode_lists_a_limited_number_of_notices(make, server, kind):
    dialect = "openai" if kind == "anthropic" else "anthropic"
    unknown = {f"unknown_{number}": 1 for number in range(3000)}
    parameters = {"max_tokens": 100, **unknown}
    with pytest.raises(StrictError) as raised:
        await ask(make(kind), kind, parameters=parameters, dialect=dialect, strict=True)

    notices = raised.value.notices
    assert len(notices) == MAX_NOTICES + 1
    assert notices[0].path == "unknown_0"
    assert (notices[-1].code, notices[-1].count) == (LEFT_OUT, 3000 - MAX_NOTICES)
    assert str(raised.value).endswith(
        "Only the first 100 notices are listed; 2900 more are left out); change the request or "
        "turn strict mode off."
    )
    assert server.requests == []
