"""Anthropic's SDK decodes our streams and validates our requests."""

import functools
import json
from collections.abc import Iterable, Iterator
from typing import Any

import anthropic
import httpx2 as httpx
import msgspec
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cllm.core.message import (
    AnyPart,
    CacheMark,
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
from cllm.core.options import JsonOutput, Reasoning, RequestOptions, Tool, ToolChoice
from cllm.core.reply import (
    PartAdded,
    ReplyEvent,
    ReplyFinished,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    Usage,
)
from cllm.providers.history import repair_for
from cllm.wire.anthropic.parts import decode_parts
from cllm.wire.anthropic.request import encode_options, encode_request
from cllm.wire.anthropic.response_decoder import AnthropicStreamDecoder
from cllm.wire.anthropic.response_encoder import PING, AnthropicStreamEncoder, encode_answer
from cllm.wire.media import ANTHROPIC, fit_media
from cllm.wire.messages import OutgoingMessage
from cllm.wire.sse import SseDecoder

QUESTION: Any = {
    "model": "claude-x",
    "max_tokens": 9,
    "messages": [{"role": "user", "content": "?"}],
}


def client(data: bytes, content_type: str) -> Any:
    def answer(_request: Any) -> Any:
        return httpx.Response(200, headers={"content-type": content_type}, content=data)

    transport = httpx.MockTransport(answer)
    return anthropic.Anthropic(
        api_key="k", max_retries=0, http_client=httpx.Client(transport=transport)
    )


def decode_stream(data: bytes) -> Any:
    """The message that the SDK's streaming helper builds from our bytes."""
    with (
        client(data, "text/event-stream") as sdk,
        sdk.messages.stream(**QUESTION) as stream,
    ):
        return stream.get_final_message()


def encode(*events: ReplyEvent) -> bytes:
    encoder = AnthropicStreamEncoder(message_id="msg_1", model="claude-x")
    return b"".join(
        [
            *(encoder.encode(event) + PING for event in events[:-1]),
            encoder.encode(events[-1]),
        ]
    )


def done(stop: Any = "end", **more: Any) -> ReplyFinished:
    return ReplyFinished(message=plain_message("assistant", ""), stop_reason=stop, **more)


def blocks(message: Any) -> list[dict[str, Any]]:
    return [block.model_dump(exclude_none=True) for block in message.content]


def test_thinking_text_and_calls_are_complete():
    message = decode_stream(
        encode(
            ThinkingDelta(text="h"),
            ThinkingDelta(text="m", signature="sig"),
            TextDelta(text="Hel"),
            TextDelta(text="lo é"),
            ToolCallDelta(index=0, id="c1", name="f", arguments='{"a":'),
            ToolCallDelta(index=0, arguments=' "é"}'),
            ToolCallDelta(index=1, id="c2", name="g"),
            done(
                "tool_calls",
                usage=Usage(input=3, cache_read=4, cache_write=5, output=6, reasoning=7),
            ),
        )
    )
    assert blocks(message) == [
        {"type": "thinking", "thinking": "hm", "signature": "sig"},
        {"type": "text", "text": "Hello é"},
        {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": "é"}},
        {"type": "tool_use", "id": "c2", "name": "g", "input": {}},
    ]
    assert (message.id, message.model, message.role) == ("msg_1", "claude-x", "assistant")
    assert (message.stop_reason, message.stop_sequence) == ("tool_use", None)
    usage = message.usage
    assert (usage.input_tokens, usage.cache_read_input_tokens) == (3, 4)
    assert (usage.cache_creation_input_tokens, usage.output_tokens) == (5, 13)
    assert usage.output_tokens_details.thinking_tokens == 7


def test_blocks_citations_and_the_stop_sequence_are_decoded():
    citation = {
        "type": "char_location",
        "cited_text": "x",
        "document_index": 0,
        "document_title": "T",
        "start_char_index": 0,
        "end_char_index": 1,
    }
    search = {
        "type": "server_tool_use",
        "id": "s",
        "name": "web_search",
        "input": {"query": "q"},
    }
    message = decode_stream(
        encode(
            PartAdded(part=RedactedThinking(data="d"), index=0),
            PartAdded(part=Unknown(dialect="anthropic", raw=msgspec.json.encode(search)), index=1),
            TextDelta(text="a", index=2),
            PartAdded(part=Text(text="", extra={"citations": [citation]}), index=2),
            done("stop_sequence", stop_sequence="X"),
        )
    )
    assert blocks(message) == [
        {"type": "redacted_thinking", "data": "d"},
        search,
        {"type": "text", "text": "a", "citations": [citation]},
    ]
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", "X")


def test_an_empty_reply_is_one_empty_text():
    assert blocks(decode_stream(encode(done()))) == [{"type": "text", "text": ""}]


def test_an_error_in_the_stream_is_raised_by_the_sdk():
    encoder = AnthropicStreamEncoder(message_id="m", model="x")
    data = encoder.encode(TextDelta(text="a")) + encoder.error("overloaded_error", "Overloaded")
    with pytest.raises(anthropic.APIStatusError, match="Overloaded"):
        decode_stream(data)


WORDS = st.text(alphabet=st.characters(codec="utf-8"), min_size=1, max_size=6)
OBJECTS = st.dictionaries(WORDS, WORDS | st.integers(-9, 9), max_size=2).map(json.dumps)


@st.composite
def replies(draw: Any) -> list[ReplyEvent]:
    """Events of a reply with parts in any order and deltas of any size."""
    events: list[ReplyEvent] = []
    for index in range(draw(st.integers(0, 4))):
        kind = draw(st.sampled_from(["text", "thinking", "call", "redacted"]))
        pieces = draw(st.lists(WORDS, min_size=1, max_size=3))
        if kind == "text":
            events += [TextDelta(text=piece, index=index) for piece in pieces]
        elif kind == "thinking":
            events += [ThinkingDelta(text=piece, index=index) for piece in pieces]
            events.append(ThinkingDelta(signature="sig", index=index))
        elif kind == "call":
            text = draw(OBJECTS)
            cut = draw(st.integers(0, len(text)))
            events.append(
                ToolCallDelta(index=index, id=f"c{index}", name="f", arguments=text[:cut])
            )
            events.append(ToolCallDelta(index=index, arguments=text[cut:]))
        else:
            events.append(PartAdded(part=RedactedThinking(data="d"), index=index))
    return events


@settings(max_examples=60, deadline=None)
@given(replies())
def test_the_sdk_and_our_decoder_build_the_same_message_from_a_stream(events):
    data = encode(*events, done())
    decoder = AnthropicStreamDecoder()
    for event in SseDecoder().feed(data):
        decoder.decode(event.name, event.data)
    finished = decoder.finish()
    assert finished is not None
    assert blocks(decode_stream(data)) == finished.message.json()["content"]


def test_a_response_is_decoded_by_the_sdk():
    parts: list[AnyPart] = [
        Thinking(text="hm"),
        Text(text="a"),
        ToolCall(id="c", name="f", arguments='{"a": 1}'),
    ]
    body = encode_answer(
        done("tool_calls", usage=Usage(input=1, output=2)),
        message_id="m",
        model="x",
        parts=parts,
    )
    with client(body, "application/json") as sdk:
        message = sdk.messages.create(**QUESTION)
    assert [block["type"] for block in blocks(message)] == ["thinking", "text", "tool_use"]
    assert message.stop_reason == "tool_use"
    assert message.usage.output_tokens == 2
    pydantic.TypeAdapter(anthropic.types.Message).validate_json(body, strict=True)


# What we send


@functools.cache
def adapter(*, streaming: bool) -> Any:
    """Cached, because its iterables are validated lazily, while they are read."""
    kinds = anthropic.types.message_create_params
    chosen = kinds.MessageCreateParamsStreaming
    return pydantic.TypeAdapter(chosen if streaming else kinds.MessageCreateParamsNonStreaming)


def validate(sent: dict[str, Any]) -> dict[str, Any]:
    """The request as the SDK's types decode it, without fields that they lack."""
    read = adapter(streaming=bool(sent.get("stream"))).validate_python(sent)
    judged: dict[str, Any] = read_iterables(read)
    return judged


def read_iterables(value: Any) -> Any:
    """Read all iterables: they are validated only while they are read."""
    if isinstance(value, dict):
        return {name: read_iterables(inner) for name, inner in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str | bytes):
        return [read_iterables(inner) for inner in value]
    return value


def encode_valid(
    messages: list[OutgoingMessage], options: RequestOptions, system: list[AnyPart] | None = None
) -> dict[str, Any]:
    model = "claude-opus-4-8"
    parameters, _ = encode_options(options, model=model)
    accepted, _ = fit_media(messages, ANTHROPIC)
    encoded = encode_request(
        model=model,
        system=system,
        messages=accepted,
        parameters=parameters,
        stream=True,
        repair=repair_for("anthropic", model, provider="anthropic"),
    )
    sent: dict[str, Any] = json.loads(encoded.body)
    assert validate(sent) == sent
    return sent


def test_the_validation_refuses_an_unknown_field():
    block = {"type": "text", "text": "a", "image_url": 1}
    sent = {**QUESTION, "messages": [{"role": "user", "content": [block]}]}
    assert validate(QUESTION) == QUESTION
    assert validate(sent) != sent
    with pytest.raises(pydantic.ValidationError):
        validate({**QUESTION, "messages": [{"role": "user", "content": [{"type": "text"}]}]})


def test_a_request_with_every_option_is_valid():
    options = RequestOptions(
        max_tokens=2000,
        stop=("X",),
        tools=(
            Tool(name="f", description="d", schema={}, strict=False, cache=CacheMark(ttl="1h")),
            Tool(name="g", schema={"type": "object", "properties": {}}, strict=True),
        ),
        tool_choice=ToolChoice(kind="auto"),
        parallel_tool_calls=False,
        output=JsonOutput(schema={"type": "object"}, name="n", strict=True),
        reasoning=Reasoning(enabled=True, effort="minimal"),
        seed=3,
        user="u",
        extra={"service_tier": "flex", "logprobs": True},
    )
    system: list[AnyPart] = [Text(text="S", cache=CacheMark()), Text(text="T")]
    encode_valid([OutgoingMessage(role="user", parts=(Text(text="hi"),))], options, system)


IDS = st.sampled_from(["a", "b", "functions.f:0", "", "é" * 99])
TEXTS = st.builds(
    Text,
    text=WORDS | st.sampled_from(["", " "]),
    extra=st.sampled_from([{}, {"odd": 1}]),
    cache=st.none() | st.just(CacheMark()),
)
IMAGES = st.sampled_from(
    [
        Image(url="https://x/y.png", extra={"image_url": {"detail": "low"}}),
        Image(media_type="image/jpg", data="aGk="),
        Image(),
    ]
)
DOCUMENTS = st.sampled_from(
    [
        Document(media_type="application/pdf", data="aGk=", name="n"),
        Document(media_type="text/csv", data="aGk="),
        Document(text="plain"),
        Document(url="https://x/y.pdf"),
        Document(),
    ]
)
FOREIGN = st.just(Unknown(dialect="openai", raw=b'{"type":"input_audio"}'))
ARGUMENTS = OBJECTS | st.sampled_from(["", "{", "[]"])
MESSAGES = st.one_of(
    st.builds(
        OutgoingMessage,
        role=st.just("user"),
        parts=st.lists(TEXTS | IMAGES | DOCUMENTS | FOREIGN, max_size=3).map(tuple),
    ),
    st.builds(
        OutgoingMessage,
        role=st.just("assistant"),
        parts=st.lists(
            TEXTS
            | st.builds(ToolCall, id=IDS, name=st.sampled_from(["f", "g"]), arguments=ARGUMENTS)
            | st.builds(Thinking, text=WORDS, signature=st.sampled_from([None, "", "sig"]))
            | st.builds(RedactedThinking, data=WORDS)
            | st.builds(Refusal, text=WORDS),
            max_size=4,
        ).map(tuple),
    ),
    st.builds(
        OutgoingMessage,
        role=st.just("tool"),
        parts=st.builds(
            ToolResult,
            call_id=IDS,
            content=st.lists(TEXTS | IMAGES | DOCUMENTS, max_size=2).map(tuple),
            is_error=st.booleans(),
            extra=st.sampled_from([{}, {"name": "f"}]),
        ).map(lambda part: (part,)),
    ),
    st.builds(OutgoingMessage, role=st.just("system"), parts=st.tuples(TEXTS)),
)


@settings(max_examples=150, deadline=None)
@given(st.lists(MESSAGES, max_size=8))
def test_any_history_of_another_protocol_becomes_a_valid_request(messages):
    messages = [*messages, OutgoingMessage(role="user", parts=(Text(text="end"),))]
    sent = encode_valid(messages, RequestOptions(max_tokens=9))
    check_history(sent["messages"])
    assert json.dumps(sent).count('"cache_control"') <= 4


def check_history(messages: list[dict[str, Any]]) -> None:
    """The rules of a history that no type expresses."""
    for index, message in enumerate(messages):
        found = list(blocks_of(message))
        kinds = [block["type"] for block in found]
        assert kinds
        assert all(block["text"].strip() for block in found if block["type"] == "text")
        if message["role"] == "assistant":
            assert set(kinds) - {"thinking", "redacted_thinking"}
        called = [block["id"] for block in found if block["type"] == "tool_use"]
        assert len(set(called)) == len(called)
        if called and index + 1 < len(messages):
            answers = list(blocks_of(messages[index + 1]))[: len(called)]
            assert [block.get("tool_use_id") for block in answers] == called


def blocks_of(message: dict[str, Any]) -> Iterator[dict[str, Any]]:
    content = message["content"]
    yield from [{"type": "text", "text": content}] if isinstance(content, str) else content


def test_a_reply_decoded_from_a_stream_can_be_sent_again():
    data = encode(
        ThinkingDelta(text="hm", signature="sig"),
        TextDelta(text="a"),
        ToolCallDelta(index=0, id="c1", name="f", arguments='{"a": 1}'),
        done("tool_calls"),
    )
    decoder = AnthropicStreamDecoder()
    for event in SseDecoder().feed(data):
        decoder.decode(event.name, event.data)
    reply = decoder.message()
    answer = ToolResult(call_id="c1", content=(Text(text="ok"),))
    sent = encode_valid(
        [
            OutgoingMessage(role="user", parts=(Text(text="hi"),)),
            OutgoingMessage(role="assistant", parts=decode_parts(reply), raw=reply.raw),
            OutgoingMessage(role="tool", parts=(answer,)),
        ],
        RequestOptions(max_tokens=9),
    )
    assert sent["messages"][1] == reply.json()
