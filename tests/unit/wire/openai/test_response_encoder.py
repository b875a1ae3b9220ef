"""Answers encoded for OpenAI clients: whole, streamed, and errors."""

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
    stream_encoder = encoder(**fields)
    return b"".join(stream_encoder.encode(event) for event in events)


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
            chunks_found = deltas(first, TextDelta(text="b"), finished())

            assert [delta.get("role") for delta in chunks_found] == ["assistant", None, None]

    def test_every_chunk_has_the_same_head(self):
        for chunk in chunks(TextDelta(text="a"), finished(usage=USAGE), include_usage=True):
            assert {key: chunk[key] for key in ("id", "object", "created", "model")} == {
                "id": "chatcmpl-1",
                "object": "chat.completion.chunk",
                "created": 7,
                "model": "m",
            }

    def test_done_is_the_last_event(self):
        stream = encode(TextDelta(text="a"), finished(), finished(), TextDelta(text="late"))

        assert datas(stream)[-1] == b"[DONE]"
        assert stream.count(b"[DONE]") == 1
        assert b"late" not in stream

    def test_an_empty_answer_still_has_a_role_and_an_end(self):
        assert deltas(finished()) == [{"role": "assistant", "content": ""}, {}]

    def test_tool_calls_are_numbered_in_order(self):
        chunks_found = deltas(
            TextDelta(text="Let me see."),
            ToolCallDelta(index=1, id="a", name="f"),
            ToolCallDelta(index=1, arguments='{"x":1}'),
            ToolCallDelta(index=4, id="b", name="g", arguments="{"),
            ToolCallDelta(index=4, arguments="}"),
            ToolCallDelta(index=7, id="c", name="h", arguments="{}"),
            finished("tool_calls"),
        )
        calls = [delta["tool_calls"][0] for delta in chunks_found if "tool_calls" in delta]

        assert [call["index"] for call in calls] == [0, 0, 1, 1, 2]
        assert [call.get("id") for call in calls] == ["a", None, "b", None, "c"]

    def test_a_call_without_arguments_ends_with_an_empty_object(self):
        chunks_found = deltas(
            ToolCallDelta(index=0, id="a", name="f"),
            ToolCallDelta(index=1, id="b", name="g", arguments="{}"),
            ToolCallDelta(index=0),
            finished("tool_calls"),
        )

        assert chunks_found[-2] == {"tool_calls": [{"index": 0, "function": {"arguments": "{}"}}]}
        assert len(chunks_found) == 4

    def test_arguments_in_the_first_piece_are_sent(self):
        call = deltas(ToolCallDelta(index=3, id="a", name="f", arguments='{"x":'))[0]

        assert call["tool_calls"] == [
            {
                "index": 0,
                "id": "a",
                "type": "function",
                "function": {"name": "f", "arguments": '{"x":'},
            }
        ]

    def test_a_repeated_name_or_id_is_not_sent_again(self):
        piece = ToolCallDelta(index=0, id="a", name="f", arguments="1")
        again = deltas(piece, piece)[1]

        assert again == {"tool_calls": [{"index": 0, "function": {"arguments": "1"}}]}

    def test_a_late_name_or_id_is_sent(self):
        late = deltas(ToolCallDelta(index=0), ToolCallDelta(index=0, id="a", name="f"))[1]

        assert late["tool_calls"] == [
            {"index": 0, "id": "a", "function": {"name": "f", "arguments": ""}}
        ]

    def test_thinking_is_reasoning_content_and_never_content(self):
        chunks_found = deltas(
            ThinkingDelta(text="hm"), ThinkingDelta(signature="s"), TextDelta(text="Hi")
        )

        assert chunks_found == [{"role": "assistant", "reasoning_content": "hm"}, {"content": "Hi"}]

    def test_empty_pieces_are_not_sent(self):
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
    def test_parts_that_openai_does_not_have_are_not_sent(self, part):
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
    def test_whole_parts_are_sent_in_their_field(self, part, delta):
        assert deltas(PartAdded(part=part)) == [{"role": "assistant", **delta}]

    def test_a_whole_call_is_sent_as_a_call(self):
        whole = PartAdded(part=ToolCall(id="a", name="f", arguments="{}"), index=2)

        assert deltas(whole)[0]["tool_calls"][0]["function"] == {"name": "f", "arguments": "{}"}

    @pytest.mark.parametrize("stop_reason", get_args(StopReason))
    def test_every_stop_reason_has_a_finish_reason(self, stop_reason):
        last = chunks(TextDelta(text="a"), finished(stop_reason))[-1]["choices"][0]

        assert last["finish_reason"] == FINISH_REASONS[stop_reason]

    @pytest.mark.parametrize("stop_reason", ["pause", "unknown", "length", "content_filter"])
    def test_an_incomplete_answer_never_has_the_finish_reason_stop(self, stop_reason):
        assert b'"stop"' not in encode(TextDelta(text="a"), finished(stop_reason))

    def test_a_streamed_refusal_is_not_content(self):
        pieces = (RefusalDelta(text="I "), RefusalDelta(text=""), RefusalDelta(text="won't."))
        sent = [chunk["choices"][0] for chunk in chunks(*pieces, finished("refusal"))]

        assert [choice["delta"].get("refusal") for choice in sent] == ["I ", "won't.", None]
        assert not any(choice["delta"].get("content") for choice in sent)
        assert sent[-1]["finish_reason"] == "stop"

    def test_a_refusal_with_text_has_the_finish_reason_stop(self):
        refusal = PartAdded(part=Refusal(text="No."))

        assert chunks(refusal, finished("refusal"))[-1]["choices"][0]["finish_reason"] == "stop"

    def test_requested_usage_is_sent_in_a_separate_chunk(self):
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

    def test_usage_that_is_not_requested_or_unknown_is_not_sent(self):
        assert b"usage" not in encode(TextDelta(text="a"), finished(usage=USAGE))
        assert chunks(finished(), include_usage=True)[-1]["choices"]

    def test_nothing_follows_an_error(self):
        stream_encoder = encoder()
        stream = stream_encoder.encode(TextDelta(text="a"))
        stream += stream_encoder.error("overloaded", type="overloaded_error", code="529")
        stream += stream_encoder.encode(finished()) + stream_encoder.error("again", type="x")

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
    def test_a_stream_is_decoded_to_the_same_parts(self, events, stop_reason):
        decoder = OpenAIStreamDecoder()
        back = [
            event
            for data in datas(encode(*events, finished(stop_reason, Usage(input=3, output=2))))
            for event in decoder.decode(data)
        ]
        order = list(dict.fromkeys(e.index for e in events if isinstance(e, ToolCallDelta)))
        last = decoder.finish()

        for kind in (TextDelta, ThinkingDelta):
            texts = [e.text for e in events if isinstance(e, kind)]
            assert [e.text for e in back if isinstance(e, kind)] == texts
        assert [(e.index, e.arguments) for e in back if isinstance(e, ToolCallDelta)] == [
            (order.index(e.index), e.arguments) for e in events if isinstance(e, ToolCallDelta)
        ]
        assert decoder.done
        assert last is not None
        has_calls = bool(order) and stop_reason == "end"
        assert last.stop_reason == ("tool_calls" if has_calls else stop_reason)


class TestWhole:
    def test_a_whole_answer_has_all_fields(self):
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

    def test_thinking_calls_and_refusals_are_in_their_fields(self):
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

    def test_a_block_of_another_protocol_is_not_sent(self):
        parts = (Text(text="a"), Unknown(dialect="anthropic", raw=b"{}"), Thinking(text="b"))

        assert answer(*parts)["choices"][0]["message"] == {
            "role": "assistant",
            "content": "a",
            "refusal": None,
            "reasoning_content": "b",
        }

    @given(st.lists(st.builds(Text, text=TEXTS), max_size=1), st.booleans())
    def test_a_whole_answer_is_decoded_to_the_same_parts(self, texts, thinks):
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
