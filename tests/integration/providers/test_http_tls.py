"""Secure connections: every transport checks whom it speaks to, and answers come through whole."""

import asyncio
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.schema_server import certificate

from cllm.core.errors import UnreachableError
from cllm.providers.http.aiohttp_transport import AiohttpTransport
from cllm.providers.http.stdlib_transport import StdlibTransport
from cllm.providers.http.transport import HttpTransport, Timeouts

QUICK = Timeouts(connect=5, first_byte=5, idle=5)
ANSWER = b"data: " + b"x" * 300_000


@pytest.fixture(params=[StdlibTransport, AiohttpTransport])
def make_http(request: pytest.FixtureRequest) -> Callable[[], HttpTransport]:
    make: Callable[[], HttpTransport] = request.param
    return make


@asynccontextmanager
async def provider(keys: Path) -> AsyncIterator[str]:
    """Answers every request over TLS, in pieces, and keeps the connection."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(keys)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while await reader.readuntil(b"body"):
                head = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % len(ANSWER)
                writer.write(head + ANSWER[:1000])
                await writer.drain()
                writer.write(ANSWER[1000:])
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=context)
    try:
        yield f"https://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    finally:
        server.close()


async def fetch(http: HttpTransport, url: str) -> bytes:
    response = await http.post(url, headers={}, body=b"body", provider="test", timeouts=QUICK)
    try:
        return await response.read()
    finally:
        await response.close()


async def test_a_trusted_certificate_is_accepted(make_http, tmp_path, monkeypatch):
    keys = certificate(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(keys))
    # aiohttp reads the environment once, when it is imported, which is before this test.
    monkeypatch.setattr("aiohttp.connector._SSL_CONTEXT_VERIFIED", ssl.create_default_context())
    http = make_http()
    async with provider(keys) as url:
        assert await fetch(http, url) == ANSWER
        assert await fetch(http, url) == ANSWER
        await http.close()


async def test_an_untrusted_certificate_is_refused_before_sending(make_http, tmp_path, monkeypatch):
    monkeypatch.delenv("SSL_CERT_FILE", raising=False)
    http = make_http()
    async with provider(certificate(tmp_path)) as url:
        with pytest.raises(UnreachableError, match="test"):
            await fetch(http, url)
        await http.close()
