"""Values as JSON answers. What would take long is done beside the event loop, where others wait."""

import asyncio
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from starlette.responses import Response

T = TypeVar("T")

JSON = "application/json"
MANY_MESSAGES = 500
MANY_BYTES = 500_000


def answer(value: Any, status: int = 200) -> Response:
    return Response(msgspec.json.encode(value), status, media_type=JSON)


def answer_nothing() -> Response:
    return Response(status_code=204)


async def aside(work: Callable[[], T], *, messages: int = 0, size: int = 0) -> T:
    """What the work gives: at once, or in a thread if it is about so many messages or bytes."""
    if messages < MANY_MESSAGES and size < MANY_BYTES:
        return work()
    return await asyncio.to_thread(work)
