"""Any value in any field: an invalid answer is a bad reply, and an invalid request is refused.

A codec raises no other errors, whatever a field contains.
"""

import copy
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.fake_provider import Send, Step
from tests.fidelity.answers import (
    anthropic_block,
    anthropic_stream,
    anthropic_whole,
    converse_block,
    converse_tool,
    converse_whole,
    openai_call,
    openai_stream,
    openai_whole,
    text_block,
    thinking_block,
    tool_block,
)
from tests.fidelity.clients import stream_for_anthropic, stream_for_openai
from tests.fidelity.conftest import MODELS, Kind, make_provider

from cllm.core.errors import InvalidRequestError, ModelNotFoundError
from cllm.core.reply import ReplyEvent, ReplyFinished
from cllm.providers.http.aiohttp_transport import AiohttpTransport
from cllm.wire.anthropic import request as anthropic_request
from cllm.wire.anthropic import response_decoder as anthropic_decoder
from cllm.wire.anthropic import response_encoder as anthropic_encoder
from cllm.wire.bedrock import response_decoder as bedrock_decoder
from cllm.wire.convert import parts_of
from cllm.wire.errors import MalformedError
from cllm.wire.openai import request as openai_request
from cllm.wire.openai import response_decoder as openai_decoder
from cllm.wire.openai import response_encoder as openai_encoder

Json = dict[str, Any]
Place = tuple[str | int, ...]
ODD: tuple[Any, ...] = (None, "", "🐈", -1, 1.5, True, 2**70, [], {}, [None], {"a": 1}, [[]])
PNG = "iVBORw0KGgo="
MARK = {"type": "ephemeral", "ttl": "5m"}


def places(value: Any, here: Place = ()) -> Iterator[Place]:
    """Every place in a JSON value, the whole of it first."""
    yield here
    inner = value.items() if isinstance(value, dict) else ()
    for name, field in enumerate(value) if isinstance(value, list) else inner:
        yield from places(field, (*here, name))


def oddities(value: Any) -> Iterator[Any]:
    """The value with something odd in one place, and with one place gone; each of them once."""
    for place in places(value):
        if not place:
            yield from ODD
            continue
        for odd in (*ODD, ...):
            changed = copy.deepcopy(value)
            holder = changed
            for name in place[:-1]:
                holder = holder[name]
            if odd is ...:
                del holder[place[-1]]
            else:
                holder[place[-1]] = odd
            yield changed


def hand_on(events: list[ReplyEvent]) -> None:
    """What was read is written for both clients, as a stream and whole."""
    stream_for_anthropic(events)
    stream_for_openai(events)
    if events and isinstance(finished := events[-1], ReplyFinished):
        parts = parts_of(finished.message)
        anthropic_encoder.encode_answer(finished, message_id="m", model="c", parts=parts)
        openai_encoder.encode_reply(finished, parts=parts, model="m", id="c", created=7)


def try_all(read: Callable[[Any], list[ReplyEvent]], answers: Iterator[Any]) -> int:
    """Reads and hands on every answer; returns how many were answers all the same."""
    good = 0
    for answer in answers:
        try:
            hand_on(read(answer))
        except MalformedError:
            continue
        good += 1
    return good


CALL = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
USAGE = {"prompt_tokens": 3, "completion_tokens": 2, "prompt_tokens_details": {"cached_tokens": 1}}
SAID = {"content": "B", "reasoning_content": "r", "refusal": "no", "tool_calls": [CALL]}
CITED = {"type": "text", "text": "x", "citations": [{"type": "page_location"}]}
WHOLE: dict[Kind, tuple[Step, ...]] = {
    "openai": openai_whole(SAID, "stop", USAGE),
    "anthropic": anthropic_whole(
        {"type": "thinking", "thinking": "t", "signature": "s"},
        {"type": "redacted_thinking", "data": "d"},
        CITED,
        {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}},
        {"type": "web_search_tool_result", "content": []},
    ),
    "bedrock": converse_whole(
        {"text": "x"},
        {"reasoningContent": {"reasoningText": {"text": "t", "signature": "s"}}},
        {"toolUse": {"toolUseId": "t", "name": "f", "input": {"a": 1}}},
        {"citationsContent": {"content": [{"text": "x"}]}},
    ),
}
DECODERS: dict[Kind, Callable[[bytes], list[ReplyEvent]]] = {
    "openai": openai_decoder.decode_answer,
    "anthropic": anthropic_decoder.decode_answer,
    "bedrock": bedrock_decoder.decode_answer,
}
each_kind = pytest.mark.parametrize("kind", MODELS)


@each_kind
def test_a_whole_answer_with_any_value_anywhere_is_decoded_or_a_bad_reply(kind: Kind) -> None:
    send = WHOLE[kind][1]
    assert isinstance(send, Send)
    bodies = (json.dumps(odd).encode() for odd in oddities(json.loads(send.data)))
    assert try_all(DECODERS[kind], bodies) > 10


def _datas(steps: tuple[Step, ...]) -> list[Any]:
    sent = [step.data.decode() for step in steps if isinstance(step, Send)]
    datas = [text.partition("data: ")[2].strip() for text in sent]
    return [json.loads(data) for data in datas if data != "[DONE]"]


STREAMS: dict[Kind, list[Any]] = {
    "openai": _datas(
        openai_stream(
            {"role": "assistant", "content": "B"},
            {"reasoning_content": "r"},
            {"refusal": "n"},
            openai_call(0, "{}", id="a", name="f"),
        )
    ),
    "anthropic": _datas(
        anthropic_stream(
            thinking_block(0, "t"),
            text_block(1, "x"),
            tool_block(2, '{"a":', "1}"),
            anthropic_block(3, {"type": "redacted_thinking", "data": "d"}),
        )
    ),
    "bedrock": [
        ["messageStart", {"role": "assistant"}],
        *map(list, converse_block(0, {"reasoningContent": {"text": "t"}})),
        *map(list, converse_block(1, {"reasoningContent": {"redactedContent": "RVRY"}})),
        *map(list, converse_block(2, {"text": "x"})),
        *map(list, converse_tool(3, '{"a":', "1}")),
        ["messageStop", {"stopReason": "end_turn"}],
        ["metadata", {"usage": {"inputTokens": 1, "outputTokens": 2, "totalTokens": 3}}],
    ],
}


def read_stream(kind: Kind) -> Callable[[list[Any]], list[ReplyEvent]]:
    """Reads the events of a stream, one after another, and its end if it has one."""

    def read(events: list[Any]) -> list[ReplyEvent]:
        out: list[ReplyEvent] = []
        decoder: Any = {
            "openai": openai_decoder.OpenAIStreamDecoder,
            "anthropic": anthropic_decoder.AnthropicStreamDecoder,
            "bedrock": bedrock_decoder.BedrockStreamDecoder,
        }[kind]()
        for event in events:
            name, data = event if kind == "bedrock" else ("", event)
            encoded = json.dumps(data).encode()
            out += decoder.decode(*(() if kind == "openai" else (name,)), encoded)
        finished = decoder.finish()
        return out if finished is None else [*out, finished]

    return read


@each_kind
def test_a_stream_with_any_value_anywhere_is_decoded_or_a_bad_reply(kind: Kind) -> None:
    events = STREAMS[kind]

    def streams() -> Iterator[list[Any]]:
        for place, event in enumerate(events):
            named = kind == "bedrock"
            for odd in oddities(event[1] if named else event):
                changed = [event[0], odd] if named else odd
                yield [*events[:place], changed, *events[place + 1 :]]

    assert try_all(read_stream(kind), streams()) > 10


@each_kind
def test_a_stream_in_any_order_is_decoded_or_a_bad_reply(kind: Kind) -> None:
    """Events lost, doubled and exchanged; the dice are always the same."""
    dice = random.Random(7)  # noqa: S311 - chooses test cases

    def shuffled() -> list[Any]:
        events = list(STREAMS[kind])
        for _ in range(dice.randint(1, 3)):
            one, other = dice.randrange(len(events)), dice.randrange(len(events))
            match dice.randrange(3):
                case 0:
                    events.pop(one)
                case 1:
                    events.insert(other, events[one])
                case _:
                    events[one], events[other] = events[other], events[one]
        return events

    try_all(read_stream(kind), (shuffled() for _ in range(400)))


OPENAI_REQUEST: Json = {
    "model": "m",
    "stream": True,
    "max_tokens": 9,
    "temperature": 0.5,
    "stop": ["X"],
    "n": 1,
    "reasoning_effort": "low",
    "parallel_tool_calls": False,
    "tool_choice": {"type": "function", "function": {"name": "f"}},
    "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}},
    "stream_options": {"include_usage": True},
    "tools": [
        {"type": "function", "function": {"name": "f", "strict": True}, "cache_control": MARK}
    ],
    "messages": [
        {"role": "system", "content": [{"type": "text", "text": "S", "cache_control": MARK}]},
        {
            "role": "user",
            "name": "a",
            "content": [
                {"type": "text", "text": "x"},
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
                {
                    "type": "file",
                    "file": {
                        "filename": "a.pdf",
                        "file_data": f"data:application/pdf;base64,{PNG}",
                    },
                },
            ],
        },
        {"role": "assistant", "content": "y", "reasoning_content": "r", "tool_calls": [CALL]},
        {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "ok"}]},
        {"role": "user", "content": "z"},
    ],
}
ANTHROPIC_REQUEST: Json = {
    "model": "m",
    "stream": True,
    "max_tokens": 2000,
    "top_k": 1,
    "stop_sequences": ["X"],
    "metadata": {"user_id": "u"},
    "thinking": {"type": "enabled", "budget_tokens": 1024},
    "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
    "output_config": {"effort": "low", "format": {"type": "json_schema", "schema": {}}},
    "betas": ["interleaved-thinking-2025-05-14"],
    "system": [{"type": "text", "text": "S", "cache_control": MARK}],
    "tools": [{"name": "f", "input_schema": {"type": "object"}, "cache_control": MARK}],
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "x"},
                {
                    "type": "image",
                    "source": {"type": "base64", "media_type": "image/png", "data": PNG},
                },
                {
                    "type": "document",
                    "title": "t",
                    "source": {"type": "base64", "media_type": "application/pdf", "data": PNG},
                },
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "t", "signature": "s"},
                {"type": "redacted_thinking", "data": "RVRY"},
                CITED,
                {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "c",
                    "is_error": True,
                    "content": [{"type": "text", "text": "ok"}],
                }
            ],
        },
    ],
}


@pytest.mark.parametrize("client", ["openai", "anthropic"])
@each_kind
async def test_a_request_with_any_value_anywhere_is_decoded_or_refused(
    kind: Kind, client: str
) -> None:
    provider = make_provider(kind, "http://127.0.0.1:9", AiohttpTransport())
    given = OPENAI_REQUEST if client == "openai" else ANTHROPIC_REQUEST
    codec: Any = openai_request if client == "openai" else anthropic_request
    good = 0
    for odd in oddities(given | {"model": MODELS[kind]}):
        try:
            provider._build_request(codec.decode_request(json.dumps(odd).encode()))
        except (MalformedError, InvalidRequestError, ModelNotFoundError):
            continue
        good += 1
    assert good > 10
    await provider.close()


@pytest.mark.parametrize("client", ["openai", "anthropic"])
@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"null",
        b"[]",
        b"{",
        b"\xff\xfe",
        b'{"model": "m"}',
        b'{"model": "m", "messages": [{"role": "user", "content": "\\ud83d"}]}',
        b"[" * 100_000,
        b'{"model": "m", "messages": ' + b"[" * 5_000 + b"]" * 5_000 + b"}",
    ],
    ids=["nothing", "null", "list", "half", "bytes", "bare", "surrogate", "deep", "deep messages"],
)
def test_an_invalid_body_is_refused(client: str, body: bytes) -> None:
    codec: Any = openai_request if client == "openai" else anthropic_request
    with pytest.raises(MalformedError):
        codec.decode_request(body)
