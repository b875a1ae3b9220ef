"""A client's connection: uvicorn's protocol with limits on the time and size of a request's head.

Also answers what is not HTTP.
"""

import asyncio
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from cllm.server.http.errors import ApiError, openai_error_response

END_OF_HEAD = b"\r\n\r\n"
# Some clients offer HTTP/2. The parser would not read the body then.
H2C_UPGRADE = b"\r\nupgrade: h2c\r\n"
MAX_FRAMING = 8
"""Bytes of framing per byte of a body: chunks of one byte have five."""


class HttpProtocol(HttpToolsProtocol):
    """One connection with limits on the head of a request.

    The time starts with the connection, then with the first byte of each request. It also limits
    the rest of a body whose request is already answered. Chunk sizes and trailers are limited too.
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
                self._refuse(
                    "request_too_large",
                    f"The head of a request may have at most {self._head_bytes} bytes; send less.",
                )
            elif self._timer is None:
                self._start_timer()
        elif self._in_body and self._size > self._head_bytes + (1 + MAX_FRAMING) * self._body:
            self._refuse(
                "request_too_large",
                "Too much came with the body that is none of it; send the body in larger pieces, "
                "and no headers behind it.",
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

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's words, not ours
        self._refuse("invalid_request", "This is not an HTTP request; see /docs.")

    def _start_timer(self) -> None:
        self._timer = self.loop.call_later(self._head_seconds, self._time_out)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _time_out(self) -> None:
        self._timer = None
        if self._is_answering:
            self._start_timer()
        elif self._in_head:
            self._refuse(
                "request_timeout",
                f"The head of the request did not come within {self._head_seconds:g} s; try again.",
            )
        else:
            self.transport.close()

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _refuse(self, code: str, message: str) -> None:
        if self.transport.is_closing():
            return
        if not (self._is_answering and self.cycle.response_started):
            self.transport.write(_encode_response(ApiError(code, message)))
        self.transport.close()


def remove_h2c_upgrade(data: bytes) -> bytes:
    end = data.find(END_OF_HEAD)
    head = data if end < 0 else data[: end + 2]
    place = head.lower().find(H2C_UPGRADE)
    return data if place < 0 else data[:place] + data[place + len(H2C_UPGRADE) - 2 :]


def _encode_response(error: ApiError) -> bytes:
    status, headers, body = openai_error_response(error)
    named = {**headers, "Content-Length": str(len(body)), "Connection": "close"}
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"]
    lines += [f"{name}: {value}" for name, value in named.items()]
    return "\r\n".join((*lines, "", "")).encode("latin-1") + body
