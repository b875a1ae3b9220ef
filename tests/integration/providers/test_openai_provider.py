"""The OpenAI provider against a server on loopback that does everything wrong."""

import asyncio
import functools
import gzip
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import aclosing
from typing import Any

import pytest
from tests.fake_provider import (
    WAIT,
    Cut,
    FakeProvider,
    Head,
    Hold,
    Send,
    Silence,
    ToolCall,
    closed_port,
    response_steps,
)

from cllm.core import errors
from cllm.core.message import Message, plain_message
from cllm.core.prompt import Prompt
from cllm.core.reply import (
    ModelReported,
    ReplyEvent,
    ReplyFinished,
    TextDelta,
    ThinkingDelta,
    Usage,
)
from cllm.providers.http.aiohttp_transport import AiohttpTransport
from cllm.providers.http.stdlib_transport import StdlibTransport
from cllm.providers.http.transport import HttpTransport, Timeouts
from cllm.providers.openai import OpenAIProvider
from cllm.wire.sse import SseDecoder

KEY = "sk-0123456789abcdef"
SHORT = 0.15
STREAM = {"Content-Type": "text/event-stream"}
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
    providers: list[OpenAIProvider] = []

    def make(base_url: str = server.url, **options: Any) -> OpenAIProvider:
        arguments: dict[str, Any] = {"name": "test", "api_key": KEY, "http": transport()} | options
        providers.append(OpenAIProvider(base_url=base_url, **arguments))
        return providers[-1]

    yield make
    for provider in providers:
        await provider.close()


def prompt(text: str = "Hello", **fields: Any) -> Prompt:
    return Prompt(model="gpt-test", messages=(plain_message("user", text),), **fields)


async def ask(provider: OpenAIProvider, **fields: Any) -> list[ReplyEvent]:
    return [event async for event in provider.ask(prompt(**fields))]


async def expect_error(
    provider: OpenAIProvider, kind: type[errors.ProviderError], **fields: Any
) -> Any:
    """Check that a request raises exactly this error, one sentence without secrets."""
    with pytest.raises(errors.ProviderError) as caught:
        await ask(provider, **fields)
    error = caught.value
    assert type(error) is kind
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


class TestReplies:
    @both_ways
    async def test_a_streamed_and_a_complete_response_are_equal(self, server, make, stream):
        server.queue_reply("Hel", "lo ä🐈", reasoning=("Hm.",), usage=(5, 3))

        events = await ask(make(), stream=stream)

        texts = [event.text for event in events if isinstance(event, TextDelta)]
        assert "".join(texts) == "Hello ä🐈"
        assert ThinkingDelta(text="Hm.") in events
        end = last(events)
        assert end.message.json() == {
            "role": "assistant",
            "content": "Hello ä🐈",
            "reasoning_content": "Hm.",
        }
        assert (end.stop_reason, end.model) == ("end", "gpt-test")
        assert end.usage == Usage(input=5, output=3)
        assert end.raw is not None
        (choice,) = json.loads(end.raw)["choices"]
        assert (choice["message"]["content"], choice["finish_reason"]) == ("Hello ä🐈", "stop")

    @both_ways
    async def test_tool_calls_are_complete(self, server, make, stream):
        server.queue_reply(
            tool_calls=(ToolCall(id="c", name="f", arguments='{"a":1}'),), finish="tool_calls"
        )

        end = last(await ask(make(), stream=stream))

        (call,) = end.message.json()["tool_calls"]
        assert call["function"] == {"name": "f", "arguments": '{"a":1}'}
        assert end.stop_reason == "tool_calls"

    @pytest.mark.parametrize("packet", [1, 7, None])
    @pytest.mark.parametrize("line_end", ["\n", "\r\n"])
    async def test_packets_of_any_size_give_the_same_reply(self, server, make, packet, line_end):
        server.queue_reply("Hel", "lo", packet=packet, line_end=line_end, comments=True)

        assert last(await ask(make())).message.text == "Hello"

    @pytest.mark.parametrize(
        ("options", "reason"),
        [({"done": False}, "end"), ({"finish": None}, "end"), ({"usage": None}, "end")],
        ids=["no done", "no reason", "no usage"],
    )
    async def test_a_stream_with_an_unusual_end_is_complete(self, server, make, options, reason):
        server.queue_reply("Hi", **options)

        assert last(await ask(make())).stop_reason == reason

    async def test_a_json_response_to_a_stream_request_is_decoded(self, server, make):
        choice = {"message": {"role": "assistant", "content": "Hi"}, "finish_reason": "stop"}
        server.queue_steps(*response_steps(200, json.dumps({"choices": [choice]}).encode()))

        assert (await ask(make()))[0] == TextDelta(text="Hi")

    async def test_events_are_yielded_before_the_response_is_complete(self, server, make):
        gate = server.queue_held_reply("Hel", "lo")
        async with aclosing(make().ask(prompt())) as events:
            assert isinstance(await anext(events), ModelReported)
            assert await anext(events) == TextDelta(text="Hel")
            gate.open()
            assert await anext(events) == TextDelta(text="lo")

    async def test_the_model_that_the_provider_names_comes_before_the_reply(self, server, make):
        chunk = b'data: {"model":"gpt-4o-2024-08-06","choices":[{"delta":{"content":"Hi"}}]}\n\n'
        server.queue_steps(
            Head(headers=STREAM, chunked=True), Send(chunk + b"data: [DONE]\n\n"), Silence()
        )

        events = await ask(make())

        assert events[0] == ModelReported(model="gpt-4o-2024-08-06")
        assert last(events).model == "gpt-4o-2024-08-06"

    async def test_a_long_name_of_a_model_is_not_repeated_in_every_event(self, server, make):
        name = b"m" * 10_000
        chunk = b'data: {"model":"' + name + b'","choices":[{"delta":{"content":"Hi"}}]}\n\n'
        server.queue_steps(
            Head(headers=STREAM, chunked=True), Send(chunk + b"data: [DONE]\n\n"), Silence()
        )

        events = await ask(make())

        assert not any(isinstance(event, ModelReported) for event in events)
        assert last(events).message.text == "Hi"

    async def test_a_json_response_to_a_stream_request_names_its_model_first(self, server, make):
        body = b'{"model":"m-1","choices":[{"message":{"content":"Hi"},"finish_reason":"stop"}]}'
        server.queue_steps(Head(headers={"Content-Type": "application/json"}), Send(body))

        assert (await ask(make()))[0] == ModelReported(model="m-1")

    async def test_data_after_the_end_is_not_read(self, server, make):
        body = b'data: {"choices":[{"delta":{"content":"Hi"}}]}\n\ndata: [DONE]\n\ndata: <html>\n\n'
        server.queue_steps(Head(headers=STREAM, chunked=True), Send(body), Silence())

        assert last(await ask(make())).message.text == "Hi"

    async def test_the_body_contains_the_bytes_of_the_messages(self, server, make):
        raw = '{"content":"\\u00e4 ä","role":"user"}'.encode()
        sent = Prompt(model="m", messages=(Message(role="user", raw=raw),))

        async for _ in make().ask(sent):
            pass

        assert raw in server.requests[0].body

    async def test_a_compressed_response_is_decoded(self, server, make):
        body = gzip.compress(json.dumps({"choices": [{"message": {"content": "Hi"}}]}).encode())
        server.queue_steps(*response_steps(200, body, content_encoding="gzip"))

        assert last(await ask(make(), stream=False)).message.text == "Hi"

    async def test_prepare_sends_no_request(self, server, make):
        await make().prepare()

        assert server.requests == []


class TestHeaders:
    async def test_the_key_is_sent_in_the_authorization_header(self, server, make):
        await ask(make())

        (request,) = server.requests
        assert request.path == "/v1/chat/completions"
        assert request.headers["authorization"] == f"Bearer {KEY}"
        assert request.headers["content-type"] == "application/json"

    async def test_without_a_key_no_key_header_is_sent(self, server, make):
        await ask(make(api_key=None))

        assert "authorization" not in server.requests[0].headers

    async def test_configured_headers_are_sent_and_override_ours(self, server, make):
        await ask(make(headers={"X-Team": "a", "Authorization": "Basic b"}))

        headers = server.requests[0].headers
        assert (headers["x-team"], headers["authorization"]) == ("a", "Basic b")

    @both_ways
    @pytest.mark.parametrize("key", ["sk-1\n", "sk-\r\nX-Evil: 1"])
    async def test_an_invalid_key_is_an_error_about_the_key(self, server, make, key, stream):
        with pytest.raises(errors.CllmError) as caught:
            await ask(make(api_key=key), stream=stream)
        assert "key" in str(caught.value).lower()
        assert "sk-" not in str(caught.value)
        assert server.requests == []

    async def test_cookies_are_not_stored(self, server, make):
        body = json.dumps({"choices": [{"message": {"content": "Hi"}}]}).encode()
        server.queue_steps(*response_steps(200, body, set_cookie="a=b"))
        provider = make()

        await ask(provider, stream=False)
        await ask(provider, stream=False)

        assert "cookie" not in server.requests[1].headers


REFUSALS = [
    (400, None, errors.InvalidRequestError),
    (400, "context_length_exceeded", errors.PromptTooLongError),
    (401, None, errors.AuthenticationError),
    (403, None, errors.PermissionDeniedError),
    (404, "model_not_found", errors.InvalidRequestError),
    (413, None, errors.InvalidRequestError),
    (422, None, errors.InvalidRequestError),
    (429, "rate_limit_exceeded", errors.RateLimitedError),
    (500, None, errors.UpstreamError),
    (503, None, errors.UpstreamError),
    (529, None, errors.UpstreamError),
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

        error = await expect_error(make(), errors.UpstreamError, stream=stream)

        assert "returned HTTP 502. " in str(error)

    async def test_a_wrong_path_is_the_servers_404(self, server, make, stream):
        error = await expect_error(
            make(f"{server.url}/nowhere"), errors.InvalidRequestError, stream=stream
        )

        assert error.status == 404

    async def test_an_error_with_status_200_has_the_providers_message(self, server, make, stream):
        server.queue_steps(
            *response_steps(200, b'{"error": {"message": "Overloaded.", "code": 529}}')
        )

        error = await expect_error(make(), errors.UpstreamError, stream=stream)

        assert "Overloaded." in str(error)
        assert error.code == "529"


@both_ways
class TestConnectionErrors:
    @pytest.mark.parametrize(
        "url",
        ["http://host.invalid/v1", "http://", "http://[::1", "http://127.0.0.1:99999/v1"],
    )
    async def test_an_unreachable_address(self, make, stream, url):
        await expect_error(make(url), errors.UnreachableError, stream=stream)

    async def test_the_address_is_shown_without_secrets(self, make, stream):
        url = f"http://user:hunter2@127.0.0.1:{closed_port()}/v1?key=hunter2"

        error = await expect_error(make(url), errors.UnreachableError, stream=stream)

        assert "hunter2" not in str(error)

    async def test_a_server_without_tls(self, make, stream):
        async def refuse(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            writer.close()

        async with await asyncio.start_server(refuse, "127.0.0.1", 0) as plain:
            port = plain.sockets[0].getsockname()[1]
            url = f"https://127.0.0.1:{port}/v1"
            error = await expect_error(make(url), errors.UnreachableError, stream=stream)

        assert "TLS handshake failed" in str(error)

    async def test_a_server_that_never_completes_the_tls_handshake(self, server, make, stream):
        limits = Timeouts(connect=SHORT)
        url = server.url.replace("http:", "https:")

        error = await expect_error(
            make(url, timeouts=limits), errors.UnreachableError, stream=stream
        )

        assert f"no connection within {SHORT:g} s" in str(error)


class TestBrokenStreams:
    async def test_an_invalid_chunk_is_an_error_before_the_timeout(self, server, make):
        event = b'data: {"choices":[{"delta":{"content":"Hi"}}]}\n\n'
        gate = server.gate()
        server.queue_steps(
            Head(headers={**STREAM, "Transfer-Encoding": "chunked"}),
            Send(b"%x\r\n%s\r\n" % (len(event), event)),
            Hold(gate),
            Send(b"zz\r\nnonsense\r\n"),
            Cut(),
        )
        events = make(timeouts=Timeouts(idle=2)).ask(prompt())
        assert await anext(events) == TextDelta(text="Hi")
        gate.open()

        with pytest.raises(errors.ProviderError) as caught:
            await anext(events)
        assert isinstance(caught.value, errors.BadReplyError | errors.BrokenStreamError)

    async def test_an_event_that_is_too_large_is_a_bad_reply(self, server, make, monkeypatch):
        small = functools.partial(SseDecoder, max_event_bytes=1000)
        monkeypatch.setattr("cllm.providers.http.provider.SseDecoder", small)
        server.queue_steps(
            Head(headers=STREAM, chunked=True), Send(b"data: " + b"x" * 5000), Silence()
        )

        await expect_error(make(), errors.BadReplyError)
        await asyncio.to_thread(server.requests[0].wait_disconnected)


@both_ways
class TestCancellation:
    async def test_a_cancelled_request_closes_its_connection(self, server, make, stream):
        server.queue_steps(Head(headers=STREAM, chunked=True), Send(b": ping\n\n"), Silence())
        task = asyncio.create_task(ask(make(), stream=stream))
        request = await asyncio.to_thread(server.wait_for, 1)

        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        await asyncio.to_thread(request.wait_disconnected)

    async def test_a_request_cancelled_before_the_headers_closes_its_connection(
        self, server, make, stream
    ):
        server.queue_steps(Silence())
        task = asyncio.create_task(ask(make(), stream=stream))
        request = await asyncio.to_thread(server.wait_for, 1)

        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

        await asyncio.to_thread(request.wait_disconnected)


async def test_an_abandoned_response_closes_its_connection(server, make):
    server.queue_held_reply("Hel", "lo")
    events = make().ask(prompt())
    await anext(events)
    await events.aclose()

    await asyncio.to_thread(server.requests[0].wait_disconnected)


class TestProxies:
    @pytest.fixture(autouse=True)
    def dead_proxy(self, monkeypatch: pytest.MonkeyPatch) -> None:
        proxy = f"http://127.0.0.1:{closed_port()}"
        for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
            monkeypatch.setenv(name, proxy)
        monkeypatch.delenv("no_proxy", raising=False)
        monkeypatch.delenv("NO_PROXY", raising=False)

    @pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
    async def test_loopback_is_requested_without_the_proxy(self, server, make, host):
        url = server.url.replace("127.0.0.1", host)

        assert last(await ask(make(url))).message.text == "echo: Hello"

    async def test_other_hosts_are_requested_through_the_proxy(self, make):
        error = await expect_error(make("http://host.invalid/v1"), errors.UnreachableError)

        assert "connection refused" in str(error)

    async def test_the_proxy_receives_the_request(self, server, make, monkeypatch):
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{server.port}")

        await expect_error(make("http://host.invalid/v1"), errors.InvalidRequestError)

        assert server.requests[0].path == "http://host.invalid/v1/chat/completions"

    async def test_every_request_of_a_provider_uses_the_proxy(self, server, make, monkeypatch):
        monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{server.port}")
        provider = make("http://host.invalid/v1")

        for _ in range(3):
            await expect_error(provider, errors.InvalidRequestError)

        assert {request.path for request in server.requests} == {
            "http://host.invalid/v1/chat/completions"
        }
        assert len(server.requests) == 3

    async def test_a_host_in_no_proxy_is_requested_directly(self, make, monkeypatch):
        monkeypatch.setenv("no_proxy", "host.invalid")

        error = await expect_error(make("http://host.invalid/v1"), errors.UnreachableError)

        assert "unknown host" in str(error)


async def test_close_can_be_called_twice(make):
    provider = make()
    await ask(provider)
    await provider.close()
    await provider.close()


async def test_an_endless_response_is_an_error(server, make, monkeypatch):
    monkeypatch.setattr("cllm.providers.http.transport.MAX_RESPONSE_BYTES", 1000)
    server.queue_steps(*response_steps(200, b"x" * 5000))

    error = await expect_error(make(), errors.BadReplyError, stream=False)

    assert "1000 bytes" in str(error)
