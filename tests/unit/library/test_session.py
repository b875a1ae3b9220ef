"""Answers and text streams, over pieces from a generator."""

import pytest

from cllm.core.message import plain_message
from cllm.core.reply import ReplyFinished, Usage
from cllm.engine.request import TurnEnded
from cllm.library.session import Answer, AsyncTextStream, Pieces, TextStream, read_answer

REPLY = ReplyFinished(
    message=plain_message("assistant", "It is."), stop_reason="end", usage=Usage(output=2)
)
ANSWER = Answer.of(
    TurnEnded(reply=REPLY, turn=None, model="m", cost=0.5), conversation="demo", notices=()
)


async def pieces(*items: str | Answer, closed: list[bool] | None = None) -> Pieces:
    try:
        for item in items:
            yield item
    finally:
        if closed is not None:
            closed.append(True)


def test_an_answer_has_the_facts_of_its_turn():
    assert str(ANSWER) == ANSWER.text == "It is."
    assert (ANSWER.model, ANSWER.cost, ANSWER.usage) == ("m", 0.5, Usage(output=2))
    assert ANSWER.conversation == "demo"


async def test_a_complete_answer_is_the_last_piece():
    assert await read_answer(pieces("It ", "is.", ANSWER)) is ANSWER


async def test_a_turn_without_an_answer_is_a_bug():
    with pytest.raises(AssertionError):
        await read_answer(pieces("It "))


def test_a_stream_yields_text_and_then_has_the_answer():
    stream = TextStream(pieces("It ", "is.", ANSWER))

    assert next(stream) == "It "
    assert stream.answer is None
    assert list(stream) == ["is."]
    assert stream.answer is ANSWER


def test_closing_a_stream_closes_its_generator():
    closed: list[bool] = []
    with TextStream(pieces("It ", "is.", ANSWER, closed=closed)) as stream:
        next(stream)

    assert closed == [True]
    assert stream.answer is None


async def test_an_asynchronous_stream_yields_the_same():
    closed: list[bool] = []
    async with AsyncTextStream(pieces("It ", "is.", ANSWER, closed=closed)) as stream:
        assert [piece async for piece in stream] == ["It ", "is."]

    assert stream.answer is ANSWER
    assert closed == [True]
