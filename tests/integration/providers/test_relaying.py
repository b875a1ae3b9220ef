"""Words that come from a provider's connection straight to who is told, and when they do not."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
from functools import wraps
from typing import Any

import pytest
import uvloop

from cllm.core.errors import (
    BadReplyError,
    BrokenStreamError,
    ProviderError,
    ProviderTimeoutError,
)
from cllm.core.message import plain_message
from cllm.core.prompt import Prompt
from cllm.core.reply import ReplyEvent, ReplyFinished, TextDelta, ToolCallDelta
from cllm.providers import http
from cllm.providers.http import Timeouts
from cllm.providers.http_direct import DirectHttp
from cllm.providers.openai import OpenAIProvider
from cllm.providers.relaying import offered

HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
END = b"0\r\n\r\n"
CLOSE = None
ASKED = Prompt(model="gpt-4o", messages=(plain_message("user", "Hello"),))
LONG_WAY = "long"
SHORT_WAY = "short"


def on_a_servers_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    @wraps(test)
    def run(*given: object, **named: object) -> None:
        uvloop.run(asyncio.wait_for(test(*given, **named), 20))

    return run


def chunk(data: bytes) -> bytes:
    event = b"data: " + data + b"\n\n"
    return b"%x\r\n%b\r\n" % (len(event), event)


def delta(**fields: Any) -> bytes:
    return chunk(json.dumps({"choices": [{"index": 0, "delta": fields}]}).encode())


def said(text: str) -> bytes:
    return delta(content=text)


STOP = chunk(b'{"choices":[{"index":0,"delta":{},"finish_reason":"stop"}]}')
DONE = chunk(b"[DONE]")


class Relay:
    """Is open at once, takes words, and sees to it that the next bytes are sent."""

    def __init__(self, heard: list[tuple[str, ReplyEvent]]) -> None:
        self.is_open = True
        self.heard = heard
        self.closes_after = 10**9

    def take(self, event: ReplyEvent) -> bool:
        if not isinstance(event, TextDelta):
            return False
        self.heard.append((SHORT_WAY, event))
        if len(self.heard) >= self.closes_after:
            self.is_open = False
        return True


class Streamed:
    """A provider on loopback that sends the next bytes when it is told to."""

    def __init__(self) -> None:
        self.url = ""
        self.next: asyncio.Queue[bytes | None] = asyncio.Queue()
        self.left = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(HEAD)
        try:
            while (data := await self.next.get()) is not CLOSE:
                writer.write(data)
                await writer.drain()
                # Each of them comes by itself.
                await asyncio.sleep(0.02)
        finally:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
            self.left.set()


@asynccontextmanager
async def streaming(*sent: bytes | None, **timeouts: float) -> AsyncIterator[OpenAIProvider]:
    provider = Streamed()
    for data in sent:
        provider.next.put_nowait(data)
    server = await asyncio.start_server(provider.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    direct = DirectHttp()
    limits = Timeouts(**{"connect": 5, "first_byte": 5, "idle": 5, **timeouts})
    yield OpenAIProvider(
        name="test",
        base_url=f"http://127.0.0.1:{port}/v1",
        api_key=None,
        http=direct,
        timeouts=limits,
    )
    await direct.close()
    provider.next.put_nowait(CLOSE)
    await provider.left.wait()
    server.close()


async def heard_from(
    provider: OpenAIProvider, heard: list[tuple[str, ReplyEvent]], relay: Relay | None
) -> None:
    with offered(relay):
        async for event in provider.ask(ASKED):
            heard.append((LONG_WAY, event))  # noqa: PERF401 - in turn with those of the relay


def words(heard: list[tuple[str, ReplyEvent]]) -> list[tuple[str, str]]:
    return [(way, event.text) for way, event in heard if isinstance(event, TextDelta)]


@on_a_servers_loop
async def test_after_the_first_words_the_others_wake_nobody():
    heard: list[tuple[str, ReplyEvent]] = []
    async with streaming(said("a"), said("b"), said("c"), STOP, DONE, END) as provider:
        await heard_from(provider, heard, Relay(heard))

    assert words(heard) == [(LONG_WAY, "a"), (SHORT_WAY, "b"), (SHORT_WAY, "c")]
    way, finished = heard[-1]
    assert way == LONG_WAY
    assert isinstance(finished, ReplyFinished)
    assert finished.message.text == "abc"


@on_a_servers_loop
async def test_without_a_relay_all_come_the_long_way():
    heard: list[tuple[str, ReplyEvent]] = []
    async with streaming(said("a"), said("b"), STOP, DONE, END) as provider:
        await heard_from(provider, heard, None)

    assert words(heard) == [(LONG_WAY, "a"), (LONG_WAY, "b")]


@on_a_servers_loop
async def test_what_a_relay_does_not_take_comes_in_its_place():
    heard: list[tuple[str, ReplyEvent]] = []
    call = delta(tool_calls=[{"index": 0, "id": "c", "function": {"name": "f", "arguments": ""}}])
    together = said("c") + call + said("d")
    sent = (said("a"), said("b"), together, said("e"), said("f"), STOP, DONE, END)
    async with streaming(*sent) as provider:
        await heard_from(provider, heard, Relay(heard))

    kinds = [(way, getattr(event, "text", type(event))) for way, event in heard[:-1]]
    assert kinds == [
        (LONG_WAY, "a"),
        (SHORT_WAY, "b"),
        (SHORT_WAY, "c"),
        (LONG_WAY, ToolCallDelta),
        (LONG_WAY, "d"),
        (LONG_WAY, "e"),
        (SHORT_WAY, "f"),
    ]


@on_a_servers_loop
async def test_a_relay_that_closes_is_given_nothing_more():
    heard: list[tuple[str, ReplyEvent]] = []
    relay = Relay(heard)
    relay.closes_after = 2
    async with streaming(*map(said, "abcd"), STOP, DONE, END) as provider:
        await heard_from(provider, heard, relay)

    assert words(heard) == [
        (LONG_WAY, "a"),
        (SHORT_WAY, "b"),
        (LONG_WAY, "c"),
        (LONG_WAY, "d"),
    ]


@pytest.mark.parametrize(
    ("last", "error"),
    [
        (chunk(b"no json"), BadReplyError),
        (chunk(b'{"error":{"message":"too much","type":"x","code":503}}'), ProviderError),
        (CLOSE, BrokenStreamError),
        (b"zzz\r\n", BrokenStreamError),
    ],
)
@on_a_servers_loop
async def test_what_goes_wrong_on_the_short_way_is_the_same_error_behind_the_same_words(
    last: bytes | None, error: type[Exception]
):
    ends = []
    for short in (True, False):
        heard: list[tuple[str, ReplyEvent]] = []
        async with streaming(said("a"), said("b"), said("c"), last) as provider:
            with pytest.raises(error) as raised:
                await heard_from(provider, heard, Relay(heard) if short else None)
        ends.append((type(raised.value), str(raised.value), [text for _, text in words(heard)]))

    assert ends[0] == ends[1]
    assert ends[0][2] == ["a", "b", "c"]


@on_a_servers_loop
async def test_words_before_a_mistake_in_the_same_piece_come_before_the_error():
    heard: list[tuple[str, ReplyEvent]] = []
    async with streaming(said("a"), said("b"), said("c") + chunk(b"no json")) as provider:
        with pytest.raises(BadReplyError):
            await heard_from(provider, heard, Relay(heard))

    assert words(heard) == [(LONG_WAY, "a"), (SHORT_WAY, "b"), (SHORT_WAY, "c")]


@on_a_servers_loop
async def test_silence_is_counted_from_the_last_words_on_the_short_way_too():
    heard: list[tuple[str, ReplyEvent]] = []
    alphabet = "abcdefghijklmnopqrstuvwxyz"
    async with streaming(*map(said, alphabet), idle=0.4) as provider:
        with pytest.raises(ProviderTimeoutError):
            await heard_from(provider, heard, Relay(heard))

    assert [text for _, text in words(heard)] == list(alphabet)


@on_a_servers_loop
async def test_an_answer_that_is_too_long_ends_on_the_short_way_too(monkeypatch):
    monkeypatch.setattr(http, "MAX_ANSWER_BYTES", 300)
    heard: list[tuple[str, ReplyEvent]] = []
    async with streaming(*map(said, "abcdefgh"), STOP, DONE, END) as provider:
        with pytest.raises(BadReplyError, match="more than 300 bytes"):
            await heard_from(provider, heard, Relay(heard))

    assert 1 < len(heard) < 8


@on_a_servers_loop
async def test_who_stops_listening_ends_the_call():
    heard: list[tuple[str, ReplyEvent]] = []
    async with streaming(said("a"), said("b"), said("c")) as provider:
        asking = asyncio.create_task(heard_from(provider, heard, Relay(heard)))
        while len(heard) < 3:
            await asyncio.sleep(0.01)
        asking.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asking

    assert words(heard)[-1] == (SHORT_WAY, "c")
