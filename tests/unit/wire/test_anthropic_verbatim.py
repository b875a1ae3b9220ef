"""Anthropic's stream as it came, beside what it says."""

import json
from typing import Any

from cllm.core.reply import ReplyEvent, TextDelta, Verbatim
from cllm.wire.anthropic_reply import StreamDecoder
from cllm.wire.anthropic_verbatim import VerbatimDecoder, encode_event
from cllm.wire.sse import SseDecoder, SseEvent

MESSAGE = {"id": "msg_1", "type": "message", "role": "assistant", "content": [], "model": "m"}
START = ("message_start", {"message": {**MESSAGE, "novel": 1}})
PING = ("ping", {})
OPEN = ("content_block_start", {"index": 0, "content_block": {"type": "text", "text": ""}})
PIECE = ("content_block_delta", {"index": 0, "delta": {"type": "text_delta", "text": "Hi"}})
NOVEL_DELTA = ("content_block_delta", {"index": 0, "delta": {"type": "novel_delta", "x": 1}})
NOVEL = ("novel_event", {"anything": [1, 2]})
CLOSE = ("content_block_stop", {"index": 0})
ENDING = ("message_delta", {"delta": {"stop_reason": "end_turn"}, "usage": {"output_tokens": 1}})
STOP = ("message_stop", {})
Sent = tuple[str, dict[str, Any]]


def told(*events: Sent) -> tuple[list[ReplyEvent], VerbatimDecoder]:
    decoder = VerbatimDecoder(StreamDecoder())
    said: list[ReplyEvent] = []
    for event in events:
        said += decoder.decode(SseEvent(name=event[0], data=data(event)))
    return said, decoder


def data(event: Sent) -> bytes:
    return json.dumps({"type": event[0], **event[1]}).encode()


def frames(*events: Sent) -> bytes:
    return b"".join(encode_event(event[0], data(event)) for event in events)


def test_every_event_goes_on_as_it_came_known_or_not():
    sent = (START, PING, OPEN, PIECE, NOVEL_DELTA, NOVEL, CLOSE, ENDING, STOP)
    events, decoder = told(*sent)

    assert b"".join(e.data for e in events if isinstance(e, Verbatim)) == frames(*sent)
    assert [e.text for e in events if isinstance(e, TextDelta)] == ["Hi"]
    assert decoder.done
    finished = decoder.finish()
    assert finished is not None
    assert finished.message.text == "Hi"


def test_what_comes_before_the_answer_waits_for_it():
    before, _ = told(START, PING, OPEN)
    after, _ = told(START, PING, OPEN, PIECE)

    assert before == []
    assert after[0] == Verbatim(dialect="anthropic", data=frames(START, PING, OPEN, PIECE))


def test_a_block_of_another_kind_does_not_wait():
    search = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}}
    events, _ = told(START, ("content_block_start", {"index": 0, "content_block": search}))

    assert len(events) == 1


def test_the_end_is_marked_from_its_announcement_on():
    events, _ = told(START, OPEN, PIECE, CLOSE, ENDING, STOP)

    closing = [e.data for e in events if isinstance(e, Verbatim) and e.closes]
    assert closing == [frames(ENDING), frames(STOP)]


def test_an_event_without_a_name_is_given_the_one_in_its_data():
    decoder = VerbatimDecoder(StreamDecoder())
    decoder.decode(SseEvent(data=data(START)))

    said = decoder.decode(SseEvent(data=data(NOVEL)))
    assert said == [Verbatim(dialect="anthropic", data=frames(START, NOVEL))]


def test_data_on_several_lines_is_the_same_data_again():
    sent = SseEvent(name="ping", data=b'{"type":\n"ping"}')

    assert list(SseDecoder().feed(encode_event(sent.name, sent.data))) == [sent]
