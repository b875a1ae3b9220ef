"""Anthropic's responses and streams, decoded."""

import contextlib
import copy
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cllm.core.message import (
    RedactedThinking,
    Text,
    Thinking,
    ToolCall,
    plain_message,
)
from cllm.core.reply import (
    PartAdded,
    ReplyEvent,
    ReplyFinished,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    Usage,
)
from cllm.wire.anthropic.parts import decode_parts
from cllm.wire.anthropic.response_decoder import AnthropicStreamDecoder, decode_answer, decode_error
from cllm.wire.anthropic.response_encoder import (
    AnthropicStreamEncoder,
    encode_answer,
    encode_error,
)
from cllm.wire.errors import MalformedError, ReportedError
from cllm.wire.sse import SseDecoder

START: dict[str, Any] = {
    "type": "message_start",
    "message": {
        "id": "msg_1",
        "type": "message",
        "role": "assistant",
        "model": "claude-x",
        "content": [],
        "stop_reason": None,
        "stop_sequence": None,
        "usage": {"input_tokens": 10, "cache_read_input_tokens": 5, "output_tokens": 1},
    },
}
STOP = {"type": "message_stop"}


def end(reason: str = "end_turn", **more: Any) -> dict[str, Any]:
    delta = {"stop_reason": reason, "stop_sequence": None, **more}
    return {"type": "message_delta", "delta": delta, "usage": {"output_tokens": 7}}


def start(index: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, kind: str, **fields: Any) -> dict[str, Any]:
    return {
        "type": "content_block_delta",
        "index": index,
        "delta": {"type": kind, **fields},
    }


def stop(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def decode(*events: dict[str, Any]) -> tuple[list[ReplyEvent], ReplyFinished | None]:
    decoder = AnthropicStreamDecoder()
    out = [e for event in events for e in decoder.decode(event["type"], msgspec.json.encode(event))]
    return out, decoder.finish()


def content(finished: ReplyFinished | None) -> list[Any]:
    assert finished is not None
    blocks: list[Any] = finished.message.json()["content"]
    return blocks


def done(stop: Any = "end", **more: Any) -> ReplyFinished:
    return ReplyFinished(message=plain_message("assistant", ""), stop_reason=stop, **more)


def encode(*events: ReplyEvent) -> list[dict[str, Any]]:
    encoder = AnthropicStreamEncoder(message_id="msg_1", model="claude-x")
    return decode_frames(b"".join(encoder.encode(event) for event in events))


def decode_frames(data: bytes) -> list[dict[str, Any]]:
    events = list(SseDecoder().feed(data))
    decoded = [json.loads(event.data) for event in events]
    assert [event.name for event in events] == [fields["type"] for fields in decoded]
    return decoded


def answer(blocks: list[Any], **more: Any) -> bytes:
    fields = {**START["message"], "content": blocks, "stop_reason": "end_turn", **more}
    return msgspec.json.encode(fields)


def test_a_response_keeps_its_content_byte_for_byte():
    inner = b'[{"type":"text","text":"a", "new": 1.0},{"type":"brand_new","x":[1,  2]}]'
    body = answer([]).replace(b'"content":[]', b'"content":' + inner)
    *events, finished = decode_answer(body)
    assert isinstance(finished, ReplyFinished)
    assert finished.message.raw == b'{"role":"assistant","content":' + inner + b"}"
    assert finished.message.dialect == "anthropic"
    assert finished.raw == body
    assert events[0] == TextDelta(text="a")
    assert isinstance(events[1], PartAdded)


def test_a_response_gives_an_event_for_every_part():
    citation = {"type": "page_location", "cited_text": "x"}
    blocks = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "a", "citations": [citation]},
        {"type": "text", "text": ""},
        {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}},
        {"type": "redacted_thinking", "data": "d"},
    ]
    *events, _ = decode_answer(answer(blocks))
    assert events == [
        ThinkingDelta(text="hm", signature="s", index=0),
        TextDelta(text="a", index=1),
        PartAdded(part=Text(text="", extra={"citations": [citation]}), index=1),
        ToolCallDelta(index=3, id="t", name="f", arguments='{"a":1}'),
        PartAdded(part=RedactedThinking(data="d"), index=4),
    ]


REASONS = [
    ("end_turn", "end"),
    ("max_tokens", "length"),
    ("tool_use", "tool_calls"),
    ("stop_sequence", "stop_sequence"),
    ("refusal", "refusal"),
    ("pause_turn", "pause"),
    ("model_context_window_exceeded", "context_window"),
    ("brand_new", "unknown"),
    (None, "unknown"),
]


@pytest.mark.parametrize(("name", "reason"), REASONS)
def test_every_stop_reason_is_mapped(name, reason):
    *_, whole = decode_answer(answer([], stop_reason=name))
    assert isinstance(whole, ReplyFinished)
    _, streamed = decode(START, end(name), STOP)
    assert streamed is not None
    assert whole.stop_reason == streamed.stop_reason == reason


def test_the_matched_stop_sequence_is_reported():
    _, finished = decode(START, end("stop_sequence", stop_sequence="X"), STOP)
    assert finished is not None
    assert finished.stop_sequence == "X"
    events = encode(done("stop_sequence", stop_sequence="X"))
    assert events[-2]["delta"] == {"stop_reason": "stop_sequence", "stop_sequence": "X"}


def test_usage_is_disjoint_and_adds_up():
    usage = {
        "input_tokens": 3,
        "cache_read_input_tokens": 20,
        "cache_creation_input_tokens": 30,
        "output_tokens": 50,
        "output_tokens_details": {"thinking_tokens": 40},
    }
    *_, finished = decode_answer(answer([], usage=usage))
    assert isinstance(finished, ReplyFinished)
    assert finished.usage == Usage(input=3, cache_read=20, cache_write=30, output=10, reasoning=40)
    told = json.loads(encode_answer(done(usage=finished.usage), message_id="m", model="x"))
    assert told["usage"] == usage


def test_the_last_usage_of_a_stream_wins():
    last = {**end(), "usage": {"output_tokens": 7, "input_tokens": None}}
    _, finished = decode(START, last, STOP)
    assert finished is not None
    assert finished.usage == Usage(input=10, cache_read=5, output=7)
    assert finished.model == "claude-x"


def test_without_token_counts_usage_is_none():
    for nothing in (None, 3, {}, {"input_tokens": -1}, {"output_tokens": "x"}):
        *_, finished = decode_answer(answer([], usage=nothing))
        assert isinstance(finished, ReplyFinished)
        assert finished.usage is None
        assert encode(finished)[-1] == STOP


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{}",
        b'{"content":"x"}',
        b'{"content":null}',
        b'{"content":[3',
        b'{"content":1}',
    ],
)
def test_a_body_that_is_not_a_response_is_malformed(body):
    with pytest.raises(MalformedError):
        decode_answer(body)


def test_an_error_body_with_status_200_is_reported():
    body = encode_error("overloaded_error", "Overloaded")
    with pytest.raises(ReportedError) as caught:
        decode_answer(body)
    assert caught.value.details.type == "overloaded_error"
    assert caught.value.details.message == "Overloaded"
    assert caught.value.details.status == 529
    assert decode_error(body) == caught.value.details


@pytest.mark.parametrize(
    ("body", "message"),
    [(b"<html>", ""), (b"[]", ""), (b'"no"', "no"), (b'{"error":"no"}', "no"), (b"3", "")],
)
def test_an_error_of_any_form_is_decoded(body, message):
    assert decode_error(body).message == message


def test_a_stream_is_joined_to_its_message():
    citation = {"type": "page_location", "cited_text": "x"}
    events, finished = decode(
        START,
        {"type": "ping"},
        start(0, type="thinking", thinking="", signature=""),
        delta(0, "thinking_delta", thinking="hm"),
        delta(0, "signature_delta", signature="sig"),
        stop(0),
        start(1, type="text", text=""),
        delta(1, "text_delta", text="Hel"),
        delta(1, "text_delta", text="lo"),
        delta(1, "citations_delta", citation=citation),
        stop(1),
        start(2, type="tool_use", id="t1", name="f", input={}),
        delta(2, "input_json_delta", partial_json=""),
        delta(2, "input_json_delta", partial_json='{"a": '),
        delta(2, "input_json_delta", partial_json="1.0}"),
        stop(2),
        end("tool_use"),
        STOP,
    )
    assert events == [
        ThinkingDelta(text="hm", index=0),
        ThinkingDelta(signature="sig", index=0),
        TextDelta(text="Hel", index=1),
        TextDelta(text="lo", index=1),
        PartAdded(part=Text(text="", extra={"citations": [citation]}), index=1),
        ToolCallDelta(index=2, id="t1", name="f"),
        ToolCallDelta(index=2, arguments='{"a": '),
        ToolCallDelta(index=2, arguments="1.0}"),
    ]
    assert finished is not None
    assert decode_parts(finished.message) == (
        Thinking(text="hm", signature="sig"),
        Text(text="Hello", extra={"citations": [citation]}),
        ToolCall(id="t1", name="f", arguments='{"a": 1.0}'),
    )
    assert b'"input":{"a": 1.0}' in finished.message.raw


def test_a_stream_without_message_stop_is_not_finished():
    decoder = AnthropicStreamDecoder()
    for event in (START, start(0, type="text", text="a"), end()):
        decoder.decode("", msgspec.json.encode(event))
    assert decoder.finish() is None
    assert not decoder.done
    assert decoder.message().text == "a"
    decoder.decode("", msgspec.json.encode(STOP))
    assert decoder.done


def test_an_error_event_is_raised_with_its_type():
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    with pytest.raises(ReportedError) as caught:
        decode(START, start(0, type="text", text=""), error)
    assert caught.value.details.type == "overloaded_error"
    with pytest.raises(ReportedError):
        AnthropicStreamDecoder().decode("error", b'"went wrong"')


def test_unknown_events_are_ignored_and_unknown_blocks_and_deltas_preserved():
    events, finished = decode(
        START,
        {"type": "brand_new", "x": 1},
        start(0, type="server_tool_use", id="s1", name="web_search", input={}),
        delta(0, "input_json_delta", partial_json='{"query":"x"}'),
        stop(0),
        start(1, type="compaction", content="a", list=[1]),
        delta(1, "compaction_delta", content="b", list=[2], flag=True),
        stop(1),
        start(2, type="redacted_thinking", data="d"),
        end(),
        STOP,
    )
    search = {
        "type": "server_tool_use",
        "id": "s1",
        "name": "web_search",
        "input": {"query": "x"},
    }
    compaction = {"type": "compaction", "content": "ab", "list": [1, 2], "flag": True}
    redacted = {"type": "redacted_thinking", "data": "d"}
    assert content(finished) == [search, compaction, redacted]
    assert [event.index for event in events if isinstance(event, PartAdded)] == [0, 1, 2]
    assert len(events) == 3


def test_other_fields_are_in_the_joined_response():
    container = {"id": "c1", "expires_at": "x"}
    last = {**end(container=container), "context_management": {"applied_edits": []}}
    _, finished = decode(START, last, STOP)
    assert finished is not None
    assert finished.raw is not None
    assert json.loads(finished.raw)["container"] == container
    assert json.loads(finished.raw)["context_management"] == {"applied_edits": []}


def test_content_in_a_block_start_is_not_lost():
    events, finished = decode(
        START,
        start(0, type="text", text="Hi", citations=[1]),
        delta(0, "citations_delta", citation=2),
        start(1, type="thinking", thinking="hm", signature="s"),
        start(2, type="tool_use", id="t", name="f", input={"a": 1}),
        end(),
        STOP,
    )
    assert TextDelta(text="Hi", index=0) in events
    assert ThinkingDelta(text="hm", signature="s", index=1) in events
    assert ToolCallDelta(index=2, id="t", name="f", arguments='{"a":1}') in events
    blocks = content(finished)
    assert blocks[0]["citations"] == [1, 2]
    assert blocks[2]["input"] == {"a": 1}


def test_incomplete_arguments_are_wrapped_as_text():
    _, finished = decode(
        START,
        start(0, type="tool_use", id="t", name="f", input={}),
        delta(0, "input_json_delta", partial_json='{"a": "b'),
        end("max_tokens"),
        STOP,
    )
    assert content(finished)[0]["input"] == {"INVALID_JSON": '{"a": "b'}


@pytest.mark.parametrize(
    "events",
    [
        [START, START],
        [STOP],
        [START, stop(0)],
        [START, delta(0, "text_delta", text="x")],
        [START, delta(0, "new_delta", text="x")],
        [START, start(0, type="text", text=""), start(0, type="text", text="")],
        [START, {"type": "content_block_start", "index": 0, "content_block": 3}],
        [START, start(0, text="x")],
        [START, {"type": "content_block_start", "index": "x", "content_block": {}}],
        [START, start(0, type="text"), delta(0, "text_delta", text=3)],
        [START, end(stop_sequence=3), STOP],
        [{"type": 3}],
    ],
)
def test_a_stream_that_violates_the_protocol_is_malformed(events):
    with pytest.raises(MalformedError):
        decode(*events)


WHOLE_STREAM = [
    START,
    start(0, type="thinking", thinking="", signature=""),
    delta(0, "thinking_delta", thinking="hm"),
    stop(0),
    start(1, type="tool_use", id="t1", name="f", input={}),
    delta(1, "input_json_delta", partial_json="{}"),
    stop(1),
    start(2, type="brand_new", x=[]),
    delta(2, "brand_new_delta", x=[1]),
    stop(2),
    end(),
    STOP,
]
ODD = st.sampled_from(
    [None, 3, "x", "type", [], {}, {"type": "text"}, [None], True, "message_stop"]
)


@given(st.data())
def test_a_damaged_stream_is_decoded_or_malformed(data):
    events = json.loads(json.dumps(WHOLE_STREAM))
    for _ in range(data.draw(st.integers(1, 3))):
        fields = data.draw(st.sampled_from(events))
        for key in ("delta", "content_block", "message", "usage"):
            inside = fields.get(key)
            if isinstance(inside, dict) and inside and data.draw(st.booleans()):
                fields = inside
        if fields:
            fields[data.draw(st.sampled_from(sorted(fields)))] = copy.deepcopy(data.draw(ODD))
    decoder = AnthropicStreamDecoder()
    try:
        for event in events:
            decoder.decode("", msgspec.json.encode(event))
        finished = decoder.finish()
    except MalformedError:
        return
    if finished is not None:
        decode_parts(finished.message)


@given(st.binary(max_size=60), st.sampled_from(["", "error", "message_start"]))
def test_bytes_that_are_not_an_event_are_malformed(data, name):
    with contextlib.suppress(MalformedError):
        AnthropicStreamDecoder().decode(name, data)
    with contextlib.suppress(MalformedError):
        decode_answer(data)


@given(st.data())
def test_a_damaged_response_is_decoded_or_malformed(data):
    blocks = [
        {"type": "text", "text": "a"},
        {"type": "tool_use", "id": "t", "name": "f", "input": {}},
    ]
    fields = json.loads(answer(blocks))
    inside = data.draw(st.sampled_from([fields, fields["usage"], *fields["content"]]))
    inside[data.draw(st.sampled_from(sorted(inside)))] = copy.deepcopy(data.draw(ODD))
    with contextlib.suppress(MalformedError):
        decode_answer(msgspec.json.encode(fields))
