"""Answers of the Responses API, whole and streamed: what was said comes back, and no more."""

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


def streamed(sent: list[dict[str, Any]]) -> list[ReplyEvent]:
    decoder = ResponsesStreamDecoder()
    heard = [event for one in sent for event in decoder.decode(json.dumps(one).encode())]
    finished = decoder.finish()
    return [*heard, *([] if finished is None else [finished])]


def last(heard: list[ReplyEvent]) -> ReplyFinished:
    assert isinstance(heard[-1], ReplyFinished)
    return heard[-1]


def text_of(heard: list[ReplyEvent]) -> str:
    return "".join(event.text for event in heard if isinstance(event, TextDelta))


def thinking_of(heard: list[ReplyEvent]) -> tuple[str, str]:
    deltas = [event for event in heard if isinstance(event, ThinkingDelta)]
    return "".join(d.text for d in deltas), "".join(d.signature or "" for d in deltas)


def calls_of(heard: list[ReplyEvent]) -> dict[int, list[str]]:
    calls: dict[int, list[str]] = {}
    for event in heard:
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
def heard(request: pytest.FixtureRequest) -> list[ReplyEvent]:
    answer = make_response(*EVERYTHING, usage=(100, 60, 10, 50, 20))
    return whole(answer) if request.param == "whole" else streamed(make_events(answer))


class TestAnAnswer:
    def test_says_the_same_however_it_travels(self, heard):
        assert text_of(heard) == "Hello ä🐈"
        assert thinking_of(heard) == ("First.\n\nThen.", "gAAAA-sealed")
        assert list(calls_of(heard).values()) == [
            ["call_1", "weather", '{"city":"Bern"}'],
            ["call_2", "now", "{}"],
        ]

    def test_is_kept_with_every_item_as_it_came(self, heard):
        message = last(heard).message

        assert message.dialect == "responses"
        assert message.json() == {"role": "assistant", "content": list(EVERYTHING)}
        assert message.text == "Hello ä🐈"
        assert b"\n" not in message.raw

    def test_has_deltas_whose_places_are_those_of_the_parts(self, heard):
        parts = decode_parts(last(heard).message)
        kinds = {
            TextDelta: Text,
            ThinkingDelta: Thinking,
            ToolCallDelta: ToolCall,
        }

        for event in heard[:-1]:
            assert isinstance(event, TextDelta | ThinkingDelta | ToolCallDelta | PartAdded)
            expected = type(event.part) if isinstance(event, PartAdded) else kinds[type(event)]
            assert isinstance(parts[event.index], expected)
        assert {event.index for event in heard[:-1]} == set(range(len(parts)))

    def test_names_thinking_annotates_text_and_adds_what_came_whole(self, heard):
        added = [event.part for event in heard if isinstance(event, PartAdded)]

        assert added[0] == Thinking(text="", extra={"id": "rs_1"})
        assert isinstance(added[1], Unknown)
        assert added[2] == Text(text="", extra={"annotations": [LINK]})
        assert added[3] == RedactedThinking(data="other", extra={"id": "rs_2"})
        assert len(added) == 4

    def test_counts_each_token_once(self, heard):
        usage = last(heard).usage

        assert usage == Usage(input=30, cache_read=60, cache_write=10, output=30, reasoning=20)
        assert usage.total == 150

    def test_names_its_model_and_waits_for_its_calls(self, heard):
        assert (last(heard).model, last(heard).stop_reason) == ("gpt-5-codex-1", "tool_calls")


@pytest.mark.parametrize("repeated", [True, False], ids=["whole end", "bare end"])
def test_a_call_is_told_under_the_name_that_the_client_knows(repeated):
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


def test_an_answer_has_its_own_bytes():
    answer = make_response(message_item("Hi"))
    sent = make_events(answer)
    bare = [*sent[:-1], sent[-1] | {"response": answer | {"output": []}}]
    body = json.dumps(answer).encode()

    assert last(decode_answer(body)).raw == body
    assert last(streamed(sent)).raw == body
    assert json.loads(last(streamed(bare)).raw or b"") == answer


@pytest.mark.parametrize("way", ["whole", "stream"])
class TestHowItEnded:
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
    def test_is_what_the_provider_said(self, way, fields, items, reason):
        answer = make_response(*items, **fields)

        heard = whole(answer) if way == "whole" else streamed(make_events(answer))

        assert last(heard).stop_reason == reason

    def test_a_refusal_is_told_and_stays_one(self, way):
        answer = make_response(refusal_item("I will not."))

        heard = whole(answer) if way == "whole" else streamed(make_events(answer))

        pieces = [event.text for event in heard if isinstance(event, RefusalDelta)]
        assert "".join(pieces) == "I will not."
        assert text_of(heard) == ""
        assert decode_parts(last(heard).message) == (Refusal(text="I will not."),)

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
    def test_an_answer_that_failed_is_an_error_with_a_status(self, way, code, status):
        answer = make_response(
            message_item("H"), status="failed", error={"code": code, "message": "Sorry."}
        )

        with pytest.raises(ReportedError) as caught:
            whole(answer) if way == "whole" else streamed(make_events(answer))

        assert caught.value.details.status == status
        assert caught.value.details.code == code
        assert caught.value.details.message == "Sorry."

    def test_counts_that_make_no_sense_are_unknown(self, way):
        answer = make_response(message_item("Hi"))
        sent = make_events(answer)
        for one in (answer, sent[-1]["response"]):
            one["usage"] = {"input_tokens": -1}

        assert last(whole(answer) if way == "whole" else streamed(sent)).usage is None


class TestStream:
    @pytest.mark.parametrize("length", range(len(make_events(make_response(*EVERYTHING))) - 1))
    def test_that_ends_early_is_never_an_answer(self, length):
        sent = make_events(make_response(*EVERYTHING))[:length]

        assert not any(isinstance(event, ReplyFinished) for event in streamed(sent))

    @pytest.mark.parametrize(
        "error",
        [
            {"type": "error", "code": "server_error", "message": "Oh.", "param": None},
            {"type": "error", "error": {"code": "server_error", "message": "Oh."}},
            {"error": {"code": "server_error", "message": "Oh."}},
        ],
    )
    def test_with_an_error_in_it_is_that_error(self, error):
        sent = [
            *make_events(make_response(message_item("Hello")))[:6],
            error | {"sequence_number": 6},
        ]

        with pytest.raises(ReportedError, match="Oh") as caught:
            streamed(sent)

        assert caught.value.details.code == "server_error"

    def test_of_items_without_deltas_says_them_all_the_same(self):
        answer = make_response(*EVERYTHING)
        kept = ("created", "output_item.added", "output_item.done", "completed")
        sent = [one for one in make_events(answer) if one["type"].endswith(kept)]

        heard = streamed(sent)

        assert text_of(heard) == "Hello ä🐈"
        assert thinking_of(heard) == ("First.\n\nThen.", "gAAAA-sealed")
        assert next(iter(calls_of(heard).values())) == ["call_1", "weather", '{"city":"Bern"}']

    def test_whose_last_event_repeats_nothing_is_kept_from_its_items(self):
        sent = make_events(make_response(*EVERYTHING))
        sent[-1]["response"] = sent[-1]["response"] | {"output": []}

        finished = last(streamed(sent))

        assert finished.message.json()["content"] == list(EVERYTHING)
        assert finished.stop_reason == "tool_calls"

    def test_with_events_of_new_kinds_is_read_past_them(self):
        new: list[dict[str, Any]] = [
            {"type": "response.new.delta", "output_index": "x", "delta": {"a": 1}},
            {"type": "response.mcp_call.in_progress", "item_id": "m", "output_index": 0},
        ]
        sent = make_events(make_response(message_item("Hi")))

        assert text_of(streamed([sent[0], *new, *sent[1:]])) == "Hi"

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
    def test_of_garbage_is_refused(self, data):
        with pytest.raises(MalformedError):
            ResponsesStreamDecoder().decode(data)

    def test_open_reasoning_is_told_once(self):
        item = reasoning_item("Short.") | {"content": [{"type": "reasoning_text", "text": "Long."}]}
        at = {"item_id": "rs_1", "output_index": 0}
        sent = [
            {"type": "response.reasoning_text.delta", **at, "content_index": 0, "delta": "Long."},
            {"type": "response.reasoning_summary_text.delta", **at, "delta": "Short."},
            {"type": "response.output_item.done", "output_index": 0, "item": item},
        ]

        assert thinking_of(streamed(sent)) == ("Long.", "gAAAA-sealed")


class TestWholeAnswer:
    @pytest.mark.parametrize(
        "body",
        [b"", b"<html>", b"[]", b"{}", b'{"output":5}', b"[" * 100_000, b"\xff", b'{"output":[5'],
    )
    def test_of_garbage_is_refused(self, body):
        with pytest.raises(MalformedError):
            decode_answer(body)

    @pytest.mark.parametrize("status", ["in_progress", "queued", "cancelled", ""])
    def test_that_is_not_over_is_not_finished(self, status):
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
def test_any_answer_is_the_same_whole_and_streamed(items):
    answer = make_response(*items)

    one, other = whole(answer), streamed(make_events(answer))

    assert last(one).message == last(other).message
    assert last(one).stop_reason == last(other).stop_reason
    assert text_of(one) == text_of(other)
    assert thinking_of(one) == thinking_of(other)
    assert calls_of(one) == calls_of(other)
