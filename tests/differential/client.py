"""A minimal HTTP/1.1 client that returns responses unchanged.

The body is the joined content of the chunks; the boundaries of network packets are not part of the
result. A connection is reused if the response allows it, but not after a pause, when the server may
be about to close it.
"""

import asyncio
import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass

WAIT_SECONDS = 30.0
IDLE_SECONDS = 1.0
EVENT_END = b"\n\n"


@dataclass(frozen=True, kw_only=True)
class Response:
    """A response, or the part of it that was received. `problem` says why it is incomplete."""

    status: str = ""
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    problem: str = ""

    def header(self, name: str) -> str | None:
        values = [value for key, value in self.headers if key.lower() == name.lower()]
        return values[0] if values else None


class Client:
    """Sends requests to one server, one after another over one connection."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._idle: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._used_at = 0.0

    async def send(
        self,
        method: str,
        path: str,
        headers: Mapping[str, str],
        body: bytes | None,
        *,
        leave_after: int | None = None,
        started_event: asyncio.Event | None = None,
    ) -> Response:
        """Send a request. `started_event` is set when the response body starts."""
        lines = [f"{method} {path} HTTP/1.1"]
        all_headers = {"Host": f"127.0.0.1:{self._port}", **headers}
        if body is not None:
            all_headers = {"Content-Type": "application/json", **all_headers}
            all_headers["Content-Length"] = str(len(body))
        lines += [f"{name}: {value}" for name, value in all_headers.items()]
        data = "\r\n".join([*lines, "", ""]).encode("utf-8") + (body or b"")
        head_only = method == "HEAD"
        return await self.send_raw(
            data, leave_after=leave_after, head_only=head_only, started_event=started_event
        )

    async def send_raw(
        self,
        data: bytes,
        *,
        leave_after: int | None = None,
        head_only: bool = False,
        started_event: asyncio.Event | None = None,
    ) -> Response:
        """Send these bytes and read one response, or its first `leave_after` events."""
        progress = _Progress(started_event)
        try:
            reader, writer = await self._connection()
        except OSError:
            return Response(problem="no connection")
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                writer.write(data)
                # A server may respond before it has read the complete request.
                with contextlib.suppress(ConnectionError):
                    await writer.drain()
                await _read_head(reader, progress)
                if not head_only:
                    await _read_body(reader, progress, leave_after)
        except TimeoutError:
            progress.problem = "timeout"
        except (asyncio.IncompleteReadError, asyncio.LimitOverrunError, ConnectionError) as error:
            if isinstance(error, asyncio.IncompleteReadError):
                progress.body += error.partial
            progress.problem = "broken off"
        except ValueError:
            progress.problem = "not HTTP"
        if progress.keep_alive and not progress.problem:
            self._idle = (reader, writer)
            self._used_at = time.monotonic()
        else:
            await _close(writer)
        return progress.response()

    async def close(self) -> None:
        if self._idle is not None:
            await _close(self._idle[1])
            self._idle = None

    async def _connection(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if self._idle is not None:
            (reader, writer), self._idle = self._idle, None
            is_fresh = time.monotonic() - self._used_at < IDLE_SECONDS
            if is_fresh and not reader.at_eof() and not writer.is_closing():
                return reader, writer
            await _close(writer)
        return await asyncio.open_connection("127.0.0.1", self._port, limit=1 << 26)


class _Progress:
    """The part of a response that has been read."""

    def __init__(self, started_event: asyncio.Event | None) -> None:
        self.started_event = started_event or asyncio.Event()
        self.status = ""
        self.headers: list[tuple[str, str]] = []
        self.body = bytearray()
        self.problem = ""
        self.keep_alive = False

    def header(self, name: str) -> str:
        return next((value for key, value in self.headers if key.lower() == name), "")

    def response(self) -> Response:
        return Response(
            status=self.status,
            headers=tuple(self.headers),
            body=bytes(self.body),
            problem=self.problem,
        )


async def _read_head(reader: asyncio.StreamReader, progress: _Progress) -> None:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode("latin-1").rstrip("\r\n").split("\r\n")
    _, progress.status = first.split(" ", 1)
    for line in lines:
        name, _, value = line.partition(":")
        progress.headers.append((name, value.strip()))
    progress.keep_alive = progress.header("connection").lower() != "close"


async def _read_body(
    reader: asyncio.StreamReader, progress: _Progress, leave_after: int | None
) -> None:
    if progress.status.startswith(("204", "304")):
        return
    if progress.header("transfer-encoding").lower() == "chunked":
        while size := int((await reader.readline()).split(b";")[0], 16):
            progress.body += await reader.readexactly(size)
            progress.started_event.set()
            await reader.readexactly(2)
            if leave_after is not None and progress.body.count(EVENT_END) >= leave_after:
                _truncate(progress, leave_after)
                return
        await reader.readline()
        return
    if length := progress.header("content-length"):
        progress.body += await reader.readexactly(int(length))
        return
    progress.keep_alive = False
    progress.body += await reader.read()


def _truncate(progress: _Progress, events: int) -> None:
    """Discard later events: how many have arrived depends on timing."""
    first = bytes(progress.body).split(EVENT_END)[:events]
    progress.body[:] = EVENT_END.join(first) + EVENT_END
    progress.keep_alive = False


async def _close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()
