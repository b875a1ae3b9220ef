"""Reading stored responses: the events after a number, and their errors."""

import json
from collections.abc import AsyncIterator

import pytest

from cllm.core.errors import ErrorReport
from cllm.server.api.stored_responses import encode_error_event, skip_events


def frame(number: int, text: str = "") -> bytes:
    data = json.dumps({"type": "x", "delta": text, "sequence_number": number}).replace(": ", ":")
    return f"event: x\ndata: {data}\n\n".encode()


async def iterate(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


async def skip(after: int, *chunks: bytes) -> bytes:
    return b"".join([data async for data in skip_events(iterate(*chunks), after)])


@pytest.mark.parametrize("after", [-1, 0, 1, 2])
async def test_events_up_to_a_number_are_left_out(after: int):
    frames = [frame(number) for number in range(3)]

    expected = b"".join(frames[after + 1 :])
    assert await skip(after, *frames) == expected
    assert await skip(after, b"".join(frames)) == expected


async def test_comments_stay():
    assert await skip(5, b": keep-alive\n\n", frame(1)) == b": keep-alive\n\n"


async def test_a_number_in_the_text_is_not_that_of_the_event():
    event = frame(1, text='"sequence_number":9')

    assert await skip(5, event) == b""


def test_an_error_has_the_fields_that_clients_read():
    event = encode_error_event(ErrorReport(status=408, code="request_timeout", message="Late."))

    name, data = event.decode().strip().split("\n")
    assert name == "event: error"
    assert json.loads(data.removeprefix("data: "))["error"]["code"] == "request_timeout"
