"""The interface of HTTP transports.

No transport follows redirects: a request carries a key. No timeout covers a whole response.
"""

import ipaddress
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Mapping
from typing import Protocol
from urllib.parse import urlsplit

import msgspec

from cllm.core.errors import (
    BadReplyError,
    BrokenStreamError,
    ProviderTimeoutError,
    UnreachableError,
)

MAX_INTERIM_RESPONSES = 100
MAX_RESPONSE_BYTES = 256 * 1024 * 1024


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """In seconds; `idle` applies between two chunks of a response."""

    connect: float = 10
    first_byte: float = 600
    idle: float = 120


class HttpResponse(ABC):
    """A response whose head has arrived."""

    status: int
    headers: Mapping[str, str]

    def __init__(self, *, provider: str, timeouts: Timeouts) -> None:
        self._provider = provider
        self._timeouts = timeouts

    async def chunks(self, *, max_bytes: int | None = None) -> AsyncIterator[bytes]:
        size, max_size = 0, MAX_RESPONSE_BYTES if max_bytes is None else max_bytes
        limit = self._timeouts.first_byte
        while chunk := await self._read_chunk(limit):
            size += len(chunk)
            if size > max_size:
                raise BadReplyError(
                    f"Provider '{self._provider}' sent more than {max_size} bytes in one "
                    "response; check api_base.",
                    provider=self._provider,
                )
            yield chunk
            limit = self._timeouts.idle

    async def read(self, *, max_bytes: int | None = None) -> bytes:
        return b"".join([chunk async for chunk in self.chunks(max_bytes=max_bytes)])

    @abstractmethod
    async def _read_chunk(self, limit: float) -> bytes:
        """Empty at the end; ProviderTimeoutError after `limit` seconds."""

    @abstractmethod
    async def close(self) -> None:
        """Close the connection unless the response is complete."""


class HttpTransport(Protocol):
    async def post(
        self,
        url: str,
        *,
        headers: Mapping[str, str],
        body: bytes,
        provider: str,
        timeouts: Timeouts,
    ) -> HttpResponse:
        """Send a request and wait for the head of the response."""
        ...

    async def close(self) -> None: ...


def find_proxy(url: str) -> str | None:
    """Return the proxy from the environment; None for loopback."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if _is_loopback(host):
        return None
    import urllib.request  # noqa: PLC0415 - slow to load, and not needed for loopback

    proxy = urllib.request.getproxies().get(parts.scheme)
    return None if proxy is None or urllib.request.proxy_bypass(host) else proxy


def _is_loopback(host: str) -> bool:
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def format_origin(url: str) -> str:
    """Return scheme, host and port for an error message, without credentials or a path."""
    try:
        parts = urlsplit(url)
        port = "" if parts.port is None else f":{parts.port}"
    except ValueError:
        return "its address"
    return f"{parts.scheme}://{parts.hostname}{port}"


def unreachable_error(provider: str, url: str, reason: str) -> UnreachableError:
    return UnreachableError(
        f"Cannot reach provider '{provider}' at {format_origin(url)} ({reason}); "
        "check that it is running and that api_base is correct.",
        provider=provider,
    )


def timeout_error(provider: str, limit: float) -> ProviderTimeoutError:
    return ProviderTimeoutError(
        f"Provider '{provider}' sent nothing for {limit:g} s; try again, or increase `timeout`.",
        provider=provider,
    )


def connection_closed_error(provider: str) -> BrokenStreamError:
    return BrokenStreamError(
        f"Provider '{provider}' closed the connection without a response; try again.",
        provider=provider,
    )


def stream_broken_error(provider: str) -> BrokenStreamError:
    return BrokenStreamError(
        f"Provider '{provider}' closed the connection before the reply was complete; try again.",
        provider=provider,
    )


def not_http_error(provider: str, url: str) -> BadReplyError:
    return BadReplyError(
        f"Provider '{provider}' at {format_origin(url)} did not send valid HTTP; check api_base.",
        provider=provider,
    )
