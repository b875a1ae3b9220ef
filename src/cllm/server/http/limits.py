"""Limits on request bodies: size, nesting depth, and the memory of all of them together.

Short bodies have a separate share, so that slow long bodies do not block them. A body that does not
fit is rejected; none waits.
"""

import asyncio
from collections.abc import Iterator
from itertools import accumulate
from typing import Self

from starlette.requests import ClientDisconnect, Request

from cllm.server.http.errors import ApiError
from cllm.settings.sections import Limits
from cllm.wire.errors import FieldError

SHORT_BODY_BYTES = 64 * 1024
"""A longer body is a long one."""
SHORT_SHARE = 4
"""Short bodies together use at most 1/SHORT_SHARE of the memory."""
RETRY_SECONDS = 5
# As signed bytes: +1 for each opening bracket, -1 for each closing one.
DEPTH_CHANGES = bytes.maketrans(b"[{]}", bytes((1, 1, 255, 255)))
NO_BRACKETS = bytes(set(range(256)).difference(b"[{]}"))
# Bytes per step of the depth check, which takes up to 40 times their memory.
CHUNK_BYTES = 64 * 1024


class BodyQuota:
    """Counts the bytes of the bodies that are being read. One long body always fits."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.short = 0
        self.long = 0
        self._max_short = limits.bodies_bytes // SHORT_SHARE
        self._max_long = max(limits.bodies_bytes - self._max_short, limits.body_bytes)

    def check(self, *, expected: int = 0) -> None:
        """Raise ApiError if the limit is exceeded, now or with the expected bytes."""
        if self.short > self._max_short or self.long + expected > self._max_long:
            raise ApiError(
                "too_many_bodies",
                "The server is reading as many request bodies as its memory limit allows; retry "
                "later.",
                retry_after=RETRY_SECONDS,
            )


class BodyAllowance:
    """The bytes of one body."""

    def __init__(self, quota: BodyQuota) -> None:
        self._quota = quota
        self._size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._resize(0)

    def grow(self, size: int) -> None:
        self._resize(size)
        self._quota.check()

    def _resize(self, size: int) -> None:
        for change in (-self._size, size):
            if abs(change) <= SHORT_BODY_BYTES:
                self._quota.short += change
            else:
                self._quota.long += change
        self._size = size


async def read_body(request: Request, quota: BodyQuota) -> bytes:
    """Read a body in JSON."""
    body = await read_bytes(request, quota)
    check_depth(body, quota.limits.depth)
    return body


async def read_bytes(request: Request, quota: BodyQuota) -> bytes:
    limits = quota.limits
    length = request.headers.get("content-length", "")
    content_length = int(length) if length.isascii() and length.isdigit() else 0
    _check_size(content_length, limits)
    if content_length > SHORT_BODY_BYTES:
        quota.check(expected=content_length)
    try:
        async with asyncio.timeout(limits.body_seconds):
            return await _receive(request, quota)
    except TimeoutError:
        raise ApiError(
            "request_timeout",
            f"The body did not arrive within {limits.body_seconds:g} s; send it again.",
        ) from None


async def _receive(request: Request, quota: BodyQuota) -> bytes:
    message = await request.receive()
    chunk: bytes = message.get("body", b"")
    if message["type"] == "http.request" and not message.get("more_body"):
        _check_size(len(chunk), quota.limits)
        return chunk
    # A list of chunks of one byte would take 40 times their length.
    body = bytearray()
    with BodyAllowance(quota) as allowance:
        while message["type"] == "http.request":
            body += message.get("body", b"")
            _check_size(len(body), quota.limits)
            allowance.grow(len(body))
            if not message.get("more_body"):
                return bytes(body)
            message = await request.receive()
    raise ClientDisconnect


def _check_size(size: int, limits: Limits) -> None:
    if size > limits.body_bytes:
        raise ApiError(
            "request_too_large",
            f"The body may have at most {limits.body_bytes} bytes; send a shorter one.",
        )


def check_depth(body: bytes, max_depth: int, *, chunk_bytes: int = CHUNK_BYTES) -> None:
    if body.count(b"[") + body.count(b"{") <= max_depth:
        return
    depth = 0
    for outside in _outside_strings(body, chunk_bytes):
        steps = memoryview(outside.translate(DEPTH_CHANGES, delete=NO_BRACKETS)).cast("b")
        levels = list(accumulate(steps, initial=depth))
        if max(levels) > max_depth:
            raise FieldError("", f"body: nested deeper than {max_depth} levels")
        depth = levels[-1]


def _outside_strings(body: bytes, size: int) -> Iterator[bytes]:
    """Yield chunks of JSON without the contents of its strings."""
    in_string, escape = False, b""
    for start in range(0, len(body), size):
        plain = (escape + body[start : start + size]).replace(b"\\\\", b"")
        escape = b"\\" if plain.endswith(b"\\") else b""
        segments = plain.removesuffix(b"\\").replace(b'\\"', b"").split(b'"')
        yield b"".join(segments[in_string::2])
        in_string ^= len(segments) % 2 == 0


def check_counts(body: bytes, messages: int, limits: Limits) -> None:
    if messages > limits.messages:
        raise ApiError(
            "request_too_large",
            f"A request may have at most {limits.messages} messages, and this one has {messages}; "
            "send fewer.",
            param="messages",
        )
    if body.count(b'"type"') > limits.parts:
        raise ApiError(
            "request_too_large",
            f"A request may have at most {limits.parts} parts and tools; send fewer.",
            param="messages",
        )
