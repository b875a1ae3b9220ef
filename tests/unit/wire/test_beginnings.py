"""A body that begins as one before is read from there on, and says what it says."""

import json
from typing import Any

import pytest
from tests.holding import most_held

from cllm.core.prompt import Original
from cllm.wire import openai_request
from cllm.wire.beginnings import KNOWN, SHORTEST, Beginnings
from cllm.wire.malformed import FieldError

LONG = "x" * SHORTEST


class Reader:
    """Reads bodies, and counts the bytes it is given."""

    def __init__(self) -> None:
        self.read = 0

    def __call__(self, body: bytes) -> Original:
        self.read += len(body)
        return openai_request._decode_whole(body)


def body_of(*messages: Any, **more: Any) -> bytes:
    return json.dumps({"model": "m", "messages": messages, **more}).encode()


def said(text: str, role: str = "user") -> dict[str, Any]:
    return {"role": role, "content": text}


def test_a_body_that_goes_on_is_not_read_again_from_its_beginning():
    reader = Reader()
    begun = Beginnings(reader)
    begun.read(body_of(said(LONG), tools=[1]))
    reader.read = 0
    longer = body_of(said(LONG), said("yes", "assistant"), said("go on"), tools=[2])

    original = begun.read(longer)

    assert reader.read < SHORTEST
    assert original == openai_request._decode_whole(longer)


def test_each_request_of_a_conversation_goes_on_from_the_one_before():
    reader = Reader()
    begun = Beginnings(reader)
    messages = [said(LONG)]
    begun.read(body_of(*messages))
    reader.read = 0
    for _ in range(5):
        messages += [said(LONG, "assistant"), said("go on")]
        begun.read(body_of(*messages))

    assert reader.read < 8 * SHORTEST


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(body_of(said(LONG), said("yes"))[:-1] + b',"messages":[]}', id="said_twice"),
        pytest.param(body_of(said(LONG), said(KNOWN.decode())), id="ours_in_a_text"),
        pytest.param(body_of(said(LONG), json.loads(KNOWN)), id="ours_among_them"),
        pytest.param(body_of(said(LONG + "y")), id="longer_text"),
        pytest.param(body_of(said(LONG)).replace(b'"m"', b'"n"'), id="another_model"),
        pytest.param(body_of(said(LONG), metadata={"messages": [said(LONG)]}), id="a_copy_inside"),
        pytest.param(
            json.dumps({"messages": [said(LONG)], "model": "m"}, indent=1).encode(), id="indented"
        ),
    ],
)
def test_whatever_is_sent_is_read_as_it_is(body):
    begun = Beginnings(openai_request._decode_whole)
    begun.read(body_of(said(LONG)))

    assert begun.read(body) == openai_request._decode_whole(body)
    assert begun.read(body) == openai_request._decode_whole(body)


@pytest.mark.parametrize("wrong", [5, {"role": "nobody"}, said(LONG) | {"role": "tool"}])
def test_an_error_names_the_place_that_the_message_has_in_its_body(wrong):
    begun = Beginnings(openai_request._decode_whole)
    begun.read(body_of(said(LONG), said("yes", "assistant")))

    with pytest.raises(FieldError, match=r"messages\[2\]"):
        begun.read(body_of(said(LONG), said("yes", "assistant"), wrong))


def test_a_body_that_ends_in_its_middle_is_an_error():
    begun = Beginnings(openai_request._decode_whole)
    body = body_of(said(LONG))
    begun.read(body)

    with pytest.raises(FieldError, match="not JSON"):
        begun.read(body[:-2])


def test_no_more_is_kept_than_there_is_room_for():
    reader = Reader()
    begun = Beginnings(reader, limit=5 * len(body_of(said(LONG))))
    bodies = [body_of(said(f"{number}{LONG}"), said("y")) for number in range(9)]
    for body in bodies:
        begun.read(body)
    reader.read = 0

    for body in reversed(bodies):
        begun.read(body)

    read_whole = sum(len(body) for body in bodies[:-2])
    assert reader.read > read_whole
    assert reader.read < read_whole + 2 * SHORTEST


@pytest.mark.parametrize("count", [1, 200])
def test_no_more_memory_is_held_than_may_be(count):
    limit = 500_000
    begun = Beginnings(openai_request._decode_whole, limit=limit)

    def step(number: int) -> None:
        begun.read(body_of(said(f"{number}{LONG}"), *[said("x")] * count))

    assert limit / 2 < most_held(step, times=80) < 1.5 * limit


def test_what_one_caller_sent_is_nothing_to_another_with_other_words():
    begun = Beginnings(openai_request._decode_whole)
    begun.read(body_of(said(LONG), said("my number is 4711", "assistant")))

    original = begun.read(body_of(said(LONG), said("what is the number?")))

    assert not any(b"4711" in message.raw for message in original.messages)
