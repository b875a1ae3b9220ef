"""The transport for long-running processes: a connection pool on aiohttp."""

import asyncio
import os
from collections.abc import Mapping
from functools import lru_cache, partial
from http import HTTPStatus
from typing import Any

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.http_exceptions import BadHttpMessage
from yarl import URL

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

MAX_HEADER_BYTES = 64 * 1024
MAX_CACHED_URLS = 1000


class AiohttpResponse(HttpResponse):
    def __init__(
        self, response: aiohttp.ClientResponse, *, provider: str, timeouts: Timeouts
    ) -> None:
        super().__init__(provider=provider, timeouts=timeouts)
        self.status = response.status
        self.headers: Mapping[str, str] = response.headers
        self._response = response
        connection = response.connection
        if connection is not None and connection.protocol is not None:
            protocol = connection.protocol
            # aiohttp would apply the timeout for the headers to each chunk of the body.
            protocol.read_timeout = None
            protocol.start_timeout()
            # aiohttp does not wake all readers when the connection is lost.
            if protocol.closed is not None:
                protocol.closed.add_done_callback(self._end_body)

    def _end_body(self, closed: asyncio.Future[None]) -> None:
        if not closed.cancelled():
            # asyncio logs an exception that is never retrieved.
            closed.exception()
        content = self._response.content
        if not content.is_eof() and content.exception() is None:
            content.set_exception(aiohttp.ClientPayloadError("the connection was closed"))

    async def _read_chunk(self, limit: float) -> bytes:
        content = self._response.content
        if content.at_eof():
            return b""
        try:
            # Buffered bytes need no timer, which would cost more than reading them.
            chunk = content.read_nowait()
            if chunk or content.at_eof():
                return chunk
            async with asyncio.timeout(limit):
                return await content.readany()
        except TimeoutError as error:
            raise timeout_error(self._provider, limit) from error
        except aiohttp.ClientError as error:
            raise stream_broken_error(self._provider) from error

    async def close(self) -> None:
        self._response.close()


class _ResponseHandler(ResponseHandler):
    """Ends a connection with too many interim responses, such as 103; aiohttp has no limit."""

    _interim = 0

    def feed_data(self, data: Any, size: int = 0) -> None:
        if self._interim > MAX_INTERIM_RESPONSES:
            return
        self._interim = self._interim + 1 if data[0].code < HTTPStatus.OK else 0
        if self._interim <= MAX_INTERIM_RESPONSES:
            super().feed_data(data, size)
        else:
            self.close()
            self.set_exception(BadHttpMessage("too many interim responses"))


class _Connector(aiohttp.TCPConnector):
    """Never reuses a connection that received bytes while idle: they would become a response.

    aiohttp has no option for either class; test_http_pool.py fails if it renames what is replaced.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        create: Any = partial(_ResponseHandler, loop=asyncio.get_running_loop())
        self._factory = create

    async def _get(self, *args: Any) -> Any:
        while (connection := await super()._get(*args)) is not None:
            protocol = connection.protocol
            if protocol is not None and not protocol.should_close:
                return connection
            connection.close()
        return None


class AiohttpTransport:
    """Caches the proxy of each URL: finding it takes longer than the rest of a request."""

    def __init__(self) -> None:
        self._session: aiohttp.ClientSession | None = None
        self._find_proxy = lru_cache(maxsize=MAX_CACHED_URLS)(find_proxy)

    async def post(
        self,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes,
        provider: str,
        timeouts: Timeouts,
    ) -> HttpResponse:
        try:
            # aiohttp's own timeout restarts with each chunk of the headers.
            async with asyncio.timeout(timeouts.connect + timeouts.first_byte):
                response = await self._get_session().post(
                    # Keep the escapes of the URL: a signature may cover them.
                    URL(url, encoded=True),
                    data=body,
                    headers=headers,
                    allow_redirects=False,
                    proxy=self._find_proxy(url),
                    timeout=_client_timeout(timeouts),
                )
        except aiohttp.ConnectionTimeoutError as error:
            raise unreachable_error(
                provider, url, f"no connection within {timeouts.connect:g} s"
            ) from error
        except TimeoutError as error:
            raise timeout_error(provider, timeouts.first_byte) from error
        except aiohttp.ClientConnectorError as error:
            raise unreachable_error(provider, url, _describe_failure(error)) from error
        except (aiohttp.InvalidURL, aiohttp.NonHttpUrlClientError, ValueError) as error:
            raise unreachable_error(provider, url, "invalid URL") from error
        except (aiohttp.ServerDisconnectedError, aiohttp.ClientOSError) as error:
            raise connection_closed_error(provider) from error
        except aiohttp.ClientError as error:
            raise not_http_error(provider, url) from error
        return AiohttpResponse(response, provider=provider, timeouts=timeouts)

    def _get_session(self) -> aiohttp.ClientSession:
        if self._session is None:
            self._session = aiohttp.ClientSession(
                timeout=aiohttp.ClientTimeout(total=None),
                connector=_Connector(limit=0),
                cookie_jar=aiohttp.DummyCookieJar(),
                headers={"User-Agent": "cllm"},
                skip_auto_headers=("Accept-Encoding", "Content-Type"),
                max_line_size=MAX_HEADER_BYTES,
                max_field_size=MAX_HEADER_BYTES,
            )
        return self._session

    async def close(self) -> None:
        if self._session is not None:
            await self._session.close()
            self._session = None


@lru_cache(maxsize=100)
def _client_timeout(timeouts: Timeouts) -> aiohttp.ClientTimeout:
    return aiohttp.ClientTimeout(
        total=None, connect=timeouts.connect, sock_read=timeouts.first_byte
    )


def _describe_failure(error: aiohttp.ClientConnectorError) -> str:
    if isinstance(error, aiohttp.ClientConnectorDNSError):
        return "unknown host"
    if isinstance(error, aiohttp.ClientSSLError):
        return "TLS handshake failed"
    number = error.os_error.errno
    return os.strerror(number).lower() if number else "no connection"
