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
from typing import cast
from urllib.parse import urlsplit

import httptools
import msgspec

from cllm.providers.http import (
    Http,
    Response,
    Timeouts,
    broken_off,
    hung_up,
    not_http,
    proxy_for,
    silent,
    unpacked_by,
    unreachable,
)

DEFAULT_PORTS = {"http": 80, "https": 443}
IDLE_SECONDS = 15.0
MOST_WAITING = 256 * 1024
LONGEST_HEAD = 64 * 1024
SWITCHING = 101
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


class Line(asyncio.Protocol):
    """One connection to a provider: a request out, an answer in, and then the next."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._waiting: asyncio.Future[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._until = self._rings_at = 0.0
        self._paused = False
        self.is_open = False
        self.free_since = 0.0
        self._begin()

    def _begin(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._pieces: deque[bytes] = deque()
        self._size = 0
        self._head_size = 0
        self._interim = self._surplus = False
        self.status = 0
        self.headers: dict[str, str] = {}
        self.has_head = self.is_whole = self.keeps_open = False
        self.is_broken = self.is_nonsense = False

    def send(self, data: bytes) -> None:
        """Begin a new exchange; over a line that was lost meanwhile there is none."""
        self._begin()
        if self._transport is None or not self.is_open:
            self.is_broken = True
            return
        if self._paused:
            self._paused = False
            self._transport.resume_reading()
        self._transport.write(data)

    async def head(self, limit: float) -> None:
        """Wait for the head of the answer, or the end of the connection; TimeoutError if late."""
        until = self._loop.time() + limit
        while not (self.has_head or self.is_broken or self.is_whole):
            await self._wait(until)

    async def more(self, limit: float) -> bytes:
        """What has come of the body; nothing at its end or at that of the connection."""
        until = self._loop.time() + limit
        while not (self._pieces or self.is_whole or self.is_broken):
            await self._wait(until)
        return self.taken()

    def taken(self) -> bytes:
        """What has come of the body so far."""
        if not self._pieces:
            return b""
        data = self._pieces[0] if len(self._pieces) == 1 else b"".join(self._pieces)
        self._pieces.clear()
        self._size = 0
        if self._paused and self._transport is not None and self.is_open:
            self._paused = False
            self._transport.resume_reading()
        return data

    def close(self) -> None:
        self.is_open = False
        if self._transport is not None:
            self._transport.abort()

    async def _wait(self, until: float) -> None:
        self._waiting, self._until = self._loop.create_future(), until
        if self._timer is None or self._rings_at > until:
            self._set_timer(until)
        try:
            await self._waiting
        finally:
            self._waiting = None

    def _set_timer(self, at: float) -> None:
        """One timer for many waits: a piece of a stream costs less than a timer of its own."""
        self._stop_timer()
        self._rings_at = at
        self._timer = self._loop.call_at(at, self._look)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        """Whether what is waited for is late; the timer may be that of a wait before."""
        self._timer = None
        if self._waiting is None or self._waiting.done():
            return
        if self._loop.time() < self._until:
            self._set_timer(self._until)
        else:
            self._waiting.set_exception(TimeoutError())

    def _wake(self) -> None:
        if self._waiting is not None and not self._waiting.done():
            self._waiting.set_result(None)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Other event loops have transports of their own, which are none of these by their class.
        self._transport = cast("asyncio.Transport", transport)
        self.is_open = True

    def connection_lost(self, _reason: Exception | None) -> None:
        self.is_open = False
        self._stop_timer()
        if self.has_head and not self.is_whole and _ends_with_connection(self.headers):
            self.is_whole = True
        self.is_broken = not self.is_whole
        self._wake()

    def data_received(self, data: bytes) -> None:
        if self.is_whole:
            self.close()
            return
        if not self.has_head:
            self._head_size += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._give_up()
        if not self.has_head and self._head_size > LONGEST_HEAD:
            self._give_up()
        if self._surplus:
            self.close()
        if self._size > MOST_WAITING and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()
        self._wake()

    def _give_up(self) -> None:
        self.is_nonsense = not self.has_head
        self.is_broken = not self.is_whole
        self.keeps_open = False
        self.close()

    def on_message_begin(self) -> None:
        if self.is_whole:
            # Nobody asked for another answer, and it must not be taken for that to the next.
            self._surplus = True
        else:
            self.headers = {}

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._surplus:
            return
        self.headers[name.decode("latin-1").title()] = value.decode("latin-1")

    def on_headers_complete(self) -> None:
        if self._surplus:
            return
        status = self._parser.get_status_code()
        self._interim = status // 100 == 1 and status != SWITCHING
        if not self._interim:
            self.status, self.has_head = status, True
            self.keeps_open = self._parser.should_keep_alive()

    def on_body(self, body: bytes) -> None:
        if self._surplus:
            return
        self._pieces.append(body)
        self._size += len(body)

    def on_message_complete(self) -> None:
        if not self._interim:
            self.is_whole = True


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


def _ends_with_connection(headers: Mapping[str, str]) -> bool:
    """Whether nothing in the head of an answer says where its body ends."""
    chunked = "chunked" in headers.get("Transfer-Encoding", "").lower()
    return not chunked and "Content-Length" not in headers
