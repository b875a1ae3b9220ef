"""The reasons of failed connections, and the session of the transport."""

import errno
import os
import ssl
from typing import Any

import aiohttp
import pytest
from aiohttp.client_reqrep import ConnectionKey

from cllm.providers.http.aiohttp_transport import AiohttpTransport, _describe_failure

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
