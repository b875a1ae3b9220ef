"""How much a request may have: its body is read within limits, and looked at before it is decoded.

It counts and refuses; what a body says is the codecs' business.
"""

import asyncio
from collections.abc import Iterator
from itertools import accumulate

from starlette.requests import Request

from cllm.server.http.body_room import SHORT, BodyRoom
from cllm.server.http.errors import RefusedError
from cllm.server.serving import serving_of
from cllm.settings.sections import Limits
from cllm.wire.malformed import FieldError

STEPS = bytes.maketrans(b"[{]}", bytes((1, 1, 255, 255)))
"""One level down, and (as a signed byte) one up."""
NO_BRACKETS = bytes(set(range(256)).difference(b"[{]}"))
PIECE = 64 * 1024
"""So much of a body is looked at once: its words, each a value, take up to forty times that."""


async def read_body(request: Request, limits: Limits) -> bytes:
    """The body, if it is not too long and comes in time."""
    told = request.headers.get("content-length", "")
    announced = int(told) if told.isascii() and told.isdigit() else 0
    if announced > limits.body_bytes:
        raise _too_large(limits)
    serving = serving_of(request)
    if announced > SHORT:
        serving.bodies.expect(announced, limits)
    try:
        async with asyncio.timeout(limits.body_seconds):
            body = await _read(request, limits, serving.bodies)
    except TimeoutError:
        raise RefusedError(
            "request_timeout",
            f"The body did not come within {limits.body_seconds:g} s; send it again.",
        ) from None
    check_depth(body, limits.depth)
    return body


async def _read(request: Request, limits: Limits, room: BodyRoom) -> bytes:
    """The body in as many pieces as it comes in, given up where it becomes too long."""
    message = await request.receive()
    piece: bytes = message.get("body", b"")
    if message["type"] == "http.request" and not message.get("more_body"):
        if len(piece) > limits.body_bytes:
            raise _too_large(limits)
        return piece
    # Grown in one place: a list of pieces of a byte each would take forty times their length.
    body = bytearray()
    with room.body(limits) as share:
        while message["type"] == "http.request":
            body += message.get("body", b"")
            if len(body) > limits.body_bytes:
                raise _too_large(limits)
            share.grow(len(body))
            if not message.get("more_body"):
                return bytes(body)
            message = await request.receive()
    raise RefusedError("request_timeout", "The client left before all of its body had come.")


def check_depth(body: bytes, most: int, *, piece: int = PIECE) -> None:
    """FieldError for JSON that is nested deeper than so."""
    if body.count(b"[") + body.count(b"{") <= most:
        return
    depth = 0
    for outside in _outside_strings(body, piece):
        steps = memoryview(outside.translate(STEPS, delete=NO_BRACKETS)).cast("b")
        levels = list(accumulate(steps, initial=depth))
        if max(levels) > most:
            raise FieldError("", f"body: nested deeper than {most} levels")
        depth = levels[-1]


def _outside_strings(body: bytes, size: int) -> Iterator[bytes]:
    """JSON without what is in its strings, in pieces, in one pass over it whatever it is."""
    in_string, cut_off = False, b""
    for start in range(0, len(body), size):
        plain = (cut_off + body[start : start + size]).replace(b"\\\\", b"")
        cut_off = b"\\" if plain.endswith(b"\\") else b""
        words = plain.removesuffix(b"\\").replace(b'\\"', b"").split(b'"')
        yield b"".join(words[in_string::2])
        in_string ^= len(words) % 2 == 0


def check_counts(body: bytes, messages: int, limits: Limits) -> None:
    """RefusedError for more messages, or more parts in them, than there may be."""
    if messages > limits.messages:
        raise RefusedError(
            "request_too_large",
            f"A request may have at most {limits.messages} messages; this one has {messages}.",
            param="messages",
        )
    if body.count(b'"type"') > limits.parts:
        raise RefusedError(
            "request_too_large",
            f"A request may have at most {limits.parts} parts and tools; send fewer.",
            param="messages",
        )


def _too_large(limits: Limits) -> RefusedError:
    return RefusedError(
        "request_too_large",
        f"The body may have at most {limits.body_bytes} bytes; send less.",
    )
