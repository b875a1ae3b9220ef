"""Anthropic's stream, relayed unchanged and decoded."""

import json
from typing import Any

import pytest

from cllm.core.reply import ReplyEvent, TextDelta, Verbatim
from cllm.wire.anthropic.passthrough import PassthroughReader, encode_frame
from cllm.wire.anthropic.response_decoder import AnthropicStreamDecoder
from cllm.wire.errors import MalformedError, ReportedError
from cllm.wire.sse import SseDecoder, SseEvent

MESSAGE = {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "model": "m"}
START = ("message_start", {"message": {**MESSAGE, "novel": 1}})
PING: "Sent" = ("ping", {})
OPEN = ("content_block_start", {"index": 0, "content_block": {"type": "text", "text": ""}})
PIECE = ("content_block_delta", {"index": 0, "delta": {"type": "text_delta", "text": "Hi"}})
NOVEL_DELTA = ("content_block_delta", {"index": 0, "delta": {"type": "novel_delta", "x": 1}})
NOVEL = ("novel_event", {"anything": [1, 2]})
CLOSE = ("content_block_stop", {"index": 0})
ENDING = ("message_delta", {"delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}})
STOP: "Sent" = ("message_stop", {})
Sent = tuple[str, dict[str, Any]]


def feed(*events: Sent) -> tuple[list[ReplyEvent], PassthroughReader]:
    """Feed each event as a chunk of its own. Return the relayed events and the reader."""
    reader = PassthroughReader(AnthropicStreamDecoder())
    return [relayed for event in events for relayed in reader.feed(frames(event))], reader


def data(event: Sent) -> bytes:
    return json.dumps({"type": event[0], **event[1]}).encode()


def frames(*events: Sent) -> bytes:
    return b"".join(encode_frame(event[0], data(event)) + b"\n\n" for event in events)


def test_every_event_is_relayed_unchanged():
    sent = (START, PING, OPEN, PIECE, NOVEL_DELTA, NOVEL, CLOSE, ENDING, STOP)
    events, decoder = feed(*sent)

    assert b"".join(e.data for e in events if isinstance(e, Verbatim)) == frames(*sent)
    assert [e.text for e in events if isinstance(e, TextDelta)] == ["Hi"]
    assert decoder.done
    finished = decoder.finish()
    assert finished is not None
    assert finished.message.text == "Hi"


def test_events_before_the_content_are_held():
    before, _ = feed(START, PING, OPEN)
    after, _ = feed(START, PING, OPEN, PIECE)

    assert before == []
    assert after[0] == Verbatim(dialect="anthropic", data=frames(START, PING, OPEN, PIECE))


def test_a_block_of_another_kind_is_not_held():
    search = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    events, _ = feed(START, ("content_block_start", {"index": 0, "content_block": search}))

    assert len(events) == 1


def test_closing_is_set_from_message_delta_on():
    events, _ = feed(START, OPEN, PIECE, CLOSE, ENDING, STOP)

    closing = [e.data for e in events if isinstance(e, Verbatim) and e.closes]
    assert closing == [frames(ENDING), frames(STOP)]


def test_an_event_without_a_name_gets_the_type_of_its_data():
    reader = PassthroughReader(AnthropicStreamDecoder())
    relayed = list(reader.feed(b"data: %b\n\ndata: %b\n\n" % (data(START), data(NOVEL))))

    assert relayed == [Verbatim(dialect="anthropic", data=frames(START, NOVEL))]


@pytest.mark.parametrize("size", [1, 3, 50, 10_000])
@pytest.mark.parametrize("end", [b"\n", b"\r\n"])
def test_chunks_of_any_size_give_the_same_result(size: int, end: bytes):
    sent = frames(START, PING, OPEN, PIECE, PIECE, NOVEL_DELTA, PIECE, NOVEL, CLOSE, ENDING, STOP)
    travelled = sent.replace(b"\n", end)
    reader = PassthroughReader(AnthropicStreamDecoder())
    events = [
        event
        for start in range(0, len(travelled), size)
        for event in reader.feed(travelled[start : start + size])
    ]

    assert b"".join(event.data for event in events if isinstance(event, Verbatim)) == sent
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "HiHiHi"
    closing = [event.data for event in events if isinstance(event, Verbatim) and event.closes]
    assert b"".join(closing) == frames(ENDING, STOP)
    finished = reader.finish()
    assert finished is not None
    assert finished.message.text == "HiHiHi"


def test_an_unknown_event_between_others_loses_none():
    reader = PassthroughReader(AnthropicStreamDecoder())
    odd = b"id: 7\n" + frames(PIECE)
    sent = frames(START, OPEN, PIECE, PIECE) + odd + frames(PIECE, NOVEL, PIECE) + b"event: x"
    events = list(reader.feed(sent))

    passed = b"".join(event.data for event in events if isinstance(event, Verbatim))
    assert passed == frames(START, OPEN, PIECE, PIECE, PIECE, PIECE, NOVEL, PIECE)
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "Hi" * 5


def test_texts_of_one_chunk_are_joined_within_their_block():
    reader = PassthroughReader(AnthropicStreamDecoder())
    second = ("content_block_start", {"index": 1, "content_block": {"type": "text", "text": ""}})
    other = ("content_block_delta", {"index": 1, "delta": {"type": "text_delta", "text": "Yo"}})
    chunk = frames(START, OPEN, second, PIECE, NOVEL_DELTA, PIECE, other, PIECE)
    events = list(reader.feed(chunk))

    texts = [(event.index, event.text) for event in events if isinstance(event, TextDelta)]
    assert texts == [(0, "HiHi"), (1, "Yo"), (0, "Hi")]
    assert b"".join(event.data for event in events if isinstance(event, Verbatim)) == chunk


def test_events_of_one_chunk_are_relayed_together():
    reader = PassthroughReader(AnthropicStreamDecoder())
    relayed = list(reader.feed(frames(START, OPEN, PIECE, PIECE, PIECE)))

    assert relayed == [
        Verbatim(dialect="anthropic", data=frames(START, OPEN, PIECE, PIECE, PIECE)),
        TextDelta(text="HiHiHi"),
    ]


def test_events_before_an_error_are_relayed_before_it():
    reader = PassthroughReader(AnthropicStreamDecoder())
    error = ("error", {"error": {"type": "overloaded_error", "message": "Later."}})
    told_so_far = reader.feed(frames(START, OPEN, PIECE, error))

    assert next(told_so_far) == Verbatim(dialect="anthropic", data=frames(START, OPEN, PIECE))
    assert next(told_so_far) == TextDelta(text="Hi")
    with pytest.raises(ReportedError):
        next(told_so_far)


def test_data_on_several_lines_is_preserved():
    sent = SseEvent(name="ping", data=b'{"type":\n"ping"}')

    assert list(SseDecoder().feed(encode_frame(sent.name, sent.data) + b"\n\n")) == [sent]


def relay(*pieces: bytes) -> tuple[bytes, str]:
    """The relayed bytes of a stream in these chunks, and the decoded text."""
    reader = PassthroughReader(AnthropicStreamDecoder())
    passed = b""
    for piece in pieces:
        passed += b"".join(e.data for e in reader.feed(piece) if isinstance(e, Verbatim))
    finished = reader.finish()
    assert finished is not None
    return passed, finished.message.text


@pytest.mark.parametrize("between", [PING, NOVEL, NOVEL_DELTA])
@pytest.mark.parametrize("runs", [1, 2, 9])
def test_texts_between_other_events_are_equal_in_one_chunk_and_in_many(between: Sent, runs: int):
    sent = (START, OPEN, *(PIECE, PIECE, between) * runs, PIECE, CLOSE, ENDING, STOP)
    whole = frames(*sent)

    assert relay(whole) == (whole, "Hi" * (2 * runs + 1))
    assert relay(*map(frames, sent)) == (whole, "Hi" * (2 * runs + 1))


def test_an_event_with_two_objects_is_not_a_text_delta():
    double = b"event: content_block_delta\ndata: " + data(PIECE) + b"," + data(PIECE) + b"\n\n"
    reader = PassthroughReader(AnthropicStreamDecoder())
    events = reader.feed(frames(START, OPEN, PIECE) + double + frames(PIECE))

    with pytest.raises(MalformedError):
        list(events)


@pytest.mark.parametrize("size", [1, 7, 1448])
def test_a_long_event_in_many_chunks_is_one_event(size: int):
    long = (
        "content_block_delta",
        {"index": 0, "delta": {"type": "text_delta", "text": "x" * 9000}},
    )
    whole = frames(START, OPEN, long, PIECE, CLOSE, ENDING, STOP)

    pieces = [whole[at : at + size] for at in range(0, len(whole), size)]

    assert relay(*pieces) == (whole, "x" * 9000 + "Hi")
