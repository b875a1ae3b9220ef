"""Limits on request bodies: size, nesting, and the memory that they use together.

Short bodies have their own share, so that slow long bodies do not block them. A body without room
is refused; none waits.
"""

import asyncio
from collections.abc import Iterator
from itertools import accumulate
from typing import Self

from starlette.requests import Request

from cllm.server.http.errors import ApiError
from cllm.settings.sections import Limits
from cllm.wire.errors import FieldError

SHORT_BODY_BYTES = 64 * 1024
"""The longest of the short bodies, in bytes."""
SHORT_SHARE = 4
"""Short bodies together use at most one part in SHORT_SHARE of the memory."""
RETRY_SECONDS = 5
# One level down, and (as a signed byte) one up.
DEPTH_CHANGES = bytes.maketrans(b"[{]}", bytes((1, 1, 255, 255)))
NO_BRACKETS = bytes(set(range(256)).difference(b"[{]}"))
# Bytes per step of the depth check, which takes up to 40 times their memory.
CHUNK_BYTES = 64 * 1024


class BodyQuota:
    """The bytes of the bodies that are being read. One long body always has room."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.short = 0
        self.long = 0
        self._max_short = limits.bodies_bytes // SHORT_SHARE
        self._max_long = max(limits.bodies_bytes - self._max_short, limits.body_bytes)

    def check(self, *, expected: int = 0) -> None:
        """Raise RefusedError if the room is exceeded, now or with the expected bytes."""
        if self.short > self._max_short or self.long + expected > self._max_long:
            raise ApiError(
                "too_many_bodies",
                "The server is reading as many requests as it has room for; send this one again "
                "in a moment.",
                retry_after=RETRY_SECONDS,
            )


class BodyAllowance:
    """The bytes of one body."""

    def __init__(self, room: BodyQuota) -> None:
        self._room = room
        self._size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._resize(0)

    def grow(self, size: int) -> None:
        self._resize(size)
        self._room.check()

    def _resize(self, size: int) -> None:
        for change in (-self._size, size):
            if abs(change) <= SHORT_BODY_BYTES:
                self._room.short += change
            else:
                self._room.long += change
        self._size = size


async def read_body(request: Request, room: BodyQuota) -> bytes:
    limits = room.limits
    length = request.headers.get("content-length", "")
    announced = int(length) if length.isascii() and length.isdigit() else 0
    _check_size(announced, limits)
    if announced > SHORT_BODY_BYTES:
        room.check(expected=announced)
    try:
        async with asyncio.timeout(limits.body_seconds):
            body = await _receive(request, room)
    except TimeoutError:
        raise ApiError(
            "request_timeout",
            f"The body did not come within {limits.body_seconds:g} s; send it again.",
        ) from None
    check_depth(body, limits.depth)
    return body


async def _receive(request: Request, room: BodyQuota) -> bytes:
    message = await request.receive()
    piece: bytes = message.get("body", b"")
    if message["type"] == "http.request" and not message.get("more_body"):
        _check_size(len(piece), room.limits)
        return piece
    # A list of pieces of one byte would take 40 times their length.
    body = bytearray()
    with BodyAllowance(room) as share:
        while message["type"] == "http.request":
            body += message.get("body", b"")
            _check_size(len(body), room.limits)
            share.grow(len(body))
            if not message.get("more_body"):
                return bytes(body)
            message = await request.receive()
    raise ApiError("request_timeout", "The client left before all of its body had come.")


def _check_size(size: int, limits: Limits) -> None:
    if size > limits.body_bytes:
        raise ApiError(
            "request_too_large",
            f"The body may have at most {limits.body_bytes} bytes; send less.",
        )


def check_depth(body: bytes, most: int, *, piece: int = CHUNK_BYTES) -> None:
    if body.count(b"[") + body.count(b"{") <= most:
        return
    depth = 0
    for outside in _outside_strings(body, piece):
        steps = memoryview(outside.translate(DEPTH_CHANGES, delete=NO_BRACKETS)).cast("b")
        levels = list(accumulate(steps, initial=depth))
        if max(levels) > most:
            raise FieldError("", f"body: nested deeper than {most} levels")
        depth = levels[-1]


def _outside_strings(body: bytes, size: int) -> Iterator[bytes]:
    """Yield JSON without the contents of its strings, in pieces."""
    in_string, cut_off = False, b""
    for start in range(0, len(body), size):
        plain = (cut_off + body[start : start + size]).replace(b"\\\\", b"")
        cut_off = b"\\" if plain.endswith(b"\\") else b""
        words = plain.removesuffix(b"\\").replace(b'\\"', b"").split(b'"')
        yield b"".join(words[in_string::2])
        in_string ^= len(words) % 2 == 0


def check_counts(body: bytes, messages: int, limits: Limits) -> None:
    if messages > limits.messages:
        raise ApiError(
            "request_too_large",
            f"A request may have at most {limits.messages} messages; this one has {messages}.",
            param="messages",
        )
    if body.count(b'"type"') > limits.parts:
        raise ApiError(
            "request_too_large",
            f"A request may have at most {limits.parts} parts and tools; send fewer.",
            param="messages",
        )
