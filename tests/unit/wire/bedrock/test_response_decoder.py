"""Converse responses and streams, decoded."""

import base64
import contextlib
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cllm.core.message import Image, RedactedThinking, Text, Thinking, ToolCall, Unknown
from cllm.core.reply import (
    PartAdded,
    ReplyFinished,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    Usage,
)
from cllm.wire.bedrock.parts import decode_parts
from cllm.wire.bedrock.response_decoder import BedrockStreamDecoder, decode_answer, decode_error
from cllm.wire.errors import ErrorDetails, MalformedError, ReportedError

USAGE = {
    "inputTokens": 10,
    "outputTokens": 5,
    "totalTokens": 118,
    "cacheReadInputTokens": 100,
    "cacheWriteInputTokens": 3,
}
STOPS = [
    ("end_turn", "end"),
    ("tool_use", "tool_calls"),
    ("max_tokens", "length"),
    ("stop_sequence", "stop_sequence"),
    ("guardrail_intervened", "content_filter"),
    ("content_filtered", "content_filter"),
    ("model_context_window_exceeded", "context_window"),
    ("malformed_tool_use", "unknown"),
    ("something_new", "unknown"),
]


def answer(*blocks: Any, stop: str = "end_turn", **more: Any) -> bytes:
    message = {"role": "assistant", "content": list(blocks)}
    body = {"output": {"message": message}, "stopReason": stop, "usage": USAGE, **more}
    return json.dumps(body).encode()


def stream(*events: tuple[str, Any], names: Any = None) -> tuple[list[Any], BedrockStreamDecoder]:
    decoder = BedrockStreamDecoder(names=names or {})
    decoded = [
        event
        for name, fields in events
        for event in decoder.decode(name, json.dumps(fields).encode())
    ]
    return decoded, decoder


def delta(index: int, **fields: Any) -> tuple[str, Any]:
    return "contentBlockDelta", {"contentBlockIndex": index, "delta": fields, "p": "abcdef"}


def start(index: int, **fields: Any) -> tuple[str, Any]:
    return "contentBlockStart", {"contentBlockIndex": index, "start": fields}


def stop(index: int) -> tuple[str, Any]:
    return "contentBlockStop", {"contentBlockIndex": index}


END = ("messageStop", {"stopReason": "end_turn"})
BEGIN = ("messageStart", {"role": "assistant"})
CALL = {"toolUse": {"toolUseId": "t1", "name": "look"}}


def finished(decoder: BedrockStreamDecoder) -> ReplyFinished:
    last = decoder.finish()
    assert last is not None
    return last


def test_a_response_gives_deltas_and_a_finished_event():
    body = answer(
        {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"}}},
        {"text": "hi"},
        {"toolUse": {"toolUseId": "t", "name": "look", "input": {"a": 1}}},
        {"reasoningContent": {"redactedContent": "AAEC"}},
        {"text": ""},
    )
    *deltas, last = decode_answer(body)
    assert deltas == [
        ThinkingDelta(text="hm", signature="s", index=0),
        TextDelta(text="hi", index=1),
        ToolCallDelta(index=2, id="t", name="look", arguments='{"a":1}'),
        PartAdded(part=RedactedThinking(data="AAEC"), index=3),
    ]
    assert isinstance(last, ReplyFinished)
    assert last.raw == body
    assert (last.message.role, last.message.dialect) == ("assistant", "bedrock")
    assert len(decode_parts(last.message)) == 5
    assert b": " not in last.message.raw


def test_the_token_counts_are_disjoint():
    (*_, last) = decode_answer(answer({"text": "a"}))
    assert isinstance(last, ReplyFinished)
    assert last.usage == Usage(input=10, output=5, cache_read=100, cache_write=3)
    assert last.usage.total == 118


@pytest.mark.parametrize(("name", "reason"), STOPS)
def test_every_stop_reason_is_mapped(name, reason):
    (*_, last) = decode_answer(answer({"text": "a"}, stop=name))
    assert isinstance(last, ReplyFinished)
    assert last.stop_reason == reason
    _, decoder = stream(("messageStop", {"stopReason": name}))
    assert finished(decoder).stop_reason == reason


def test_the_matched_stop_sequence_is_reported():
    more = {"additionalModelResponseFields": {"stop_sequence": "X"}}
    (*_, last) = decode_answer(answer({"text": "a"}, stop="stop_sequence", **more))
    assert isinstance(last, ReplyFinished)
    assert last.stop_sequence == "X"
    _, decoder = stream(("messageStop", {"stopReason": "stop_sequence", **more}))
    assert finished(decoder).stop_sequence == "X"


def test_tool_aliases_are_replaced_by_the_clients_names():
    names = {"fs_read_1": "fs.read"}
    block = {"toolUse": {"toolUseId": "t", "name": "fs_read_1", "input": {"a": 1}}}
    called, last = decode_answer(answer(block), names=names)
    assert isinstance(called, ToolCallDelta)
    assert isinstance(last, ReplyFinished)
    expected = (ToolCall(id="t", name="fs.read", arguments='{"a":1}'),)
    assert called.name == "fs.read"
    assert decode_parts(last.message) == expected
    deltas, decoder = stream(
        start(0, toolUse={"toolUseId": "t", "name": "fs_read_1"}),
        delta(0, toolUse={"input": '{"a":1}'}),
        END,
        names=names,
    )
    assert deltas[0].name == "fs.read"
    assert decode_parts(finished(decoder).message) == expected


def test_the_model_that_a_router_chose_is_named():
    trace = {"promptRouter": {"invokedModelId": "m"}}
    (*_, last) = decode_answer(answer({"text": "a"}, trace=trace))
    assert isinstance(last, ReplyFinished)
    assert last.model == "m"
    _, decoder = stream(END, ("metadata", {"usage": USAGE, "trace": trace}))
    assert finished(decoder).model == "m"
    assert finished(decoder).usage == Usage(input=10, output=5, cache_read=100, cache_write=3)


@pytest.mark.parametrize(
    "body", [b"", b"[]", b"{}", b'{"stopReason":"end_turn"}', b"\xff", b"[" * 9000]
)
def test_a_body_that_is_not_a_response_is_malformed(body):
    with pytest.raises(MalformedError):
        decode_answer(body)


def test_a_response_without_usage_has_none():
    body = b'{"output":{"message":{"role":"assistant","content":[]}},"stopReason":"end_turn"}'
    (last,) = decode_answer(body)
    assert isinstance(last, ReplyFinished)
    assert last.usage is None


def test_a_stream_of_every_block_is_joined():
    deltas, decoder = stream(
        BEGIN,
        delta(0, reasoningContent={"text": "h"}),
        delta(0, reasoningContent={"text": "m"}),
        delta(0, reasoningContent={"signature": "sig"}),
        stop(0),
        delta(1, text="a"),
        delta(1, text="b"),
        delta(1, text=""),
        stop(1),
        start(2, **CALL),
        delta(2, toolUse={"input": '{"x": '}),
        delta(2, toolUse={"input": "1}"}),
        stop(2),
        ("messageStop", {"stopReason": "tool_use"}),
        ("metadata", {"usage": USAGE, "metrics": {"latencyMs": 3}}),
    )
    assert deltas == [
        ThinkingDelta(text="h", index=0),
        ThinkingDelta(text="m", index=0),
        ThinkingDelta(signature="sig", index=0),
        TextDelta(text="a", index=1),
        TextDelta(text="b", index=1),
        ToolCallDelta(index=2, id="t1", name="look"),
        ToolCallDelta(index=2, arguments='{"x": '),
        ToolCallDelta(index=2, arguments="1}"),
    ]
    assert decode_parts(finished(decoder).message) == (
        Thinking(text="hm", signature="sig"),
        Text(text="ab"),
        ToolCall(id="t1", name="look", arguments='{"x": 1}'),
    )


def test_thinking_and_signature_in_one_delta_are_both_decoded():
    deltas, decoder = stream(delta(0, reasoningContent={"text": "hm", "signature": "s"}), END)
    assert deltas == [ThinkingDelta(text="hm", signature="s", index=0)]
    assert decode_parts(finished(decoder).message) == (Thinking(text="hm", signature="s"),)


def test_redacted_thinking_in_several_deltas_is_one_part():
    first, second = (base64.b64encode(data).decode() for data in (b"abcd", b"e"))
    deltas, decoder = stream(
        delta(3, reasoningContent={"redactedContent": first}),
        delta(3, reasoningContent={"redactedContent": second}),
        stop(3),
        stop(3),
        stop(9),
        END,
    )
    whole = RedactedThinking(data=base64.b64encode(b"abcde").decode())
    assert deltas == [PartAdded(part=whole, index=0)]
    assert decode_parts(finished(decoder).message) == (whole,)


def test_a_cited_text_streams_as_text_and_keeps_its_citations():
    deltas, decoder = stream(
        delta(0, text="a"), delta(0, citation={"title": "t"}), delta(0, text="b"), stop(0), END
    )
    assert deltas == [TextDelta(text="a"), TextDelta(text="b")]
    (part,) = decode_parts(finished(decoder).message)
    assert isinstance(part, Text)
    assert part.text == "ab"
    assert part.extra["citationsContent"]["citations"] == [{"title": "t"}]


def test_results_and_images_of_bedrocks_tools_are_preserved():
    deltas, decoder = stream(
        start(0, toolUse={"toolUseId": "t", "name": "n", "type": "server_tool_use"}),
        start(1, toolResult={"toolUseId": "t", "status": "success"}),
        delta(1, toolResult=[{"text": "r"}]),
        stop(1),
        start(2, image={"format": "png"}),
        delta(2, image={"source": {"bytes": "AA=="}}),
        stop(2),
        delta(3, toolResult=[{"text": "late"}]),
        stop(3),
        END,
    )
    added = [event for event in deltas if isinstance(event, PartAdded)]
    assert added[1] == PartAdded(part=Image(media_type="image/png", data="AA=="), index=2)
    parts = decode_parts(finished(decoder).message)
    assert parts[0].extra == {"type": "server_tool_use"}
    assert parts[1] == added[0].part
    assert isinstance(parts[3], Unknown)


def test_a_call_without_input_has_an_empty_object():
    _, decoder = stream(start(0, **CALL), stop(0), END)
    assert decode_parts(finished(decoder).message)[0].arguments == "{}"  # type: ignore[union-attr]


def test_an_incomplete_call_keeps_its_arguments():
    _, decoder = stream(
        start(0, **CALL),
        delta(0, toolUse={"input": '{"a":'}),
        ("messageStop", {"stopReason": "max_tokens"}),
    )
    assert decode_parts(finished(decoder).message)[0].arguments == '{"a":'  # type: ignore[union-attr]


def test_a_stream_without_message_stop_is_not_finished():
    _, decoder = stream(BEGIN, delta(0, text="a"), stop(0))
    assert decoder.finish() is None
    assert decoder.message().text == "a"


@pytest.mark.parametrize(
    ("name", "status"),
    [
        ("throttlingException", 429),
        ("modelStreamErrorException", 424),
        ("validationException", 400),
        ("serviceUnavailableException", 503),
        ("internalServerException", 500),
        ("brandNewException", None),
    ],
)
def test_an_exception_in_the_stream_is_an_error_with_its_type(name, status):
    with pytest.raises(ReportedError) as caught:
        stream(delta(0, text="a"), (name, {"message": "slow down"}))
    assert caught.value.details == ErrorDetails(message="slow down", type=name, status=status)
    with pytest.raises(ReportedError, match=name):
        BedrockStreamDecoder().decode(name, b"garbage")


def test_an_error_body_contains_its_type():
    body = b'{"__type":"com.amazon#ThrottlingException","Message":"m"}'
    assert decode_error(body) == ErrorDetails(message="m", type="ThrottlingException", status=429)
    assert decode_error(b"<html>") == ErrorDetails()


def test_an_unknown_event_is_ignored():
    assert BedrockStreamDecoder().decode("ping", b"whatever") == []


@pytest.mark.parametrize(
    ("name", "fields"),
    [
        ("contentBlockDelta", {}),
        ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"toolUse": {"input": "{"}}}),
        ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": 3}}),
        (
            "contentBlockDelta",
            {"contentBlockIndex": 0, "delta": {"reasoningContent": {"redactedContent": "?"}}},
        ),
        ("contentBlockStart", {"contentBlockIndex": 0, "start": {"toolUse": {}}}),
        ("messageStop", {}),
        ("metadata", {"trace": {"promptRouter": 3}}),
    ],
)
def test_an_event_of_an_invalid_form_is_malformed(name, fields):
    with pytest.raises(MalformedError):
        stream((name, fields))


EVENTS = ["contentBlockStart", "contentBlockDelta", "contentBlockStop", "messageStop", "metadata"]
KEYS = [
    "contentBlockIndex",
    "delta",
    "start",
    "text",
    "toolUse",
    "input",
    "toolUseId",
    "name",
    "reasoningContent",
    "redactedContent",
    "signature",
    "citation",
    "toolResult",
    "image",
    "usage",
    "stopReason",
    "output",
    "message",
    "content",
]
NOISE = st.recursive(
    st.none() | st.integers(0, 3) | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3)
    ),
    max_leaves=10,
)


@given(st.lists(st.tuples(st.sampled_from(EVENTS), NOISE), max_size=6))
def test_any_stream_raises_only_malformed(events):
    decoder = BedrockStreamDecoder()
    for name, fields in [*events, END]:
        with contextlib.suppress(MalformedError):
            decoder.decode(name, json.dumps(fields).encode())
    decode_parts(finished(decoder).message)


@given(NOISE, st.integers(0, 120), st.binary(max_size=2))
def test_a_damaged_response_raises_only_malformed(noise, place, bytes_):
    body = answer({"text": "a"}, {"toolUse": {"toolUseId": "t", "name": "n", "input": noise}})
    broken = body[:place] + bytes_ + body[place + 1 :]
    with contextlib.suppress(MalformedError):
        decode_answer(broken, names={"n": "m"})
    with contextlib.suppress(MalformedError):
        decode_answer(json.dumps(noise).encode())


TEXTS = st.text(alphabet=st.characters(codec="utf-8"), min_size=1, max_size=20)


@given(st.lists(TEXTS, min_size=1), st.lists(st.integers(1, 5), min_size=40, max_size=40))
def test_deltas_are_joined_to_the_whole_text(texts, cuts):
    pieces = []
    for index, text in enumerate(texts):
        rest = text
        for cut in cuts:
            if rest:
                pieces.append(delta(index, text=rest[:cut]))
                rest = rest[cut:]
    deltas, decoder = stream(*pieces, END)
    for index, text in enumerate(texts):
        assert "".join(event.text for event in deltas if event.index == index) == text
    assert decode_parts(finished(decoder).message) == tuple(Text(text=text) for text in texts)
