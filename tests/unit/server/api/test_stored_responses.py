"""Reading stored responses: the events after a number, and their errors."""

import json
from collections.abc import AsyncIterator
from datetime import UTC, datetime

import pytest

from cllm.core.conversation import StoredConversation, Turn
from cllm.core.errors import ErrorReport
from cllm.core.message import plain_message
from cllm.server.api.stored_responses import (
    add_end,
    encode_error_event,
    skip_events,
    split_events,
)
from cllm.server.turns.previous_response import StoredResponse

ID = "0d9e4a54-6f5b-4a5e-9a0e-3f1d7a6f2b11"


def frame(number: int, text: str = "") -> bytes:
    data = json.dumps({"type": "x", "delta": text, "sequence_number": number}).replace(": ", ":")
    return f"event: x\ndata: {data}\n\n".encode()


async def iterate(*chunks: bytes) -> AsyncIterator[bytes]:
    for chunk in chunks:
        yield chunk


async def skip(after: int, *chunks: bytes) -> bytes:
    frames = split_events(iterate(*chunks))
    return b"".join([data async for data in skip_events(frames, after)])


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


async def find_failed() -> StoredResponse:
    now = datetime(2026, 11, 16, tzinfo=UTC)
    message = plain_message("user", "Hello.")
    turn = Turn(id=ID, place=ID, state="failed", messages=(message,), started_at=now)
    conversation = StoredConversation(id=ID, created_at=now, updated_at=now, turns=(turn,))
    return StoredResponse(conversation=conversation, turn=turn)


async def test_the_end_of_a_failed_turn_is_added():
    frames = [data async for data in add_end(iterate(frame(0), frame(1)), find_failed)]

    events = b"".join(frames).decode().strip().split("\n\n")
    numbers = [json.loads(event.split("data: ")[1])["sequence_number"] for event in events]
    assert numbers == [0, 1, 2, 3]
    assert events[-1].startswith("event: response.failed")


@pytest.mark.parametrize("name", ["response.completed", "response.incomplete", "error"])
async def test_the_end_of_a_stream_stays(name: str):
    end = f'event: {name}\ndata: {{"sequence_number":1}}\n\n'.encode()

    assert [data async for data in add_end(iterate(frame(0), end), find_failed)] == [frame(0), end]
