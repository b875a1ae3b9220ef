"""Answers of the Responses API, whole and streamed."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fake_responses import (
    function_call_item,
    make_events,
    make_response,
    message_item,
    reasoning_item,
    refusal_item,
    web_search_item,
)

from cllm.core.message import RedactedThinking, Refusal, Text, Thinking, ToolCall, Unknown
from cllm.core.reply import (
    PartAdded,
    RefusalDelta,
    ReplyEvent,
    ReplyFinished,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    Usage,
)
from cllm.wire.errors import MalformedError, ReportedError
from cllm.wire.responses.parts import decode_parts
from cllm.wire.responses.response_decoder import ResponsesStreamDecoder, decode_answer

LINK = {"type": "url_citation", "url": "https://x", "title": "X", "start_index": 0, "end_index": 1}


def whole(answer: dict[str, Any]) -> list[ReplyEvent]:
    return decode_answer(json.dumps(answer, indent=2).encode())


def decode_stream(sent: list[dict[str, Any]]) -> list[ReplyEvent]:
    decoder = ResponsesStreamDecoder()
    decoded = [event for one in sent for event in decoder.decode(json.dumps(one).encode())]
    finished = decoder.finish()
    return [*decoded, *([] if finished is None else [finished])]


def last(decoded: list[ReplyEvent]) -> ReplyFinished:
    assert isinstance(decoded[-1], ReplyFinished)
    return decoded[-1]


def text_of(decoded: list[ReplyEvent]) -> str:
    return "".join(event.text for event in decoded if isinstance(event, TextDelta))


def thinking_of(decoded: list[ReplyEvent]) -> tuple[str, str]:
    deltas = [event for event in decoded if isinstance(event, ThinkingDelta)]
    return "".join(d.text for d in deltas), "".join(d.signature or "" for d in deltas)


def calls_of(decoded: list[ReplyEvent]) -> dict[int, list[str]]:
    calls: dict[int, list[str]] = {}
    for event in decoded:
        if isinstance(event, ToolCallDelta):
            call = calls.setdefault(event.index, ["", "", ""])
            for place, piece in enumerate((event.id, event.name, event.arguments)):
                call[place] += piece or ""
    return calls


EVERYTHING = (
    reasoning_item("First.", "Then.", item_id="rs_1"),
    web_search_item(),
    message_item("Hello ä🐈", annotations=[LINK]),
    reasoning_item(item_id="rs_2", sealed="other"),
    function_call_item("call_1", "weather", '{"city":"Bern"}', "fc_1"),
    function_call_item("call_2", "now", "{}", "fc_2"),
)


@pytest.fixture(params=["whole", "stream"])
def decoded(request: pytest.FixtureRequest) -> list[ReplyEvent]:
    answer = make_response(*EVERYTHING, usage=(100, 60, 10, 50, 20))
    return whole(answer) if request.param == "whole" else decode_stream(make_events(answer))


class TestAnswer:
    def test_whole_and_streamed_answers_are_equal(self, decoded):
        assert text_of(decoded) == "Hello ä🐈"
        assert thinking_of(decoded) == ("First.\n\nThen.", "gAAAA-sealed")
        assert list(calls_of(decoded).values()) == [
            ["call_1", "weather", '{"city":"Bern"}'],
            ["call_2", "now", "{}"],
        ]

    def test_every_item_is_preserved(self, decoded):
        message = last(decoded).message

        assert message.dialect == "responses"
        assert message.json() == {"role": "assistant", "content": list(EVERYTHING)}
        assert message.text == "Hello ä🐈"
        assert b"\n" not in message.raw

    def test_delta_indexes_match_the_parts(self, decoded):
        parts = decode_parts(last(decoded).message)
        kinds = {
            TextDelta: Text,
            ThinkingDelta: Thinking,
            ToolCallDelta: ToolCall,
        }

        for event in decoded[:-1]:
            assert isinstance(event, TextDelta | ThinkingDelta | ToolCallDelta | PartAdded)
            expected = type(event.part) if isinstance(event, PartAdded) else kinds[type(event)]
            assert isinstance(parts[event.index], expected)
        assert {event.index for event in decoded[:-1]} == set(range(len(parts)))

    def test_reasoning_ids_annotations_and_whole_items_are_events(self, decoded):
        added = [event.part for event in decoded if isinstance(event, PartAdded)]

        assert added[0] == Thinking(text="", extra={"id": "rs_1"})
        assert isinstance(added[1], Unknown)
        assert added[2] == Text(text="", extra={"annotations": [LINK]})
        assert added[3] == RedactedThinking(data="other", extra={"id": "rs_2"})
        assert len(added) == 4

    def test_usage_counts_are_disjoint(self, decoded):
        usage = last(decoded).usage

        assert usage == Usage(input=30, cache_read=60, cache_write=10, output=30, reasoning=20)
        assert usage.total == 150

    def test_the_model_and_stop_reason_are_decoded(self, decoded):
        assert (last(decoded).model, last(decoded).stop_reason) == ("gpt-5-codex-1", "tool_calls")


@pytest.mark.parametrize("repeated", [True, False], ids=["whole end", "bare end"])
def test_a_call_has_the_clients_tool_name(repeated):
    answer = make_response(
        function_call_item("c", "my_tool_1", '{"name":"my_tool_1"}'), message_item("Hi")
    )
    names = {"my_tool_1": "my.tool"}
    decoder = ResponsesStreamDecoder(names=names)
    sent = make_events(answer)
    if not repeated:
        sent[-1]["response"] = answer | {"output": []}

    one = decode_answer(json.dumps(answer).encode(), names=names)
    other = [event for each in sent for event in decoder.decode(json.dumps(each).encode())]
    end = decoder.finish()

    assert end is not None
    assert calls_of(one) == calls_of(other) == {0: ["c", "my.tool", '{"name":"my_tool_1"}']}
    assert last(one).message == end.message
    assert end.message.json()["content"][0]["name"] == "my.tool"
    assert json.loads(last(one).raw or b"")["output"][0]["name"] == "my.tool"


def test_the_raw_answer_is_unchanged():
    answer = make_response(message_item("Hi"))
    sent = make_events(answer)
    bare = [*sent[:-1], sent[-1] | {"response": answer | {"output": []}}]
    body = json.dumps(answer).encode()

    assert last(decode_answer(body)).raw == body
    assert last(decode_stream(sent)).raw == body
    assert json.loads(last(decode_stream(bare)).raw or b"") == answer


@pytest.mark.parametrize("way", ["whole", "stream"])
class TestStopReason:
    @pytest.mark.parametrize(
        ("fields", "items", "reason"),
        [
            ({}, (message_item("Hi"),), "end"),
            ({}, (reasoning_item("Hm"), function_call_item("c", "f", "{}")), "tool_calls"),
            ({}, (web_search_item(), message_item("Hi")), "end"),
            ({}, (), "end"),
            (
                {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}},
                (message_item("H"),),
                "length",
            ),
            (
                {"status": "incomplete", "incomplete_details": {"reason": "content_filter"}},
                (message_item("H"),),
                "content_filter",
            ),
            (
                {"status": "incomplete", "incomplete_details": {"reason": "steered"}},
                (message_item("H"),),
                "unknown",
            ),
            ({"status": "incomplete"}, (function_call_item("c", "f", "{"),), "unknown"),
        ],
    )
    def test_the_stop_reason_is_decoded(self, way, fields, items, reason):
        answer = make_response(*items, **fields)

        decoded = whole(answer) if way == "whole" else decode_stream(make_events(answer))

        assert last(decoded).stop_reason == reason

    def test_a_refusal_is_decoded_as_a_refusal(self, way):
        answer = make_response(refusal_item("I will not."))

        decoded = whole(answer) if way == "whole" else decode_stream(make_events(answer))

        pieces = [event.text for event in decoded if isinstance(event, RefusalDelta)]
        assert "".join(pieces) == "I will not."
        assert text_of(decoded) == ""
        assert decode_parts(last(decoded).message) == (Refusal(text="I will not."),)
        assert last(decoded).stop_reason == "refusal"

    @pytest.mark.parametrize(
        ("code", "status"),
        [
            ("server_error", 500),
            ("rate_limit_exceeded", 429),
            ("invalid_prompt", 400),
            ("image_too_large", 400),
            ("vector_store_timeout", 504),
        ],
    )
    def test_a_failed_answer_is_an_error_with_a_status(self, way, code, status):
        answer = make_response(
            message_item("H"), status="failed", error={"code": code, "message": "Sorry."}
        )

        with pytest.raises(ReportedError) as caught:
            whole(answer) if way == "whole" else decode_stream(make_events(answer))

        assert caught.value.details.status == status
        assert caught.value.details.code == code
        assert caught.value.details.message == "Sorry."

    def test_invalid_counts_are_unknown(self, way):
        answer = make_response(message_item("Hi"))
        sent = make_events(answer)
        for one in (answer, sent[-1]["response"]):
            one["usage"] = {"input_tokens": -1}

        assert last(whole(answer) if way == "whole" else decode_stream(sent)).usage is None


class TestStream:
    @pytest.mark.parametrize("length", range(len(make_events(make_response(*EVERYTHING))) - 1))
    def test_a_stream_that_ends_early_is_incomplete(self, length):
        sent = make_events(make_response(*EVERYTHING))[:length]

        assert not any(isinstance(event, ReplyFinished) for event in decode_stream(sent))

    @pytest.mark.parametrize(
        "error",
        [
            {"type": "error", "code": "server_error", "message": "Oh.", "param": None},
            {"type": "error", "error": {"code": "server_error", "message": "Oh."}},
            {"error": {"code": "server_error", "message": "Oh."}},
        ],
    )
    def test_an_error_event_raises_that_error(self, error):
        sent = [
            *make_events(make_response(message_item("Hello")))[:6],
            error | {"sequence_number": 6},
        ]

        with pytest.raises(ReportedError, match="Oh") as caught:
            decode_stream(sent)

        assert caught.value.details.code == "server_error"

    def test_items_without_deltas_are_decoded(self):
        answer = make_response(*EVERYTHING)
        event_types = ("created", "output_item.added", "output_item.done", "completed")
        sent = [one for one in make_events(answer) if one["type"].endswith(event_types)]

        decoded = decode_stream(sent)

        assert text_of(decoded) == "Hello ä🐈"
        assert thinking_of(decoded) == ("First.\n\nThen.", "gAAAA-sealed")
        assert next(iter(calls_of(decoded).values())) == ["call_1", "weather", '{"city":"Bern"}']

    def test_output_missing_in_the_last_event_is_taken_from_the_items(self):
        sent = make_events(make_response(*EVERYTHING))
        sent[-1]["response"] = sent[-1]["response"] | {"output": []}

        finished = last(decode_stream(sent))

        assert finished.message.json()["content"] == list(EVERYTHING)
        assert finished.stop_reason == "tool_calls"

    def test_unknown_events_are_skipped(self):
        new: list[dict[str, Any]] = [
            {"type": "response.new.delta", "output_index": "x", "delta": {"a": 1}},
            {"type": "response.mcp_call.in_progress", "item_id": "m", "output_index": 0},
        ]
        sent = make_events(make_response(message_item("Hi")))

        assert text_of(decode_stream([sent[0], *new, *sent[1:]])) == "Hi"

    @pytest.mark.parametrize(
        "data",
        [
            b"",
            b"<html>",
            b"[]",
            b"{}",
            b'{"type":"response.output_text.delta","output_index":"x"}',
            b'{"type":"response.output_item.done","output_index":0,"item":5}',
            b'{"type":"response.completed"}',
            b'{"type":"response.completed","response":{"output":5}}',
            b"\xff",
            b"[" * 100_000,
        ],
    )
    def test_invalid_data_is_refused(self, data):
        with pytest.raises(MalformedError):
            ResponsesStreamDecoder().decode(data)

    def test_plain_reasoning_is_decoded_once(self):
        item = reasoning_item("Short.") | {"content": [{"type": "reasoning_text", "text": "Long."}]}
        at = {"item_id": "rs_1", "output_index": 0}
        sent = [
            {"type": "response.reasoning_text.delta", **at, "content_index": 0, "delta": "Long."},
            {"type": "response.reasoning_summary_text.delta", **at, "delta": "Short."},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
        ]

        assert thinking_of(decode_stream(sent)) == ("Long.", "gAAAA-sealed")


class TestWholeAnswer:
    @pytest.mark.parametrize(
        "body",
        [b"", b"<html>", b"[]", b"{}", b'{"output":5}', b"[" * 100_000, b"\xff", b'{"output":[5'],
    )
    def test_invalid_data_is_refused(self, body):
        with pytest.raises(MalformedError):
            decode_answer(body)

    @pytest.mark.parametrize("status", ["in_progress", "queued", "cancelled", ""])
    def test_an_answer_in_progress_is_an_error(self, status):
        with pytest.raises(ReportedError):
            whole({"status": status, "output": []})


WORDS = st.text(alphabet=st.characters(codec="utf-8"), min_size=1, max_size=12)
ITEMS = st.lists(
    st.one_of(
        st.builds(message_item, WORDS),
        st.builds(refusal_item, WORDS),
        st.builds(reasoning_item, WORDS, WORDS),
        st.builds(reasoning_item),
        st.builds(function_call_item, WORDS, WORDS, WORDS),
        st.builds(web_search_item),
    ),
    max_size=5,
)


@settings(deadline=None, max_examples=50)
@given(ITEMS)
def test_any_answer_is_equal_whole_and_streamed(items):
    answer = make_response(*items)

    one, other = whole(answer), decode_stream(make_events(answer))

    assert last(one).message == last(other).message
    assert last(one).stop_reason == last(other).stop_reason
    assert text_of(one) == text_of(other)
    assert thinking_of(one) == thinking_of(other)
    assert calls_of(one) == calls_of(other)
