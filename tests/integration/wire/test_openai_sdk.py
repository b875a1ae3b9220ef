"""OpenAI's SDK reads our answers, and its types check our requests.

The SDK reads the bytes through a mock transport of its HTTP client; no socket is opened.
"""

import json
from collections.abc import Iterable
from functools import cache
from typing import Any, cast

import httpx2
import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai import APIError, OpenAI
from openai.types.chat import ChatCompletion, ChatCompletionChunk
from openai.types.chat.completion_create_params import (
    CompletionCreateParamsNonStreaming,
    CompletionCreateParamsStreaming,
)

from cllm.core.message import (
    AnyPart,
    CacheMark,
    Document,
    Image,
    RedactedThinking,
    Refusal,
    Role,
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
    StopReason,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    Usage,
)
from cllm.history.repair import repair
from cllm.history.rules import OPENAI
from cllm.server.api.completions import KEEP_ALIVE
from cllm.wire.media import COMPATIBLE, fit_media
from cllm.wire.messages import OutgoingMessage
from cllm.wire.openai.request import encode_options, encode_request
from cllm.wire.openai.response_encoder import OpenAIStreamEncoder, encode_answer

USAGE = Usage(input=10, output=20, cache_read=3, cache_write=4, reasoning=5)


def client(body: bytes, content_type: str) -> OpenAI:
    """An SDK client to whom every question is answered with this body."""

    def answer(_: httpx2.Request) -> httpx2.Response:
        return httpx2.Response(200, content=body, headers={"content-type": content_type})

    http = httpx2.Client(transport=httpx2.MockTransport(answer))
    return OpenAI(api_key="test", http_client=http, max_retries=0)


def finished(stop_reason: StopReason = "end") -> ReplyFinished:
    message = plain_message("assistant", "unused")
    return ReplyFinished(message=message, stop_reason=stop_reason, usage=USAGE)


def encoder() -> OpenAIStreamEncoder:
    return OpenAIStreamEncoder(model="m", id="chatcmpl-1", created=7, include_usage=True)


def read(stream: bytes) -> list[ChatCompletionChunk]:
    """The chunks as the SDK reads them, each valid by its own model."""
    with client(stream, "text/event-stream") as sdk:
        chunks = list(
            sdk.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "Hi"}], stream=True
            )
        )
    for chunk in chunks:
        ChatCompletionChunk.model_validate(chunk.to_dict(), strict=True)
    return chunks


def assembled(*events: ReplyEvent) -> ChatCompletion:
    """The answer that the SDK's stream helper puts together from our chunks."""
    made = encoder()
    body = KEEP_ALIVE + b"".join(made.encode(event) for event in events)
    with (
        client(body, "text/event-stream") as sdk,
        sdk.chat.completions.stream(
            model="m", messages=[{"role": "user", "content": "Hi"}]
        ) as stream,
    ):
        return cast("ChatCompletion", stream.get_final_completion())


class TestStream:
    def test_the_sdk_joins_text_and_tool_calls(self):
        answer = assembled(
            TextDelta(text="Let me "),
            TextDelta(text="see."),
            ToolCallDelta(index=1, id="a", name="weather", arguments='{"city":'),
            ToolCallDelta(index=1, id="a", name="weather", arguments='"Bern"}'),
            ToolCallDelta(index=2, id="b", name="now"),
            finished("tool_calls"),
        )
        message = answer.choices[0].message

        assert message.content == "Let me see."
        assert [
            (call.id, call.function.name, call.function.arguments)
            for call in message.tool_calls or []
            if call.type == "function"
        ] == [("a", "weather", '{"city":"Bern"}'), ("b", "now", "{}")]
        assert answer.choices[0].finish_reason == "tool_calls"

    def test_the_sdk_reads_the_usage(self):
        usage = assembled(TextDelta(text="a"), finished()).usage

        assert usage is not None
        assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens == USAGE.total
        assert usage.prompt_tokens_details is not None
        assert usage.prompt_tokens_details.cached_tokens == 3
        assert usage.completion_tokens_details is not None
        assert usage.completion_tokens_details.reasoning_tokens == 5

    def test_thinking_is_not_content(self):
        message = assembled(ThinkingDelta(text="hm"), TextDelta(text="Hi"), finished())
        message_read = message.choices[0].message

        assert message_read.content == "Hi"
        assert message_read.to_dict()["reasoning_content"] == "hm"

    def test_a_refusal_is_a_refusal(self):
        answer = assembled(PartAdded(part=Refusal(text="No.")), finished("refusal"))

        assert answer.choices[0].message.refusal == "No."
        assert answer.choices[0].finish_reason == "stop"

    def test_an_error_in_the_stream_is_an_exception(self):
        made = encoder()
        body = made.encode(TextDelta(text="a"))
        body += made.error("Overloaded", type="overloaded_error", code="overloaded")

        with pytest.raises(APIError, match="Overloaded"):
            read(body)

    @settings(deadline=None, max_examples=30)
    @given(
        st.lists(
            st.builds(TextDelta, text=st.text(max_size=5))
            | st.builds(ThinkingDelta, text=st.text(max_size=5))
            | st.builds(
                ToolCallDelta,
                index=st.integers(0, 3),
                id=st.none() | st.just("c"),
                arguments=st.sampled_from(["", "{}"]),
            ),
            max_size=6,
        ),
        st.sampled_from(["end", "length", "tool_calls", "refusal", "pause", "unknown"]),
    )
    def test_every_stream_is_valid_chunks_for_the_sdk(self, events, stop_reason):
        made = encoder()
        chunks = read(b"".join(made.encode(event) for event in [*events, finished(stop_reason)]))

        assert chunks[0].choices[0].delta.role == "assistant"
        assert chunks[-1].usage is not None
        assert [c.choices[0].finish_reason for c in chunks if c.choices][-1] is not None


class TestWholeAnswer:
    @pytest.mark.parametrize(
        "parts",
        [
            (Text(text="Hi"),),
            (),
            (Thinking(text="hm", signature="s"), ToolCall(id="a", name="f", arguments="")),
            (Refusal(text="No."),),
        ],
    )
    def test_the_sdk_reads_a_whole_answer(self, parts):
        body = encode_answer(
            parts, stop_reason="end", usage=USAGE, model="m", id="chatcmpl-1", created=7
        )
        ChatCompletion.model_validate_json(body, strict=True)
        with client(body, "application/json") as sdk:
            answer = sdk.chat.completions.create(
                model="m", messages=[{"role": "user", "content": "Hi"}]
            )

        assert answer.usage is not None
        assert answer.usage.total_tokens == USAGE.total


@cache
def judge(kind: type) -> pydantic.TypeAdapter[Any]:
    return pydantic.TypeAdapter(kind)


def accepted(body: bytes) -> dict[str, Any]:
    """The request, valid by the SDK's own type, which knows every field at every depth."""
    request: dict[str, Any] = json.loads(body)
    streams = bool(request.get("stream"))
    kind = CompletionCreateParamsStreaming if streams else CompletionCreateParamsNonStreaming
    assert whole(judge(kind).validate_python(request)) == request
    return request


def whole(value: Any) -> Any:
    """The value with its lazy lists read, which is when they are validated."""
    if isinstance(value, dict):
        return {name: whole(inner) for name, inner in value.items()}
    if isinstance(value, str) or not isinstance(value, Iterable):
        return value
    return [whole(inner) for inner in value]


@pytest.mark.parametrize(
    "message",
    [
        {"role": "user", "content": [{"type": "text", "text": "a", "cache_control": {}}]},
        {"role": "user", "content": [{"type": "text"}]},
        {"role": "tool", "content": "a"},
        {"role": "assistant", "content": "a", "is_error": True},
        {"role": "assistant", "content": "a", "tool_calls": [{"id": "a"}]},
    ],
)
def test_the_judge_refuses_invalid_requests(message):
    with pytest.raises((AssertionError, pydantic.ValidationError)):
        accepted(json.dumps({"model": "m", "messages": [message]}).encode())


WORDS = st.text(alphabet=st.characters(codec="utf-8"), max_size=12)
MARKS = st.none() | st.just(CacheMark())
EXTRA: st.SearchStrategy[dict[str, Any]] = st.just({}) | st.just({"citations": []})
TEXTS = st.builds(Text, text=WORDS, cache=MARKS, extra=EXTRA)
IMAGES = st.just(Image(media_type="image/png", data="QUJD")) | st.just(Image(url="https://x/y"))
DOCUMENTS = st.sampled_from(
    [
        Document(media_type="application/pdf", data="QUJD"),
        Document(text="plain", name="a"),
        Document(url="https://x"),
    ]
)
FOREIGN = st.just(Unknown(dialect="anthropic", raw=b'{"type":"new"}'))
IDS = st.sampled_from(["a", "b", "c" * 60])
RESULTS = st.builds(
    ToolResult,
    call_id=IDS,
    content=st.lists(TEXTS | IMAGES | FOREIGN, max_size=2).map(tuple),
    is_error=st.booleans(),
)
CALLS = st.builds(ToolCall, id=IDS, name=st.just("f"), arguments=st.sampled_from(["", "{}"]))
THINKING = st.just(Thinking(text="secret", signature="s")) | st.just(RedactedThinking(data="x"))


def outgoing(role: Role, parts: tuple[AnyPart, ...]) -> OutgoingMessage:
    return OutgoingMessage(role=role, parts=parts)


def messages_of(role: Role, parts: st.SearchStrategy[Any]) -> st.SearchStrategy[OutgoingMessage]:
    return st.lists(parts, max_size=3).map(lambda given: outgoing(role, tuple(given)))


CONVERSATIONS = st.lists(
    messages_of("user", TEXTS | IMAGES | DOCUMENTS | RESULTS | FOREIGN)
    | messages_of("assistant", TEXTS | CALLS | THINKING | FOREIGN),
    max_size=6,
)


class TestRequest:
    @settings(deadline=None)
    @given(CONVERSATIONS, st.booleans())
    def test_any_conversation_becomes_a_request_that_the_sdk_accepts(self, messages, stream):
        end = outgoing("user", (Text(text="end"),))
        fitted, _ = fit_media((*messages, end), COMPATIBLE)
        mended = repair(fitted, OPENAI, make=outgoing)
        pieces: dict[str, Any] = {
            "model": "gpt-4o",
            "system": [Text(text="Be brief.", cache=CacheMark())],
            "messages": mended.messages,
            "parameters": {},
            "stream": stream,
        }
        body = encode_request(**pieces).body
        request = accepted(body)

        assert b"secret" not in body
        assert b"is_error" not in body
        if not mended.problems:
            assert_paired(request["messages"])

    @pytest.mark.parametrize("model", ["gpt-4o", "o3", "gpt-5.1"])
    def test_every_option_matches_the_types_of_the_sdk(self, model):
        parameters, _ = encode_options(
            RequestOptions(
                max_tokens=5,
                temperature=0,
                top_p=0,
                top_k=4,
                stop=("a", "b", "c", "d", "e"),
                tools=(Tool(name="f", description="d", strict=True, cache=CacheMark()),),
                tool_choice=ToolChoice(kind="any"),
                parallel_tool_calls=False,
                output=JsonOutput(schema={"type": "object"}),
                reasoning=Reasoning(enabled=True, budget_tokens=4000),
                seed=0,
                user="u",
                extra={"logprobs": True, "thinking": {}},
            ),
            model=model,
        )
        body = encode_request(
            model=model,
            system=None,
            messages=[outgoing("user", (Text(text="Hi"),))],
            parameters=parameters,
            stream=False,
        ).body

        assert accepted(body)["tool_choice"] == "required"


def assert_paired(messages: list[dict[str, Any]]) -> None:
    """Every call is answered by a tool message directly after it; null content only with calls."""
    pending: list[str] = []
    for message in messages:
        if message["role"] == "tool":
            assert message["tool_call_id"] == pending.pop(0)
            continue
        assert pending == []
        pending = [call["id"] for call in message.get("tool_calls", [])]
        assert pending or message["content"] is not None
    assert pending == []
