"""The transport for a single request: the standard library's client, in a thread.

Importing it takes a tenth of the time of aiohttp.
"""

import asyncio
import contextlib
import http.client
import os
import socket
import ssl
import threading
import zlib
from base64 import b64encode
from collections.abc import Callable, Iterator, Mapping
from http import HTTPStatus
from typing import TypeVar
from urllib.parse import SplitResult, unquote, urlsplit

from cllm.core.errors import ProviderError
from cllm.providers.http.transport import (
    MAX_INTERIM_RESPONSES,
    HttpResponse,
    Timeouts,
    connection_closed_error,
    find_proxy,
    not_http_error,
    stream_broken_error,
    timeout_error,
    unreachable_error,
)

CHUNK_BYTES = 65536
MAX_QUEUED_CHUNKS = 64
DEFAULT_PORTS = {"http": 80, "https": 443}
COMPRESSIONS = ("gzip", "deflate")
ANY_ZLIB_HEADER = zlib.MAX_WBITS | 32

Chunk = bytes | ProviderError
T = TypeVar("T")


class StdlibTransport:
    async def post(
        self,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes,
        provider: str,
        timeouts: Timeouts,
    ) -> HttpResponse:
        return await self._send("POST", url, headers, body, provider=provider, timeouts=timeouts)

    async def get(
        self, url: str, *, headers: Mapping[str, str], provider: str, timeouts: Timeouts
    ) -> HttpResponse:
        return await self._send("GET", url, headers, None, provider=provider, timeouts=timeouts)

    async def _send(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes | None,
        *,
        provider: str,
        timeouts: Timeouts,
    ) -> HttpResponse:
        response = StdlibResponse(url, provider=provider, timeouts=timeouts)
        arguments = (method, dict(headers), body)
        threading.Thread(target=response.run, args=arguments, daemon=True).start()
        try:
            await response.head
        except BaseException:
            await response.close()
            raise
        return response

    async def close(self) -> None:
        """Do nothing: no connection outlives its request."""


class StdlibResponse(HttpResponse):
    """One request; `run` executes in a thread and passes chunks to the event loop."""

    def __init__(self, url: str, *, provider: str, timeouts: Timeouts) -> None:
        super().__init__(provider=provider, timeouts=timeouts)
        self._loop = asyncio.get_running_loop()
        self.head: asyncio.Future[None] = self._loop.create_future()
        self._url = url
        self._chunks: asyncio.Queue[Chunk] = asyncio.Queue()
        self._free_slots = threading.Semaphore(MAX_QUEUED_CHUNKS)
        self._connection: http.client.HTTPConnection | None = None
        self._socket: socket.socket | None = None
        self._is_closed = False

    async def _read_chunk(self, limit: float) -> bytes:
        try:
            async with asyncio.timeout(limit):
                chunk = await self._chunks.get()
        except TimeoutError as error:
            raise timeout_error(self._provider, limit) from error
        self._free_slots.release()
        if isinstance(chunk, ProviderError):
            raise chunk
        return chunk

    async def close(self) -> None:
        """Shut the connection down, which ends the thread."""
        self._is_closed = True
        self._free_slots.release()
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)

    def run(self, method: str, headers: dict[str, str], body: bytes | None) -> None:
        try:
            response = self._send(method, headers, body)
            self.status = response.status
            self.headers = {name.title(): value for name, value in response.getheaders()}
            self._call_in_loop(self._set_head, None)
            self._read_body(response)
        except ProviderError as error:
            self._call_in_loop(self._set_head, error)
        finally:
            # After any error, also an unexpected one, nothing may wait for this thread.
            self._call_in_loop(self._set_head, stream_broken_error(self._provider))
            self._call_in_loop(self._chunks.put_nowait, stream_broken_error(self._provider))
            if self._connection is not None:
                self._connection.close()

    def _send(
        self, method: str, headers: dict[str, str], body: bytes | None
    ) -> http.client.HTTPResponse:
        connection, target, proxy_headers = self._connect()
        try:
            connection.request(method, target, body=body, headers=headers | proxy_headers)
            return connection.getresponse()
        except TimeoutError as error:
            raise timeout_error(self._provider, self._timeouts.first_byte) from error
        except OSError as error:
            raise connection_closed_error(self._provider) from error
        except (http.client.HTTPException, ValueError) as error:
            raise not_http_error(self._provider, self._url) from error

    def _connect(self) -> tuple[http.client.HTTPConnection, str, dict[str, str]]:
        """Return a connection, the request target, and the headers for a proxy."""
        try:
            connection, target, proxy_headers = _build_connection(
                self._url, timeout=self._timeouts.connect
            )
            connection.connect()
        except (OSError, ValueError, http.client.HTTPException) as error:
            reason = _describe_failure(error, timeout=self._timeouts.connect)
            raise unreachable_error(self._provider, self._url, reason) from error
        self._connection, self._socket = connection, connection.sock
        connection.response_class = _FinalResponse
        connection.sock.settimeout(self._timeouts.first_byte)
        if self._is_closed:
            raise connection_closed_error(self._provider)
        return connection, target, proxy_headers

    def _read_body(self, response: http.client.HTTPResponse) -> None:
        """Queue the body without a timeout: the reader of the queue has one."""
        if self._socket is not None:
            self._socket.settimeout(None)
        expected, size = response.length, 0
        is_compressed = response.headers.get("Content-Encoding", "").lower() in COMPRESSIONS
        inflater = zlib.decompressobj(wbits=ANY_ZLIB_HEADER) if is_compressed else None
        is_complete = False
        with contextlib.suppress(http.client.HTTPException, OSError, ValueError, zlib.error):
            while expected is None or size < expected:
                chunk = response.read1(CHUNK_BYTES)
                if not chunk:
                    break
                size += len(chunk)
                for decompressed in _decompress(chunk, inflater):
                    self._queue_chunk(decompressed)
            is_complete = expected is None or size == expected
        self._call_in_loop(
            self._chunks.put_nowait, b"" if is_complete else stream_broken_error(self._provider)
        )

    def _queue_chunk(self, chunk: bytes) -> None:
        """Wait until the queue has a free slot."""
        self._free_slots.acquire()
        if self._is_closed:
            raise ConnectionAbortedError
        self._call_in_loop(self._chunks.put_nowait, chunk)

    def _set_head(self, error: ProviderError | None) -> None:
        if self.head.done():
            return
        if error is None:
            self.head.set_result(None)
        else:
            self.head.set_exception(error)

    def _call_in_loop(self, function: Callable[[T], None], value: T) -> None:
        """Call a function in the event loop's thread."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function, value)


def _decompress(chunk: bytes, inflater: "zlib._Decompress | None") -> Iterator[bytes]:
    """Some servers compress although the request does not accept it."""
    if inflater is None:
        yield chunk
        return
    while chunk:
        if decompressed := inflater.decompress(chunk, CHUNK_BYTES):
            yield decompressed
        chunk = inflater.unconsumed_tail


def _describe_failure(error: Exception, *, timeout: float) -> str:
    match error:
        case ssl.SSLError():
            return "TLS handshake failed"
        case TimeoutError():
            return f"no connection within {timeout:g} s"
        case socket.gaierror():
            return "unknown host"
        case OSError():
            return os.strerror(error.errno).lower() if error.errno else "no connection"
        case _:
            return "invalid URL"


class _FinalResponse(http.client.HTTPResponse):
    """Skips interim responses, such as 103."""

    def _read_status(self) -> tuple[str, int, str]:
        for _ in range(MAX_INTERIM_RESPONSES):
            version, status, reason = super()._read_status()  # type: ignore[misc]
            if status // 100 != 1 or status == HTTPStatus.SWITCHING_PROTOCOLS:
                return version, status, reason
            http.client.parse_headers(self.fp)
        raise http.client.HTTPException("too many interim responses")


def _build_connection(
    url: str, *, timeout: float
) -> tuple[http.client.HTTPConnection, str, dict[str, str]]:
    parts = urlsplit(url)
    if parts.scheme not in DEFAULT_PORTS or not parts.hostname:
        raise ValueError(url)
    target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    proxy_url = find_proxy(url)
    if proxy_url is None:
        return _open(parts, secure=parts.scheme == "https", timeout=timeout), target, {}
    proxy = urlsplit(proxy_url if "://" in proxy_url else f"http://{proxy_url}")
    authorization = _proxy_authorization(proxy)
    if parts.scheme == "http":
        return _open(proxy, secure=proxy.scheme == "https", timeout=timeout), url, authorization
    tunnel = _open(proxy, secure=True, timeout=timeout)
    tunnel.set_tunnel(parts.hostname, parts.port or DEFAULT_PORTS["https"], authorization)
    return tunnel, target, {}


def _open(parts: SplitResult, *, secure: bool, timeout: float) -> http.client.HTTPConnection:
    host, port = parts.hostname or "", parts.port or DEFAULT_PORTS.get(parts.scheme, 80)
    if not secure:
        return http.client.HTTPConnection(host, port, timeout=timeout)
    context = ssl.create_default_context()
    return http.client.HTTPSConnection(host, port, timeout=timeout, context=context)


def _proxy_authorization(proxy: SplitResult) -> dict[str, str]:
    if proxy.username is None:
        return {}
    pair = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {b64encode(pair.encode()).decode()}"}
