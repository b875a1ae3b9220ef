"""The interface of HTTP transports.

No transport follows redirects: a request carries a key. No time-out covers a whole response.
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

MAX_ANSWER_BYTES = 256 * 1024 * 1024


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds; `idle` is between two pieces of a response."""

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

    async def chunks(self) -> AsyncIterator[bytes]:
        size = 0
        limit = self._timeouts.first_byte
        while piece := await self._next(limit):
            size += len(piece)
            if size > MAX_ANSWER_BYTES:
                raise BadReplyError(
                    f"Provider '{self._provider}' sent more than {MAX_ANSWER_BYTES} bytes in one "
                    "answer; check its address.",
                    provider=self._provider,
                )
            yield piece
            limit = self._timeouts.idle

    async def read(self) -> bytes:
        return b"".join([piece async for piece in self.chunks()])

    @abstractmethod
    async def _next(self, limit: float) -> bytes:
        """The next piece; empty at the end."""

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
    """The proxy from the environment; never one for loopback."""
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
    """The address for an error, without what can be secret."""
    try:
        parts = urlsplit(url)
        port = "" if parts.port is None else f":{parts.port}"
    except ValueError:
        return "its address"
    return f"{parts.scheme}://{parts.hostname}{port}"


def unreachable_error(provider: str, url: str, reason: str) -> UnreachableError:
    return UnreachableError(
        f"Cannot reach provider '{provider}' at {format_origin(url)} ({reason}); "
        "check that it is running and that api_base is right.",
        provider=provider,
    )


def timeout_error(provider: str, limit: float) -> ProviderTimeoutError:
    return ProviderTimeoutError(
        f"Provider '{provider}' sent nothing for {limit:g} s; ask again, or raise `timeout`.",
        provider=provider,
    )


def connection_closed_error(provider: str) -> BrokenStreamError:
    return BrokenStreamError(
        f"Provider '{provider}' closed the connection without an answer; ask again.",
        provider=provider,
    )


def stream_broken_error(provider: str) -> BrokenStreamError:
    return BrokenStreamError(
        f"Provider '{provider}' broke off its answer; ask again.", provider=provider
    )


def not_http_error(provider: str, url: str) -> BadReplyError:
    return BadReplyError(
        f"Provider '{provider}' did not answer in HTTP; check its address {format_origin(url)}.",
        provider=provider,
    )
