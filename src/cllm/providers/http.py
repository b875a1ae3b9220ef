"""HTTP to providers, as a seam: `post`, then `read` or `chunks` of its response, then `close`.

Two transports stand behind it: a pool of connections for programs that ask often, and one that
costs little to load for a command that asks once. For both: redirects are not followed, because a
request carries a key; time-outs are for connecting, the first byte and silence, never for a whole
answer; and a proxy is never used for this machine itself.
"""

import ipaddress
import zlib
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from functools import lru_cache
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
PIECE_BYTES = 65536
ANY_ZLIB_HEADER = 32


class Timeouts(msgspec.Struct, frozen=True, kw_only=True):
    """Seconds: to connect, until the first byte of the answer, and between two pieces of it."""

    connect: float = 10
    first_byte: float = 600
    idle: float = 120


class Response(ABC):
    """An answer whose status is known and whose body is still to be read."""

    status: int
    headers: Mapping[str, str]

    def __init__(self, *, provider: str, timeouts: Timeouts) -> None:
        self._provider = provider
        self._timeouts = timeouts
        self._size = 0

    async def chunks(self) -> AsyncIterator[bytes]:
        """The body in pieces, as they come."""
        limit = self._timeouts.first_byte
        while piece := await self._next(limit):
            self._count(piece)
            yield piece
            limit = self._timeouts.idle

    async def read(self) -> bytes:
        """The whole body."""
        return b"".join([piece async for piece in self.chunks()])

    def _count(self, piece: bytes) -> None:
        self._size += len(piece)
        if self._size > MAX_ANSWER_BYTES:
            raise BadReplyError(
                f"Provider '{self._provider}' sent more than {MAX_ANSWER_BYTES} bytes in one "
                "answer; check its address.",
                provider=self._provider,
            )

    @abstractmethod
    async def _next(self, limit: float) -> bytes:
        """The next piece, within so many seconds; nothing at the end."""

    @abstractmethod
    async def close(self) -> None:
        """Let the connection go; the provider sees that nobody listens any more."""


class Http(Protocol):
    """What a provider needs of a transport."""

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
        ...

    async def close(self) -> None: ...


def proxy_for(url: str) -> str | None:
    """The proxy that the environment names for this address; none for this machine itself."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    if _is_loopback(host):
        return None
    import urllib.request  # noqa: PLC0415 - only where an address is not this machine's

    if urllib.request.proxy_bypass(host):
        return None
    return urllib.request.getproxies().get(parts.scheme)


@lru_cache(maxsize=100)
def _is_loopback(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def shown(url: str) -> str:
    """The address without anything that could be a secret in it."""
    try:
        parts = urlsplit(url)
        port = "" if parts.port is None else f":{parts.port}"
    except ValueError:
        return "its address"
    return f"{parts.scheme}://{parts.hostname}{port}"


def unreachable(provider: str, url: str, reason: str) -> UnreachableError:
    return UnreachableError(
        f"Cannot reach provider '{provider}' at {shown(url)} ({reason}); "
        "check that it is running and that api_base is right.",
        provider=provider,
    )


def silent(provider: str, limit: float) -> ProviderTimeoutError:
    return ProviderTimeoutError(
        f"Provider '{provider}' sent nothing for {limit:g} s; ask again, or raise `timeout`.",
        provider=provider,
    )


def hung_up(provider: str) -> BrokenStreamError:
    return BrokenStreamError(
        f"Provider '{provider}' closed the connection without an answer; ask again.",
        provider=provider,
    )


def broken_off(provider: str) -> BrokenStreamError:
    return BrokenStreamError(
        f"Provider '{provider}' broke off its answer; ask again.", provider=provider
    )


def not_http(provider: str, url: str) -> BadReplyError:
    return BadReplyError(
        f"Provider '{provider}' did not answer in HTTP; check its address {shown(url)}.",
        provider=provider,
    )


def unpacked_by(encoding: str) -> Callable[[bytes], Iterator[bytes]] | None:
    """What undoes a compression that was not asked for; some servers compress all the same.

    ValueError for what is not compressed so. None where there is nothing to undo.
    """
    if encoding.lower() not in ("gzip", "deflate"):
        return None
    inflater = zlib.decompressobj(wbits=zlib.MAX_WBITS | ANY_ZLIB_HEADER)

    def unpack(piece: bytes) -> Iterator[bytes]:
        while piece:
            try:
                unpacked = inflater.decompress(piece, PIECE_BYTES)
            except zlib.error as error:
                raise ValueError("not compressed") from error
            if unpacked:
                yield unpacked
            piece = inflater.unconsumed_tail

    return unpack
