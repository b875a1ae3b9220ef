"""Replies of any provider, encoded for Anthropic clients."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cllm.core.message import (
    AnyPart,
    Message,
    RedactedThinking,
    Refusal,
    Text,
    Thinking,
    ToolCall,
    Unknown,
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
from cllm.wire.anthropic.response_decoder import AnthropicStreamDecoder, decode_answer
from cllm.wire.anthropic.response_encoder import (
    PING,
    AnthropicStreamEncoder,
    encode_answer,
)
from cllm.wire.errors import MalformedError
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


def shape(events: list[dict[str, Any]]) -> list[Any]:
    """The events of the blocks, each with its index."""
    short = {"content_block_start": "start", "content_block_stop": "stop"}
    return [
        (
            short.get(event["type"], event.get("delta", {}).get("type")),
            event["index"],
        )
        for event in events
        if event["type"].startswith("content_block")
    ]


def check_protocol(events: list[dict[str, Any]]) -> None:
    kinds = [event["type"] for event in events]
    assert kinds[0] == "message_start"
    assert kinds.count("message_start") == 1
    assert kinds[-2:] == ["message_delta", "message_stop"]
    current, following = None, 0
    for event in events[1:-2]:
        if event["type"] == "content_block_start":
            assert current is None
            assert event["index"] == following
            current, following = event["index"], following + 1
        else:
            assert event["index"] == current
            current = None if event["type"] == "content_block_stop" else current
    assert current is None
    assert following > 0


def answer(blocks: list[Any], **more: Any) -> bytes:
    fields = {**START["message"], "content": blocks, "stop_reason": "end_turn", **more}
    return msgspec.json.encode(fields)


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


def test_thinking_and_text_are_two_blocks():
    events = encode(ThinkingDelta(text="A"), TextDelta(text="B"), done())
    assert shape(events) == [
        ("start", 0),
        ("thinking_delta", 0),
        ("stop", 0),
        ("start", 1),
        ("text_delta", 1),
        ("stop", 1),
    ]
    assert events[1]["content_block"]["type"] == "thinking"
    check_protocol(events)


def test_arguments_in_the_first_delta_of_a_call_are_sent():
    call = ToolCallDelta(index=0, id="c1", name="f", arguments='{"a":')
    rest = ToolCallDelta(index=0, arguments=' "é"}')
    events = encode(TextDelta(text="x"), call, rest, done("tool_calls"))
    check_protocol(events)
    assert events[4]["content_block"] == {"type": "tool_use", "id": "c1", "name": "f", "input": {}}
    pieces = [
        event["delta"]["partial_json"]
        for event in events
        if event.get("index") == 1 and "delta" in event
    ]
    assert "".join(pieces) == '{"a": "é"}'
    assert events[-2]["delta"]["stop_reason"] == "tool_use"


def test_thinking_and_its_signature_are_deltas_of_one_block():
    both = ThinkingDelta(text="A", signature="s")
    events = encode(both, TextDelta(text="B"), done())
    assert shape(events)[:4] == [
        ("start", 0),
        ("thinking_delta", 0),
        ("signature_delta", 0),
        ("stop", 0),
    ]
    alone = encode(ThinkingDelta(text="A"), ThinkingDelta(signature="s"), done())
    assert shape(alone) == shape(events)[:4]
    only = encode(ThinkingDelta(signature="s"), done())
    assert shape(only) == [("start", 0), ("signature_delta", 0), ("stop", 0)]


def test_an_empty_reply_is_one_empty_text_block():
    for events in (encode(done()), encode(TextDelta(text=""), ThinkingDelta(), done())):
        assert events[1]["content_block"] == {"type": "text", "text": ""}
        check_protocol(events)
        assert [shape(events)[0], shape(events)[-1]] == [("start", 0), ("stop", 0)]


def test_the_last_event_is_message_stop():
    encoder = AnthropicStreamEncoder(message_id="m", model="x")
    data = encoder.encode(TextDelta(text="a")) + encoder.encode(done())
    assert data.endswith(b'event: message_stop\ndata: {"type":"message_stop"}\n\n')
    assert b"[DONE]" not in data


def test_a_complete_part_is_a_complete_block():
    server = {"type": "server_tool_use", "id": "s", "name": "web_search", "input": {"q": 1}}
    parts: list[AnyPart] = [
        RedactedThinking(data="d"),
        Unknown(dialect="anthropic", raw=msgspec.json.encode(server)),
        Unknown(dialect="openai", raw=b"{}"),
        Text(text="t"),
        Refusal(text="no"),
        Thinking(text="hm", signature="s"),
        ToolCall(id="c", name="f", arguments="{}"),
    ]
    events = encode(
        *(PartAdded(part=part, index=index) for index, part in enumerate(parts)), done()
    )
    check_protocol(events)
    blocks = [event["content_block"] for event in events if event["type"] == "content_block_start"]
    assert blocks[:2] == [{"type": "redacted_thinking", "data": "d"}, server]
    assert [block["type"] for block in blocks[2:]] == ["text", "text", "thinking", "tool_use"]


def test_a_block_with_line_breaks_is_one_frame():
    raw = b'{\n  "type": "brand_new",\r\n  "x": "a b\\n"\n}'
    events = encode(PartAdded(part=Unknown(dialect="anthropic", raw=raw)), done())
    assert events[1]["content_block"] == {"type": "brand_new", "x": "a b\n"}


def test_a_citation_is_a_delta_of_its_text():
    citation = {"type": "page_location", "cited_text": "x"}
    cited = PartAdded(part=Text(text="", extra={"citations": [citation]}), index=0)
    events = encode(TextDelta(text="a"), cited, done())
    assert shape(events) == [
        ("start", 0),
        ("text_delta", 0),
        ("citations_delta", 0),
        ("stop", 0),
    ]


def test_interleaved_calls_become_consecutive_blocks():
    events = encode(
        ToolCallDelta(index=0, id="a", name="f"),
        ToolCallDelta(index=1, id="b", name="g"),
        ToolCallDelta(index=0, arguments='{"x":'),
        TextDelta(text="aside"),
        ToolCallDelta(index=1, arguments='{"y":2}'),
        ToolCallDelta(index=0, arguments="1}"),
        done("tool_calls"),
    )
    check_protocol(events)
    inputs: dict[int, str] = {}
    for event in events:
        if event["type"] == "content_block_delta" and "partial_json" in event["delta"]:
            index = event["index"]
            inputs[index] = inputs.get(index, "") + event["delta"]["partial_json"]
    assert sorted(inputs.values()) == ['{"x":1}', '{"y":2}']


def test_a_call_is_closed_when_its_arguments_are_complete():
    encoder = AnthropicStreamEncoder(message_id="m", model="x")
    encoder.encode(ToolCallDelta(index=0, id="a", name="f", arguments='{"a":{}'))
    held = encoder.encode(ToolCallDelta(index=1, id="b", name="g", arguments="{}"))
    assert held == b""
    encoder.encode(ToolCallDelta(index=0, arguments="}"))
    assert b'"id":"b"' in encoder.encode(TextDelta(text="more"))
    assert encoder.encode(ToolCallDelta(index=0, arguments=" ")) == b""
    encoder.encode(TextDelta(text="x"))
    with pytest.raises(MalformedError):
        encoder.encode(ToolCallDelta(index=0, arguments="x"))


def test_pings_and_errors_are_separate_frames():
    encoder = AnthropicStreamEncoder(message_id="m", model="x")
    assert decode_frames(PING) == [{"type": "ping"}]
    error = {"type": "error", "error": {"type": "api_error", "message": "broken"}}
    assert decode_frames(encoder.error("api_error", "broken")) == [error]
    assert encoder.start()
    assert encoder.start() == b""


@pytest.mark.parametrize(
    ("reason", "name"),
    [
        ("end", "end_turn"),
        ("length", "max_tokens"),
        ("tool_calls", "tool_use"),
        ("pause", "pause_turn"),
        ("content_filter", "refusal"),
        ("refusal", "refusal"),
        ("unknown", "max_tokens"),
    ],
)
def test_a_stop_reason_is_encoded_with_anthropics_name(reason, name):
    assert encode(done(reason))[-2]["delta"]["stop_reason"] == name


def test_anthropics_own_stop_reason_and_usage_are_preserved():
    usage = {"input_tokens": 1, "output_tokens": 2, "server_tool_use": {"web_search_requests": 3}}
    body = answer([], stop_reason="model_context_window_exceeded", usage=usage)
    *_, finished = decode_answer(body)
    assert isinstance(finished, ReplyFinished)
    ending = encode(finished)[-2]
    assert ending["delta"]["stop_reason"] == "model_context_window_exceeded"
    assert ending["usage"]["server_tool_use"] == {"web_search_requests": 3}


PIECES = st.one_of(
    st.builds(TextDelta, text=st.text(max_size=5), index=st.integers(0, 2)),
    st.builds(
        ThinkingDelta,
        text=st.text(max_size=5),
        signature=st.none() | st.just("s"),
        index=st.integers(0, 2),
    ),
    st.builds(
        ToolCallDelta, index=st.integers(0, 2), arguments=st.sampled_from(["", "{", '{"a":'])
    ),
    st.builds(PartAdded, part=st.just(RedactedThinking(data="d")), index=st.integers(0, 2)),
)


@given(st.lists(PIECES, max_size=12))
def test_any_events_give_a_valid_stream(pieces):
    check_protocol(encode(*pieces, done()))


def test_an_event_without_content_is_not_encoded():
    encoder = AnthropicStreamEncoder(message_id="m", model="x")
    assert encoder.encode(object()) == b""  # type: ignore[arg-type]


def test_a_response_of_anthropic_is_unchanged():
    body = answer([{"type": "text", "text": "a", "new": 1}])
    *_, finished = decode_answer(body)
    assert isinstance(finished, ReplyFinished)
    assert encode_answer(finished, message_id="m", model="x") == body


def test_a_response_of_another_protocol_is_encoded_as_blocks():
    parts: list[AnyPart] = [
        Thinking(text="hm"),
        Text(text="a"),
        ToolCall(id="c", name="f", arguments='{"a": 1}'),
        Unknown(dialect="openai", raw=b"{}"),
    ]
    body = encode_answer(
        done("tool_calls", usage=Usage(input=1, output=2)), message_id="m", model="x", parts=parts
    )
    response = json.loads(body)
    assert [block["type"] for block in response["content"]] == ["thinking", "text", "tool_use"]
    assert response["content"][0]["signature"] == ""
    assert response["stop_reason"] == "tool_use"
    assert b'"input":{"a": 1}' in body


def test_an_empty_response_has_one_empty_text():
    response = json.loads(encode_answer(done(), message_id="m", model="x"))
    assert response["content"] == [{"type": "text", "text": ""}]


def test_a_streamed_reply_is_encoded_from_its_message():
    raw = b'{"role":"assistant","content":[{"type":"text","text":"a"}]}'
    message = Message(role="assistant", raw=raw, dialect="anthropic")
    finished = ReplyFinished(message=message, stop_reason="end")
    response = json.loads(encode_answer(finished, message_id="m", model="x"))
    assert response["content"] == [{"type": "text", "text": "a"}]


def test_a_stream_decoded_and_encoded_again_is_equal():
    events, finished = decode(*WHOLE_STREAM)
    assert finished is not None
    _, again = decode(*encode(*events, finished))
    assert again is not None
    assert again.message == finished.message
    assert again.usage == finished.usage
