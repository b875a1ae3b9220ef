"""Every fault, in every protocol, whole and streamed, over both transports, is one specific error.

After a fault no answer is finished, the connection is closed, and the error is one line without
secrets.
"""

import asyncio
import json
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.fake_provider import (
    Cut,
    FakeProvider,
    Head,
    Send,
    Silence,
    Step,
    closed_port,
    error_frame,
    event_frame,
    exception_frame,
    frame,
    response_steps,
)
from tests.fidelity.answers import (
    FRAMES,
    SSE,
    anthropic_head,
    anthropic_stream,
    anthropic_whole,
    converse_block,
    converse_stream,
    converse_whole,
    openai_stream,
    openai_whole,
    sse,
    text_block,
)
from tests.fidelity.conftest import MODELS, Kind, make_provider, prompt_of

from cllm.core import errors
from cllm.core.errors import ProviderError
from cllm.core.reply import ReplyEvent, ReplyFinished, TextDelta
from cllm.providers.http.aiohttp_transport import AiohttpTransport
from cllm.providers.http.provider import HttpProvider
from cllm.providers.http.stdlib_transport import StdlibTransport
from cllm.providers.http.transport import HttpTransport, Timeouts

KINDS: tuple[Kind, ...] = ("openai", "anthropic", "bedrock")
SHORT = Timeouts(connect=2, first_byte=0.1, idle=0.1)
PATIENT = Timeouts(connect=5, first_byte=20, idle=20)
PAGE = b"<!DOCTYPE html><html><body><h1>502 Bad Gateway</h1>\n<hr>nginx</body></html>"
TEXT_PIECE = b'data: {"choices": [{"index": 0, "delta": {"content": "lo'

Steps = tuple[Step, ...]
Plan = Callable[[Kind, bool], Steps | None]


def good(kind: Kind, *, stream: bool) -> Steps:
    """An answer with nothing wrong in it."""
    text = {"type": "text", "text": "Hello"}
    if stream:
        return {
            "openai": openai_stream({"content": "Hello"}),
            "anthropic": anthropic_stream(text_block(0, "Hello")),
            "bedrock": converse_stream(converse_block(0, {"text": "Hello"})),
        }[kind]
    return {
        "openai": openai_whole({"content": "Hello"}),
        "anthropic": anthropic_whole(text),
        "bedrock": converse_whole({"text": "Hello"}),
    }[kind]


def begun(kind: Kind, *, stream: bool) -> Steps:
    """The beginning of that answer: its head and what follows, up to a text that is not over."""
    if not stream:
        head, send = good(kind, stream=False)
        assert isinstance(send, Send)
        return head, Send(send.data[: len(send.data) // 2])
    return {
        "openai": openai_stream({"content": "Hello"})[:2],
        "anthropic": sse(anthropic_head(), *text_block(0, "Hello")[:2]),
        "bedrock": converse_stream(converse_block(0, {"text": "Hello"}))[:3],
    }[kind]


def stream_head(kind: Kind) -> Head:
    return FRAMES if kind == "bedrock" else SSE


def silent_from_the_start(_kind: Kind, _stream: bool) -> Steps:
    return (Silence(),)


def silent_after_the_head(kind: Kind, stream: bool) -> Steps:
    head = stream_head(kind) if stream else good(kind, stream=False)[0]
    return head, Silence()


def silent_in_the_middle(kind: Kind, stream: bool) -> Steps:
    return (*begun(kind, stream=stream), Silence())


def cut_in_the_middle(kind: Kind, stream: bool) -> Steps:
    return (*begun(kind, stream=stream), Cut())


def cut_before_the_head(_kind: Kind, _stream: bool) -> Steps:
    return (Cut(),)


def ended_too_early(kind: Kind, stream: bool) -> Steps | None:
    """All of HTTP's promises are kept, and the answer is not over."""
    return begun(kind, stream=True) if stream else None


def garbage(kind: Kind, stream: bool) -> Steps:
    if not stream:
        return response_steps(200, b"\x00\xff<<>> not json")
    junk = b"\x00\xff<<>> not a frame, and long enough to be one" * 3
    return (
        *begun(kind, stream=True),
        Send(junk if kind == "bedrock" else b"data: " + junk + b"\n\n"),
    )


def wrong_shape(kind: Kind, stream: bool) -> Steps:
    """JSON, of another service."""
    if not stream:
        return response_steps(200, b'["ok", 1]')
    if kind == "bedrock":
        return FRAMES, Send(event_frame("contentBlockDelta", {"delta": "x"}))
    return SSE, Send(b'event: content_block_delta\ndata: ["ok", 1]\n\n')


def truncated_json(kind: Kind, stream: bool) -> Steps:
    """The length is right and the JSON is not whole."""
    if not stream:
        _, send = begun(kind, stream=False)
        assert isinstance(send, Send)
        return response_steps(200, send.data)
    if kind == "bedrock":
        return (*begun(kind, stream=True), Send(_half_a_payload()))
    name = b"" if kind == "openai" else b"event: content_block_delta\n"
    return (*begun(kind, stream=True), Send(name + TEXT_PIECE + b"\n\n"))


def _half_a_payload() -> bytes:
    headers = {":event-type": "contentBlockDelta", ":message-type": "event"}
    return frame(headers, b'{"contentBlockIndex": 0, "delta": {"te')


def page_with_status_200(_kind: Kind, _stream: bool) -> Steps:
    return response_steps(200, PAGE, content_type="text/html; charset=utf-8")


def empty_body(kind: Kind, stream: bool) -> Steps:
    if stream:
        return (stream_head(kind),)
    return response_steps(200, b"")


def empty_body_without_a_type(_kind: Kind, _stream: bool) -> Steps:
    return (Head(headers={"Content-Length": "0"}),)


def error_in_the_middle(kind: Kind, stream: bool) -> Steps:
    error = {"type": "overloaded_error", "message": "No."}
    if kind == "bedrock":
        if not stream:
            return _refused(kind, 503)
        return (*begun(kind, stream=True), Send(exception_frame("internalServerException", "No.")))
    if not stream:
        return response_steps(200, json.dumps({"type": "error", "error": error}).encode())
    return (*begun(kind, stream=True), *sse({"type": "error", "error": error})[1:])


def error_frame_in_the_middle(kind: Kind, stream: bool) -> Steps | None:
    if kind != "bedrock" or not stream:
        return None
    return (*begun(kind, stream=True), Send(error_frame("InternalError", "No.")))


def half_a_frame(kind: Kind, stream: bool) -> Steps | None:
    if kind != "bedrock" or not stream:
        return None
    return (*begun(kind, stream=True), Send(event_frame("messageStop", {"stopReason": "x"})[:20]))


def wrong_checksum(kind: Kind, stream: bool) -> Steps | None:
    if kind != "bedrock" or not stream:
        return None
    broken = bytearray(event_frame("messageStop", {"stopReason": "end_turn"}))
    broken[-1] ^= 1
    return (*begun(kind, stream=True), Send(bytes(broken)))


def broken_chunks(_kind: Kind, _stream: bool) -> Steps:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    return Send(head + b"zz\r\nnonsense\r\n"), Cut()


def broken_compression(_kind: Kind, _stream: bool) -> Steps:
    return response_steps(200, b"not gzip at all", content_encoding="gzip")


def not_http(_kind: Kind, _stream: bool) -> Steps:
    return (Send(b"SSH-2.0-OpenSSH_9.6\r\n\r\n"),)


def redirect(_kind: Kind, _stream: bool) -> Steps:
    return response_steps(302, b"", location="http://127.0.0.1:9/elsewhere")


def refused(status: int, **headers: str) -> Plan:
    return lambda kind, _stream: _refused(kind, status, **headers)


def _refused(kind: Kind, status: int, **headers: str) -> Steps:
    body: dict[str, Any] = {"error": {"message": "No.", "type": "t", "code": None}}
    if kind == "bedrock":
        body = {"message": "No."}
        headers = {"x_amzn_ErrorType": "SomeException:http://x/"} | headers
    return response_steps(status, json.dumps(body).encode(), **headers)


def page(status: int) -> Plan:
    return lambda _kind, _stream: response_steps(status, PAGE, content_type="text/html")


def refusal_cut_off(_kind: Kind, _stream: bool) -> Steps:
    """An error whose own body never ends well: the status is what is known."""
    headers = {"Content-Type": "application/json", "Content-Length": "5000"}
    return Head(status=500, headers=headers), Send(b'{"error": '), Cut()


@dataclass(frozen=True, kw_only=True)
class Fault:
    """What goes wrong, and the error it is; `whole` where a whole answer's is another.

    `also` is the other name of a fault that the two transports see from different sides.
    """

    plan: Plan
    error: type[ProviderError]
    whole: type[ProviderError] | None = None
    also: type[ProviderError] | None = None
    status: int | None = None
    retry_after: float | None = None
    timeouts: Timeouts = PATIENT
    waits: bool = False

    def expected(self, *, stream: bool) -> tuple[type[ProviderError] | None, ...]:
        return (self.error if stream or self.whole is None else self.whole), self.also


BROKEN, BAD = errors.BrokenStreamError, errors.BadReplyError
LIMITED, UPSTREAM = errors.RateLimitedError, errors.UpstreamError
TIMEOUT = errors.ProviderTimeoutError
FAULTS = {
    "429 with Retry-After": Fault(
        plan=refused(429, retry_after="7"), error=LIMITED, status=429, retry_after=7
    ),
    "429 with fractions": Fault(
        plan=refused(429, retry_after="0.25"), error=LIMITED, status=429, retry_after=0.25
    ),
    "429 with a date gone by": Fault(
        plan=refused(429, retry_after="Wed, 21 Oct 2015 07:28:00 GMT"),
        error=LIMITED,
        status=429,
        retry_after=0,
    ),
    "429 with nonsense": Fault(plan=refused(429, retry_after="soon"), error=LIMITED, status=429),
    "400": Fault(plan=refused(400), error=errors.InvalidRequestError, status=400),
    "401": Fault(plan=refused(401), error=errors.AuthenticationError, status=401),
    "403": Fault(plan=refused(403), error=errors.PermissionDeniedError, status=403),
    "404": Fault(plan=refused(404), error=errors.InvalidRequestError, status=404),
    "500": Fault(plan=refused(500), error=UPSTREAM, status=500),
    "503 with Retry-After": Fault(
        plan=refused(503, retry_after="3"), error=UPSTREAM, status=503, retry_after=3
    ),
    "529": Fault(plan=refused(529), error=UPSTREAM, status=529),
    "a page with 502": Fault(plan=page(502), error=UPSTREAM, status=502),
    "a page with 404": Fault(plan=page(404), error=errors.InvalidRequestError, status=404),
    "a refusal cut off": Fault(plan=refusal_cut_off, error=BROKEN),
    "a redirect": Fault(plan=redirect, error=BAD, status=302),
    "silent from the start": Fault(
        plan=silent_from_the_start, error=TIMEOUT, timeouts=SHORT, waits=True
    ),
    "silent after the head": Fault(
        plan=silent_after_the_head, error=TIMEOUT, timeouts=SHORT, waits=True
    ),
    "silent in the middle": Fault(
        plan=silent_in_the_middle, error=TIMEOUT, timeouts=SHORT, waits=True
    ),
    "cut in the middle": Fault(plan=cut_in_the_middle, error=BROKEN),
    "cut before the head": Fault(plan=cut_before_the_head, error=BROKEN),
    "ended too early": Fault(plan=ended_too_early, error=BROKEN),
    "garbage": Fault(plan=garbage, error=BAD),
    "wrong shape": Fault(plan=wrong_shape, error=BAD),
    "truncated JSON": Fault(plan=truncated_json, error=BAD),
    "a page with 200": Fault(plan=page_with_status_200, error=BAD),
    "empty body": Fault(plan=empty_body, error=BROKEN, whole=BAD),
    "empty body without a type": Fault(plan=empty_body_without_a_type, error=BROKEN, whole=BAD),
    "error in the middle": Fault(plan=error_in_the_middle, error=UPSTREAM),
    "error frame in the middle": Fault(plan=error_frame_in_the_middle, error=UPSTREAM),
    "half a frame": Fault(plan=half_a_frame, error=BROKEN),
    "wrong checksum": Fault(plan=wrong_checksum, error=BAD),
    "broken chunks": Fault(plan=broken_chunks, error=BROKEN, also=BAD),
    "broken compression": Fault(plan=broken_compression, error=BROKEN, also=BAD),
    "not HTTP": Fault(plan=not_http, error=BAD),
}
TRANSPORTS: dict[str, Callable[[], HttpTransport]] = {
    "pool": AiohttpTransport,
    "once": StdlibTransport,
}
each_transport = pytest.mark.parametrize("transport", TRANSPORTS)
each_way = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
each_kind = pytest.mark.parametrize("kind", KINDS)


@dataclass(kw_only=True)
class Outcome:
    """What was heard before the error, and the error."""

    events: list[ReplyEvent] = field(default_factory=list)
    error: ProviderError | None = None


async def listen(provider: HttpProvider, kind: Kind, *, stream: bool) -> Outcome:
    outcome = Outcome()
    prompt_sent = prompt_of({}, "openai", MODELS[kind], stream=stream)
    events: AsyncGenerator[ReplyEvent, None] = provider.ask(prompt_sent)
    try:
        async for event in events:
            outcome.events.append(event)
    except ProviderError as error:
        outcome.error = error
    return outcome


def check(outcome: Outcome, *expected: type[ProviderError] | None) -> ProviderError:
    error = outcome.error
    assert error is not None, outcome.events
    assert type(error) in expected, error
    assert not any(isinstance(event, ReplyFinished) for event in outcome.events)
    texts = str(error)
    assert "\n" not in texts
    assert len(texts) < 600
    assert "of-tests" not in texts
    assert error.provider == "test"
    return error


def fault_cases() -> list[Any]:
    return [
        pytest.param(kind, stream, name, id=f"{kind}-{'stream' if stream else 'whole'}-{name}")
        for kind in KINDS
        for stream in (True, False)
        for name, fault in FAULTS.items()
        if fault.plan(kind, stream) is not None
    ]


@each_transport
@pytest.mark.parametrize(("kind", "stream", "name"), fault_cases())
async def test_a_fault_is_an_error_and_never_an_answer(
    server: FakeProvider, transport: str, kind: Kind, stream: bool, name: str
) -> None:
    fault = FAULTS[name]
    server.queue_steps(*(fault.plan(kind, stream) or ()))
    http = TRANSPORTS[transport]()
    provider = make_provider(kind, server.root, http, fault.timeouts)
    try:
        error = check(await listen(provider, kind, stream=stream), *fault.expected(stream=stream))
        if fault.status is not None:
            assert error.status == fault.status
        assert error.retry_after == fault.retry_after
        (request,) = server.requests
        if fault.waits:
            await asyncio.to_thread(request.wait_disconnected, 5)
        if isinstance(http, AiohttpTransport):
            assert not http._get_session()._connector._acquired  # type: ignore[union-attr]
    finally:
        await provider.close()


@each_transport
@each_way
@each_kind
async def test_a_provider_answers_again_after_a_fault(
    server: FakeProvider, transport: str, kind: Kind, stream: bool
) -> None:
    """The same provider, at once: a fault leaves nothing behind in it."""
    server.queue_steps(*cut_in_the_middle(kind, stream))
    server.queue_steps(*good(kind, stream=stream))
    provider = make_provider(kind, server.root, TRANSPORTS[transport](), PATIENT)
    try:
        check(await listen(provider, kind, stream=stream), BROKEN)
        outcome = await listen(provider, kind, stream=stream)
        assert outcome.error is None
        assert isinstance(outcome.events[-1], ReplyFinished)
    finally:
        await provider.close()


@each_transport
@each_way
@each_kind
async def test_a_closed_port_is_unreachable(transport: str, kind: Kind, stream: bool) -> None:
    root = f"http://127.0.0.1:{closed_port()}"
    provider = make_provider(kind, root, TRANSPORTS[transport](), PATIENT)
    try:
        error = check(await listen(provider, kind, stream=stream), errors.UnreachableError)
        assert "127.0.0.1" in str(error)
        assert error.status is None
    finally:
        await provider.close()


@each_transport
@each_kind
async def test_text_before_a_broken_connection_is_received(
    server: FakeProvider, transport: str, kind: Kind
) -> None:
    server.queue_steps(*cut_in_the_middle(kind, True))
    provider = make_provider(kind, server.root, TRANSPORTS[transport](), PATIENT)
    try:
        outcome = await listen(provider, kind, stream=True)
        check(outcome, BROKEN)
        texts = [event.text for event in outcome.events if isinstance(event, TextDelta)]
        assert texts == ["Hello"]
    finally:
        await provider.close()


@each_transport
@each_kind
async def test_a_stream_that_breaks_between_stop_reason_and_end(
    server: FakeProvider, transport: str, kind: Kind
) -> None:
    """The connection broke: however much was announced, it is not an end that HTTP promised."""
    steps = good(kind, stream=True)[:-1]
    server.queue_steps(*steps, Cut())
    provider = make_provider(kind, server.root, TRANSPORTS[transport](), PATIENT)
    try:
        check(await listen(provider, kind, stream=True), BROKEN)
    finally:
        await provider.close()


@each_transport
@each_kind
async def test_closing_an_answer_closes_its_connection(
    server: FakeProvider, transport: str, kind: Kind
) -> None:
    server.queue_steps(*begun(kind, stream=True), Silence())
    provider = make_provider(kind, server.root, TRANSPORTS[transport](), PATIENT)
    events = provider.ask(prompt_of({}, "openai", MODELS[kind], stream=True))
    try:
        while not isinstance(await anext(events), TextDelta):
            pass
        await events.aclose()
        await asyncio.to_thread(server.requests[0].wait_disconnected, 5)
    finally:
        await provider.close()
