"""Chat Completions answers, whole and streamed, and error bodies."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cllm.core.message import Unknown, plain_message
from cllm.core.reply import (
    Noticed,
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
from cllm.wire.openai.response_decoder import OpenAIStreamDecoder, decode_answer, decode_error

JSON_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


def encode(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def answer(message: dict[str, Any] | None = None, **fields: Any) -> bytes:
    reply = {"role": "assistant", "content": "Hi"} if message is None else message
    choice = {"index": 0, "message": reply, "finish_reason": "stop"}
    return encode({"choices": [choice], "model": "gpt-test-1", **fields})


def finished(events: list[ReplyEvent]) -> ReplyFinished:
    last = events[-1]
    assert isinstance(last, ReplyFinished)
    return last


class TestWholeAnswer:
    def test_an_answer_is_a_text_delta_and_a_finish(self):
        body = answer(usage={"prompt_tokens": 3, "completion_tokens": 2})

        assert decode_answer(body) == [
            TextDelta(text="Hi"),
            ReplyFinished(
                message=plain_message("assistant", "Hi"),
                stop_reason="end",
                usage=Usage(input=3, output=2),
                model="gpt-test-1",
                raw=body,
            ),
        ]

    def test_empty_fields_are_dropped_and_others_preserved(self):
        fields: dict[str, Any] = {
            "annotations": [],
            "audio": None,
            "content": "Hi",
            "new": {"deep": [1, 0.5]},
            "refusal": None,
            "role": "assistant",
            "tool_calls": [],
        }

        message = finished(decode_answer(answer(fields))).message

        assert message.json() == {"role": "assistant", "content": "Hi", "new": {"deep": [1, 0.5]}}
        assert message.raw.startswith(b'{"role":"assistant","content":"Hi"')

    def test_a_missing_or_unknown_role_is_assistant(self):
        message = finished(decode_answer(answer({"role": "model", "content": "Hi"}))).message

        assert message == plain_message("assistant", "Hi")

    def test_reasoning_refusal_and_tool_calls_are_events_in_order(self):
        call = {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}}
        fields = {
            "content": "Hi",
            "reasoning": "Hm.",
            "refusal": "No.",
            "tool_calls": [call, {"id": "c2"}],
        }

        events = decode_answer(answer(fields))

        assert events[:-1] == [
            ThinkingDelta(text="Hm.", field="reasoning"),
            TextDelta(text="Hi"),
            RefusalDelta(text="No."),
            ToolCallDelta(index=0, id="c1", name="f", arguments='{"a":1}'),
            ToolCallDelta(index=1, id="c2"),
        ]
        assert finished(events).message.json()["reasoning"] == "Hm."

    def test_an_answer_without_content_is_empty(self):
        (only,) = decode_answer(answer({"role": "assistant"}))

        assert isinstance(only, ReplyFinished)
        assert only.message.json() == {"role": "assistant", "content": None}

    def test_the_first_choice_is_used(self):
        choices = [{"message": {"content": text}} for text in ("first", "second")]

        assert finished(decode_answer(answer(choices=choices))).message.text == "first"

    @pytest.mark.parametrize(
        ("reason", "expected"),
        [
            ("stop", "end"),
            ("length", "length"),
            ("tool_calls", "tool_calls"),
            ("function_call", "tool_calls"),
            ("content_filter", "content_filter"),
            ("eos", "unknown"),
            ("", "end"),
            (None, "end"),
        ],
    )
    def test_finish_reasons_are_converted(self, reason, expected):
        choice = {"message": {"content": "Hi"}, "finish_reason": reason}

        assert finished(decode_answer(answer(choices=[choice]))).stop_reason == expected
        decoder = OpenAIStreamDecoder()
        decoder.decode(chunk({"content": "Hi"}, finish_reason=reason))
        decoder.decode(b"[DONE]")
        streamed = decoder.finish()
        assert streamed is not None
        assert streamed.stop_reason == expected

    @pytest.mark.parametrize(
        ("usage", "expected"),
        [
            (None, None),
            ({}, None),
            ({"completion_tokens": 5}, None),
            ({"prompt_tokens": 0}, Usage()),
            ({"prompt_tokens": 10, "completion_tokens": 5}, Usage(input=10, output=5)),
            (
                {
                    "prompt_tokens": 10,
                    "completion_tokens": 5,
                    "prompt_tokens_details": {"cached_tokens": 4},
                    "completion_tokens_details": {"reasoning_tokens": 3},
                },
                Usage(input=6, cache_read=4, output=2, reasoning=3),
            ),
            (
                {
                    "prompt_tokens": 10,
                    "completion_tokens": None,
                    "prompt_tokens_details": None,
                    "completion_tokens_details": {"reasoning_tokens": None},
                },
                Usage(input=10),
            ),
        ],
    )
    def test_usage_is_counted_without_overlap(self, usage, expected):
        assert finished(decode_answer(answer(usage=usage))).usage == expected

    @given(st.integers(0, 10**6), st.integers(0, 10**6), st.data())
    def test_usage_adds_up_to_the_reported_counts(self, sent, received, data):
        cached, thought = data.draw(st.integers(0, sent)), data.draw(st.integers(0, received))
        usage = finished(
            decode_answer(
                answer(
                    usage={
                        "prompt_tokens": sent,
                        "completion_tokens": received,
                        "prompt_tokens_details": {"cached_tokens": cached},
                        "completion_tokens_details": {"reasoning_tokens": thought},
                    }
                )
            )
        ).usage

        assert usage is not None
        assert usage.total == sent + received
        assert (usage.cache_read, usage.reasoning) == (cached, thought)

    def test_usage_is_never_negative(self):
        usage = {
            "prompt_tokens": 1,
            "completion_tokens": 1,
            "prompt_tokens_details": {"cached_tokens": 5},
            "completion_tokens_details": {"reasoning_tokens": 5},
        }
        counted = finished(decode_answer(answer(usage=usage))).usage

        assert counted == Usage(input=0, cache_read=1, output=0, reasoning=1)

    @pytest.mark.parametrize(
        "body",
        [
            b"",
            b"<html>Not found</html>",
            b"null",
            b"[]",
            b"{}",
            b'{"choices": []}',
            b'{"choices": null}',
            b'{"choices": [{}]}',
            b'{"choices": [{"message": null}]}',
            b'{"choices": [{"message": "Hi"}]}',
            b'{"choices": [{"message": {}, "finish_reason": 5}]}',
            b'{"choices": [{"message": {"tool_calls": 5}}]}',
            b'{"choices": [{"message": {"tool_calls": ["no"]}}]}',
            b'{"choices": [{"message": {"tool_calls": [{"function": "f"}]}}]}',
            b'{"choices": [{"message": {"content": "\xff"}}]}',
            b'{"choices": [{"message": {"content": "\\ud800"}}]}',
            b'{"choices": [{"message": {}}]} trailing',
            b'{"choices": [{"message": {"content": ' + b"[" * 50_000,
            b'{"choices": [{"message": {}',
        ],
        ids=lambda body: body[:48].decode("latin-1"),
    )
    def test_an_invalid_answer_is_malformed(self, body):
        with pytest.raises(MalformedError):
            decode_answer(body)

    def test_an_error_body_raises_the_providers_error(self):
        body = encode({"error": {"message": "The model is overloaded.", "code": 529}})

        with pytest.raises(ReportedError) as caught:
            decode_answer(body)
        assert caught.value.details.message == "The model is overloaded."


def chunk(delta: dict[str, Any] | None = None, **choice: Any) -> bytes:
    fields = {} if delta is None else {"delta": delta}
    return encode({"choices": [{"index": 0, **fields, **choice}]})


def call_piece(index: int | None, **fields: Any) -> bytes:
    piece = {"function": fields.pop("function", {}), **fields}
    if index is not None:
        piece["index"] = index
    return chunk({"tool_calls": [piece]})


def decode(*data: bytes) -> tuple[list[ReplyEvent], ReplyFinished | None]:
    decoder = OpenAIStreamDecoder()
    events = [event for piece in data for event in decoder.decode(piece)]
    return events, decoder.finish()


def whole(*data: bytes) -> ReplyFinished:
    _, last = decode(*data)
    assert last is not None
    return last


STOP = chunk({}, finish_reason="stop")
DONE = b"[DONE]"


class TestStream:
    def test_text_pieces_are_joined(self):
        events, last = decode(
            chunk({"role": "assistant", "content": ""}),
            chunk({"content": "Hel"}),
            chunk({"content": "lo"}),
            STOP,
            DONE,
        )

        assert events == [TextDelta(text="Hel"), TextDelta(text="lo")]
        assert last is not None
        assert (last.message, last.stop_reason) == (plain_message("assistant", "Hello"), "end")

    @given(st.lists(st.text(max_size=5)))
    def test_the_message_equals_the_joined_pieces(self, pieces):
        events, last = decode(*(chunk({"content": piece}) for piece in pieces), STOP)

        assert last is not None
        assert last.message == plain_message("assistant", "".join(pieces))
        assert "".join(e.text for e in events if isinstance(e, TextDelta)) == "".join(pieces)

    @pytest.mark.parametrize(
        ("data", "is_whole"),
        [
            ([chunk({"content": "Hi"}), STOP, DONE], True),
            ([chunk({"content": "Hi"}), STOP], True),
            ([chunk({"content": "Hi"}), DONE], True),
            ([chunk({"content": "Hi"}), b" [DONE]\n"], True),
            ([chunk({"content": "Hi"})], False),
            ([], False),
            ([encode({"choices": [], "usage": {"prompt_tokens": 1}})], False),
        ],
        ids=["both", "no done", "no reason", "padded done", "cut", "nothing", "only usage"],
    )
    def test_an_answer_is_complete_after_a_finish_reason_or_done(self, data, is_whole):
        _, last = decode(*data)

        assert (last is not None) is is_whole

    def test_done_is_set_after_the_last_event(self):
        decoder = OpenAIStreamDecoder()
        decoder.decode(STOP)
        assert not decoder.done
        decoder.decode(DONE)
        assert decoder.done

    def test_done_without_a_finish_reason_is_a_complete_answer(self):
        assert whole(chunk({"content": "Hi"}), DONE).stop_reason == "end"

    def test_the_partial_message_is_available(self):
        decoder = OpenAIStreamDecoder()
        decoder.decode(chunk({"content": "Hel"}))

        assert decoder.finish() is None
        assert decoder.message() == plain_message("assistant", "Hel")

    def test_an_empty_answer_is_an_empty_text(self):
        assert whole(STOP, DONE).message == plain_message("assistant", "")

    @pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
    def test_reasoning_is_thinking_and_stays_in_the_message(self, field):
        events, last = decode(
            chunk({field: "Hm"}), chunk({field: "m."}), chunk({"content": "4"}), STOP
        )

        name = field if field == "reasoning" else None
        thinking = [ThinkingDelta(text=text, field=name) for text in ("Hm", "m.")]
        assert events == [*thinking, TextDelta(text="4")]
        assert last is not None
        assert last.message.json() == {
            "role": "assistant",
            "content": "4",
            field: "Hmm.",
        }

    def test_reasoning_in_two_fields_is_one_event(self):
        both = {"reasoning": "Hm.", "reasoning_content": "Hm."}
        events, last = decode(chunk(both), chunk({"content": "4"}), STOP)

        assert events == [ThinkingDelta(text="Hm."), TextDelta(text="4")]
        assert last is not None
        assert last.message.json() == {"role": "assistant", "content": "4", **both}

    @pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
    def test_empty_reasoning_is_preserved_only_with_a_call(self, field):
        call = {"index": 0, "id": "c", "function": {"name": "f", "arguments": "{}"}}
        _, calling = decode(chunk({field: ""}), chunk({"tool_calls": [call]}), STOP)
        _, talking = decode(chunk({field: ""}), chunk({"content": "4"}), STOP)

        assert calling is not None
        assert calling.message.json()[field] == ""
        assert talking is not None
        assert talking.message == plain_message("assistant", "4")

    def test_reasoning_that_is_not_text_is_skipped(self):
        events, _ = decode(chunk({"reasoning": {"odd": True}}), STOP)

        assert events == []

    def test_a_refusal_is_streamed_and_saved(self):
        events, last = decode(chunk({"refusal": "I "}), chunk({"refusal": "won't."}), STOP)

        assert events == [RefusalDelta(text="I "), RefusalDelta(text="won't.")]
        assert last is not None
        fields = {"role": "assistant", "content": None, "refusal": "I won't."}
        assert last.message.json() == fields
        assert last.message.text == "I won't."

    def test_extra_fields_of_calls_without_an_index_are_preserved(self):
        calls = [
            {
                "id": name,
                "function": {"name": "f", "arguments": "{}"},
                "extra_content": {"of": name},
            }
            for name in ("c1", "c2")
        ]

        _, last = decode(chunk({"tool_calls": calls}), STOP)

        assert last is not None
        message = last.message.json()["tool_calls"]
        assert [(call["id"], call["extra_content"]["of"]) for call in message] == [
            ("c1", "c1"),
            ("c2", "c2"),
        ]

    def test_tool_calls_are_joined(self):
        events, last = decode(
            call_piece(0, id="c1", function={"name": "f", "arguments": ""}),
            call_piece(0, function={"arguments": '{"a":'}),
            call_piece(1, id="c2", function={"name": "g"}),
            call_piece(0, function={"arguments": "1}"}),
            chunk({}, finish_reason="tool_calls"),
        )

        assert events == [
            ToolCallDelta(index=0, id="c1", name="f"),
            ToolCallDelta(index=0, arguments='{"a":'),
            ToolCallDelta(index=1, id="c2", name="g"),
            ToolCallDelta(index=0, arguments="1}"),
        ]
        assert last is not None
        assert last.stop_reason == "tool_calls"
        assert last.message.json() == {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"a":1}'}},
                {"id": "c2", "type": "function", "function": {"name": "g", "arguments": "{}"}},
            ],
        }

    def test_text_with_tool_calls_is_preserved(self):
        last = whole(
            chunk({"content": "Wait."}), call_piece(0, id="c", function={"name": "f"}), STOP
        )

        assert last.message.text == "Wait."

    def test_calls_are_sorted_by_index(self):
        last = whole(
            call_piece(1, id="c2", function={"name": "g"}),
            call_piece(0, id="c1", function={"name": "f"}),
            STOP,
        )

        assert [call["id"] for call in last.message.json()["tool_calls"]] == ["c1", "c2"]

    def test_whole_calls_without_an_index_are_separate(self):
        events, last = decode(
            call_piece(None, id="c1", function={"name": "f", "arguments": "{}"}),
            call_piece(None, id="c2", function={"name": "g", "arguments": "{}"}),
            STOP,
        )

        assert [e.index for e in events if isinstance(e, ToolCallDelta)] == [0, 1]
        assert last is not None
        assert [call["id"] for call in last.message.json()["tool_calls"]] == ["c1", "c2"]

    def test_a_piece_without_index_and_id_continues_the_last_call(self):
        last = whole(
            call_piece(None, id="c1", function={"name": "f", "arguments": '{"a":'}),
            call_piece(None, function={"arguments": "1}"}),
            STOP,
        )

        (call,) = last.message.json()["tool_calls"]
        assert call["function"] == {"name": "f", "arguments": '{"a":1}'}

    def test_a_call_without_a_function_is_empty(self):
        last = whole(chunk({"tool_calls": [{"index": 0}]}), STOP)

        (call,) = last.message.json()["tool_calls"]
        function = {"name": "", "arguments": "{}"}
        assert call.pop("id").startswith("call_")
        assert call == {"type": "function", "function": function}

    def test_usage_and_model_can_arrive_in_the_last_chunk(self):
        last = whole(
            chunk({"content": "Hi"}),
            STOP,
            encode({"choices": [], "model": "m-1", "usage": {"prompt_tokens": 3}}),
            encode({"choices": None, "model": "", "usage": None}),
            DONE,
        )

        assert last.usage == Usage(input=3)
        assert last.model == "m-1"

    def test_the_last_usage_is_used(self):
        counts = [encode({"usage": {"prompt_tokens": 9, "completion_tokens": n}}) for n in (1, 2)]

        assert whole(*counts, STOP).usage == Usage(input=9, output=2)

    def test_only_the_first_choice_is_the_reply(self):
        both = {
            "choices": [
                {"index": 1, "delta": {"content": "other"}, "finish_reason": "length"},
                {"index": 0, "delta": {"content": "Hi"}},
            ]
        }
        events, last = decode(encode(both))

        notice_event, other, text = events
        assert isinstance(notice_event, Noticed)
        assert notice_event.notice.code == "choices_not_kept"
        assert isinstance(other, PartAdded)
        assert isinstance(other.part, Unknown)
        assert json.loads(other.part.raw) == both["choices"][0]
        assert text == TextDelta(text="Hi")
        assert last is None

    def test_a_choice_without_a_delta_is_ignored(self):
        events, last = decode(chunk(None, finish_reason="stop"))

        assert events == []
        assert last is not None

    @pytest.mark.parametrize(
        ("error", "message", "code"),
        [
            ({"message": "Overloaded.", "code": 529, "type": "t"}, "Overloaded.", "529"),
            ("Overloaded.", "Overloaded.", ""),
            ({}, "an error without a message", ""),
            (5, "an error without a message", ""),
        ],
    )
    def test_an_error_in_the_stream_is_raised(self, error, message, code):
        decoder = OpenAIStreamDecoder()
        decoder.decode(chunk({"content": "Hi"}))

        with pytest.raises(ReportedError, match=message) as caught:
            decoder.decode(encode({"error": error}))
        assert caught.value.details.code == code
        assert decoder.finish() is None

    @pytest.mark.parametrize(
        "data",
        [
            b"",
            b"[DONE",
            b'"text"',
            b"[]",
            b"null",
            b'{"choices": {}}',
            b'{"choices": [5]}',
            b'{"choices": [{"index": "zero"}]}',
            b'{"choices": [{"delta": "Hi"}]}',
            b'{"choices": [{"delta": {"content": 5}}]}',
            b'{"choices": [{"delta": {"tool_calls": [{"index": "a"}]}}]}',
            b'{"choices": [{"delta": {"tool_calls": [{"function": {"arguments": 5}}]}}]}',
            b'{"choices": [{"delta": {"content": "\xc3"}}]}',
            b'{"choices": ' + b"[" * 50_000,
            b'{"choices": [{"delta": {"content": <html>',
        ],
        ids=lambda data: data[:48].decode("latin-1"),
    )
    def test_an_invalid_chunk_is_malformed(self, data):
        with pytest.raises(MalformedError):
            OpenAIStreamDecoder().decode(data)


VALID = [
    answer(
        {
            "content": "Hi",
            "reasoning": "Hm",
            "tool_calls": [{"id": "c", "function": {"name": "f", "arguments": "{}"}}],
        },
        usage={"prompt_tokens": 3, "prompt_tokens_details": {"cached_tokens": 1}},
    ),
    chunk({"content": "Hi", "tool_calls": [{"index": 0, "function": {"name": "f"}}]}),
    encode({"error": {"message": "No.", "code": 5}}),
]


@st.composite
def mutated_bytes(draw: st.DrawFn) -> bytes:
    """A valid body with some of its bytes replaced."""
    body = bytearray(draw(st.sampled_from(VALID)))
    for place in draw(st.lists(st.integers(0, len(body) - 1), min_size=1, max_size=4)):
        body[place : place + draw(st.integers(0, 3))] = draw(st.binary(max_size=2))
    return bytes(body)


@st.composite
def mutated_values(draw: st.DrawFn) -> bytes:
    """A valid body in which some value is of another kind."""

    def change(value: Any) -> Any:
        if draw(st.integers(0, 9)) == 0:
            return draw(JSON_VALUES)
        if isinstance(value, dict):
            return {name: change(inner) for name, inner in value.items()}
        return [change(inner) for inner in value] if isinstance(value, list) else value

    return encode(change(json.loads(draw(st.sampled_from(VALID))))).replace(b"Infinity", b"1e999")


def decode_stream(data: bytes) -> None:
    decoder = OpenAIStreamDecoder()
    decoder.decode(data)
    decoder.message()
    decoder.finish()


@pytest.mark.parametrize("decoder", [decode_answer, decode_stream])
@given(data=st.binary(max_size=80) | mutated_bytes() | mutated_values())
def test_any_data_is_decoded_or_malformed(decoder, data):
    try:
        decoder(data)
    except MalformedError as error:
        assert str(error)  # noqa: PT017 - not raising is as good


@given(st.binary(max_size=80) | mutated_bytes() | mutated_values())
def test_any_error_body_is_decoded(data):
    details = decode_error(data)

    assert isinstance(details.message + details.type + details.code, str)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b'{"error": {"message": "No.", "type": "t", "code": "c"}}', ("No.", "t", "c")),
        (b'{"error": {"message": "No.", "code": 5}}', ("No.", "", "5")),
        (b'{"error": "No."}', ("No.", "", "")),
        (b'{"message": "No.", "type": "t"}', ("No.", "t", "")),
        (b'{"error": null}', ("", "", "")),
        (b'{"error": [1]}', ("", "", "")),
        (b"[1]", ("", "", "")),
        (b"<html>", ("", "", "")),
        (b"\xff", ("", "", "")),
        (b"[" * 50_000, ("", "", "")),
    ],
    ids=lambda value: value[:32].decode("latin-1") if isinstance(value, bytes) else "",
)
def test_error_bodies_of_every_shape_are_decoded(body, expected):
    details = decode_error(body)

    assert (details.message, details.type, details.code) == expected


@pytest.mark.parametrize("usage", ["many", [1], {"prompt_tokens": 7.5}, {"prompt_tokens": -1}])
def test_invalid_usage_is_unknown(usage):
    (*_, finished) = decode_answer(answer(usage=usage))

    assert isinstance(finished, ReplyFinished)
    assert finished.usage is None
    assert finished.message.text == "Hi"
