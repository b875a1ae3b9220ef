"""LiteLLM's additions to the OpenAI format."""

import json
from typing import Any

import pytest

from cllm.core.message import Message, RedactedThinking, plain_message
from cllm.core.prompt import Prompt
from cllm.core.reply import (
    PartAdded,
    ReplyEvent,
    ReplyFinished,
    TextDelta,
    ThinkingDelta,
    Usage,
)
from cllm.wire.errors import MalformedError
from cllm.wire.litellm import LitellmStreamDecoder, decode_answer, encode_request

SIGNED = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
REDACTED = {"type": "redacted_thinking", "data": "eHg="}


def chunk(finish: str | None = None, usage: Any = None, **delta: Any) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    return json.dumps({"choices": [choice], "model": "m", "usage": usage}).encode()


def stream(*chunks: bytes) -> tuple[list[ReplyEvent], ReplyFinished | None]:
    decoder = LitellmStreamDecoder()
    events = [event for data in chunks for event in decoder.decode(data)]
    return events, decoder.finish()


def whole(usage: Any = None, **message: Any) -> list[ReplyEvent]:
    choice = {"message": {"role": "assistant", **message}, "finish_reason": "stop"}
    return decode_answer(json.dumps({"choices": [choice], "usage": usage}).encode())


def saved_message(finished: ReplyEvent | None) -> Any:
    assert isinstance(finished, ReplyFinished)
    return finished.message.json()


@pytest.mark.parametrize("numbered", [True, False])
def test_a_streamed_thinking_block_is_joined(numbered):
    number = {"index": 4} if numbered else {}
    begun = {"type": "thinking", "thinking": "H", **number}
    more = {"type": "thinking", "thinking": "m.", **number}
    signed = {"type": "thinking", "thinking": "", "signature": "c2ln", **number}

    events, finished = stream(
        chunk(reasoning_content="H", thinking_blocks=[begun]),
        chunk(reasoning_content="m.", thinking_blocks=[more]),
        chunk(reasoning_content="", thinking_blocks=[signed]),
        chunk(thinking_blocks=[REDACTED]),
        chunk(content="Yes."),
        chunk("stop"),
    )

    assert events == [
        ThinkingDelta(text="H"),
        ThinkingDelta(text="m."),
        ThinkingDelta(signature="c2ln"),
        PartAdded(part=RedactedThinking(data="eHg="), index=1),
        TextDelta(text="Yes."),
    ]
    assert saved_message(finished)["reasoning_details"] == [SIGNED, REDACTED]
    assert saved_message(finished)["content"] == "Yes."


def test_two_blocks_are_not_joined():
    second = {"type": "thinking", "thinking": "So.", "signature": "Mm5k"}

    events, finished = stream(
        chunk(thinking_blocks=[SIGNED]), chunk(thinking_blocks=[second]), chunk("stop")
    )

    assert [event.index for event in events if isinstance(event, ThinkingDelta)] == [0, 1]
    assert saved_message(finished)["reasoning_details"] == [SIGNED, second]


def test_a_whole_answer_is_saved_without_litellms_fields():
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    noted = call | {"index": 1, "provider_specific_fields": {"a": 1}}

    *events, finished = whole(
        content="Yes.",
        reasoning_content="Hm.",
        thinking_blocks=[SIGNED | {"index": 0}, REDACTED],
        provider_specific_fields={"citations": None},
        tool_calls=[noted],
    )

    assert events[:2] == [
        ThinkingDelta(text="Hm.", signature="c2ln"),
        PartAdded(part=RedactedThinking(data="eHg="), index=1),
    ]
    assert saved_message(finished) == {
        "role": "assistant",
        "content": "Yes.",
        "reasoning_content": "Hm.",
        "tool_calls": [call],
        "reasoning_details": [SIGNED, REDACTED],
    }


COUNTS = {
    "prompt_tokens": 100,
    "completion_tokens": 9,
    "prompt_tokens_details": {"cached_tokens": 60, "cache_creation_tokens": 30},
}
NO_COUNTS = {"prompt_tokens": 0, "completion_tokens": 0}


@pytest.mark.parametrize(
    ("reported", "usage"),
    [
        (COUNTS, Usage(input=10, cache_read=60, cache_write=30, output=9)),
        (NO_COUNTS, None),
        (None, None),
    ],
)
def test_counts_are_disjoint_and_zeros_are_unknown(reported, usage):
    _, streamed = stream(chunk(content="x"), chunk("stop", usage=reported))
    finished = whole(reported, content="x")[-1]

    assert streamed is not None
    assert isinstance(finished, ReplyFinished)
    assert streamed.usage == finished.usage == usage
    if usage is not None:
        assert usage.total == 109


def test_a_stream_without_an_end_is_incomplete():
    assert stream(chunk(content="x", thinking_blocks=[SIGNED]))[1] is None


@pytest.mark.parametrize("blocks", ["x", 3, {"type": "thinking"}, [[1]]])
def test_invalid_thinking_is_malformed(blocks):
    with pytest.raises(MalformedError):
        stream(chunk(thinking_blocks=blocks))


class TestRequests:
    ANSWER = Message(
        role="assistant",
        raw=json.dumps(
            {"role": "assistant", "content": "Yes.", "reasoning_details": [SIGNED, REDACTED]}
        ).encode(),
    )

    def prompt(self, **fields: Any) -> Prompt:
        user = plain_message("user", "Hi")
        return Prompt(model="a/b", messages=(user, self.ANSWER, user), **fields)

    def test_signed_thinking_is_sent_as_thinking_blocks(self):
        system = plain_message("system", "Be brief.")

        messages = encode_request(self.prompt(system=system)).fields["messages"]

        assert messages[2] == {
            "role": "assistant",
            "content": "Yes.",
            "thinking_blocks": [SIGNED, REDACTED],
        }

    def test_thinking_of_another_model_is_not_sent(self):
        messages = encode_request(self.prompt(foreign=frozenset({1}))).fields["messages"]

        assert messages[1] == {"role": "assistant", "content": "Yes."}

    def test_reasoning_details_of_another_server_are_not_sent(self):
        raw = self.ANSWER.raw.replace(b"redacted_thinking", b"reasoning.text")
        raw = raw.replace(b'"type": "thinking"', b'"type": "reasoning.summary"')
        prompt = Prompt(model="a/b", messages=(Message(role="assistant", raw=raw),))

        request = encode_request(prompt)
        assert request.fields["messages"] == [{"role": "assistant", "content": "Yes."}]
        assert [notice.code for notice in request.notices] == ["thinking_left_out"]

    def test_plain_reasoning_is_sent_as_reasoning_content(self):
        raw = json.dumps({"role": "assistant", "content": "Yes.", "reasoning": "Hm."}).encode()
        prompt = Prompt(model="a/b", messages=(Message(role="assistant", raw=raw),))

        (sent,) = encode_request(prompt).fields["messages"]
        assert sent == {"role": "assistant", "content": "Yes.", "reasoning_content": "Hm."}

    def test_an_unknown_parameter_is_dropped_with_a_notice(self):
        request = encode_request(self.prompt(parameters={"api_base": "http://x", "seed": 1}))

        assert "api_base" not in request.fields
        assert request.fields["seed"] == 1
        assert [notice.path for notice in request.notices] == ["api_base"]

    def test_the_same_prompt_gives_the_same_request(self):
        assert encode_request(self.prompt()) == encode_request(self.prompt())
