"""A client's connection: uvicorn's, which waits for a request only so long and reads so much of it.

It knows the head of a request and nothing of what is asked. What is not HTTP is refused here, in
the same words as everything else that is refused.
"""

import asyncio
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from cllm.server.http.errors import RefusedError, to_openai

END_OF_HEAD = b"\r\n\r\n"
# Some clients ask for HTTP/2 with their first request; the parser would not read its body then.
OFFER = b"\r\nupgrade: h2c\r\n"
FRAMING = 8
"""Bytes beside each byte of a body: a body in pieces of one byte has five."""


class Connection(HttpToolsProtocol):
    """One connection; `head_bytes` and `head_seconds` are the most that a request's head may take.

    The time runs from when the connection is made, and anew from the first byte of each further
    request. A request that was answered before its body had come gets that time for the rest of it.
    What comes with a body and is none of it (lengths of its pieces, headers behind it) may be as
    much as a head, and so much for each byte; such headers are not read.
    """

    def __init__(self, *given: Any, head_bytes: int, head_seconds: float, **named: Any) -> None:
        super().__init__(*given, **named)
        self._head_bytes = head_bytes
        self._head_seconds = head_seconds
        self._in_head = self._in_body = False
        self._number = self._size = self._body = 0
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._wait()

    def connection_lost(self, exc: Exception | None) -> None:
        self._wait_no_more()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        number, in_body = self._number, self._in_body
        super().data_received(data if in_body else without_offer(data))
        # What comes with the end of the request before is not counted.
        self._size += len(data) if self._number == number else 1
        if self._in_head:
            if self._size > self._head_bytes:
                self._refuse(_too_large(self._head_bytes))
            elif self._timer is None:
                self._wait()
        elif self._in_body and self._size > self._head_bytes + (1 + FRAMING) * self._body:
            self._refuse(_too_much_around())

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
        self._wait_no_more()
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
            self._wait()

    def send_400_response(self, msg: str) -> None:  # noqa: ARG002 - uvicorn's words, not ours
        self._refuse(RefusedError("invalid_request", "This is not an HTTP request; see /docs."))

    def _wait(self) -> None:
        self._timer = self.loop.call_later(self._head_seconds, self._give_up)

    def _wait_no_more(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _give_up(self) -> None:
        self._timer = None
        if self._is_answering:
            self._wait()
        elif self._in_head:
            self._refuse(_too_slow(self._head_seconds))
        else:
            self.transport.close()

    @property
    def _is_answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete

    def _refuse(self, error: RefusedError) -> None:
        """Say why, unless an answer has begun, and hang up."""
        if self.transport.is_closing():
            return
        if not (self._is_answering and self.cycle.response_started):
            self.transport.write(_encoded(error))
        self.transport.close()


def without_offer(data: bytes) -> bytes:
    """The head of a request without the offer to go on in HTTP/2."""
    end = data.find(END_OF_HEAD)
    head = data if end < 0 else data[: end + 2]
    place = head.lower().find(OFFER)
    return data if place < 0 else data[:place] + data[place + len(OFFER) - 2 :]


def _encoded(error: RefusedError) -> bytes:
    status, headers, body = to_openai(error)
    named = {**headers, "Content-Length": str(len(body)), "Connection": "close"}
    lines = [f"HTTP/1.1 {status} {HTTPStatus(status).phrase}"]
    lines += [f"{name}: {value}" for name, value in named.items()]
    return "\r\n".join((*lines, "", "")).encode("latin-1") + body


def _too_large(most: int) -> RefusedError:
    return RefusedError(
        "request_too_large", f"The head of a request may have at most {most} bytes; send less."
    )


def _too_much_around() -> RefusedError:
    return RefusedError(
        "request_too_large",
        "Too much came with the body that is none of it; send the body in larger pieces, and no"
        " headers behind it.",
    )


def _too_slow(seconds: float) -> RefusedError:
    return RefusedError(
        "request_timeout", f"The head of the request did not come within {seconds:g} s; try again."
    )
