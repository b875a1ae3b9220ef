"""Halves of characters in the events of a stream, put together or shown as what they are."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cllm.core.reply import TextDelta, ToolCallDelta
from cllm.wire.anthropic import response_decoder as anthropic_decoder
from cllm.wire.errors import MalformedError
from cllm.wire.openai import response_decoder as openai_decoder
from cllm.wire.responses import response_decoder as responses_decoder
from cllm.wire.sse import SurrogateJoiner

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
def test_a_text_cut_at_any_unit_is_the_same_text(text, data):
    cut = units(text)
    places = sorted(data.draw(st.sets(st.integers(0, len(cut)))))
    pieces = [cut[a:b] for a, b in zip([0, *places], [*places, len(cut)], strict=True)]
    events = [json.dumps({"text": "".join(piece)}).encode() for piece in pieces]

    assert said(*events) == text


@given(st.lists(st.text(st.sampled_from('a"\\\ud83d\ude00'), max_size=5), max_size=4))
def test_what_is_mended_holds_no_half_any_more(texts):
    halves = SurrogateJoiner()
    for text in texts:
        event = json.dumps({"text": text}).encode()
        mended = halves.join(event) or event

        json.loads(mended)["text"].encode()
        assert SurrogateJoiner().join(mended) is None


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
def test_a_half_is_joined_only_where_the_other_follows(events, text):
    assert said(*events) == text


def test_data_without_a_half_is_left_to_whoever_could_not_read_it():
    assert SurrogateJoiner().join(b'{"text":"\xff') is None
    assert SurrogateJoiner().join(rb'{"text":"\ud83d\ude00"') is None


def in_two(before: bytes, after: bytes) -> tuple[bytes, bytes]:
    return before + rb"a\ud83d" + after, before + rb"\ude00b" + after


class TestDecoders:
    def test_arguments_of_a_call_to_openai_are_put_together(self):
        head = b'{"choices":[{"delta":{"tool_calls":[{"index":0,"function":{"arguments":"'
        decoder = openai_decoder.OpenAIStreamDecoder()

        events = [e for data in in_two(head, b'"}}]}}]}') for e in decoder.decode(data)]

        pieces = [event.arguments for event in events if isinstance(event, ToolCallDelta)]
        assert pieces == ["a", "😀b"]
        (call,) = decoder.message().json()["tool_calls"]
        assert call["function"]["arguments"] == "a😀b"

    def test_a_text_of_anthropic_s_is_kept_whole(self):
        decoder = anthropic_decoder.AnthropicStreamDecoder()
        block = (
            b'{"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}}'
        )
        decoder.decode("", block)
        head = b'{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"'

        events = [e for data in in_two(head, b'"}}') for e in decoder.decode("", data)]

        assert events == [TextDelta(text="a"), TextDelta(text="😀b")]
        assert decoder.message().text == "a😀b"

    def test_a_text_of_the_responses_api_is_put_together(self):
        decoder = responses_decoder.ResponsesStreamDecoder()
        head = b'{"type":"response.output_text.delta","output_index":0,"delta":"'

        events = [e for data in in_two(head, b'"}') for e in decoder.decode(data)]

        assert events == [TextDelta(text="a"), TextDelta(text="😀b")]

    @pytest.mark.parametrize("data", [rb'{"choices":[{"delta":{"content":"\ud83d"', b"\xff", b""])
    def test_what_is_broken_besides_is_still_malformed(self, data):
        with pytest.raises(MalformedError):
            openai_decoder.OpenAIStreamDecoder().decode(data)
        with pytest.raises(MalformedError):
            anthropic_decoder.AnthropicStreamDecoder().decode("", data)
