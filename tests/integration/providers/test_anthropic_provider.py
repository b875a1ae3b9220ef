"""The Anthropic provider against a server on loopback that speaks the Messages API."""

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
    Noticed,
    ReplyEvent,
    ReplyFinished,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    Usage,
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
    """Makes providers of that server, and closes them."""
    made: list[AnthropicProvider] = []

    def make(base_url: str = server.root, **options: Any) -> AnthropicProvider:
        given: dict[str, Any] = {"name": "test", "api_key": KEY, "http": transport()} | options
        made.append(AnthropicProvider(base_url=base_url, **given))
        return made[-1]

    yield make
    for provider in made:
        await provider.close()


def prompt(*messages: Message, **fields: Any) -> Prompt:
    given: dict[str, Any] = {"parameters": {"max_tokens": 100}} | fields
    return Prompt(
        model="claude-3-7-sonnet-20250219",
        messages=messages or (plain_message("user", "Hello"),),
        **given,
    )


async def ask(provider: AnthropicProvider, *messages: Message, **fields: Any) -> list[ReplyEvent]:
    return [event async for event in provider.ask(prompt(*messages, **fields))]


async def fails(
    provider: AnthropicProvider, kind: type[errors.ProviderError], **fields: Any
) -> Any:
    """The error of that very kind, which says one thing and no secret; nothing was finished."""
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
class TestAsking:
    async def test_an_answer_is_the_same_however_it_travels(self, server, make, stream):
        server.say("Hel", "lo ä🐈", usage=(5, 3))

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

    async def test_thinking_and_a_tool_call_come_whole(self, server, make, stream):
        call = ToolCall(id="toolu_1", name="weather", arguments='{"city": "Kyiv", "days": 2}')
        server.say(
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

    async def test_an_answer_that_ran_out_says_so(self, server, make, stream):
        server.say("Hel", finish="length")

        assert last(await ask(make(), stream=stream)).stop_reason == "length"

    async def test_the_whole_history_arrives(self, server, make, stream):
        said = [plain_message(role, text) for role, text in ALICE]

        events = await ask(make(), *said, stream=stream)

        (request,) = server.requests
        assert texts(request.json["messages"]) == list(ALICE)
        assert last(events).message.text == "echo: What is my name?"
        assert bool(request.json.get("stream")) is stream

    async def test_the_system_prompt_arrives_as_text(self, server, make, stream):
        hello = plain_message("user", "Hello!")

        await ask(make(), hello, system=plain_message("system", PIRATE), stream=stream)

        (request,) = server.requests
        assert text_of(request.json["system"]) == PIRATE
        assert texts(request.json["messages"]) == [("user", "Hello!")]

    async def test_its_own_answer_goes_back_as_it_came(self, server, make, stream):
        server.say("Let me see.", reasoning=("Hm.",))
        provider = make()
        hello = plain_message("user", "Hello")
        answer = last(await ask(provider, hello, stream=stream)).message

        await ask(provider, hello, answer, plain_message("user", "And?"), stream=stream)

        sent = server.requests[1].json["messages"]
        assert sent[1] == answer.json()
        assert sent[1]["content"][0]["signature"] == "c2lnbmVk"

    async def test_tools_and_options_are_in_the_api_s_words(self, server, make, stream):
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

    async def test_a_limit_that_was_not_given_is_a_roomy_one(self, server, make, stream):
        events = await ask(make(), parameters={}, stream=stream)

        assert server.requests[0].json["max_tokens"] == 32_000
        assert not any(isinstance(event, Noticed) for event in events)

    async def test_a_client_that_has_to_give_a_limit_is_told_of_ours(self, server, make, stream):
        events = await ask(make(), parameters={}, dialect="anthropic", stream=stream)

        assert server.requests[0].json["max_tokens"] == 32_000
        assert codes(events) == ["max_tokens_added"]


def codes(events: list[ReplyEvent]) -> list[str]:
    return [event.notice.code for event in events if isinstance(event, Noticed)]


class TestBetaFlags:
    async def test_known_flags_travel_in_the_header_and_not_in_the_body(self, server, make):
        flags = ["context-1m-2025-08-07", "files-api-2025-04-14"]
        parameters = {"max_tokens": 5, "betas": flags}
        events = await ask(make(), parameters=parameters, dialect="anthropic")

        assert server.requests[0].headers["anthropic-beta"] == ",".join(flags)
        assert "betas" not in server.requests[0].json
        assert codes(events) == []

    async def test_an_unknown_flag_is_named_and_never_sent(self, server, make):
        parameters = {"max_tokens": 5, "betas": ["made-up-2030-01-01", "skills-2025-10-02"]}
        events = await ask(make(), parameters=parameters, dialect="anthropic")

        assert server.requests[0].headers["anthropic-beta"] == "skills-2025-10-02"
        assert codes(events) == ["beta_left_out"]
        assert isinstance(events[0], Noticed)
        assert "made-up-2030-01-01" in events[0].notice.message

    async def test_without_a_flag_there_is_no_header(self, server, make):
        await ask(make())
        assert "anthropic-beta" not in server.requests[0].headers

    async def test_the_operator_s_flags_go_with_every_request_once(self, server, make):
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
    async def test_a_stream_may_come_in_any_packets(self, server, make, packet, line_end):
        server.say("Hel", "lo ä🐈", packet=packet, line_end=line_end)

        assert last(await ask(make())).message.text == "Hello ä🐈"

    async def test_events_come_before_the_answer_is_whole(self, server, make):
        gate = server.say_held("Hel", "lo")
        async with aclosing(make().ask(prompt())) as events:
            assert await anext(events) == TextDelta(text="Hel")
            gate.open()
            assert await anext(events) == TextDelta(text="lo")

    async def test_what_comes_after_the_end_is_not_read(self, server, make):
        server.answer(Head(headers=STREAM, chunked=True), Send(ANSWER + b"data: <\n\n"), Silence())

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
    async def test_the_address_may_have_its_version_or_not(self, server, make, tail):
        await ask(make(f"{server.root}{tail}"))

        assert server.requests[0].path == "/v1/messages"

    async def test_without_a_key_there_is_no_such_header(self, server, make):
        await ask(make(api_key=None))

        assert "x-api-key" not in server.requests[0].headers

    async def test_more_headers_go_with_it_and_over_it(self, server, make):
        await ask(make(headers={"anthropic-beta": "a-1", "anthropic-version": "2030-01-01"}))

        headers = server.requests[0].headers
        assert (headers["anthropic-beta"], headers["anthropic-version"]) == ("a-1", "2030-01-01")

    @both_ways
    async def test_a_key_that_is_no_header_is_an_error_without_it(self, server, make, stream):
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
class TestRefusals:
    @pytest.mark.parametrize(
        "body",
        [b"", b"<html>Bad gateway</html>", b"\xff\xfe", b"[]", b'{"error": 5}', b"x" * 100_000],
        ids=["empty", "html", "bytes", "list", "number", "long"],
    )
    async def test_the_body_of_an_error_may_be_anything(self, server, make, stream, body):
        server.answer(*response_steps(502, body))

        assert "returned HTTP 502. " in str(
            await fails(make(), errors.UpstreamError, stream=stream)
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
