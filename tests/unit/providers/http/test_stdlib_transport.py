"""The connection to a server or proxy, decompression, and the reasons of failed connections."""

import errno
import http.client
import os
import socket
import ssl
import zlib
from typing import Any

import pytest

from cllm.providers.http import stdlib_transport
from cllm.providers.http.stdlib_transport import (
    ANY_ZLIB_HEADER,
    _build_connection,
    _decompress,
    _describe_failure,
)


@pytest.fixture
def set_proxy(monkeypatch):
    def set_proxy(proxy):
        monkeypatch.setattr(stdlib_transport, "find_proxy", lambda _url: proxy)

    return set_proxy


@pytest.mark.parametrize(
    ("url", "target", "kind", "port"),
    [
        ("http://x.test", "/", http.client.HTTPConnection, 80),
        ("http://x.test:8000/v1?a=b", "/v1?a=b", http.client.HTTPConnection, 8000),
        ("https://x.test/v1", "/v1", http.client.HTTPSConnection, 443),
    ],
)
def test_a_connection_without_a_proxy(set_proxy, url, target, kind, port):
    set_proxy(None)

    connection, request_target, headers = _build_connection(url, timeout=1)

    assert type(connection) is kind
    assert (connection.host, connection.port) == ("x.test", port)
    assert (request_target, headers) == (target, {})


def test_a_proxy_gets_the_whole_url_and_the_credentials(set_proxy):
    set_proxy("me:s%20t@proxy.test:3128")

    connection, target, headers = _build_connection("http://x.test/v1", timeout=1)

    assert (connection.host, connection.port) == ("proxy.test", 3128)
    assert target == "http://x.test/v1"
    assert headers == {"Proxy-Authorization": "Basic bWU6cyB0"}


def test_https_uses_a_tunnel_through_the_proxy(set_proxy):
    set_proxy("http://proxy.test:3128")

    connection: Any
    connection, target, headers = _build_connection("https://x.test/v1", timeout=1)

    assert (connection.host, connection.port) == ("proxy.test", 3128)
    assert (target, headers) == ("/v1", {})
    assert (connection._tunnel_host, connection._tunnel_port) == ("x.test", 443)


@pytest.mark.parametrize("url", ["ftp://x.test/", "http://", "x.test"])
def test_a_url_that_is_not_http_is_refused(url):
    with pytest.raises(ValueError, match=url):
        _build_connection(url, timeout=1)


@pytest.mark.parametrize("wbits", [zlib.MAX_WBITS | 16, zlib.MAX_WBITS], ids=["gzip", "zlib"])
def test_a_compressed_body_is_decompressed_in_chunks(wbits):
    compressor = zlib.compressobj(wbits=wbits)
    data = compressor.compress(b"a" * 200_000) + compressor.flush()
    inflater = zlib.decompressobj(wbits=ANY_ZLIB_HEADER)

    chunks = [chunk for byte in data for chunk in _decompress(bytes([byte]), inflater)]

    assert b"".join(chunks) == b"a" * 200_000
    assert max(map(len, chunks)) <= 65_536


def test_a_plain_body_stays_unchanged():
    assert list(_decompress(b"abc", None)) == [b"abc"]


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ssl.SSLError("bad"), "TLS handshake failed"),
        (TimeoutError(), "no connection within 2 s"),
        (socket.gaierror(-2, "unknown"), "unknown host"),
        (OSError(errno.ECONNREFUSED, ""), os.strerror(errno.ECONNREFUSED).lower()),
        (OSError(), "no connection"),
        (ValueError(), "invalid URL"),
    ],
)
def test_a_failed_connection_has_a_short_reason(error, reason):
    assert _describe_failure(error, timeout=2) == reason
