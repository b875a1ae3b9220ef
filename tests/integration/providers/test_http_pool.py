"""The aiohttp transport on the event loop of a server: reuse, time-outs, hostile responses."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager, suppress
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
from cllm.providers.http.aiohttp_transport import MAX_HEADER_BYTES, AiohttpTransport
from cllm.providers.http.stdlib_transport import StdlibTransport
from cllm.providers.http.transport import MAX_INTERIM_RESPONSES, HttpTransport, Timeouts

QUICK = Timeouts(connect=5, first_byte=5, idle=5)
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
CHUNKED = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
MIB = 1024 * 1024

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def on_server_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test on uvloop, whose transports differ from those of asyncio."""

    @wraps(test)
    def run(*arguments: object, **named: object) -> None:
        uvloop.run(asyncio.wait_for(test(*arguments, **named), 60))

    return run


@asynccontextmanager
async def serving(serve: Serve) -> AsyncIterator[str]:
    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1/chat?x=%3A"
    finally:
        server.close()


@asynccontextmanager
async def pool() -> AsyncIterator[AiohttpTransport]:
    http = AiohttpTransport()
    try:
        yield http
    finally:
        await http.close()


class Provider:
    """Sends one of some responses to each request and counts its connections."""

    def __init__(self, *responses: bytes) -> None:
        self.responses = list(responses)
        self.connections = 0
        self.heads: list[bytes] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while self.responses:
                self.heads.append(await reader.readuntil(b"\r\n\r\n"))
                await reader.readexactly(4)
                response = self.responses.pop(0)
                writer.write(response)
                await writer.drain()
                if b"Content-Length" not in response:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()


def sending(*pieces: bytes, pause: float) -> Serve:
    """Send pieces with a pause before each but the first, then wait for the client to leave."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await reader.readuntil(b"\r\n\r\nbody")
            for number, piece in enumerate(pieces):
                await asyncio.sleep(pause if number else 0)
                writer.write(piece)
                await writer.drain()
            await reader.read()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    return serve


async def post(
    http: HttpTransport,
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


@on_server_loop
async def test_a_connection_is_reused():
    provider = Provider(OK, OK, OK)
    async with serving(provider.serve) as url, pool() as http:
        assert [await post(http, url) for _ in range(3)] == [b"ok"] * 3

    assert provider.connections == 1


@on_server_loop
async def test_a_request_has_only_the_headers_that_it_needs():
    provider = Provider(OK)
    async with serving(provider.serve) as url, pool() as http:
        await post(http, url, {"X-Test": "1"})

    first, *headers = provider.heads[0].decode().splitlines()[:-1]
    assert first == "POST /v1/chat?x=%3A HTTP/1.1"
    assert sorted(header.partition(": ")[0] for header in headers) == [
        "Accept",
        "Content-Length",
        "Host",
        "User-Agent",
        "X-Test",
    ]
    assert "User-Agent: cllm" in headers


@on_server_loop
async def test_the_caller_can_choose_the_user_agent():
    provider = Provider(OK)
    async with serving(provider.serve) as url, pool() as http:
        await post(http, url, {"User-Agent": "other"})

    assert provider.heads[0].count(b"User-Agent") == 1
    assert b"User-Agent: other\r\n" in provider.heads[0]


@on_server_loop
async def test_cookies_are_not_sent_back():
    provider = Provider(OK.replace(b"\r\n", b"\r\nSet-Cookie: a=b\r\n", 1), OK)
    async with serving(provider.serve) as url, pool() as http:
        assert [await post(http, url) for _ in range(2)] == [b"ok"] * 2

    assert b"Cookie" not in provider.heads[1]


@on_server_loop
async def test_interim_responses_are_skipped():
    early = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n"
    provider = Provider(early + OK, OK)
    async with serving(provider.serve) as url, pool() as http:
        assert [await post(http, url) for _ in range(2)] == [b"ok", b"ok"]

    assert provider.connections == 1


@on_server_loop
@pytest.mark.parametrize("transport", [AiohttpTransport, StdlibTransport])
async def test_endless_interim_responses_are_an_error(transport):
    early = b"HTTP/1.1 103 Early Hints\r\n\r\n"
    provider = Provider(early * (MAX_INTERIM_RESPONSES + 1) + OK)
    http = transport()
    async with serving(provider.serve) as url:
        with pytest.raises(BadReplyError):
            await post(http, url)
    await http.close()


@on_server_loop
async def test_a_body_can_end_with_its_connection():
    provider = Provider(b"HTTP/1.1 200 OK\r\n\r\nall of it")
    async with serving(provider.serve) as url, pool() as http:
        assert await post(http, url) == b"all of it"


@on_server_loop
async def test_a_body_shorter_than_its_length_is_an_error():
    provider = Provider(b"HTTP/1.1 200 OK\r\ncontent-length: 20\r\n\r\nshort")
    async with serving(provider.serve) as url, pool() as http:
        with pytest.raises(BrokenStreamError):
            await post(http, url)


@on_server_loop
async def test_a_long_header_is_accepted():
    long = b"a" * (MAX_HEADER_BYTES - 100)
    provider = Provider(OK.replace(b"\r\n", b"\r\nX-Long: " + long + b"\r\n", 1))
    async with serving(provider.serve) as url, pool() as http:
        assert await post(http, url) == b"ok"


@pytest.mark.parametrize(
    "head",
    [
        b"HTTP/1.1 200 OK\r\nX: " + b"a" * 4 * MAX_HEADER_BYTES,
        b"HTTP/1.1 200 " + b"a" * 4 * MAX_HEADER_BYTES,
        b"HTTP/1.1 200 OK\r\n" + b"X: a\r\n" * MAX_HEADER_BYTES,
    ],
    ids=["header", "status line", "headers"],
)
@on_server_loop
async def test_endless_headers_are_an_error(head: bytes):
    async with serving(sending(head, pause=0)) as url, pool() as http:
        with pytest.raises((BadReplyError, BrokenStreamError)):
            await post(http, url)


@on_server_loop
async def test_a_long_chunk_extension_does_not_stall_the_body():
    extension = b"2;" + b"x" * (512 * 1024) + b"\r\nok\r\n0\r\n\r\n"
    async with serving(sending(CHUNKED + extension, pause=0)) as url, pool() as http:
        with suppress(BadReplyError, BrokenStreamError):
            assert await post(http, url) == b"ok"


@pytest.mark.parametrize("value", ["a\r\nX-Forged: b", "a\nb", "a\0b"])
@on_server_loop
async def test_a_header_with_a_line_break_is_not_sent(value: str):
    provider = Provider(OK)
    async with serving(provider.serve) as url, pool() as http:
        with pytest.raises(UnreachableError):
            await post(http, url, {"X-Test": value})

    assert provider.heads == []


@pytest.mark.parametrize("url", ["ftp://127.0.0.1/", "http://", "http:///x", "http://host:port/"])
@on_server_loop
async def test_an_invalid_address_is_an_error(url: str):
    async with pool() as http:
        with pytest.raises(UnreachableError, match="invalid URL"):
            await post(http, url)


@pytest.mark.parametrize("path", ["\r\nX-Forged: b", " HTTP/1.1\r\nX-Forged: b", "é", "\0"])
@on_server_loop
async def test_a_path_cannot_add_a_header(path: str):
    provider = Provider(OK)
    async with serving(provider.serve) as url, pool() as http:
        try:
            await post(http, f"{url}{path}")
        except UnreachableError:
            assert provider.heads == []
        else:
            assert b"\r\nX-Forged" not in provider.heads[0]


@on_server_loop
async def test_cancelling_a_request_closes_its_connection():
    arrived, left = asyncio.Event(), asyncio.Event()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while await reader.read(100):
            arrived.set()
        left.set()
        writer.close()

    async with serving(serve) as url, pool() as http:
        request = asyncio.create_task(post(http, url))
        await asyncio.wait_for(arrived.wait(), 5)
        request.cancel()
        await asyncio.wait_for(left.wait(), 5)


@on_server_loop
async def test_a_connection_that_the_provider_closed_is_not_reused():
    connections = 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        await reader.readuntil(b"\r\n\r\nbody")
        writer.write(OK)
        writer.close()

    async with serving(serve) as url, pool() as http:
        for _ in range(3):
            assert await post(http, url) == b"ok"
            await asyncio.sleep(0.05)

    assert connections == 3


@pytest.mark.parametrize("make_http", [AiohttpTransport, StdlibTransport])
async def test_a_provider_waits_while_its_body_is_not_read(make_http: Callable[[], HttpTransport]):
    total, sent = 64 * MIB, 0

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal sent
        await reader.readuntil(b"\r\n\r\n")
        await reader.readexactly(4)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % total)
        while sent < total:
            writer.write(bytes(MIB))
            await writer.drain()
            sent += MIB
        writer.close()

    http = make_http()
    async with serving(serve) as url:
        response = await http.post(url, headers={}, body=b"body", provider="test", timeouts=QUICK)
        await asyncio.sleep(0.3)
        unread = sent
        body = await response.read()
        await response.close()
        await http.close()

    assert unread < total / 2
    assert len(body) == total


@pytest.mark.parametrize("data", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"])
@on_server_loop
async def test_silence_ends_in_a_timeout(data: bytes):
    limits = Timeouts(connect=5, first_byte=0.4, idle=0.2)
    began = asyncio.get_running_loop().time()
    async with serving(sending(data, pause=0)) as url, pool() as http:
        with pytest.raises(ProviderTimeoutError):
            await post(http, url, timeouts=limits)
    took = asyncio.get_running_loop().time() - began

    assert 0.15 < took < 4


@on_server_loop
async def test_the_timeout_of_the_headers_covers_all_of_them():
    """A head that comes one byte at a time does not start the time-out anew."""
    limits = Timeouts(connect=0.2, first_byte=0.3, idle=5)
    head = [bytes([byte]) for byte in b"HTTP/1.1 200 OK\r\nX-Long: " + b"a" * 500]
    async with serving(sending(*head, pause=0.05)) as url, pool() as http:
        with pytest.raises(ProviderTimeoutError):
            await asyncio.wait_for(post(http, url, timeouts=limits), 10)


@on_server_loop
async def test_the_timeout_of_the_headers_does_not_apply_to_the_body():
    limits = Timeouts(connect=5, first_byte=0.2, idle=5)
    pieces = (b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\none", b"two")
    async with serving(sending(*pieces, pause=0.6)) as url, pool() as http:
        assert await post(http, url, timeouts=limits) == b"onetwo"
