"""Reading stored responses: the events after a number, and their errors."""

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime

import pytest

from cllm.core.conversation import StoredConversation, Turn, TurnState
from cllm.core.errors import ErrorReport
from cllm.core.message import plain_message
from cllm.server.api.stored_responses import (
    ErrorRecorder,
    add_end,
    encode_error_event,
    skip_events,
    split_events,
)
from cllm.server.turns.previous_response import StoredResponse

ID = "0d9e4a54-6f5b-4a5e-9a0e-3f1d7a6f2b11"
LATE = ErrorReport(status=408, code="request_timeout", message="Late.")


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
    event = encode_error_event(LATE, 7)

    name, data = event.decode().strip().split("\n")
    fields = json.loads(data.removeprefix("data: "))
    assert name == "event: error"
    assert (fields["error"]["code"], fields["sequence_number"]) == ("request_timeout", 7)


def make_response(state: TurnState) -> StoredResponse:
    now = datetime(2026, 11, 16, tzinfo=UTC)
    message = plain_message("user", "Hello.")
    turn = Turn(id=ID, place=ID, state=state, messages=(message,), started_at=now)
    conversation = StoredConversation(id=ID, created_at=now, updated_at=now, turns=(turn,))
    return StoredResponse(conversation=conversation, turn=turn)


async def find_failed() -> StoredResponse:
    return make_response("failed")


async def find_running() -> StoredResponse:
    return make_response("running")


async def test_the_end_of_a_failed_turn_is_added():
    ended = add_end(iterate(frame(0), frame(1)), ErrorRecorder(), find_failed)

    events = b"".join([data async for data in ended]).decode().strip().split("\n\n")
    numbers = [json.loads(event.split("data: ")[1])["sequence_number"] for event in events]
    assert numbers == [0, 1, 2, 3]
    assert events[-1].startswith("event: response.failed")


@pytest.mark.parametrize("find", [find_failed, find_running])
async def test_the_error_of_the_reader_ends_only_a_running_turn(
    find: Callable[[], Awaitable[StoredResponse]],
):
    errors = ErrorRecorder()
    assert errors.record(LATE) == b""

    ended = b"".join([data async for data in add_end(iterate(frame(0)), errors, find)])

    assert (b"request_timeout" in ended) == (find is find_running)
    assert (b"response.failed" in ended) == (find is find_failed)
    assert b'"sequence_number":1' in ended


@pytest.mark.parametrize("name", ["response.completed", "response.incomplete", "error"])
async def test_the_end_of_a_stream_stays(name: str):
    end = f'event: {name}\ndata: {{"sequence_number":1}}\n\n'.encode()

    frames = add_end(iterate(frame(0), end), ErrorRecorder(), find_failed)

    assert [data async for data in frames] == [frame(0), end]
