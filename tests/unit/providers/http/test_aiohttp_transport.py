"""The reasons of failed connections, and the session of the transport."""

import asyncio
import errno
import gc
import os
import socket
import ssl
import struct
from typing import Any

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey

from cllm.core.errors import BrokenStreamError
from cllm.providers.http.aiohttp_transport import AiohttpTransport, _describe_failure
from cllm.providers.http.transport import Timeouts

KEY = ConnectionKey("x.test", 443, True, True, None, None, None)


@pytest.mark.parametrize(
    ("error_class", "cause", "reason"),
    [
        (aiohttp.ClientConnectorDNSError, OSError(), "unknown host"),
        (aiohttp.ClientConnectorSSLError, ssl.SSLError("bad"), "TLS handshake failed"),
        (
            aiohttp.ClientConnectorError,
            OSError(errno.ECONNREFUSED, ""),
            os.strerror(errno.ECONNREFUSED).lower(),
        ),
        (aiohttp.ClientConnectorError, OSError(), "no connection"),
    ],
)
def test_a_failed_connection_has_a_short_reason(error_class: Any, cause: OSError, reason: str):
    assert _describe_failure(error_class(KEY, cause)) == reason


async def test_the_session_is_opened_once_and_again_after_close():
    transport = AiohttpTransport()
    await transport.close()

    first = transport._get_session()
    assert transport._get_session() is first
    await transport.close()
    assert first.closed

    second = transport._get_session()
    assert second is not first
    await transport.close()


async def test_a_connection_that_the_provider_resets_leaves_no_unhandled_exception():
    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nhalf")
        await writer.drain()
        connection = writer.get_extra_info("socket")
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        writer.transport.abort()

    unhandled: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: unhandled.append(context))
    server = await asyncio.start_server(reset, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    transport = AiohttpTransport()
    response = await transport.post(
        f"http://127.0.0.1:{port}/",
        headers={},
        body=b"",
        provider="openai",
        timeouts=Timeouts(connect=10, first_byte=10, idle=10),
    )
    assert await response._read_chunk(10) == b"half"
    with pytest.raises(BrokenStreamError):
        await response._read_chunk(10)
    await response.close()
    await transport.close()
    server.close()
    await server.wait_closed()
    del response, transport
    await asyncio.sleep(0)
    gc.collect()

    assert unhandled == []
