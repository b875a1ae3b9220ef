"""Anthropic's answers and streams, read and written."""

import contextlib
import copy
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
from cllm.wire.anthropic.parts import decode_parts
from cllm.wire.anthropic.response_decoder import AnthropicStreamDecoder, decode_answer, decode_error
from cllm.wire.anthropic.response_encoder import (
    PING,
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


def opened(index: int, **block: Any) -> dict[str, Any]:
    return {"type": "content_block_start", "index": index, "content_block": block}


def delta(index: int, kind: str, **fields: Any) -> dict[str, Any]:
    return {
        "type": "content_block_delta",
        "index": index,
        "delta": {"type": kind, **fields},
    }


def closed(index: int) -> dict[str, Any]:
    return {"type": "content_block_stop", "index": index}


def read(*events: dict[str, Any]) -> tuple[list[ReplyEvent], ReplyFinished | None]:
    decoder = AnthropicStreamDecoder()
    out = [e for event in events for e in decoder.decode(event["type"], msgspec.json.encode(event))]
    return out, decoder.finish()


def content(finished: ReplyFinished | None) -> list[Any]:
    assert finished is not None
    blocks: list[Any] = finished.message.json()["content"]
    return blocks


def done(stop: Any = "end", **more: Any) -> ReplyFinished:
    return ReplyFinished(message=plain_message("assistant", ""), stop_reason=stop, **more)


def write(*events: ReplyEvent) -> list[dict[str, Any]]:
    encoder = AnthropicStreamEncoder(message_id="msg_1", model="claude-x")
    return frames(b"".join(encoder.encode(event) for event in events))


def frames(data: bytes) -> list[dict[str, Any]]:
    events = list(SseDecoder().feed(data))
    decoded = [json.loads(event.data) for event in events]
    assert [event.name for event in events] == [fields["type"] for fields in decoded]
    return decoded


def shape(events: list[dict[str, Any]]) -> list[Any]:
    """The blocks' life in a stream: opened, delta, closed, each with its index."""
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


# Reading whole answers


def answer(blocks: list[Any], **more: Any) -> bytes:
    fields = {**START["message"], "content": blocks, "stop_reason": "end_turn", **more}
    return msgspec.json.encode(fields)


def test_a_whole_answer_keeps_its_content_byte_for_byte():
    inner = b'[{"type":"text","text":"a", "new": 1.0},{"type":"brand_new","x":[1,  2]}]'
    body = answer([]).replace(b'"content":[]', b'"content":' + inner)
    *events, finished = decode_answer(body)
    assert isinstance(finished, ReplyFinished)
    assert finished.message.raw == b'{"role":"assistant","content":' + inner + b"}"
    assert finished.message.dialect == "anthropic"
    assert finished.raw == body
    assert events[0] == TextDelta(text="a")
    assert isinstance(events[1], PartAdded)


def test_a_whole_answer_gives_an_event_for_every_part():
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
    ("model_context_window_exceeded", "length"),
    ("brand_new", "unknown"),
    (None, "unknown"),
]


@pytest.mark.parametrize(("said", "meant"), REASONS)
def test_every_stop_reason_is_told_apart(said, meant):
    *_, whole = decode_answer(answer([], stop_reason=said))
    assert isinstance(whole, ReplyFinished)
    _, streamed = read(START, end(said), STOP)
    assert streamed is not None
    assert whole.stop_reason == streamed.stop_reason == meant


def test_the_matched_stop_sequence_is_reported():
    _, finished = read(START, end("stop_sequence", stop_sequence="X"), STOP)
    assert finished is not None
    assert finished.stop_sequence == "X"
    events = write(done("stop_sequence", stop_sequence="X"))
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


def test_the_last_counts_of_a_stream_are_the_truth():
    last = {**end(), "usage": {"output_tokens": 7, "input_tokens": None}}
    _, finished = read(START, last, STOP)
    assert finished is not None
    assert finished.usage == Usage(input=10, cache_read=5, output=7)
    assert finished.model == "claude-x"


def test_without_counts_there_is_no_usage():
    for nothing in (None, 3, {}, {"input_tokens": -1}, {"output_tokens": "x"}):
        *_, finished = decode_answer(answer([], usage=nothing))
        assert isinstance(finished, ReplyFinished)
        assert finished.usage is None
        assert write(finished)[-1] == STOP


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
def test_what_is_no_answer_is_malformed(body):
    with pytest.raises(MalformedError):
        decode_answer(body)


def test_an_error_where_an_answer_should_be_is_the_providers_own():
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
def test_an_error_of_any_shape_is_read(body, message):
    assert decode_error(body).message == message


# Reading streams


def test_a_stream_adds_up_to_its_message():
    citation = {"type": "page_location", "cited_text": "x"}
    events, finished = read(
        START,
        {"type": "ping"},
        opened(0, type="thinking", thinking="", signature=""),
        delta(0, "thinking_delta", thinking="hm"),
        delta(0, "signature_delta", signature="sig"),
        closed(0),
        opened(1, type="text", text=""),
        delta(1, "text_delta", text="Hel"),
        delta(1, "text_delta", text="lo"),
        delta(1, "citations_delta", citation=citation),
        closed(1),
        opened(2, type="tool_use", id="t1", name="f", input={}),
        delta(2, "input_json_delta", partial_json=""),
        delta(2, "input_json_delta", partial_json='{"a": '),
        delta(2, "input_json_delta", partial_json="1.0}"),
        closed(2),
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


def test_a_stream_without_its_end_is_not_finished():
    decoder = AnthropicStreamDecoder()
    for event in (START, opened(0, type="text", text="a"), end()):
        decoder.decode("", msgspec.json.encode(event))
    assert decoder.finish() is None
    assert not decoder.done
    assert decoder.message().text == "a"
    decoder.decode("", msgspec.json.encode(STOP))
    assert decoder.done


def test_an_error_in_the_middle_of_a_stream_is_raised_with_its_type():
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}
    with pytest.raises(ReportedError) as caught:
        read(START, opened(0, type="text", text=""), error)
    assert caught.value.details.type == "overloaded_error"
    with pytest.raises(ReportedError):
        AnthropicStreamDecoder().decode("error", b'"went wrong"')


def test_unknown_events_are_passed_over_and_unknown_blocks_and_deltas_kept():
    events, finished = read(
        START,
        {"type": "brand_new", "x": 1},
        opened(0, type="server_tool_use", id="s1", name="web_search", input={}),
        delta(0, "input_json_delta", partial_json='{"query":"x"}'),
        closed(0),
        opened(1, type="compaction", content="a", list=[1]),
        delta(1, "compaction_delta", content="b", list=[2], flag=True),
        closed(1),
        opened(2, type="redacted_thinking", data="d"),
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


def test_fields_beside_the_content_are_in_the_whole_answer():
    container = {"id": "c1", "expires_at": "x"}
    last = {**end(container=container), "context_management": {"applied_edits": []}}
    _, finished = read(START, last, STOP)
    assert finished is not None
    assert finished.raw is not None
    assert json.loads(finished.raw)["container"] == container
    assert json.loads(finished.raw)["context_management"] == {"applied_edits": []}


def test_content_given_when_its_block_is_opened_is_not_lost():
    events, finished = read(
        START,
        opened(0, type="text", text="Hi", citations=[1]),
        delta(0, "citations_delta", citation=2),
        opened(1, type="thinking", thinking="hm", signature="s"),
        opened(2, type="tool_use", id="t", name="f", input={"a": 1}),
        end(),
        STOP,
    )
    assert TextDelta(text="Hi", index=0) in events
    assert ThinkingDelta(text="hm", signature="s", index=1) in events
    assert ToolCallDelta(index=2, id="t", name="f", arguments='{"a":1}') in events
    blocks = content(finished)
    assert blocks[0]["citations"] == [1, 2]
    assert blocks[2]["input"] == {"a": 1}


def test_arguments_that_were_cut_off_are_kept_as_text():
    _, finished = read(
        START,
        opened(0, type="tool_use", id="t", name="f", input={}),
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
        [START, closed(0)],
        [START, delta(0, "text_delta", text="x")],
        [START, delta(0, "new_delta", text="x")],
        [START, opened(0, type="text", text=""), opened(0, type="text", text="")],
        [START, {"type": "content_block_start", "index": 0, "content_block": 3}],
        [START, opened(0, text="x")],
        [START, {"type": "content_block_start", "index": "x", "content_block": {}}],
        [START, opened(0, type="text"), delta(0, "text_delta", text=3)],
        [START, end(stop_sequence=3), STOP],
        [{"type": 3}],
    ],
)
def test_a_stream_that_breaks_the_protocol_is_malformed(events):
    with pytest.raises(MalformedError):
        read(*events)


WHOLE_STREAM = [
    START,
    opened(0, type="thinking", thinking="", signature=""),
    delta(0, "thinking_delta", thinking="hm"),
    closed(0),
    opened(1, type="tool_use", id="t1", name="f", input={}),
    delta(1, "input_json_delta", partial_json="{}"),
    closed(1),
    opened(2, type="brand_new", x=[]),
    delta(2, "brand_new_delta", x=[1]),
    closed(2),
    end(),
    STOP,
]
ODD = st.sampled_from(
    [None, 3, "x", "type", [], {}, {"type": "text"}, [None], True, "message_stop"]
)


@given(st.data())
def test_a_changed_stream_is_read_or_malformed(data):
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
def test_bytes_that_are_no_event_are_malformed(data, name):
    with contextlib.suppress(MalformedError):
        AnthropicStreamDecoder().decode(name, data)
    with contextlib.suppress(MalformedError):
        decode_answer(data)


@given(st.data())
def test_a_changed_answer_is_read_or_malformed(data):
    blocks = [
        {"type": "text", "text": "a"},
        {"type": "tool_use", "id": "t", "name": "f", "input": {}},
    ]
    fields = json.loads(answer(blocks))
    inside = data.draw(st.sampled_from([fields, fields["usage"], *fields["content"]]))
    inside[data.draw(st.sampled_from(sorted(inside)))] = copy.deepcopy(data.draw(ODD))
    with contextlib.suppress(MalformedError):
        decode_answer(msgspec.json.encode(fields))


# Writing streams


def test_thinking_then_text_are_two_blocks():
    events = write(ThinkingDelta(text="A"), TextDelta(text="B"), done())
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


def test_arguments_that_come_with_the_first_piece_of_a_call_are_kept():
    call = ToolCallDelta(index=0, id="c1", name="f", arguments='{"a":')
    rest = ToolCallDelta(index=0, arguments=' "é"}')
    events = write(TextDelta(text="x"), call, rest, done("tool_calls"))
    check_protocol(events)
    assert events[4]["content_block"] == {"type": "tool_use", "id": "c1", "name": "f", "input": {}}
    pieces = [
        event["delta"]["partial_json"]
        for event in events
        if event.get("index") == 1 and "delta" in event
    ]
    assert "".join(pieces) == '{"a": "é"}'
    assert events[-2]["delta"]["stop_reason"] == "tool_use"


def test_thinking_and_signature_together_or_alone_are_deltas_of_one_block():
    both = ThinkingDelta(text="A", signature="s")
    events = write(both, TextDelta(text="B"), done())
    assert shape(events)[:4] == [
        ("start", 0),
        ("thinking_delta", 0),
        ("signature_delta", 0),
        ("stop", 0),
    ]
    alone = write(ThinkingDelta(text="A"), ThinkingDelta(signature="s"), done())
    assert shape(alone) == shape(events)[:4]
    only = write(ThinkingDelta(signature="s"), done())
    assert shape(only) == [("start", 0), ("signature_delta", 0), ("stop", 0)]


def test_an_empty_reply_is_one_empty_text_opened_and_closed():
    for events in (write(done()), write(TextDelta(text=""), ThinkingDelta(), done())):
        assert events[1]["content_block"] == {"type": "text", "text": ""}
        check_protocol(events)
        assert [shape(events)[0], shape(events)[-1]] == [("start", 0), ("stop", 0)]


def test_the_last_event_is_message_stop_and_nothing_says_done():
    encoder = AnthropicStreamEncoder(message_id="m", model="x")
    data = encoder.encode(TextDelta(text="a")) + encoder.encode(done())
    assert data.endswith(b'event: message_stop\ndata: {"type":"message_stop"}\n\n')
    assert b"[DONE]" not in data


def test_whole_parts_are_whole_blocks():
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
    events = write(*(PartAdded(part=part, index=index) for index, part in enumerate(parts)), done())
    check_protocol(events)
    blocks = [event["content_block"] for event in events if event["type"] == "content_block_start"]
    assert blocks[:2] == [{"type": "redacted_thinking", "data": "d"}, server]
    assert [block["type"] for block in blocks[2:]] == ["text", "text", "thinking", "tool_use"]


def test_a_block_that_came_on_several_lines_is_one_frame():
    raw = b'{\n  "type": "brand_new",\r\n  "x": "a b\\n"\n}'
    events = write(PartAdded(part=Unknown(dialect="anthropic", raw=raw)), done())
    assert events[1]["content_block"] == {"type": "brand_new", "x": "a b\n"}


def test_a_citation_is_a_delta_of_its_text():
    citation = {"type": "page_location", "cited_text": "x"}
    cited = PartAdded(part=Text(text="", extra={"citations": [citation]}), index=0)
    events = write(TextDelta(text="a"), cited, done())
    assert shape(events) == [
        ("start", 0),
        ("text_delta", 0),
        ("citations_delta", 0),
        ("stop", 0),
    ]


def test_calls_that_come_in_turns_are_blocks_one_after_another():
    events = write(
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


def test_a_call_is_closed_when_its_arguments_are_whole():
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


def test_pings_and_errors_are_frames_of_their_own():
    encoder = AnthropicStreamEncoder(message_id="m", model="x")
    assert frames(PING) == [{"type": "ping"}]
    error = {"type": "error", "error": {"type": "api_error", "message": "broken"}}
    assert frames(encoder.error("api_error", "broken")) == [error]
    assert encoder.start()
    assert encoder.start() == b""


@pytest.mark.parametrize(
    ("meant", "said"),
    [
        ("end", "end_turn"),
        ("length", "max_tokens"),
        ("tool_calls", "tool_use"),
        ("pause", "pause_turn"),
        ("content_filter", "refusal"),
        ("refusal", "refusal"),
        ("unknown", None),
    ],
)
def test_a_stop_reason_is_said_in_anthropics_words(meant, said):
    assert write(done(meant))[-2]["delta"]["stop_reason"] == said


def test_anthropics_own_word_and_counts_come_through():
    usage = {"input_tokens": 1, "output_tokens": 2, "server_tool_use": {"web_search_requests": 3}}
    body = answer([], stop_reason="model_context_window_exceeded", usage=usage)
    *_, finished = decode_answer(body)
    assert isinstance(finished, ReplyFinished)
    ending = write(finished)[-2]
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
def test_any_events_give_a_stream_that_keeps_the_protocol(pieces):
    check_protocol(write(*pieces, done()))


def test_an_event_that_is_not_of_the_answer_says_nothing():
    encoder = AnthropicStreamEncoder(message_id="m", model="x")
    assert encoder.encode(object()) == b""  # type: ignore[arg-type]


# Writing whole answers


def test_an_answer_of_anthropics_own_goes_as_it_came():
    body = answer([{"type": "text", "text": "a", "new": 1}])
    *_, finished = decode_answer(body)
    assert isinstance(finished, ReplyFinished)
    assert encode_answer(finished, message_id="m", model="x") == body


def test_an_answer_of_another_protocol_is_said_in_blocks():
    parts: list[AnyPart] = [
        Thinking(text="hm"),
        Text(text="a"),
        ToolCall(id="c", name="f", arguments='{"a": 1}'),
        Unknown(dialect="openai", raw=b"{}"),
    ]
    body = encode_answer(
        done("tool_calls", usage=Usage(input=1, output=2)), message_id="m", model="x", parts=parts
    )
    said = json.loads(body)
    assert [block["type"] for block in said["content"]] == ["thinking", "text", "tool_use"]
    assert said["content"][0]["signature"] == ""
    assert said["stop_reason"] == "tool_use"
    assert b'"input":{"a": 1}' in body


def test_an_answer_of_nothing_has_one_empty_text():
    said = json.loads(encode_answer(done(), message_id="m", model="x"))
    assert said["content"] == [{"type": "text", "text": ""}]


def test_a_streamed_answer_is_encoded_from_its_message():
    raw = b'{"role":"assistant","content":[{"type":"text","text":"a"}]}'
    message = Message(role="assistant", raw=raw, dialect="anthropic")
    finished = ReplyFinished(message=message, stop_reason="end")
    said = json.loads(encode_answer(finished, message_id="m", model="x"))
    assert said["content"] == [{"type": "text", "text": "a"}]


def test_the_same_stream_read_and_written_and_read_again_is_the_same():
    events, finished = read(*WHOLE_STREAM)
    assert finished is not None
    _, again = read(*write(*events, finished))
    assert again is not None
    assert again.message == finished.message
    assert again.usage == finished.usage
