"""Bytes that a provider sends after a complete response: no request takes them for its answer."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

import pytest

from cllm.core.errors import BadReplyError
from cllm.providers.http.aiohttp_transport import AiohttpTransport
from cllm.providers.http.stdlib_transport import StdlibTransport
from cllm.providers.http.transport import HttpTransport, Timeouts

QUICK = Timeouts(connect=5, first_byte=5, idle=5)
BODY = b"body"
TRANSPORTS: dict[str, Callable[[], HttpTransport]] = {
    "pool": AiohttpTransport,
    "once": StdlibTransport,
}
FORGED = b"HTTP/1.1 200 OK\r\nContent-Length: 6\r\n\r\nforged"
SURPLUS = {
    "a response": FORGED,
    "two responses": FORGED + FORGED,
    "half a response": FORGED[:-3],
    "a head without its end": b"HTTP/1.1 200 OK\r\nX-Forged: ",
    "an interim response": b"HTTP/1.1 103 Early Hints\r\nLink: </forged>\r\n\r\n",
    "more of the body": b"forged",
    "a line break": b"\r\n",
    "nonsense": b"\0\xff" * 100,
}


def fixed(text: bytes) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(text), text)


def chunked(text: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"%x\r\n%b\r\n0\r\n\r\n" % (len(text), text)


class Provider:
    """Answers request after request on its connections; the first answer has something behind it.

    What is behind it goes out with the answer, or when the test says so.
    """

    def __init__(self, frame: Callable[[bytes], bytes], surplus: bytes, *, with_it: bool) -> None:
        self.url = ""
        self._frame = frame
        self._surplus = surplus
        self._with_it = with_it
        self._answered = 0
        self.connections = 0
        self.on_first = 0
        """Requests that came on the connection with the surplus, after it."""
        self._first: asyncio.StreamWriter | None = None

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                await reader.readuntil(b"\r\n\r\n")
                await reader.readexactly(len(BODY))
                self._answered += 1
                self.on_first += writer is self._first
                answer = self._frame(b"answer %d" % self._answered)
                if self._answered == 1:
                    self._first = writer
                    answer += self._surplus if self._with_it else b""
                writer.write(answer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def send_surplus(self) -> None:
        """Send what is left to send; the client has had time to see it when this returns."""
        if not self._with_it and self._first is not None and not self._first.is_closing():
            self._first.write(self._surplus)
            await self._first.drain()
        await asyncio.sleep(0.05)


@asynccontextmanager
async def running(provider: Provider) -> AsyncIterator[Provider]:
    server = await asyncio.start_server(provider.serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    provider.url = f"http://127.0.0.1:{port}/v1/chat"
    try:
        yield provider
    finally:
        server.close()


async def ask(http: HttpTransport, url: str) -> tuple[int, bytes]:
    response = await http.post(url, headers={}, body=BODY, provider="test", timeouts=QUICK)
    try:
        return response.status, await response.read()
    finally:
        await response.close()


@pytest.mark.parametrize("with_it", [True, False], ids=["with the answer", "after the answer"])
@pytest.mark.parametrize("frame", [fixed, chunked])
@pytest.mark.parametrize("surplus", SURPLUS)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_bytes_after_a_response_are_not_the_next_response(
    transport: str, surplus: str, frame: Callable[[bytes], bytes], with_it: bool
):
    """A transport may refuse the response that they come with; every later one is its own."""
    http = TRANSPORTS[transport]()
    async with running(Provider(frame, SURPLUS[surplus], with_it=with_it)) as provider:
        with suppress(BadReplyError):
            assert await ask(http, provider.url) == (200, b"answer 1")
        await provider.send_surplus()
        later = [await ask(http, provider.url) for _ in range(2)]
        await http.close()

    assert later == [(200, b"answer 2"), (200, b"answer 3")]


@pytest.mark.parametrize("with_it", [True, False], ids=["with the answer", "after the answer"])
@pytest.mark.parametrize("frame", [fixed, chunked])
@pytest.mark.parametrize(
    "surplus", ["a response", "two responses", "half a response", "more of the body", "nonsense"]
)
@pytest.mark.parametrize("transport", TRANSPORTS)
async def test_a_connection_with_surplus_bytes_is_not_used_again(
    transport: str, surplus: str, frame: Callable[[bytes], bytes], with_it: bool
):
    """More of them may come, and would be read as the answer to the next request."""
    http = TRANSPORTS[transport]()
    async with running(Provider(frame, SURPLUS[surplus], with_it=with_it)) as provider:
        with suppress(BadReplyError):
            await ask(http, provider.url)
        await provider.send_surplus()
        assert await ask(http, provider.url) == (200, b"answer 2")
        await http.close()

    assert provider.on_first == 0


@pytest.mark.parametrize("frame", [fixed, chunked])
async def test_a_connection_without_surplus_bytes_is_used_again(frame: Callable[[bytes], bytes]):
    http = AiohttpTransport()
    async with running(Provider(frame, b"", with_it=True)) as provider:
        for number in range(1, 4):
            assert await ask(http, provider.url) == (200, b"answer %d" % number)
        await http.close()

    assert provider.connections == 1
