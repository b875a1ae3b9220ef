"""A client connection: uvicorn's protocol with limits on the time and size of request headers.

Data that is not HTTP gets an error of ours.
"""

import asyncio
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from cllm.server.http.errors import ApiError, openai_error_response

END_OF_HEAD = b"\r\n\r\n"
# Some clients offer to upgrade to HTTP/2; the parser would then not read the body.
H2C_UPGRADE = b"\r\nupgrade: h2c\r\n"
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
        self._number = self._size = self._body = 0
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
                self._reject(
                    "request_too_large",
                    f"Request headers may have at most {self._head_bytes} bytes; send fewer.",
                )
            elif self._timer is None:
                self._start_timer()
        elif self._in_body and self._size > self._head_bytes + (1 + MAX_FRAMING) * self._body:
            self._reject(
                "request_too_large",
                "The body has too many chunks or trailers; send larger chunks and no trailers.",
            )

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head, self._size = True, 0
        self._number += 1

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._in_head:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head, self._in_body = False, True
        self._size = self._body = 0
        self._stop_timer()
        super().on_headers_complete()

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

    def _reject(self, code: str, message: str) -> None:
        if self.transport.is_closing():
            return
        if not (self._is_responding and self.cycle.response_started):
            self.transport.write(_encode_response(ApiError(code, message)))
        self.transport.close()


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
