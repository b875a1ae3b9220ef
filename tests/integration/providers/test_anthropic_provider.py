"""The Anthropic provider against a server on loopback with the Messages API."""

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any

import pytest
from tests.fake_provider import WAIT, FakeProvider, Head, Send, Silence, ToolCall, response_steps

from cllm.core import errors
from cllm.core.message import Message, Role, plain_message
from cllm.core.prompt import Prompt
from cllm.core.reply import (
    ModelReported,
    Noticed,
    ReplyEvent,
    ReplyFinished,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    Usage,
    UsageReported,
)
from cllm.providers.anthropic import AnthropicProvider
from cllm.providers.http.aiohttp_transport import AiohttpTransport
from cllm.providers.http.stdlib_transport import StdlibTransport
from cllm.providers.http.transport import HttpTransport

KEY = "sk-ant-0123456789abcdef"
STREAM = {"Content-Type": "text/event-stream"}
PIRATE = "You are a pirate. Always respond like a pirate."
ALICE: tuple[tuple[Role, str], ...] = (
    ("user", "My name is Alice"),
    ("assistant", "Hello Alice!"),
    ("user", "What is my name?"),
)
both_ways = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])


@pytest.fixture
def server() -> Iterator[FakeProvider]:
    with FakeProvider() as provider:
        # A server that is stopped before its loop runs for good would be waited for in vain.
        asyncio.run_coroutine_threadsafe(asyncio.sleep(0), provider._loop).result(WAIT)
        yield provider


@pytest.fixture(params=[AiohttpTransport, StdlibTransport])
def transport(request: pytest.FixtureRequest) -> type[HttpTransport]:
    kind: type[HttpTransport] = request.param
    return kind


@pytest.fixture
async def make(server: FakeProvider, transport: type[HttpTransport]) -> AsyncIterator[Any]:
    """Make providers of that server; close them after the test."""
    providers: list[AnthropicProvider] = []

    def make(base_url: str = server.root, **options: Any) -> AnthropicProvider:
        arguments: dict[str, Any] = {"name": "test", "api_key": KEY, "http": transport()} | options
        providers.append(AnthropicProvider(base_url=base_url, **arguments))
        return providers[-1]

    yield make
    for provider in providers:
        await provider.close()


def prompt(*messages: Message, **fields: Any) -> Prompt:
    arguments: dict[str, Any] = {"parameters": {"max_tokens": 100}} | fields
    return Prompt(
        model="claude-3-7-sonnet-20250219",
        messages=messages or (plain_message("user", "Hello"),),
        **arguments,
    )


async def ask(provider: AnthropicProvider, *messages: Message, **fields: Any) -> list[ReplyEvent]:
    return [event async for event in provider.ask(prompt(*messages, **fields))]


async def expect_error(
    provider: AnthropicProvider, kind: type[errors.ProviderError], **fields: Any
) -> Any:
    """Check that a request raises exactly this error, one sentence without secrets."""
    events: list[ReplyEvent] = []

    async def listen() -> None:
        async for event in provider.ask(prompt(**fields)):
            events.append(event)  # noqa: PERF401 - what came before the error counts

    with pytest.raises(errors.ProviderError) as caught:
        await listen()
    error = caught.value
    assert not any(isinstance(event, ReplyFinished) for event in events)
    assert type(error) is kind, error
    assert error.provider == "test"
    assert "'test'" in str(error)
    assert KEY not in str(error)
    assert "\n" not in str(error)
    assert len(str(error)) < 600
    return error


def last(events: list[ReplyEvent]) -> ReplyFinished:
    event = events[-1]
    assert isinstance(event, ReplyFinished)
    return event


@both_ways
class TestReplies:
    async def test_a_streamed_and_a_complete_response_are_equal(self, server, make, stream):
        server.queue_reply("Hel", "lo ä🐈", usage=(5, 3))

        events = await ask(make(), stream=stream)

        texts = [event.text for event in events if isinstance(event, TextDelta)]
        assert "".join(texts) == "Hello ä🐈"
        end = last(events)
        assert end.message.json() == {
            "role": "assistant",
            "content": [{"type": "text", "text": "Hello ä🐈"}],
        }
        assert end.message.dialect == "anthropic"
        assert (end.stop_reason, end.model) == ("end", "claude-3-7-sonnet-20250219")
        assert end.usage == Usage(input=5, output=3)
        assert not any(isinstance(event, Noticed) for event in events)

    async def test_thinking_and_a_tool_call_are_complete(self, server, make, stream):
        call = ToolCall(id="toolu_1", name="weather", arguments='{"city": "Kyiv", "days": 2}')
        server.queue_reply(
            "Let me see.", reasoning=("Hm, ", "so."), tool_calls=(call,), finish="tool_calls"
        )

        events = await ask(make(), stream=stream)

        thoughts = [event for event in events if isinstance(event, ThinkingDelta)]
        assert "".join(thought.text for thought in thoughts) == "Hm, so."
        assert [t.signature for t in thoughts if t.signature] == ["c2lnbmVk"]
        calls = [event for event in events if isinstance(event, ToolCallDelta)]
        assert (calls[0].id, calls[0].name) == ("toolu_1", "weather")
        assert json.loads("".join(c.arguments for c in calls)) == {"city": "Kyiv", "days": 2}
        end = last(events)
        assert end.stop_reason == "tool_calls"
        assert end.message.json()["content"] == [
            {"type": "thinking", "thinking": "Hm, so.", "signature": "c2lnbmVk"},
            {
                "type": "tool_use",
                "id": "toolu_1",
                "name": "weather",
                "input": {"city": "Kyiv", "days": 2},
            },
            {"type": "text", "text": "Let me see."},
        ]

    async def test_a_truncated_response_has_the_stop_reason_length(self, server, make, stream):
        server.queue_reply("Hel", finish="length")

        assert last(await ask(make(), stream=stream)).stop_reason == "length"

    async def test_the_whole_history_is_sent(self, server, make, stream):
        history = [plain_message(role, text) for role, text in ALICE]

        events = await ask(make(), *history, stream=stream)

        (request,) = server.requests
        assert texts(request.json["messages"]) == list(ALICE)
        assert last(events).message.text == "echo: What is my name?"
        assert bool(request.json.get("stream")) is stream

    async def test_the_system_prompt_is_sent_as_text(self, server, make, stream):
        hello = plain_message("user", "Hello!")

        await ask(make(), hello, system=plain_message("system", PIRATE), stream=stream)

        (request,) = server.requests
        assert text_of(request.json["system"]) == PIRATE
        assert texts(request.json["messages"]) == [("user", "Hello!")]

    async def test_the_providers_own_answer_is_sent_back_unchanged(self, server, make, stream):
        server.queue_reply("Let me see.", reasoning=("Hm.",))
        provider = make()
        hello = plain_message("user", "Hello")
        answer = last(await ask(provider, hello, stream=stream)).message

        await ask(provider, hello, answer, plain_message("user", "And?"), stream=stream)

        sent = server.requests[1].json["messages"]
        assert sent[1] == answer.json()
        assert sent[1]["content"][0]["signature"] == "c2lnbmVk"

    async def test_tools_and_options_are_sent_in_the_format_of_the_api(self, server, make, stream):
        schema = {"type": "object", "properties": {"city": {"type": "string"}}}
        function = {"name": "weather", "description": "Looks.", "parameters": schema}
        options = {
            "max_tokens": 50,
            "temperature": 0.5,
            "stop": ["END"],
            "tools": [{"type": "function", "function": function}],
        }

        await ask(make(), parameters=options, stream=stream)

        sent = server.requests[0].json
        assert (sent["max_tokens"], sent["temperature"]) == (50, 0.5)
        assert sent["stop_sequences"] == ["END"]
        (tool,) = sent["tools"]
        assert (tool["name"], tool["input_schema"]) == ("weather", schema)

    @pytest.mark.parametrize("dialect", ["openai", "anthropic"])
    async def test_a_request_without_max_tokens_gets_a_limit_and_a_notice(
        self, server, make, stream, dialect
    ):
        events = await ask(make(), parameters={}, dialect=dialect, stream=stream)

        assert server.requests[0].json["max_tokens"] == 32_000
        assert codes(events) == ["max_tokens_added"]


def codes(events: list[ReplyEvent]) -> list[str]:
    return [event.notice.code for event in events if isinstance(event, Noticed)]


class TestBetaFlags:
    async def test_known_beta_flags_are_sent_in_the_header_only(self, server, make):
        flags = ["context-1m-2025-08-07", "files-api-2025-04-14"]
        parameters = {"max_tokens": 5, "betas": flags}
        events = await ask(make(), parameters=parameters, dialect="anthropic")

        assert server.requests[0].headers["anthropic-beta"] == ",".join(flags)
        assert "betas" not in server.requests[0].json
        assert codes(events) == []

    async def test_an_unknown_beta_flag_is_reported_and_not_sent(self, server, make):
        parameters = {"max_tokens": 5, "betas": ["made-up-2030-01-01", "skills-2025-10-02"]}
        events = await ask(make(), parameters=parameters, dialect="anthropic")

        assert server.requests[0].headers["anthropic-beta"] == "skills-2025-10-02"
        assert codes(events) == ["beta_left_out"]
        assert isinstance(events[0], Noticed)
        assert "made-up-2030-01-01" in events[0].notice.message

    async def test_without_a_beta_flag_the_header_is_not_sent(self, server, make):
        await ask(make())
        assert "anthropic-beta" not in server.requests[0].headers

    async def test_the_operators_beta_flags_are_sent_with_every_request_once(self, server, make):
        provider = make(betas=["private-2026-01-01"], headers={"Anthropic-Beta": "other-1, x"})
        parameters = {"max_tokens": 5, "betas": ["private-2026-01-01", "skills-2025-10-02"]}
        events = await ask(provider, parameters=parameters, dialect="anthropic")
        await ask(provider)

        first, second = (request.headers["anthropic-beta"] for request in server.requests)
        assert first == "private-2026-01-01,other-1,x,skills-2025-10-02"
        assert second == "private-2026-01-01,other-1,x"
        assert codes(events) == []


class TestStreams:
    @pytest.mark.parametrize("packet", [1, 7, None])
    @pytest.mark.parametrize("line_end", ["\n", "\r\n"])
    async def test_packets_of_any_size_give_the_same_reply(self, server, make, packet, line_end):
        server.queue_reply("Hel", "lo ä🐈", packet=packet, line_end=line_end)

        assert last(await ask(make())).message.text == "Hello ä🐈"

    async def test_events_are_yielded_before_the_response_is_complete(self, server, make):
        gate = server.queue_held_reply("Hel", "lo")
        async with aclosing(make().ask(prompt())) as events:
            assert isinstance(await anext(events), ModelReported)
            assert await anext(events) == UsageReported(usage=Usage(input=11, output=1))
            assert await anext(events) == TextDelta(text="Hel")
            gate.open()
            assert await anext(events) == TextDelta(text="lo")

    async def test_data_after_the_end_is_not_read(self, server, make):
        server.queue_steps(
            Head(headers=STREAM, chunked=True), Send(ANSWER + b"data: <\n\n"), Silence()
        )

        assert last(await ask(make())).message.text == "Hi"


class TestHeaders:
    async def test_the_key_and_the_version_are_headers(self, server, make):
        await ask(make())

        (request,) = server.requests
        assert (request.method, request.path) == ("POST", "/v1/messages")
        assert request.headers["x-api-key"] == KEY
        assert request.headers["anthropic-version"] == "2023-06-01"
        assert request.headers["content-type"] == "application/json"
        assert "authorization" not in request.headers

    @pytest.mark.parametrize("tail", ["", "/", "/v1", "/v1/"])
    async def test_the_base_url_can_end_with_the_version(self, server, make, tail):
        await ask(make(f"{server.root}{tail}"))

        assert server.requests[0].path == "/v1/messages"

    async def test_without_a_key_no_key_header_is_sent(self, server, make):
        await ask(make(api_key=None))

        assert "x-api-key" not in server.requests[0].headers

    async def test_configured_headers_are_sent_and_override_ours(self, server, make):
        await ask(make(headers={"anthropic-beta": "a-1", "anthropic-version": "2030-01-01"}))

        headers = server.requests[0].headers
        assert (headers["anthropic-beta"], headers["anthropic-version"]) == ("a-1", "2030-01-01")

    @both_ways
    async def test_an_invalid_key_is_an_error_that_does_not_show_it(self, server, make, stream):
        with pytest.raises(errors.AuthenticationError) as caught:
            await ask(make(api_key=f"{KEY}\r\nX-Evil: 1"), stream=stream)

        assert KEY not in str(caught.value)
        assert server.requests == []


REFUSALS = [
    (400, "invalid_request_error", errors.InvalidRequestError),
    (401, "authentication_error", errors.AuthenticationError),
    (403, "permission_error", errors.PermissionDeniedError),
    (404, "not_found_error", errors.InvalidRequestError),
    (413, "request_too_large", errors.InvalidRequestError),
    (429, "rate_limit_error", errors.RateLimitedError),
    (500, "api_error", errors.UpstreamError),
    (529, "overloaded_error", errors.UpstreamError),
]


@both_ways
class TestErrorResponses:
    @pytest.mark.parametrize(
        "body",
        [b"", b"<html>Bad gateway</html>", b"\xff\xfe", b"[]", b'{"error": 5}', b"x" * 100_000],
        ids=["empty", "html", "bytes", "list", "number", "long"],
    )
    async def test_an_error_body_can_be_anything(self, server, make, stream, body):
        server.queue_steps(*response_steps(502, body))

        assert "returned HTTP 502. " in str(
            await expect_error(make(), errors.UpstreamError, stream=stream)
        )


def sse(*events: dict[str, Any]) -> bytes:
    lines = (f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events)
    return "".join(lines).encode()


BEGIN = {"type": "message_start", "message": {"role": "assistant", "content": [], "usage": {}}}
ANSWER = sse(
    BEGIN,
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hi"}},
    {"type": "content_block_stop", "index": 0},
    {"type": "message_delta", "delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}},
    {"type": "message_stop"},
)


def text_of(content: Any) -> str:
    return content if isinstance(content, str) else "".join(block["text"] for block in content)


def texts(messages: list[dict[str, Any]]) -> list[tuple[str, str]]:
    return [(message["role"], text_of(message["content"])) for message in messages]
