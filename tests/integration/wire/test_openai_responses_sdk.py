"""OpenAI's SDK reads our Responses API answers, checks our requests, and sends requests.

It calls a server on loopback that returns our bytes and records the requests.
"""

import json
from collections.abc import Iterable, Iterator
from functools import cache
from itertools import pairwise
from typing import Any

import pydantic
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai import APIError, OpenAI
from openai.types.responses import Response, ResponseStreamEvent
from openai.types.responses.response_create_params import (
    ResponseCreateParamsNonStreaming,
    ResponseCreateParamsStreaming,
)
from tests.fake_provider import FakeProvider, Head, Send, response_steps
from tests.fake_responses import (
    STREAM,
    function_call_item,
    make_events,
    make_response,
    message_item,
    reasoning_item,
    web_search_item,
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
    RefusalDelta,
    ReplyEvent,
    ReplyFinished,
    StopReason,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    Usage,
)
from cllm.wire.messages import OutgoingMessage
from cllm.wire.responses.parts import decode_parts
from cllm.wire.responses.request import decode_request, encode_options, encode_request
from cllm.wire.responses.response_decoder import ResponsesStreamDecoder
from cllm.wire.responses.response_encoder import ResponsesStreamEncoder, encode_answer
from cllm.wire.responses.response_fields import ResponseFields
from cllm.wire.sse import SseDecoder

USAGE = Usage(input=10, output=20, cache_read=3, cache_write=4, reasoning=5)
HEADING = ResponseFields(id="resp_7", model="m", created=7)
SEARCH = Unknown(
    dialect="responses",
    raw=json.dumps(web_search_item(), separators=(",", ":")).encode(),
    field="items",
)
LINK = {"type": "url_citation", "url": "https://x", "title": "X", "start_index": 0, "end_index": 1}
EVENT: pydantic.TypeAdapter[Any] = pydantic.TypeAdapter(ResponseStreamEvent)


@pytest.fixture
def server() -> Iterator[FakeProvider]:
    with FakeProvider() as provider:
        yield provider


@pytest.fixture
def sdk(server: FakeProvider) -> Iterator[OpenAI]:
    with OpenAI(api_key="test", base_url=server.url, max_retries=0) as client:
        yield client


def finished(stop_reason: StopReason = "end") -> ReplyFinished:
    message = plain_message("assistant", "unused")
    return ReplyFinished(message=message, stop_reason=stop_reason, usage=USAGE)


def encoded(*events: ReplyEvent) -> bytes:
    encoder = ResponsesStreamEncoder(HEADING)
    return b": keep-alive\n\n" + b"".join(encoder.encode(event) for event in events)


def check_events(body: bytes) -> list[dict[str, Any]]:
    """The events, each valid by the SDK's own model, numbered without a gap."""
    sent = [json.loads(event.data) for event in SseDecoder().feed(body)]
    for event in sent:
        EVENT.validate_python(event)
    assert [event["sequence_number"] for event in sent] == list(range(len(sent)))
    return sent


SAID: tuple[ReplyEvent, ...] = (
    PartAdded(part=Thinking(text="", extra={"id": "rs_own"}), index=0),
    ThinkingDelta(text="Let me ", index=0),
    ThinkingDelta(text="think.", index=0),
    ThinkingDelta(signature="sealed", index=0),
    PartAdded(part=SEARCH, index=1),
    TextDelta(text="It is ", index=2),
    TextDelta(text="warm.", index=2),
    PartAdded(part=Text(text="", extra={"annotations": [LINK]}), index=2),
    TextDelta(text="Very.", index=3),
    PartAdded(part=RedactedThinking(data="hidden", extra={"id": "rs_2"}), index=4),
    ToolCallDelta(index=5, id="a", name="weather", arguments='{"city":'),
    ToolCallDelta(index=6, id="b", name="now"),
    ToolCallDelta(index=5, arguments='"Bern"}'),
)


class TestStream:
    def test_the_sdk_joins_the_events(self, server, sdk):
        server.queue_steps(Head(headers=STREAM, chunked=True), Send(encoded(*SAID, finished())))

        with sdk.responses.stream(model="m", input="Hi") as stream:
            answer = stream.get_final_response()

        assert answer.output_text == "It is warm.Very."
        kinds = [item.type for item in answer.output]
        assert kinds == [
            "reasoning",
            "web_search_call",
            "message",
            "reasoning",
            "function_call",
            "function_call",
        ]
        thinking, hidden = answer.output[0], answer.output[3]
        assert thinking.id == "rs_own"
        assert thinking.summary[0].text == "Let me think."
        assert thinking.encrypted_content == "sealed"
        assert (hidden.id, hidden.summary, hidden.encrypted_content) == ("rs_2", [], "hidden")
        assert answer.output[2].content[0].annotations[0].url == "https://x"
        calls = [(item.call_id, item.name, item.arguments) for item in answer.output[4:]]
        assert calls == [("a", "weather", '{"city":"Bern"}'), ("b", "now", "{}")]
        assert answer.usage.input_tokens == 17
        assert answer.usage.input_tokens_details.cached_tokens == 3
        assert answer.usage.output_tokens == 25
        assert answer.usage.total_tokens == 42

    def test_the_sdk_knows_every_event(self):
        sent = check_events(encoded(*SAID, finished()))

        opened = [e["output_index"] for e in sent if e["type"] == "response.output_item.added"]
        closed = [e["output_index"] for e in sent if e["type"] == "response.output_item.done"]
        assert opened == list(range(6))
        assert sorted(closed) == opened
        assert [e["type"] for e in sent[:2]] == ["response.created", "response.in_progress"]
        assert sent[-1]["type"] == "response.completed"

    def test_our_decoder_reads_the_same_parts(self):
        decoder = ResponsesStreamDecoder()
        for event in SseDecoder().feed(encoded(*SAID, finished())):
            decoder.decode(event.data)
        end = decoder.finish()

        assert end is not None
        assert (end.stop_reason, end.usage) == ("tool_calls", USAGE)
        assert decode_parts(end.message) == (
            Thinking(text="Let me think.", signature="sealed", extra={"id": "rs_own"}),
            SEARCH,
            Text(text="It is warm.", extra={"annotations": [LINK]}),
            Text(text="Very."),
            RedactedThinking(data="hidden", extra={"id": "rs_2"}),
            ToolCall(id="a", name="weather", arguments='{"city":"Bern"}'),
            ToolCall(id="b", name="now", arguments="{}"),
        )

    def test_an_answer_of_this_api_is_decoded_and_encoded_equally(self):
        items = (
            reasoning_item("Hm."),
            message_item("Hi"),
            reasoning_item(item_id="rs_2"),
            function_call_item("c", "f", '{"a":1}'),
        )
        decoder, encoder = ResponsesStreamDecoder(), ResponsesStreamEncoder(HEADING)
        out = b""
        for one in make_events(make_response(*items)):
            for event in decoder.decode(json.dumps(one).encode()):
                out += encoder.encode(event)
        end = decoder.finish()
        assert end is not None
        out += encoder.encode(end)

        output = check_events(out)[-1]["response"]["output"]

        assert (output[0], output[2]) == (items[0], items[2])
        assert [item["type"] for item in output] == [item["type"] for item in items]
        assert output[3]["call_id"] == "c"

    @pytest.mark.parametrize(
        ("reason", "kind", "details"),
        [
            ("end", "completed", None),
            ("stop_sequence", "completed", None),
            ("tool_calls", "completed", None),
            ("length", "incomplete", {"reason": "max_output_tokens"}),
            ("pause", "incomplete", {"reason": "max_output_tokens"}),
            ("unknown", "incomplete", {"reason": "max_output_tokens"}),
            ("content_filter", "incomplete", {"reason": "content_filter"}),
            ("refusal", "incomplete", {"reason": "content_filter"}),
        ],
    )
    def test_only_a_complete_answer_is_completed(self, reason, kind, details):
        end = check_events(encoded(TextDelta(text="H"), finished(reason)))[-1]
        answer = json.loads(
            encode_answer([Text(text="H")], stop_reason=reason, usage=USAGE, heading=HEADING)
        )

        assert end["type"] == f"response.{kind}"
        for response_ in (end["response"], answer):
            assert response_["status"] == response_["output"][-1]["status"] == kind
            assert response_["incomplete_details"] == details

    @pytest.mark.parametrize(
        "pieces",
        [(PartAdded(part=Refusal(text="No.")),), (RefusalDelta(text="N"), RefusalDelta(text="o."))],
        ids=["whole", "in pieces"],
    )
    def test_a_refusal_with_text_is_completed(self, server, sdk, pieces):
        body = encoded(*pieces, finished("refusal"))
        check_events(body)
        server.queue_steps(Head(headers=STREAM, chunked=True), Send(body))

        with sdk.responses.stream(model="m", input="Hi") as stream:
            answer = stream.get_final_response()

        assert answer.output[0].content[0].refusal == "No."

    def test_an_empty_answer_has_one_empty_text(self, server, sdk):
        body = encoded(finished())
        server.queue_steps(Head(headers=STREAM, chunked=True), Send(body))

        with sdk.responses.stream(model="m", input="Hi") as stream:
            answer = stream.get_final_response()

        assert answer.output_text == ""
        assert answer.output[0].content[0].text == ""
        check_events(body)

    def test_an_error_in_the_stream_is_not_an_end(self, server, sdk):
        encoder = ResponsesStreamEncoder(HEADING)
        body = encoder.encode(TextDelta(text="Hel")) + encoder.error("Oh.", type="server_error")
        server.queue_steps(Head(headers=STREAM, chunked=True), Send(body))

        received: list[str] = []
        with pytest.raises(APIError, match="Oh"):
            received.extend(
                event.type for event in sdk.responses.create(model="m", input="Hi", stream=True)
            )

        assert encoder.encode(TextDelta(text="lo")) == b""
        assert encoder.encode(finished()) == b""
        assert encoder.error("Again.", type="x") == b""
        assert b"response.completed" not in body
        check_events(body)


class TestWholeAnswer:
    PARTS = (
        Thinking(text="Hm.", signature="sealed"),
        Text(text="It is warm.", extra={"annotations": [LINK], "citations": []}),
        Refusal(text="No more."),
        ToolCall(id="c", name="f", arguments=""),
        SEARCH,
        Image(url="https://x/y"),
    )

    def test_the_sdk_reads_a_whole_answer(self, server, sdk):
        parameters = {"temperature": 0, "tools": [{"type": "web_search"}], "tool_choice": None}
        heading = ResponseFields(id="resp_1", model="m", created=7, parameters=parameters)
        body = encode_answer(self.PARTS, stop_reason="tool_calls", usage=USAGE, heading=heading)
        server.queue_steps(*response_steps(200, body))

        answer = sdk.responses.create(model="m", input="Hi")

        Response.model_validate(json.loads(body))
        assert answer.output_text == "It is warm."
        assert (answer.temperature, answer.tools[0].type) == (0, "web_search")
        assert [item.type for item in answer.output] == [
            "reasoning",
            "message",
            "function_call",
            "web_search_call",
        ]
        assert (answer.output[2].call_id, answer.output[2].arguments) == ("c", "{}")
        assert answer.usage.output_tokens_details.reasoning_tokens == 5
        assert len({item.id for item in answer.output}) == 4

    def test_equal_answers_are_equal_bytes(self):
        made = [
            encode_answer(self.PARTS, stop_reason="end", usage=None, heading=HEADING)
            for _ in range(2)
        ]

        assert made[0] == made[1]


@cache
def judge(kind: type) -> pydantic.TypeAdapter[Any]:
    return pydantic.TypeAdapter(kind)


def accepted(body: bytes) -> dict[str, Any]:
    """The request, valid by the SDK's own type, which knows every field at every depth.

    The type wants an id and a status on an assistant's blocks, which the API does without.
    """
    request: dict[str, Any] = json.loads(body)
    for number, item in enumerate(request["input"]):
        if item.get("role") == "assistant" and isinstance(item["content"], list):
            item |= {"id": f"msg_{number}", "status": "completed"}
    streams = bool(request.get("stream"))
    kind = ResponseCreateParamsStreaming if streams else ResponseCreateParamsNonStreaming
    assert read(judge(kind).validate_python(request)) == request
    return request


def read(value: Any) -> Any:
    """The value with its lazy lists read, which is when they are validated."""
    if isinstance(value, dict):
        return {name: read(inner) for name, inner in value.items()}
    if isinstance(value, str) or not isinstance(value, Iterable):
        return value
    return [read(inner) for inner in value]


@pytest.mark.parametrize(
    "item",
    [
        {"role": "user", "content": [{"type": "input_text", "text": "a", "cache_control": {}}]},
        {"role": "user", "content": [{"type": "input_text"}]},
        {"role": "tool", "content": "a"},
        {"type": "function_call", "id": "fc_1", "name": "f", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "a", "is_error": True},
    ],
)
def test_the_judge_refuses_invalid_requests(item):
    with pytest.raises((AssertionError, pydantic.ValidationError)):
        accepted(json.dumps({"model": "m", "input": [item]}).encode())


WORDS = st.text(alphabet=st.characters(codec="utf-8"), max_size=12)
EXTRA: st.SearchStrategy[dict[str, Any]] = st.just({}) | st.just({"citations": []})
TEXTS = st.builds(Text, text=WORDS, cache=st.none() | st.just(CacheMark()), extra=EXTRA)
IMAGES = st.sampled_from(
    [
        Image(media_type="image/png", data="QUJD"),
        Image(url="https://x/y", extra={"image_url": {"detail": "low"}}),
        Image(extra={"file_id": "file-1"}),
    ]
)
DOCUMENTS = st.sampled_from(
    [
        Document(media_type="application/pdf", data="QUJD"),
        Document(text="plain", name="a"),
        Document(url="https://x"),
        Document(file_id="file-1"),
    ]
)
FOREIGN = st.just(Unknown(dialect="anthropic", raw=b'{"type":"new"}'))
IDS = st.sampled_from(["a", "b", "c" * 90])
RESULTS = st.builds(
    ToolResult,
    call_id=IDS,
    content=st.lists(TEXTS | IMAGES | DOCUMENTS | FOREIGN, max_size=2).map(tuple),
    is_error=st.booleans(),
)
CALLS = st.builds(ToolCall, id=IDS, name=st.just("f"), arguments=st.sampled_from(["", "{}"]))
THINKING = st.sampled_from(
    [
        Thinking(text="secret", signature="s"),
        RedactedThinking(data="secret"),
        Thinking(text="mine", signature="sealed", extra={"id": "rs_1"}),
        RedactedThinking(data="sealed", extra={"id": "rs_2"}),
    ]
)


def outgoing(role: Role, parts: Iterable[AnyPart]) -> OutgoingMessage:
    return OutgoingMessage(role=role, parts=tuple(parts))


def messages_of(role: Role, parts: st.SearchStrategy[Any]) -> st.SearchStrategy[OutgoingMessage]:
    return st.lists(parts, max_size=3).map(lambda given: outgoing(role, given))


CONVERSATIONS = st.lists(
    messages_of("user", TEXTS | IMAGES | DOCUMENTS | RESULTS | FOREIGN)
    | messages_of("assistant", TEXTS | CALLS | THINKING | FOREIGN),
    max_size=6,
)


class TestRequest:
    @settings(deadline=None)
    @given(CONVERSATIONS, st.booleans())
    def test_any_conversation_becomes_a_request_that_the_sdk_accepts(self, messages, stream):
        body = encode_request(
            model="gpt-5-codex",
            system=[Text(text="Be brief.", cache=CacheMark())],
            messages=messages,
            parameters={},
            stream=stream,
        ).body
        request = accepted(body)

        assert b"secret" not in body
        assert b"is_error" not in body
        assert all(len(item.get("call_id", "")) <= 64 for item in request["input"])
        kinds = [item["type"] for item in request["input"]]
        for before, after in pairwise([*kinds, "nothing"]):
            assert before != "reasoning" or after in ("reasoning", "message", "function_call")

    @pytest.mark.parametrize("model", ["gpt-4o", "o3-pro", "gpt-5.1-codex"])
    def test_every_option_matches_the_types_of_the_sdk(self, model):
        parameters, _ = encode_options(
            RequestOptions(
                max_tokens=5,
                temperature=0,
                top_p=0,
                top_k=4,
                stop=("a",),
                tools=(Tool(name="f", description="d", cache=CacheMark()),),
                tool_choice=ToolChoice(kind="any"),
                parallel_tool_calls=False,
                output=JsonOutput(schema={"type": "object"}),
                reasoning=Reasoning(enabled=True, budget_tokens=4000),
                seed=0,
                user="u",
                extra={"logprobs": True, "thinking": {}, "verbosity": "low"},
            ),
            model=model,
        )
        body = encode_request(
            model=model,
            system=None,
            messages=[outgoing("user", [Text(text="Hi")])],
            parameters=parameters,
            stream=False,
        ).body

        assert accepted(body)["tool_choice"] == "required"

    def test_a_request_of_the_sdk_is_decoded_and_encoded(self, server, sdk):
        server.queue_reply("Hello")
        parameters: dict[str, Any] = {
            "model": "gpt-5-codex",
            "instructions": "Be brief.",
            "input": [
                {
                    "role": "user",
                    "content": [
                        {"type": "input_text", "text": "What is it?"},
                        {"type": "input_image", "image_url": "https://x/y", "detail": "high"},
                        {"type": "input_file", "file_url": "https://x/z.pdf"},
                    ],
                },
                reasoning_item("Hm."),
                function_call_item("c", "f", "{}"),
                {"type": "function_call_output", "call_id": "c", "output": "8"},
            ],
            "tools": [{"type": "function", "name": "f", "parameters": {}, "strict": True}],
            "reasoning": {"effort": "high", "summary": "auto"},
            "text": {"verbosity": "low"},
            "max_output_tokens": 100,
            "store": False,
            "include": ["reasoning.encrypted_content"],
        }
        answer = sdk.responses.create(**parameters)
        body = server.requests[0].body

        prompt = decode_request(body)

        assert answer.output_text == "Hello"
        assert [message.role for message in prompt.messages] == ["user", "assistant", "tool"]
        assert decode_parts(prompt.messages[0]) == (
            Text(text="What is it?"),
            Image(url="https://x/y", extra={"image_url": {"detail": "high"}}),
            Document(url="https://x/z.pdf"),
        )
        written = encode_request(
            model=prompt.model,
            system=() if prompt.system is None else decode_parts(prompt.system),
            messages=[
                OutgoingMessage(role=m.role, parts=decode_parts(m), raw=m.raw)
                for m in prompt.messages
            ],
            parameters=prompt.parameters,
            stream=prompt.stream,
        ).body
        assert json.loads(written) == json.loads(body)
