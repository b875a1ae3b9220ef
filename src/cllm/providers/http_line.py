"""One connection to a server, and what comes of the answer on it, read by a parser in C."""

import asyncio
from collections import deque
from collections.abc import Mapping
from typing import cast

import httptools

from cllm.providers.http import Take

MOST_WAITING = 256 * 1024
LONGEST_HEAD = 64 * 1024
SWITCHING = 101


class Line(asyncio.Protocol):
    """One connection to a provider: a request out, an answer in, and then the next."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._transport: asyncio.Transport | None = None
        self._waiting: asyncio.Future[None] | None = None
        self._take: Take | None = None
        self._patience = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._until = self._rings_at = 0.0
        self._paused = False
        self.is_open = False
        self.free_since = 0.0
        self._begin()

    def _begin(self) -> None:
        self._pieces: deque[bytes] = deque()
        # A stream has many pieces: the parser puts them there itself.
        self.on_body = self._pieces.append
        self._parser = httptools.HttpResponseParser(self)
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

    async def give(self, take: Take, limit: float) -> None:
        """Give what comes to `take` as it comes; until it has enough, or nothing can come.

        TimeoutError if nothing comes for so long. What `take` raises is raised here.
        """
        if self._pieces or self.is_whole or self.is_broken:
            return
        self._take, self._patience = take, limit
        try:
            await self._wait(self._loop.time() + limit)
        finally:
            self._take = None

    def _given(self) -> bool:
        """Whether what has come was taken, and more may come; else who waits has to be woken."""
        waits = self._waiting is not None and not self._waiting.done()
        if self._take is None or not waits or self.is_broken:
            return False
        piece = self.taken()
        try:
            wanted = not piece or self._take(piece)
        except Exception as error:  # noqa: BLE001 - it belongs to who waits, not to the loop
            assert self._waiting is not None  # noqa: S101 - just seen
            self._waiting.set_exception(error)
            return True
        if piece:
            self._until = self._loop.time() + self._patience
        return wanted and not self.is_whole

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
        self._size += len(data)
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade):
            self._give_up()
        if not self.has_head and self._head_size > LONGEST_HEAD:
            self._give_up()
        if self._surplus:
            self.close()
        if self._size > MOST_WAITING:
            self._pause()
        if not self._given():
            self._wake()

    def _pause(self) -> None:
        """Let the other side wait until what has come is taken."""
        if self._pieces and not self._paused and self._transport is not None:
            self._paused = True
            self._transport.pause_reading()

    def _give_up(self) -> None:
        self.is_nonsense = not self.has_head
        self.is_broken = not self.is_whole
        self.keeps_open = False
        self.close()

    def on_message_begin(self) -> None:
        if self.is_whole:
            # Nobody asked for another answer, and it must not be taken for that to the next, nor
            # for more of this one: it goes where nobody looks.
            self._surplus = True
            self._pieces = self._pieces.copy()
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

    def on_message_complete(self) -> None:
        if not self._interim:
            self.is_whole = True


def _ends_with_connection(headers: Mapping[str, str]) -> bool:
    """Whether nothing in the head of an answer says where its body ends."""
    chunked = "chunked" in headers.get("Transfer-Encoding", "").lower()
    return not chunked and "Content-Length" not in headers
