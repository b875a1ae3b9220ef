"""The transport for servers: which connections are used again, on the event loop of a server."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import wraps
from typing import Any

import pytest
import uvloop

from cllm.core.errors import (
    BadReplyError,
    BrokenStreamError,
    ProviderTimeoutError,
    UnreachableError,
)
from cllm.providers.http import Timeouts
from cllm.providers.http_direct import DirectHttp, DirectResponse
from cllm.providers.http_line import LONGEST_HEAD, MOST_WAITING, Line

QUICK = Timeouts(connect=5, first_byte=5, idle=5)
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def on_a_servers_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Its transports are not those of asyncio, and have been a trap."""

    @wraps(test)
    def run(*given: object, **named: object) -> None:
        uvloop.run(test(*given, **named))

    return run


class Provider:
    """Answers each request on a connection with the next of some bytes, and counts connections."""

    def __init__(self, *answers: bytes) -> None:
        self.answers = list(answers)
        self.connections = 0
        self.heads: list[bytes] = []
        self.url = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while self.answers:
                head = await reader.readuntil(b"\r\n\r\n")
                self.heads.append(head)
                await reader.readexactly(4)
                answer = self.answers.pop(0)
                writer.write(answer)
                await writer.drain()
                if b"Content-Length" not in answer:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


@asynccontextmanager
async def provider_of(*answers: bytes) -> AsyncIterator[Provider]:
    provider = Provider(*answers)
    server = await asyncio.start_server(provider.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    provider.url = f"http://127.0.0.1:{port}/v1/chat?x=%3A"
    try:
        yield provider
    finally:
        server.close()


async def asked(
    http: DirectHttp,
    url: str,
    headers: dict[str, str] | None = None,
    *,
    timeouts: Timeouts = QUICK,
) -> bytes:
    response = await http.post(
        url, headers=headers or {}, body=b"body", provider="test", timeouts=timeouts
    )
    try:
        return await response.read()
    finally:
        await response.close()


@on_a_servers_loop
async def test_a_connection_is_used_again():
    http = DirectHttp()
    async with provider_of(OK, OK, OK) as provider:
        assert [await asked(http, provider.url) for _ in range(3)] == [b"ok"] * 3
        assert provider.connections == 1
        assert provider.heads[0].startswith(b"POST /v1/chat?x=%3A HTTP/1.1\r\nHost: 127.0.0.1:")
        await http.close()


@on_a_servers_loop
async def test_interim_answers_are_passed_over():
    http = DirectHttp()
    early = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
    async with provider_of(early + OK, OK) as provider:
        assert [await asked(http, provider.url) for _ in range(2)] == [b"ok", b"ok"]
        assert provider.connections == 1
        await http.close()


@on_a_servers_loop
async def test_a_body_may_end_with_its_connection():
    http = DirectHttp()
    async with provider_of(b"HTTP/1.1 200 OK\r\n\r\nall of it") as provider:
        assert await asked(http, provider.url) == b"all of it"
        await http.close()


@on_a_servers_loop
async def test_a_body_that_is_shorter_than_announced_is_no_answer():
    http = DirectHttp()
    async with provider_of(b"HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\nshort") as provider:
        with pytest.raises(BrokenStreamError):
            await asked(http, provider.url)
        await http.close()


@on_a_servers_loop
async def test_a_connection_with_something_left_on_it_is_not_used_again():
    http = DirectHttp()
    async with provider_of(OK + b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged", OK) as found:
        assert await asked(http, found.url) == b"ok"
        await asyncio.sleep(0.05)
        assert await asked(http, found.url) == b"ok"
        assert found.connections == 2
        await http.close()


@on_a_servers_loop
async def test_a_head_without_an_end_is_no_answer():
    http = DirectHttp()
    async with provider_of(b"HTTP/1.1 200 OK\r\nX: " + b"a" * 4 * LONGEST_HEAD) as provider:
        with pytest.raises((BadReplyError, BrokenStreamError)):
            await asked(http, provider.url)
        await http.close()


@pytest.mark.parametrize("value", ["a\r\nX-Forged: b", "a\nb", "a\0b"])
@on_a_servers_loop
async def test_a_header_is_one_line(value: str):
    http = DirectHttp()
    async with provider_of(OK) as provider:
        with pytest.raises(UnreachableError):
            await asked(http, provider.url, {"X-Test": value})
        assert provider.connections == 0


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/", "http://", "http:///x", "http://host:port/"])
@on_a_servers_loop
async def test_what_is_no_address_is_said(url: str):
    with pytest.raises(UnreachableError, match="not a valid address"):
        await asked(DirectHttp(), url)


@on_a_servers_loop
async def test_leaving_before_the_answer_closes_the_connection():
    http, left = DirectHttp(), asyncio.Event()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(100):
            pass
        left.set()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    asking = asyncio.create_task(asked(http, f"http://127.0.0.1:{port}/"))
    await asyncio.sleep(0.1)
    asking.cancel()
    await asyncio.wait_for(left.wait(), 5)
    server.close()


@on_a_servers_loop
async def test_a_connection_that_was_lost_before_the_request_is_not_waited_for():
    loop = asyncio.get_running_loop()
    hanging_up = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port = hanging_up.sockets[0].getsockname()[1]
    async with hanging_up:
        _, line = await loop.create_connection(Line, "127.0.0.1", port)
        while line.is_open:
            await asyncio.sleep(0.01)
        line.send(b"POST / HTTP/1.1\r\n\r\n")
        await line.head(5)

    assert line.is_broken
    assert not line.has_head


@on_a_servers_loop
async def test_a_connection_whose_long_answer_nobody_read_can_be_used_again():
    http = DirectHttp()
    size = MOST_WAITING + 40_000
    long = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (size, b"x" * size)
    async with provider_of(long, OK) as provider:
        response = await http.post(
            provider.url, headers={}, body=b"body", provider="test", timeouts=QUICK
        )
        assert isinstance(response, DirectResponse)
        async with asyncio.timeout(5):
            while response._line is not None and not response._line.is_whole:
                await asyncio.sleep(0.01)
        await response.close()

        assert await asked(http, provider.url) == b"ok"
        assert provider.connections == 1
        await http.close()


@on_a_servers_loop
@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"])
async def test_silence_is_given_up_in_time_also_after_a_longer_wait(said: bytes):
    http = DirectHttp()
    patient = Timeouts(connect=5, first_byte=0.4, idle=0.2)
    hold = asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(said)
        await hold.wait()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/"
    began = asyncio.get_running_loop().time()
    with pytest.raises(ProviderTimeoutError):
        await asked(http, url, timeouts=patient)
    took = asyncio.get_running_loop().time() - began
    hold.set()
    server.close()
    await http.close()

    assert 0.15 < took < 4
