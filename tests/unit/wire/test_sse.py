"""Server-sent events split at any byte, and surrogate pairs split between events."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cllm.core.reply import TextDelta, ToolCallDelta
from cllm.wire.anthropic import response_decoder as anthropic_decoder
from cllm.wire.errors import MalformedError
from cllm.wire.openai import response_decoder as openai_decoder
from cllm.wire.responses import response_decoder as responses_decoder
from cllm.wire.sse import MAX_IGNORED_LINES, SseDecoder, SseEvent, SurrogateJoiner

LINE_ENDS = (b"\n", b"\r\n", b"\r")
LINES = st.sampled_from(
    [
        b"data: one",
        b"data:two",
        b"data",
        b"data:  padded",
        "data: ä🐈".encode(),
        b"event: delta",
        b": a comment",
        b"id: 7",
        b"retry: 10",
        b"nonsense",
        *[b""] * 8,
    ]
)


def decode(*pieces: bytes, **options: int) -> list[SseEvent]:
    decoder = SseDecoder(**options)
    return [event for piece in pieces for event in decoder.feed(piece)]


def event(data: bytes, name: str = "") -> SseEvent:
    return SseEvent(data=data, name=name)


@st.composite
def streams(draw: st.DrawFn, line_ends: st.SearchStrategy[bytes]) -> bytes:
    return b"".join(line + draw(line_ends) for line in draw(st.lists(LINES, max_size=20)))


@st.composite
def cut(draw: st.DrawFn, stream: bytes) -> list[bytes]:
    places = sorted(draw(st.sets(st.integers(0, len(stream)))))
    ends = [*places, len(stream)]
    return [stream[start:end] for start, end in zip([0, *places], ends, strict=True)]


@pytest.mark.parametrize("line_end", LINE_ENDS)
@given(data=st.data())
def test_events_do_not_depend_on_the_pieces(line_end, data):
    stream = data.draw(streams(st.just(line_end)))

    assert decode(*data.draw(cut(stream))) == decode(stream)


@given(data=st.data())
def test_events_with_mixed_line_ends_do_not_depend_on_the_pieces(data):
    stream = data.draw(streams(st.sampled_from(LINE_ENDS)))

    assert decode(*data.draw(cut(stream))) == decode(stream)
    assert decode(*(stream[i : i + 1] for i in range(len(stream)))) == decode(stream)


@given(stream=streams(st.just(b"\n")), line_end=st.sampled_from(LINE_ENDS))
def test_every_line_end_gives_the_same_events(stream, line_end):
    assert decode(stream.replace(b"\n", line_end)) == decode(stream)


@given(st.binary(max_size=200), st.data())
def test_any_bytes_are_decoded(stream, data):
    assert decode(*data.draw(cut(stream))) == decode(stream)


def test_a_split_crlf_ends_one_line():
    assert decode(b"data: x\r", b"\n", b"\n") == [event(b"x")]


@pytest.mark.parametrize(
    ("stream", "expected"),
    [
        (b"data: x\n\n", [event(b"x")]),
        (b"data:x\n\n", [event(b"x")]),
        (b"data:  x\n\n", [event(b" x")]),
        (b"data\n\n", [event(b"")]),
        (b"data: a: b\n\n", [event(b"a: b")]),
        (b"data: one\ndata: two\ndata:\ndata: three\n\n", [event(b"one\ntwo\n\nthree")]),
        (b": ping\n\ndata: x\n: ping\ndata: y\n\n", [event(b"x\ny")]),
        (b"event: stop\ndata: x\n\ndata: y\n\n", [event(b"x", "stop"), event(b"y")]),
        (b"event: stop\n\ndata: y\n\n", [event(b"y")]),
        (b"event: \xff\ndata: x\n\n", [event(b"x", "\ufffd")]),
        (b"id: 1\nretry: 5\n\n", []),
        (b"\n\n\ndata: x\n\n\n\n", [event(b"x")]),
        (b"datax: y\nDATA: z\n\n", []),
        (b"", []),
    ],
)
def test_fields_are_decoded_as_in_the_standard(stream, expected):
    assert decode(stream) == expected


@pytest.mark.parametrize("tail", [b"data: y", b"data: y\n", b"data: y\r\n", b"event: z\n", b": c"])
def test_an_unfinished_event_is_ignored(tail):
    assert decode(b"data: x\n\n" + tail) == [event(b"x")]


def test_a_character_can_be_split():
    cat = "data: 🐈\n\n".encode()

    assert decode(cat[:8], cat[8:]) == [event("🐈".encode())]


def test_an_event_is_yielded_with_its_last_piece():
    decoder = SseDecoder()

    assert list(decoder.feed(b"data: x\n")) == []
    assert list(decoder.feed(b"\ndata: y\n\nda")) == [event(b"x"), event(b"y")]


@pytest.mark.parametrize(
    "pieces",
    [
        (b"data: " + b"x" * 101 + b"\n\n",),
        (b"data: " + b"x" * 101,),
        (b"data: ", *[b"x"] * 101),
        (b"x" * 101,),
        (b"data: " + b"x" * 60 + b"\n", b"data: " + b"x" * 60 + b"\n\n"),
    ],
    ids=["whole", "unfinished line", "byte by byte", "no field", "two lines"],
)
def test_an_event_that_is_too_large_is_malformed(pieces):
    with pytest.raises(MalformedError, match="100 bytes"):
        decode(*pieces, max_event_bytes=100)


@pytest.mark.parametrize("line_end", [b"\n", b"\r\n"])
def test_an_event_below_the_limit_is_not_too_large(line_end):
    data = b"x" * 80
    stream = b"data: " + data + line_end * 2

    assert decode(stream, max_event_bytes=100) == [event(data)]
    assert decode(*(stream[i : i + 7] for i in range(0, len(stream), 7)), max_event_bytes=100) == [
        event(data)
    ]


def test_empty_lines_count_towards_the_limit():
    with pytest.raises(MalformedError, match="100 bytes"):
        decode(b"data:\n" * 1000, max_event_bytes=100)


def test_the_limit_applies_to_each_event():
    assert len(decode(b"data: 0123456789\n\n" * 100, max_event_bytes=100)) == 100


WORDS = st.text(st.sampled_from('a"\\/u d8😀🐈é\n\ufffd'), max_size=12)


def said(*events: bytes) -> str:
    halves = SurrogateJoiner()
    whole = (halves.join(event) or event for event in events)
    return "".join(json.loads(event)["text"] for event in whole)


def units(text: str) -> list[str]:
    """The text by UTF-16 units, as the servers count that cut characters in two."""
    raw = text.encode("utf-16-le")
    pairs = (raw[at : at + 2] for at in range(0, len(raw), 2))
    return [pair.decode("utf-16-le", "surrogatepass") for pair in pairs]


@given(WORDS, st.data())
def test_a_text_split_at_any_code_unit_is_joined(text, data):
    cut = units(text)
    places = sorted(data.draw(st.sets(st.integers(0, len(cut)))))
    pieces = [cut[a:b] for a, b in zip([0, *places], [*places, len(cut)], strict=True)]
    events = [json.dumps({"text": "".join(piece)}).encode() for piece in pieces]

    assert said(*events) == text


@given(st.lists(st.text(st.sampled_from('a"\\\ud83d\ude00'), max_size=5), max_size=4))
def test_joined_data_has_no_lone_surrogate(texts):
    halves = SurrogateJoiner()
    for text in texts:
        event = json.dumps({"text": text}).encode()
        joined = halves.join(event) or event

        json.loads(joined)["text"].encode()
        assert SurrogateJoiner().join(joined) is None


@pytest.mark.parametrize(
    ("events", "text"),
    [
        ((rb'{"text":"a\ud83d"}', rb'{"text":""}', rb'{"text":"\ude00b"}'), "a😀b"),
        ((rb'{"text":"a\uD83D"}', rb'{"text":"\uDE00\ud83d"}', rb'{"text":"\ude00"}'), "a😀😀"),
        ((rb'{"text":"a\ud83dx"}', rb'{"text":"\ude00b"}'), "a\ufffdx\ufffdb"),
        ((rb'{"text":"a\ud83d"}', rb'{"text":"\"\ude00b"}'), 'a"\ufffdb'),
        ((rb'{"text":"\\ud83d"}', rb'{"text":"\\ude00"}'), r"\ud83d\ude00"),
        ((rb'{"text":"a\ud83d"}',), "a"),
    ],
)
def test_a_surrogate_is_joined_only_with_the_next_one(events, text):
    assert said(*events) == text


def test_data_without_a_surrogate_returns_none():
    assert SurrogateJoiner().join(b'{"text":"\xff') is None
    assert SurrogateJoiner().join(rb'{"text":"\ud83d\ude00"') is None


def in_two(before: bytes, after: bytes) -> tuple[bytes, bytes]:
    return before + rb"a\ud83d" + after, before + rb"\ude00b" + after


class TestDecoders:
    def test_openai_arguments_are_joined(self):
        head = b'{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"'
        decoder = openai_decoder.OpenAIStreamDecoder()

        events = [e for data in in_two(head, b'"}}]}}]}') for e in decoder.decode(data)]

        pieces = [event.arguments for event in events if isinstance(event, ToolCallDelta)]
        assert pieces == ["a", "😀b"]
        (call,) = decoder.message().json()["tool_calls"]
        assert call["function"]["arguments"] == "a😀b"

    def test_anthropic_text_is_joined(self):
        decoder = anthropic_decoder.AnthropicStreamDecoder()
        block = (
            b'{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}'
        )
        decoder.decode("", block)
        head = b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"'

        events = [e for data in in_two(head, b'"}}') for e in decoder.decode("", data)]

        assert events == [TextDelta(text="a"), TextDelta(text="😀b")]
        assert decoder.message().text == "a😀b"

    def test_responses_text_is_joined(self):
        decoder = responses_decoder.ResponsesStreamDecoder()
        head = b'{"type":"response.output_text.delta","output_index":0,"delta":"'

        events = [e for data in in_two(head, b'"}') for e in decoder.decode(data)]

        assert events == [TextDelta(text="a"), TextDelta(text="😀b")]

    @pytest.mark.parametrize("data", [rb'{"choices":[{"delta":{"content":"\ud83d"', b"\xff", b""])
    def test_other_invalid_data_is_malformed(self, data):
        with pytest.raises(MalformedError):
            openai_decoder.OpenAIStreamDecoder().decode(data)
        with pytest.raises(MalformedError):
            anthropic_decoder.AnthropicStreamDecoder().decode("", data)


@pytest.mark.parametrize(
    "line", [b": keep-alive\n\n", b"\n", b"nonsense\n", b"event: a\n", b"event: a\n\n"]
)
def test_a_stream_of_lines_without_an_event_ends_early(line):
    """A provider could otherwise use a CPU for seconds before the response is too large."""
    stream = (line for _ in range(2 * MAX_IGNORED_LINES))

    with pytest.raises(MalformedError, match="lines without an event"):
        decode(*stream)


def test_ids_and_comments_of_a_long_stream_are_ignored():
    stream = b": keep-alive\n\nid: 1\nevent: x\ndata: {}\n\n" * MAX_IGNORED_LINES

    assert len(decode(stream)) == MAX_IGNORED_LINES
