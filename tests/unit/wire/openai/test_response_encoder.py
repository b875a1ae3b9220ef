"""Answers for OpenAI's clients: whole, in chunks, and when they fail."""

import json
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cllm.core.message import (
    AnyPart,
    Document,
    Image,
    RedactedThinking,
    Refusal,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Unknown,
    plain_message,
)
from cllm.core.notice import Notice
from cllm.core.reply import (
    Noticed,
    PartAdded,
    RefusalDelta,
    ReplyEvent,
    ReplyFinished,
    StopReason,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    Usage,
)
from cllm.wire.errors import ReportedError
from cllm.wire.openai.parts import decode_parts
from cllm.wire.openai.response_decoder import OpenAIStreamDecoder, decode_answer
from cllm.wire.openai.response_encoder import FINISH_REASONS, OpenAIStreamEncoder, encode_answer
from cllm.wire.sse import SseDecoder

USAGE = Usage(input=10, output=20, cache_read=3, cache_write=4, reasoning=5)
TEXTS = st.text(alphabet=st.characters(codec="utf-8"), min_size=1, max_size=20)


def finished(stop_reason: StopReason = "end", usage: Usage | None = None) -> ReplyFinished:
    return ReplyFinished(
        message=plain_message("assistant", "unused"), stop_reason=stop_reason, usage=usage
    )


def encoder(**fields: Any) -> OpenAIStreamEncoder:
    return OpenAIStreamEncoder(model="m", id="chatcmpl-1", created=7, **fields)


def datas(stream: bytes) -> list[bytes]:
    return [event.data for event in SseDecoder().feed(stream)]


def encode(*events: ReplyEvent, **fields: Any) -> bytes:
    made = encoder(**fields)
    return b"".join(made.encode(event) for event in events)


def chunks(*events: ReplyEvent, **fields: Any) -> list[dict[str, Any]]:
    return [json.loads(data) for data in datas(encode(*events, **fields)) if data != b"[DONE]"]


def deltas(*events: ReplyEvent) -> list[dict[str, Any]]:
    return [choice["delta"] for chunk in chunks(*events) for choice in chunk["choices"]]


def answer(*parts: AnyPart, **fields: Any) -> dict[str, Any]:
    given = {"stop_reason": "end", "usage": None, "model": "m", "id": "x", "created": 7, **fields}
    decoded: dict[str, Any] = json.loads(encode_answer(parts, **given))
    return decoded


class TestStream:
    def test_the_first_chunk_and_only_the_first_has_the_role(self):
        for first in (
            TextDelta(text="a"),
            ThinkingDelta(text="a"),
            ToolCallDelta(index=0, id="c", name="f", arguments="{}"),
            PartAdded(part=Refusal(text="No.")),
        ):
            found = deltas(first, TextDelta(text="b"), finished())

            assert [delta.get("role") for delta in found] == ["assistant", None, None]

    def test_every_chunk_has_the_same_head(self):
        for chunk in chunks(TextDelta(text="a"), finished(usage=USAGE), include_usage=True):
            assert {key: chunk[key] for key in ("id", "object", "created", "model")} == {
                "id": "chatcmpl-1",
                "object": "chat.completion.chunk",
                "created": 7,
                "model": "m",
            }

    def test_done_comes_last_and_once(self):
        stream = encode(TextDelta(text="a"), finished(), finished(), TextDelta(text="late"))

        assert datas(stream)[-1] == b"[DONE]"
        assert stream.count(b"[DONE]") == 1
        assert b"late" not in stream

    def test_an_empty_answer_still_has_a_role_and_an_end(self):
        assert deltas(finished()) == [{"role": "assistant", "content": ""}, {}]

    def test_tools_are_numbered_by_their_order_whatever_their_place_in_the_reply(self):
        found = deltas(
            TextDelta(text="Let me see."),
            ToolCallDelta(index=1, id="a", name="f"),
            ToolCallDelta(index=1, arguments='{"x":1}'),
            ToolCallDelta(index=4, id="b", name="g", arguments="{"),
            ToolCallDelta(index=4, arguments="}"),
            ToolCallDelta(index=7, id="c", name="h", arguments="{}"),
            finished("tool_calls"),
        )
        calls = [delta["tool_calls"][0] for delta in found if "tool_calls" in delta]

        assert [call["index"] for call in calls] == [0, 0, 1, 1, 2]
        assert [call.get("id") for call in calls] == ["a", None, "b", None, "c"]

    def test_a_call_without_arguments_ends_with_an_empty_object(self):
        found = deltas(
            ToolCallDelta(index=0, id="a", name="f"),
            ToolCallDelta(index=1, id="b", name="g", arguments="{}"),
            ToolCallDelta(index=0),
            finished("tool_calls"),
        )

        assert found[-2] == {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]}
        assert len(found) == 4

    def test_arguments_that_come_with_the_name_are_kept(self):
        call = deltas(ToolCallDelta(index=3, id="a", name="f", arguments='{"x":'))[0]

        assert call["tool_calls"] == [
            {
                "index": 0,
                "id": "a",
                "type": "function",
                "function": {"name": "f", "arguments": '{"x":'},
            }
        ]

    def test_a_name_or_id_said_again_is_not_repeated_because_clients_join_them(self):
        piece = ToolCallDelta(index=0, id="a", name="f", arguments="1")
        again = deltas(piece, piece)[1]

        assert again == {"tool_calls": [{"index": 0, "function": {"arguments": "1"}}]}

    def test_a_name_or_id_that_comes_late_is_said_then(self):
        late = deltas(ToolCallDelta(index=0), ToolCallDelta(index=0, id="a", name="f"))[1]

        assert late["tool_calls"] == [
            {"index": 0, "id": "a", "function": {"name": "f", "arguments": ""}}
        ]

    def test_thinking_is_reasoning_content_and_never_content(self):
        found = deltas(ThinkingDelta(text="hm"), ThinkingDelta(signature="s"), TextDelta(text="Hi"))

        assert found == [{"role": "assistant", "reasoning_content": "hm"}, {"content": "Hi"}]

    def test_empty_pieces_say_nothing(self):
        assert encode(TextDelta(text=""), ThinkingDelta(signature="s")) == b""

    @pytest.mark.parametrize(
        "part",
        [
            RedactedThinking(data="x"),
            Unknown(dialect="anthropic", raw=b"{}"),
            Image(url="https://x"),
            Document(file_id="x"),
            ToolResult(call_id="x"),
        ],
    )
    def test_parts_that_openai_has_no_words_for_are_not_shown(self, part):
        assert encode(PartAdded(part=part)) == b""
        assert encode(Noticed(notice=Notice(code="x", message="y"))) == b""

    @pytest.mark.parametrize(
        ("part", "delta"),
        [
            (Text(text="a"), {"content": "a"}),
            (Thinking(text="a"), {"reasoning_content": "a"}),
            (Refusal(text="a"), {"refusal": "a"}),
        ],
    )
    def test_parts_that_came_whole_are_shown_in_their_field(self, part, delta):
        assert deltas(PartAdded(part=part)) == [{"role": "assistant", **delta}]

    def test_a_call_that_came_whole_is_a_call(self):
        whole = PartAdded(part=ToolCall(id="a", name="f", arguments="{}"), index=2)

        assert deltas(whole)[0]["tool_calls"][0]["function"] == {"name": "f", "arguments": "{}"}

    @pytest.mark.parametrize("stop_reason", get_args(StopReason))
    def test_every_stop_reason_has_its_word(self, stop_reason):
        last = chunks(TextDelta(text="a"), finished(stop_reason))[-1]["choices"][0]

        assert last["finish_reason"] == FINISH_REASONS[stop_reason]

    @pytest.mark.parametrize("stop_reason", ["pause", "unknown", "length", "content_filter"])
    def test_an_answer_that_is_not_over_never_stops_silently(self, stop_reason):
        assert b'"stop"' not in encode(TextDelta(text="a"), finished(stop_reason))

    def test_a_refusal_in_pieces_is_one_and_no_content(self):
        pieces = (RefusalDelta(text="I "), RefusalDelta(text=""), RefusalDelta(text="won't."))
        sent = [chunk["choices"][0] for chunk in chunks(*pieces, finished("refusal"))]

        assert [choice["delta"].get("refusal") for choice in sent] == ["I ", "won't.", None]
        assert not any(choice["delta"].get("content") for choice in sent)
        assert sent[-1]["finish_reason"] == "stop"

    def test_a_refusal_in_words_is_a_stop_as_openai_does(self):
        refusal = PartAdded(part=Refusal(text="No."))

        assert chunks(refusal, finished("refusal"))[-1]["choices"][0]["finish_reason"] == "stop"

    def test_usage_comes_in_a_chunk_of_its_own_if_asked_for_and_adds_up(self):
        *others, last = chunks(TextDelta(text="a"), finished(usage=USAGE), include_usage=True)

        assert all(chunk["usage"] is None for chunk in others)
        assert last["choices"] == []
        assert last["usage"] == {
            "prompt_tokens": 17,
            "completion_tokens": 25,
            "total_tokens": USAGE.total,
            "prompt_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 4},
            "completion_tokens_details": {"reasoning_tokens": 5},
        }

    def test_usage_that_was_not_asked_for_or_is_not_known_is_not_sent(self):
        assert b"usage" not in encode(TextDelta(text="a"), finished(usage=USAGE))
        assert chunks(finished(), include_usage=True)[-1]["choices"]

    def test_a_failure_is_an_error_and_then_nothing(self):
        made = encoder()
        stream = made.encode(TextDelta(text="a"))
        stream += made.error("overloaded", type="overloaded_error", code="529")
        stream += made.encode(finished()) + made.error("again", type="x")

        assert json.loads(datas(stream)[-1]) == {
            "error": {
                "message": "overloaded",
                "type": "overloaded_error",
                "code": "529",
                "param": None,
            }
        }
        assert b"[DONE]" not in stream
        assert b'"finish_reason":"' not in stream
        decoder = OpenAIStreamDecoder()
        *before, error = datas(stream)
        for data in before:
            decoder.decode(data)
        with pytest.raises(ReportedError, match="overloaded"):
            decoder.decode(error)
        assert decoder.finish() is None

    @given(
        st.lists(
            st.builds(TextDelta, text=TEXTS)
            | st.builds(ThinkingDelta, text=TEXTS)
            | st.builds(ToolCallDelta, index=st.integers(0, 3), arguments=TEXTS),
            max_size=8,
        ),
        st.sampled_from(["end", "length", "tool_calls", "content_filter"]),
    )
    def test_a_stream_reads_back_as_what_was_said(self, events, stop_reason):
        decoder = OpenAIStreamDecoder()
        back = [
            event
            for data in datas(encode(*events, finished(stop_reason, Usage(input=3, output=2))))
            for event in decoder.decode(data)
        ]
        order = list(dict.fromkeys(e.index for e in events if isinstance(e, ToolCallDelta)))
        last = decoder.finish()

        for kind in (TextDelta, ThinkingDelta):
            said = [e.text for e in events if isinstance(e, kind)]
            assert [e.text for e in back if isinstance(e, kind)] == said
        assert [(e.index, e.arguments) for e in back if isinstance(e, ToolCallDelta)] == [
            (order.index(e.index), e.arguments) for e in events if isinstance(e, ToolCallDelta)
        ]
        assert decoder.done
        assert last is not None
        called = bool(order) and stop_reason == "end"
        assert last.stop_reason == ("tool_calls" if called else stop_reason)


class TestWhole:
    def test_an_answer_has_everything_a_client_looks_at(self):
        assert answer(Text(text="Hi"), usage=USAGE) == {
            "id": "x",
            "object": "chat.completion",
            "created": 7,
            "model": "m",
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": "Hi", "refusal": None},
                    "logprobs": None,
                    "finish_reason": "stop",
                }
            ],
            "usage": {
                "prompt_tokens": 17,
                "completion_tokens": 25,
                "total_tokens": 42,
                "prompt_tokens_details": {"cached_tokens": 3, "cache_write_tokens": 4},
                "completion_tokens_details": {"reasoning_tokens": 5},
            },
        }

    def test_unknown_usage_is_absent_not_zero(self):
        assert "usage" not in answer(Text(text="Hi"))

    def test_thinking_calls_and_refusals_stand_in_their_fields(self):
        message = answer(
            Thinking(text="hm", signature="s"),
            ToolCall(id="a", name="f", arguments=""),
            stop_reason="tool_calls",
        )["choices"][0]["message"]
        refused = answer(Refusal(text="No."), stop_reason="refusal")["choices"][0]

        assert message["content"] is None
        assert message["reasoning_content"] == "hm"
        assert message["tool_calls"] == [
            {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        ]
        assert refused["message"]["refusal"] == "No."
        assert refused["finish_reason"] == "stop"
        assert answer(stop_reason="refusal")["choices"][0]["finish_reason"] == "content_filter"

    def test_an_empty_answer_is_an_empty_text(self):
        assert answer()["choices"][0]["message"]["content"] == ""

    def test_a_block_of_another_protocol_is_not_shown(self):
        parts = (Text(text="a"), Unknown(dialect="anthropic", raw=b"{}"), Thinking(text="b"))

        assert answer(*parts)["choices"][0]["message"] == {
            "role": "assistant",
            "content": "a",
            "refusal": None,
            "reasoning_content": "b",
        }

    @given(st.lists(st.builds(Text, text=TEXTS), max_size=1), st.booleans())
    def test_an_answer_reads_back_as_what_was_said(self, texts, thinks):
        thinking = [Thinking(text="hm")] if thinks else []
        calls = [ToolCall(id="a", name="f", arguments="{}")]
        body = encode_answer(
            [*thinking, *texts, *calls],
            stop_reason="tool_calls",
            usage=Usage(input=1, output=2, cache_read=3, reasoning=4),
            model="m",
            id="x",
            created=7,
        )
        last = decode_answer(body)[-1]

        assert isinstance(last, ReplyFinished)
        assert decode_parts(last.message) == (*thinking, *texts, *calls)
        assert last.usage == Usage(input=1, output=2, cache_read=3, reasoning=4)
        assert last.stop_reason == "tool_calls"
