"""Anthropic's and OpenAI's SDKs, reading the encoded answers.

The grammar of every stream is checked, independent of the subject of the test.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import anthropic
import httpx2
import openai
from openai.types.chat import ChatCompletionChunk

from cllm.core.reply import ReplyEvent, ReplyFinished
from cllm.wire.anthropic import response_encoder as anthropic_encoder
from cllm.wire.convert import parts_of
from cllm.wire.openai import response_encoder as openai_encoder

Json = dict[str, Any]
HELLO = [{"role": "user", "content": "Hello"}]
QUESTION: Any = {"model": "claude-x", "max_tokens": 9, "messages": HELLO}


def http_client(body: bytes, content_type: str) -> httpx2.Client:
    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, content=body, headers={"content-type": content_type})

    return httpx2.Client(transport=httpx2.MockTransport(answer))


def anthropic_sdk(body: bytes, content_type: str = "text/event-stream") -> Any:
    http = http_client(body, content_type)
    return anthropic.Anthropic(api_key="k", max_retries=0, http_client=http)


def openai_sdk(body: bytes, content_type: str = "text/event-stream") -> Any:
    http = http_client(body, content_type)
    return openai.OpenAI(api_key="k", max_retries=0, http_client=http)


@dataclass(frozen=True, kw_only=True)
class AnthropicStream:
    """A stream as Anthropic's SDK reads it: the events and the final message."""

    sent: bytes
    events: list[Any]
    message: Any

    @property
    def event_summary(self) -> list[str]:
        """The events, each in a few words: `start 0 thinking`, `text_delta 1 Hi`, `stop 1`."""
        return [describe_event(event.model_dump(exclude_none=True)) for event in self.events]

    @property
    def content(self) -> list[Json]:
        return [block.model_dump(exclude_none=True) for block in self.message.content]


PIECES = {
    "text_delta": "text",
    "thinking_delta": "thinking",
    "signature_delta": "signature",
    "input_json_delta": "partial_json",
}


def describe_event(event: Json) -> str:
    match event["type"]:
        case "content_block_start":
            return f"start {event['index']} {event['content_block']['type']}"
        case "content_block_delta":
            kind = event["delta"]["type"]
            return f"{kind} {event['index']} {event['delta'].get(PIECES.get(kind, ''), '')}"
        case "content_block_stop":
            return f"stop {event['index']}"
        case kind:
            return str(kind)


def stream_for_anthropic(events: Sequence[ReplyEvent]) -> bytes:
    encoder = anthropic_encoder.AnthropicStreamEncoder(message_id="msg_1", model="claude-x")
    return b"".join(encoder.encode(event) for event in events)


def to_anthropic_client(events: Sequence[ReplyEvent]) -> AnthropicStream:
    sent = stream_for_anthropic(events)
    _check_anthropic(sent)
    return AnthropicStream(
        sent=sent, events=read_by_anthropic(sent), message=final_message_of(sent)
    )


def read_by_anthropic(sent: bytes) -> list[Any]:
    """The events, as the SDK reads them one by one."""
    with anthropic_sdk(sent) as sdk:
        return list(sdk.messages.create(**QUESTION, stream=True))


def final_message_of(sent: bytes) -> Any:
    """The message that the SDK's streaming helper makes of a stream."""
    with anthropic_sdk(sent) as sdk, sdk.messages.stream(**QUESTION) as stream:
        return stream.get_final_message()


def _check_anthropic(sent: bytes) -> None:
    """One start, every block opened and closed once in order, and nothing after the end."""
    frames = sent.decode().split("\n\n")
    assert frames.pop() == ""
    opened: list[int] = []
    open_now: int | None = None
    names: list[str] = []
    for frame in frames:
        name, data = frame.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        names.append(event["type"])
        match event["type"]:
            case "content_block_start":
                assert open_now is None
                open_now = event["index"]
                opened.append(open_now)
            case "content_block_delta":
                assert event["index"] == open_now
            case "content_block_stop":
                assert event["index"] == open_now
                open_now = None
    assert opened == list(range(len(opened)))
    assert opened
    assert open_now is None
    assert names.count("message_start") == names.count("message_delta") == 1
    assert (names[0], names[-2:]) == ("message_start", ["message_delta", "message_stop"])


def whole_for_anthropic(events: Sequence[ReplyEvent]) -> Any:
    """The message that the SDK reads of a whole answer."""
    finished = last(events)
    parts = parts_of(finished.message)
    sent = anthropic_encoder.encode_answer(finished, message_id="m", model="c", parts=parts)
    with anthropic_sdk(sent, "application/json") as sdk:
        return sdk.messages.create(**QUESTION)


@dataclass(frozen=True, kw_only=True)
class OpenAIStream:
    """A stream as OpenAI's SDK reads it: its chunks, and the completion it makes of them."""

    sent: bytes
    chunks: list[ChatCompletionChunk]
    completion: Any

    @property
    def deltas(self) -> list[Json]:
        return [c.choices[0].delta.to_dict() for c in self.chunks if c.choices]

    @property
    def message(self) -> Any:
        return self.completion.choices[0].message

    @property
    def finish_reason(self) -> Any:
        return self.completion.choices[0].finish_reason

    @property
    def calls(self) -> list[tuple[str, str, str]]:
        calls = self.message.tool_calls or []
        return [(call.id, call.function.name, call.function.arguments) for call in calls]


def stream_for_openai(events: Sequence[ReplyEvent]) -> bytes:
    encoder = openai_encoder.OpenAIStreamEncoder(model="m", id="c", created=7, include_usage=True)
    return b"".join(encoder.encode(event) for event in events)


def read_chunks(sent: bytes) -> list[ChatCompletionChunk]:
    with openai_sdk(sent) as sdk:
        chunks = list(sdk.chat.completions.create(model="m", messages=HELLO, stream=True))
    for chunk in chunks:
        ChatCompletionChunk.model_validate(chunk.to_dict(), strict=True)
    return chunks


def to_openai_client(events: Sequence[ReplyEvent]) -> OpenAIStream:
    sent = stream_for_openai(events)
    chunks = read_chunks(sent)
    _check_openai(sent, chunks)
    with (
        openai_sdk(sent) as sdk,
        sdk.chat.completions.stream(model="m", messages=HELLO) as stream,
    ):
        try:
            completion = stream.get_final_completion()
        except (openai.LengthFinishReasonError, openai.ContentFilterFinishReasonError) as error:
            completion = getattr(error, "completion", None) or stream.current_completion_snapshot
    return OpenAIStream(sent=sent, chunks=chunks, completion=completion)


def _check_openai(sent: bytes, chunks: list[ChatCompletionChunk]) -> None:
    """The role first and once, one reason at the end, calls numbered as they began."""
    assert sent.endswith(b"data: [DONE]\n\n")
    assert sent.count(b"[DONE]") == 1
    choices = [chunk.choices[0] for chunk in chunks if chunk.choices]
    assert [c.delta.role for c in choices] == ["assistant"] + [None] * (len(choices) - 1)
    assert all(choice.finish_reason is None for choice in choices[:-1])
    assert choices[-1].finish_reason is not None
    begun = [
        call.index
        for choice in choices
        for call in choice.delta.tool_calls or []
        if call.id is not None
    ]
    assert begun == list(range(len(begun)))


def whole_for_openai(events: Sequence[ReplyEvent]) -> Any:
    """The completion that the SDK reads of a whole answer."""
    finished = last(events)
    parts = parts_of(finished.message)
    sent = openai_encoder.encode_reply(finished, parts=parts, model="m", id="c", created=7)
    with openai_sdk(sent, "application/json") as sdk:
        return sdk.chat.completions.create(model="m", messages=HELLO)


def last(events: Sequence[ReplyEvent]) -> ReplyFinished:
    finished = events[-1]
    assert isinstance(finished, ReplyFinished)
    return finished
