"""HTTP to providers: the only place that knows aiohttp.

Three methods: `post`, `Response.read` or `Response.chunks`, `close`. Redirects are not followed,
because a request carries a key; time-outs are for connecting, the first byte and silence, never
for a whole answer.
"""

import asyncio
import ipaddress
import os
import urllib.request
from collections.abc import AsyncIterator, Mapping
from urllib.parse import urlsplit

import aiohttp
import msgspec

from cllm.core.errors import (
    BadReplyError,
    BrokenStreamError,
    ProviderTimeoutError,
    UnreachableError,
)

MAX_ANSWER_BYTES = 256 * 1024 * 1024


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds: to connect, until the first byte of the answer, and between two pieces of it."""

    connect: float = 10
    first_byte: float = 600
    idle: float = 120


class Response:
    """An answer whose status is known and whose body is still to be read."""

    def __init__(
        self, response: aiohttp.ClientResponse, *, provider: str, timeouts: Timeouts
    ) -> None:
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self._response = response
        self._provider = provider
        self._timeouts = timeouts
        self._wake_when_closed()

    def _wake_when_closed(self) -> None:
        """End a body whose connection is gone; aiohttp leaves some readers waiting for ever."""
        connection = self._response.connection
        protocol = None if connection is None else connection.protocol
        closed = None if protocol is None else protocol.closed
        if closed is not None:
            closed.add_done_callback(self._end_body)

    def _end_body(self, _closed: asyncio.Future[None]) -> None:
        content = self._response.content
        if not content.is_eof() and content.exception() is None:
            content.set_exception(aiohttp.ClientPayloadError("the connection was closed"))

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body in pieces, as they come."""
        limit = self._timeouts.first_byte
        while True:
            piece = await self._next(limit)
            if not piece:
                return
            yield piece
            limit = self._timeouts.idle

    async def read(self) -> bytes:
        """The whole body."""
        pieces: list[bytes] = []
        size = 0
        async for piece in self.chunks():
            pieces.append(piece)
            size += len(piece)
            if size > MAX_ANSWER_BYTES:
                raise BadReplyError(
                    f"Provider '{self._provider}' sent more than {MAX_ANSWER_BYTES} bytes in one "
                    "answer; check its address.",
                    provider=self._provider,
                )
        return b"".join(pieces)

    async def _next(self, limit: float) -> bytes:
        try:
            async with asyncio.timeout(limit):
                return await self._response.content.readany()
        except TimeoutError as error:
            raise _silent(self._provider, limit) from error
        except aiohttp.ClientError as error:
            raise BrokenStreamError(
                f"Provider '{self._provider}' broke off its answer; ask again.",
                provider=self._provider,
            ) from error

    async def close(self) -> None:
        """Let the connection go; the provider sees that nobody listens any more."""
        self._response.close()


class Http:
    """A pool of connections, made when the first request is sent."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None

    async def post(
        self,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes,
        provider: str,
        timeouts: Timeouts,
    ) -> Response:
        """Send a request and wait for the head of its answer."""
        session = self._opened()
        try:
            response = await session.post(
                url,
                data=body,
                headers=headers,
                allow_redirects=False,
                proxy=_proxy_for(url),
                timeout=aiohttp.ClientTimeout(
                    total=None, connect=timeouts.connect, sock_read=timeouts.first_byte
                ),
            )
        except aiohttp.ConnectionTimeoutError as error:
            raise _unreachable(provider, url, f"no answer in {timeouts.connect:g} s") from error
        except TimeoutError as error:
            raise _silent(provider, timeouts.first_byte) from error
        except aiohttp.ClientConnectorError as error:
            raise _unreachable(provider, url, _reason(error)) from error
        except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError, ValueError) as error:
            raise _unreachable(provider, url, "not a valid address") from error
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
            raise BrokenStreamError(
                f"Provider '{provider}' closed the connection without an answer; ask again.",
                provider=provider,
            ) from error
        except aiohttp.ClientError as error:
            raise BadReplyError(
                f"Provider '{provider}' did not answer in HTTP; check its address {_shown(url)}.",
                provider=provider,
            ) from error
        return Response(response, provider=provider, timeouts=timeouts)

    def _opened(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=None),
                connector=aiohttp.TCPConnector(limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),
            )
        return self._session

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


def _proxy_for(url: str) -> str | None:
    """The proxy that the environment names for this address; none for this machine itself."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if _is_loopback(host) or urllib.request.proxy_bypass(host):
        return None
    return urllib.request.getproxies().get(parts.scheme)


def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _shown(url: str) -> str:
    """The address without anything that could be a secret in it."""
    parts = urlsplit(url)
    port = "" if parts.port is None else f":{parts.port}"
    return f"{parts.scheme}://{parts.hostname}{port}"


def _reason(error: aiohttp.ClientConnectorError) -> str:
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "the host is not known"
    if isinstance(error, aiohttp.ClientSSLError):
        return "the secure connection failed"
    number = error.os_error.errno
    return os.strerror(number).lower() if number else "no connection"


def _unreachable(provider: str, url: str, reason: str) -> UnreachableError:
    try:
        address = _shown(url)
    except ValueError:
        address = "its address"
    return UnreachableError(
        f"Cannot reach provider '{provider}' at {address} ({reason}); "
        "check that it is running and that api_base is right.",
        provider=provider,
    )


def _silent(provider: str, limit: float) -> ProviderTimeoutError:
    return ProviderTimeoutError(
        f"Provider '{provider}' sent nothing for {limit:g} s; ask again, or raise `timeout`.",
        provider=provider,
    )
