"""The requests, replies and response steps of the fake provider, and gates that hold a response."""

import asyncio
import contextlib
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

WAIT = 60.0
"""The timeout in seconds of a wait for an event that must happen."""


class Gate:
    """Holds a response until the test opens it, and reports when the response has reached it."""

    def __init__(self) -> None:
        self._reached = threading.Event()
        self._opened = threading.Event()
        self._waiters: list[tuple[asyncio.AbstractEventLoop, asyncio.Event]] = []
        self._lock = threading.Lock()

    def wait_reached(self, timeout: float = WAIT) -> None:
        if not self._reached.wait(timeout):
            raise TimeoutError("no response reached the gate")

    def open(self) -> None:
        with self._lock:
            self._opened.set()
            waiters, self._waiters = self._waiters, []
        for loop, event in waiters:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(event.set)

    async def wait_open(self) -> None:
        event = asyncio.Event()
        with self._lock:
            if self._opened.is_set():
                event.set()
            else:
                self._waiters.append((asyncio.get_running_loop(), event))
        self._reached.set()
        await event.wait()


@dataclass(frozen=True, kw_only=True)
class Head:
    """The status line and headers. With `chunked` the data is sent in HTTP chunks."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict)
    chunked: bool = False


@dataclass(frozen=True)
class Send:
    data: bytes


@dataclass(frozen=True)
class Hold:
    gate: Gate


@dataclass(frozen=True)
class Silence:
    """Send nothing more; the connection stays open until the client closes it."""


@dataclass(frozen=True)
class Cut:
    """Close the connection before the end of the HTTP response."""


Step = Head | Send | Hold | Silence | Cut


@dataclass(frozen=True, kw_only=True)
class ToolCall:
    """A call. The arguments of a custom tool, which only the Responses API has, are plain text."""

    id: str
    name: str
    arguments: str
    is_custom: bool = False


@dataclass(frozen=True, kw_only=True)
class Reply:
    """The model's reply in pieces, and the faults of its transmission.

    `hold`: a gate before piece number N (N = the number of pieces: before the end). `stop_after`:
    end the stream after this many pieces, abruptly or not (`abrupt`); after all pieces the finish
    reason has been sent. `finish` None: send no finish reason. `done` False: omit the stream's last
    marker. `packet`: the size of the writes of an event. `error`: the type and message of an error
    in the middle of a stream, at `stop_after`. `signature`: sent with the reasoning if the protocol
    has one. `cached`: tokens read from and written to the cache, which Anthropic and Bedrock count
    separately from the input. `text_first`: Anthropic's reply has the text before the tool calls,
    as that of the Responses API always has.
    """

    pieces: tuple[str, ...] = ()
    reasoning: tuple[str, ...] = ()
    signature: str = "c2lnbmVk"
    tool_calls: tuple[ToolCall, ...] = ()
    finish: str | None = "stop"
    usage: tuple[int, int] | None = (11, 7)
    cached: tuple[int, int] | None = None
    hold: Mapping[int, Gate] = field(default_factory=dict)
    stop_after: int | None = None
    abrupt: bool = True
    error: tuple[str, str] | None = None
    done: bool = True
    garbage_before: int | None = None
    line_end: str = "\n"
    comments: bool = False
    packet: int | None = None
    text_first: bool = False

    @property
    def text(self) -> str:
        return "".join(self.pieces)


@dataclass(kw_only=True)
class Request:
    """A received request, and whether it was answered or the client disconnected."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes
    received_at: float
    json: Any = None
    answered: threading.Event = field(default_factory=threading.Event)
    disconnected: threading.Event = field(default_factory=threading.Event)

    @property
    def messages(self) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = self.json["messages"]
        return messages

    @property
    def message_pairs(self) -> list[tuple[str, Any]]:
        """The messages as pairs of role and content."""
        return [(message["role"], message.get("content")) for message in self.messages]

    def wait_disconnected(self, timeout: float = WAIT) -> None:
        if not self.disconnected.wait(timeout):
            raise TimeoutError("the client did not disconnect")


Answer = Reply | tuple[Step, ...]
Refuse = Callable[[Request], str | None]
"""Returns the message of an error with status 400, or None to accept the request."""
Choose = Callable[[Request], Reply | None]
"""Returns the reply to a request, or None to use the next queued reply."""


class WireProtocol(Protocol):
    """Converts a reply to the response of one protocol."""

    def echo(self, request: Request) -> Reply: ...

    def steps(self, reply: Reply, request: Request, number: int) -> tuple[Step, ...]: ...

    def error(self, status: int, message: str, code: str | None) -> bytes: ...

    def error_headers(self, status: int, code: str | None) -> dict[str, str]: ...
