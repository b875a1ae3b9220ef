"""A client connection: uvicorn's protocol with limits on the time and size of request headers.

Data that is not HTTP gets an error of ours.
"""

import asyncio
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from cllm.server.http.errors import ApiError, ApiErrorCode, openai_error_response

if TYPE_CHECKING:
    from uvicorn._types import ASGI3Application, ASGIReceiveCallable, ASGISendCallable, Scope

WITHOUT_CHUNKS = "1.0"
"""This version of HTTP has no chunked encoding."""
END_OF_HEAD = b"\r\n\r\n"
# Some clients offer to upgrade to HTTP/2; the parser would then not read the body.
H2C_UPGRADE = b"\r\nupgrade: h2c\r\n"
HEADER_FRAMING = len(b": \r\n")
MAX_FRAMING = 8
"""Bytes of chunked encoding for each byte of body: a chunk of one byte has five."""


class HttpProtocol(HttpToolsProtocol):
    """The time limit of the headers starts with the connection, then with the first byte of each
    request. It also limits the rest of a body after the response. Chunk headers and trailers have
    a size limit too.
    """

    def __init__(self, *args: Any, head_bytes: int, head_seconds: float, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._head_bytes = head_bytes
        self._head_seconds = head_seconds
        self._in_head = self._in_body = False
        self._number = self._size = self._parsed = self._body = 0
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._start_timer()

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        number, in_body = self._number, self._in_body
        super().data_received(data if in_body else remove_h2c_upgrade(data))
        # Bytes after the end of the previous request are not counted.
        self._size += len(data) if self._number == number else 1
        if self._in_head:
            if self._size > self._head_bytes:
                self._reject_head()
            elif self._timer is None:
                self._start_timer()
        elif self._in_body and self._size > self._head_bytes + (1 + MAX_FRAMING) * self._body:
            self._reject(
                "request_too_large",
                "The body has too many chunks or trailers; send larger chunks and no trailers.",
            )

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._size, self._parsed = True, 0, 0
        self._number += 1

    def on_url(self, url: bytes) -> None:
        super().on_url(url)
        self._check_head(len(url))

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:
            super().on_header(name, value)
            self._check_head(len(name) + len(value) + HEADER_FRAMING)

    def _unsupported_upgrade_warning(self) -> None:
        """Log nothing: the response to a WebSocket request says what to do."""

    def _check_head(self, size: int) -> None:
        """Count what the parser has read: a whole head can arrive in one piece."""
        self._parsed += size
        if self._parsed > self._head_bytes:
            self._reject_head()
            # It ends the parser, so that the request is not handled.
            raise ValueError("The request head is too large.")

    def on_headers_complete(self) -> None:
        self._in_head, self._in_body = False, True
        self._size = self._body = 0
        self._stop_timer()
        super().on_headers_complete()

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: "ASGI3Application") -> None:
        if cycle.scope["http_version"] == WITHOUT_CHUNKS:
            app = cast("ASGI3Application", partial(_run_without_chunks, app, cycle))
        app = cast("ASGI3Application", partial(_run_until_cancelled, app, cycle))
        super()._start_asgi_task(cycle, app)

    def on_body(self, body: bytes) -> None:
        self._body += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        super().on_message_complete()
        self._in_body = False

    def on_response_complete(self) -> None:
        super().on_response_complete()
        if self.cycle.response_complete and self.cycle.more_body and self._timer is None:
            self._start_timer()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's message
        self._reject("invalid_request", "This is not a valid HTTP request; see /docs.")

    def _start_timer(self) -> None:
        self._timer = self.loop.call_later(self._head_seconds, self._time_out)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _time_out(self) -> None:
        self._timer = None
        if self._is_responding:
            self._start_timer()
        elif self._in_head:
            self._reject(
                "request_timeout",
                f"The request headers did not arrive within {self._head_seconds:g} s; try again.",
            )
        else:
            self.transport.close()

    @property
    def _is_responding(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _reject_head(self) -> None:
        self._reject(
            "request_too_large",
            f"Request headers may have at most {self._head_bytes} bytes; send fewer.",
        )

    def _reject(self, code: ApiErrorCode, message: str) -> None:
        if self.transport.is_closing():
            return
        if not (self._is_responding and self.cycle.response_started):
            self.transport.write(_encode_response(ApiError(code, message)))
        self.transport.close()


async def _run_until_cancelled(
    app: "ASGI3Application",
    cycle: RequestResponseCycle,
    scope: "Scope",
    receive: "ASGIReceiveCallable",
    send: "ASGISendCallable",
) -> None:
    """Disconnect if the server stops before the response ends; uvicorn would log an error."""
    try:
        await app(scope, receive, send)
    except asyncio.CancelledError:
        cycle.disconnected = True
        cycle.transport.abort()


async def _run_without_chunks(
    app: "ASGI3Application",
    cycle: RequestResponseCycle,
    scope: "Scope",
    receive: "ASGIReceiveCallable",
    send: "ASGISendCallable",
) -> None:
    """Send a stream as it is; the end of the connection is its end."""

    async def send_unchunked(message: Any) -> None:
        cycle.chunked_encoding = False
        # uvicorn compares it with the bytes that it sends.
        cycle.expected_content_length = len(message.get("body", b""))
        await send(message)

    await app(scope, receive, send_unchunked)


def remove_h2c_upgrade(data: bytes) -> bytes:
    end = data.find(END_OF_HEAD)
    head = data if end < 0 else data[: end + 2]
    start = head.lower().find(H2C_UPGRADE)
    return data if start < 0 else data[:start] + data[start + len(H2C_UPGRADE) - 2 :]


def _encode_response(error: ApiError) -> bytes:
    status, headers, body = openai_error_response(error)
    headers |= {"Content-Length": str(len(body)), "Connection": "close"}
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"]
    lines += [f"{name}: {value}" for name, value in headers.items()]
    return "\r\n".join((*lines, "", "")).encode("latin-1") + body
