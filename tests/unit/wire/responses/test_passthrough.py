"""The stream of a provider with the Responses API, relayed."""

import json

import pytest
from tests.fake_responses import make_events, make_response, message_item

from cllm.core.reply import ReplyFinished, TextDelta, Verbatim
from cllm.wire.errors import ReportedError
from cllm.wire.responses.passthrough import (
    ResponseRewriter,
    ResponsesPassthroughReader,
    encode_frame,
)
from cllm.wire.responses.response_decoder import ResponsesStreamDecoder
from cllm.wire.sse import SseDecoder

EVENTS = list(make_events(make_response(message_item("Hello."))))
FRAMES = [encode_frame(event["type"], json.dumps(event).encode()) for event in EVENTS]


def read(*chunks: bytes):
    reader = ResponsesPassthroughReader(ResponsesStreamDecoder())
    events = [event for chunk in chunks for event in reader.feed(chunk)]
    return events, reader


def test_every_event_is_relayed_unchanged_and_decoded():
    events, reader = read(*FRAMES)

    relayed = [event for event in events if isinstance(event, Verbatim)]
    assert b"".join(event.data for event in relayed) == b"".join(FRAMES)
    assert [event.closes for event in relayed] == [False] * (len(relayed) - 1) + [True]
    assert "".join(event.text for event in events if isinstance(event, TextDelta)) == "Hello."
    assert reader.done
    assert isinstance(reader.finish(), ReplyFinished)


def test_events_before_the_first_item_are_held():
    events, reader = read(*FRAMES[:2])

    assert [event["type"] for event in EVENTS[:2]] == ["response.created", "response.in_progress"]
    assert events == []
    assert reader.finish() is None


def test_a_failed_response_is_an_error():
    failed = {"type": "response.failed", "response": {"error": {"message": "Broken."}}}

    with pytest.raises(ReportedError):
        read(encode_frame("response.failed", json.dumps(failed).encode()))


def test_the_fields_of_the_server_replace_those_of_the_provider():
    rewriter = ResponseRewriter({"id": "resp_own", "instructions": None})

    data = rewriter.rewrite(b"".join(FRAMES))

    changed = [json.loads(event.data) for event in SseDecoder().feed(data)]
    assert [event["type"] for event in changed] == [event["type"] for event in EVENTS]
    assert {event["response"]["id"] for event in changed if "response" in event} == {"resp_own"}
    assert [event["sequence_number"] for event in changed] == list(range(len(EVENTS)))
    assert rewriter.sequence == len(EVENTS)
    assert changed[-1]["response"]["output"] == EVENTS[-1]["response"]["output"]


def test_events_without_a_response_are_not_encoded_again():
    deltas = b"".join(FRAMES[2:-1])
    rewriter = ResponseRewriter({"id": "resp_own"})
    started = rewriter.rewrite(b"".join(FRAMES[:2]))

    assert b"resp_own" in started
    assert rewriter.rewrite(deltas) is deltas
    assert rewriter.sequence == len(FRAMES) - 1


def test_missing_and_wrong_numbers_are_replaced():
    frames = [
        encode_frame("response.x", b'{"type":"response.x"}'),
        encode_frame("response.y", b'{"type":"response.y","sequence_number":7}'),
        encode_frame("response.z", b'{\n"type":"response.z","item":{\n"id":"1"}}'),
    ]

    data = ResponseRewriter({}).rewrite(b"".join(frames))

    events = list(SseDecoder().feed(data))
    assert [event.name for event in events] == ["response.x", "response.y", "response.z"]
    changed = [json.loads(event.data) for event in events]
    assert [event["sequence_number"] for event in changed] == [0, 1, 2]
    assert changed[2]["item"] == {"id": "1"}


def test_items_of_a_stored_response_get_ids_of_the_response():
    response_id = f"resp_{'0' * 64}"
    rewriter = ResponseRewriter({"id": response_id}, response_id=response_id)

    data = rewriter.rewrite(b"".join(FRAMES))

    changed = [json.loads(event.data) for event in SseDecoder().feed(data)]
    item_id = f"msg_{'0' * 64}_0_msg_1"
    assert [event["item_id"] for event in changed if "item_id" in event] == [item_id] * 5
    assert [event["item"]["id"] for event in changed if "item" in event] == [item_id] * 2
    assert changed[-1]["response"]["output"][0]["id"] == item_id
    assert [event["sequence_number"] for event in changed] == list(range(len(EVENTS)))
    whole = rewriter.rewrite_response(json.dumps(EVENTS[-1]["response"]).encode())
    assert json.loads(bytes(whole))["output"] == changed[-1]["response"]["output"]


def test_a_text_that_looks_like_an_item_id_stays():
    text = '"item_id": "msg_1"'
    frames = [
        encode_frame(event["type"], json.dumps(event).encode())
        for event in make_events(make_response(message_item(text)))
    ]
    rewriter = ResponseRewriter({}, response_id=f"resp_{'0' * 64}")

    data = rewriter.rewrite(b"".join(frames))

    changed = [json.loads(event.data) for event in SseDecoder().feed(data)]
    deltas = [event["delta"] for event in changed if "delta" in event]
    assert "".join(deltas) == text


def test_an_event_that_cannot_be_read_stays_as_it_is():
    frame = b'event: response.output_text.delta\ndata: {"delta": "\\ud83d"\n\n'

    assert ResponseRewriter({}).rewrite(frame) == frame


def test_lines_of_data_stay_apart():
    assert encode_frame("x", b"1\n2") == b"event: x\ndata: 1\ndata: 2\n\n"
