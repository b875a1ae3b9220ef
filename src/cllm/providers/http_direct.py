"""The transport for servers: connections of our own that are used again, and a parser in C.

A request costs a third of what it costs through the pool of `http_pool`, which is asked wherever
an address is reached through a proxy. Only HTTP/1.1 is spoken.
"""

import asyncio
import os
import socket
import ssl
from collections import deque
from collections.abc import Mapping
from functools import lru_cache
from urllib.parse import urlsplit

import msgspec

from cllm.providers.http import (
    Http,
    Response,
    Take,
    Timeouts,
    broken_off,
    hung_up,
    not_http,
    proxy_for,
    silent,
    unpacked_by,
    unreachable,
)
from cllm.providers.http_line import Line

DEFAULT_PORTS = {"http": 80, "https": 443}
IDLE_SECONDS = 15.0
LINE_BREAKS = frozenset("\r\n\0")


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """Where a request goes: the machine, and the first lines of the request."""

    host: str
    port: int
    secure: bool
    head: str


@lru_cache(maxsize=1000)
def target_of(url: str) -> Target:
    """The target of an address; ValueError if it is none."""
    parts = urlsplit(url)
    if parts.scheme not in DEFAULT_PORTS or not parts.hostname or not url.isascii():
        raise ValueError(url)
    path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    _check_line(path)
    named = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    if parts.port is not None and parts.port != DEFAULT_PORTS[parts.scheme]:
        named = f"{named}:{parts.port}"
    return Target(
        host=parts.hostname,
        port=parts.port or DEFAULT_PORTS[parts.scheme],
        secure=parts.scheme == "https",
        head=f"POST {path} HTTP/1.1\r\nHost: {named}\r\nAccept: */*\r\nUser-Agent: cllm\r\n",
    )


class DirectResponse(Response):
    """An answer that comes over a line."""

    def __init__(
        self, line: Line, pool: "DirectHttp", target: Target, *, provider: str, timeouts: Timeouts
    ) -> None:
        super().__init__(provider=provider, timeouts=timeouts)
        self.status = line.status
        self.headers: Mapping[str, str] = line.headers
        self._line: Line | None = line
        self._pool = pool
        self._target = target
        self._unpack = unpacked_by(self.headers.get("Content-Encoding", ""))
        self._unpacked: deque[bytes] = deque()

    async def _next(self, limit: float) -> bytes:
        while not self._unpacked:
            piece = await self._arrived(limit)
            if not piece or self._unpack is None:
                return piece
            try:
                self._unpacked.extend(self._unpack(piece))
            except ValueError as error:
                raise broken_off(self._provider) from error
        return self._unpacked.popleft()

    async def hand_on(self, take: Take) -> None:
        if self._line is None or self._unpack is not None or self._unpacked:
            return

        def counted(piece: bytes) -> bool:
            self._count(piece)
            return take(piece)

        limit = self._timeouts.idle
        try:
            await self._line.give(counted, limit)
        except TimeoutError as error:
            raise silent(self._provider, limit) from error

    async def _arrived(self, limit: float) -> bytes:
        line = self._line
        if line is None:
            return b""
        # What is there already needs no timer.
        piece = line.taken()
        if not piece and not (line.is_whole or line.is_broken):
            try:
                piece = await line.more(limit)
            except TimeoutError as error:
                raise silent(self._provider, limit) from error
        if not piece and line.is_broken:
            raise broken_off(self._provider)
        return piece

    async def close(self) -> None:
        line, self._line = self._line, None
        if line is not None:
            self._pool.give_back(line, self._target)


class DirectHttp:
    """Lines to providers, each of them used again while it is open."""

    def __init__(self) -> None:
        self._free: dict[tuple[str, int, bool], deque[Line]] = {}
        self._secure: ssl.SSLContext | None = None
        self._proxied: Http | None = None
        self._sweeping: asyncio.TimerHandle | None = None

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
        if proxy_for(url) is not None:
            return await self._pooled().post(
                url, headers=headers, body=body, provider=provider, timeouts=timeouts
            )
        try:
            target = target_of(url)
            data = _encoded(target, headers, body)
        except ValueError as error:
            raise unreachable(provider, url, "not a valid address") from error
        line = self._taken(target) or await self._opened(target, url, provider, timeouts)
        try:
            line.send(data)
            await line.head(timeouts.first_byte)
        except TimeoutError as error:
            line.close()
            raise silent(provider, timeouts.first_byte) from error
        except asyncio.CancelledError:
            line.close()
            raise
        if line.is_nonsense:
            raise not_http(provider, url)
        if not line.has_head:
            raise hung_up(provider)
        return DirectResponse(line, self, target, provider=provider, timeouts=timeouts)

    def give_back(self, line: Line, target: Target) -> None:
        """A line is free again, or of no more use."""
        if not (line.is_open and line.is_whole and line.keeps_open):
            line.close()
            return
        loop = asyncio.get_running_loop()
        line.free_since = loop.time()
        place = (target.host, target.port, target.secure)
        self._free.setdefault(place, deque()).append(line)
        if self._sweeping is None:
            self._sweeping = loop.call_later(IDLE_SECONDS, self._sweep)

    def _taken(self, target: Target) -> Line | None:
        free = self._free.get((target.host, target.port, target.secure))
        while free:
            line = free.pop()
            if line.is_open:
                return line
        return None

    def _sweep(self) -> None:
        """Close what nobody used for a while."""
        loop = asyncio.get_running_loop()
        self._sweeping = None
        for place, free in list(self._free.items()):
            while free and loop.time() - free[0].free_since >= IDLE_SECONDS:
                free.popleft().close()
            if not free:
                del self._free[place]
        if self._free:
            self._sweeping = loop.call_later(IDLE_SECONDS / 3, self._sweep)

    async def _opened(self, target: Target, url: str, provider: str, timeouts: Timeouts) -> Line:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeouts.connect):
                _, line = await loop.create_connection(
                    Line, target.host, target.port, ssl=self._context() if target.secure else None
                )
        except TimeoutError as error:
            reason = f"no answer in {timeouts.connect:g} s"
            raise unreachable(provider, url, reason) from error
        except ssl.SSLError as error:
            raise unreachable(provider, url, "the secure connection failed") from error
        except socket.gaierror as error:
            raise unreachable(provider, url, "the host is not known") from error
        except (OSError, UnicodeError) as error:
            number = error.errno if isinstance(error, OSError) else None
            reason = os.strerror(number).lower() if number else "no connection"
            raise unreachable(provider, url, reason) from error
        return line

    def _context(self) -> ssl.SSLContext:
        if self._secure is None:
            self._secure = ssl.create_default_context()
        return self._secure

    def _pooled(self) -> Http:
        if self._proxied is None:
            from cllm.providers.http_pool import PooledHttp  # noqa: PLC0415 - slow to load

            self._proxied = PooledHttp()
        return self._proxied

    async def close(self) -> None:
        if self._sweeping is not None:
            self._sweeping.cancel()
            self._sweeping = None
        for free in self._free.values():
            for line in free:
                line.close()
        self._free.clear()
        if self._proxied is not None:
            await self._proxied.close()
            self._proxied = None


def _encoded(target: Target, headers: Mapping[str, str], body: bytes) -> bytes:
    """The whole request; ValueError for a header that would be more than one line."""
    lines = [target.head]
    for name, value in headers.items():
        _check_line(name)
        _check_line(value)
        lines.append(f"{name}: {value}\r\n")
    lines.append(f"Content-Length: {len(body)}\r\n\r\n")
    return "".join(lines).encode() + body


def _check_line(text: str) -> None:
    if not LINE_BREAKS.isdisjoint(text):
        raise ValueError("a line break")
