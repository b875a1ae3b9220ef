"""botocore validates our requests by its service model and decodes our frames."""

import base64
import binascii
import functools
import itertools
import json
import re
import struct
from typing import Any

import botocore.loaders
import botocore.model
import botocore.serialize
import botocore.validate
import msgspec
import pytest
from botocore.eventstream import EventStreamBuffer
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cllm.core.errors import UnsendableError
from cllm.core.message import (
    CacheMark,
    Document,
    Image,
    Message,
    RedactedThinking,
    Refusal,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Unknown,
)
from cllm.core.options import JsonOutput, Reasoning, RequestOptions, Tool, ToolChoice
from cllm.providers.history import repair_for
from cllm.wire.bedrock.models import find_media_rule
from cllm.wire.bedrock.parts import decode_parts
from cllm.wire.bedrock.request import encode_options, encode_request
from cllm.wire.bedrock.response_decoder import BedrockStreamDecoder
from cllm.wire.errors import ReportedError
from cllm.wire.media import fit_media
from cllm.wire.messages import OutgoingMessage

MODELS = [
    "us.anthropic.claude-3-7-sonnet-20250219-v1:0",
    "us.anthropic.claude-opus-4-6-v1",
    "anthropic.claude-3-haiku-20240307-v1:0",
    "us.amazon.nova-pro-v1:0",
    "meta.llama3-3-70b-instruct-v1:0",
    "mistral.mistral-large-2402-v1:0",
]
PNG = base64.b64encode(b"\x89PNG").decode()


@functools.cache
def operation(name: str) -> Any:
    loader = botocore.loaders.Loader()
    described = loader.load_service_model("bedrock-runtime", "service-2")
    return botocore.model.ServiceModel(described, "bedrock-runtime").operation_model(name)


def as_parameters(value: Any, shape: Any) -> Any:
    """The parameters of botocore for this JSON, in which blobs are bytes."""
    if shape.type_name == "blob":
        return base64.b64decode(value, validate=True)
    if shape.type_name == "list":
        return [as_parameters(item, shape.member) for item in value]
    if shape.type_name == "map":
        return {key: as_parameters(item, shape.value) for key, item in value.items()}
    if shape.type_name == "structure" and not shape.is_document_type:
        return {key: as_parameters(item, shape.members[key]) for key, item in value.items()}
    return value


def validate(body: bytes, model: str, *, name: str = "Converse") -> None:
    """Check that botocore accepts the request and encodes the same body from its parameters."""
    shape = operation(name).input_shape
    parameters = {"modelId": model, **as_parameters(json.loads(body), shape)}
    report = botocore.validate.ParamValidator().validate(parameters, shape)
    assert not report.has_errors(), report.generate_report()
    serializer = botocore.serialize.create_serializer("rest-json", include_validation=False)
    written = serializer.serialize_to_request(parameters, operation(name))
    assert json.loads(written["body"]) == json.loads(body)
    assert written["url_path"].startswith("/model/")
    check_rules(json.loads(body))


def check_rules(body: dict[str, Any]) -> None:
    """Check the rules that the service model does not contain."""
    messages = body["messages"]
    roles = [message["role"] for message in messages]
    assert roles == [("user", "assistant")[place % 2] for place in range(len(roles))]
    call_ids: list[str] = []
    for message in messages:
        blocks = message["content"]
        assert blocks
        kinds = [next(iter(block)) for block in blocks]
        assert kinds[0] != "cachePoint"
        for before, kind in itertools.pairwise(kinds):
            assert kind != "cachePoint" or before not in ("cachePoint", "document")
        assert all(block["text"].strip() for block in blocks if "text" in block)
        assert "document" not in kinds or "text" in kinds
        results = [block["toolResult"]["toolUseId"] for block in blocks if "toolResult" in block]
        if message["role"] == "user":
            assert results == call_ids
        call_ids = [block["toolUse"]["toolUseId"] for block in blocks if "toolUse" in block]
        assert not call_ids or "toolConfig" in body
        assert all(re.fullmatch(r"[a-zA-Z0-9_.:-]{1,64}", call_id) for call_id in call_ids)
        assert len(set(call_ids)) == len(call_ids)
    assert not call_ids
    assert json.dumps(body).count('"cachePoint"') <= 4
    names = [
        block["document"]["name"] for m in messages for block in m["content"] if "document" in block
    ]
    assert len(names) == len(set(names))
    assert all(re.fullmatch(r"(?!.*\s\s)[a-zA-Z0-9\s()\[\]-]{1,200}", name) for name in names)
    tools = [
        tool["toolSpec"]["name"]
        for tool in body.get("toolConfig", {}).get("tools", [])
        if "toolSpec" in tool
    ]
    called = [
        block["toolUse"]["name"] for m in messages for block in m["content"] if "toolUse" in block
    ]
    assert all(re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", name) for name in (*tools, *called))


def store_message(message: dict[str, Any]) -> OutgoingMessage:
    """A message that was sent, as it is stored and sent again."""
    raw = msgspec.json.encode(message)
    stored = Message(role=message["role"], dialect="bedrock", raw=raw)
    return OutgoingMessage(role=stored.role, parts=decode_parts(stored), raw=raw)


WORDS = st.text(alphabet=st.characters(codec="utf-8"), max_size=12)
MARKS = st.none() | st.builds(CacheMark, ttl=st.sampled_from([None, "5m", "1h", "odd"]))
IDS = st.sampled_from(["c1", "c2", "", "functions.Bash:0", "x" * 90, "a b"])
TEXTS = st.builds(Text, text=WORDS, cache=MARKS)
IMAGES = st.builds(
    Image, media_type=st.sampled_from(["image/jpg", "image/png"]), data=st.just(PNG), cache=MARKS
)
DOCUMENTS = st.builds(
    Document,
    media_type=st.just("application/pdf"),
    data=st.just(PNG),
    name=st.none() | WORDS,
    cache=MARKS,
)
FOREIGN = st.just(Unknown(dialect="openai", raw=b'{"type":"input_audio"}'))
RESULTS = st.builds(
    ToolResult,
    call_id=IDS,
    content=st.lists(TEXTS | IMAGES | DOCUMENTS | FOREIGN, max_size=2).map(tuple),
    is_error=st.booleans(),
    cache=MARKS,
)
CALLS = st.builds(
    ToolCall,
    id=IDS,
    name=st.sampled_from(["look", "fs.read", "n" * 90, "ä"]),
    arguments=st.sampled_from(["{}", "", '{"a": 1}', "{broken", "[]"]),
    cache=MARKS,
)
THOUGHTS = st.builds(
    Thinking, text=WORDS, signature=st.sampled_from([None, "", "sig"]), cache=MARKS
) | st.builds(RedactedThinking, data=st.sampled_from([PNG, "?"]))
ANY = st.one_of(TEXTS, IMAGES, DOCUMENTS, FOREIGN, st.builds(Refusal, text=WORDS))
PARTS: dict[Role, Any] = {
    "user": ANY | RESULTS,
    "assistant": ANY | CALLS | THOUGHTS,
    "tool": ANY | RESULTS,
    "system": ANY | RESULTS | CALLS | THOUGHTS,
}
MESSAGES = st.one_of(
    *(
        st.builds(OutgoingMessage, role=st.just(role), parts=st.lists(parts, max_size=4).map(tuple))
        for role, parts in PARTS.items()
    )
)
OPTIONS = st.builds(
    RequestOptions,
    max_tokens=st.none() | st.integers(1, 9000),
    temperature=st.none() | st.floats(0, 2),
    top_p=st.none() | st.floats(0, 1),
    top_k=st.none() | st.integers(0, 50),
    stop=st.none() | st.lists(WORDS, max_size=2).map(tuple),
    tools=st.none()
    | st.lists(
        st.builds(
            Tool,
            name=st.sampled_from(["look", "fs.read"]),
            description=st.none() | WORDS,
            strict=st.none() | st.booleans(),
            cache=MARKS,
        ),
        max_size=2,
    ).map(tuple),
    tool_choice=st.none()
    | st.sampled_from(
        [ToolChoice(kind=kind) for kind in ("auto", "any", "none")]
        + [ToolChoice(kind="tool", name="fs.read")]
    ),
    output=st.none() | st.just(JsonOutput(schema={"type": "object"})),
    reasoning=st.none() | st.just(Reasoning(enabled=True, effort="low")),
)


def list_calls(message: OutgoingMessage) -> list[ToolCall]:
    return [part for part in message.parts if isinstance(part, ToolCall)]


@settings(max_examples=150, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    st.lists(MESSAGES, max_size=7), st.lists(TEXTS, max_size=2), OPTIONS, st.sampled_from(MODELS)
)
def test_botocore_accepts_the_request_of_any_conversation(messages, system, options, model):
    messages = [*messages, OutgoingMessage(role="user", parts=(Text(text="end"),))]
    messages, _ = fit_media(messages, find_media_rule(model))
    parameters, _ = encode_options(options, model=model)
    arguments: Any = {
        "model": model,
        "parameters": parameters,
        "repair": repair_for("bedrock", model, provider="bedrock"),
    }
    try:
        encoded = encode_request(system=system, messages=messages, **arguments)
    except UnsendableError:
        # Only a system message with a tool call or thinking is refused: no client can mean it.
        kinds = (ToolCall, Thinking, RedactedThinking)
        assert any(
            one.role == "system" and any(isinstance(part, kinds) for part in one.parts)
            for one in messages
        )
        return
    validate(encoded.body, model)
    validate(encoded.body, model, name="ConverseStream")
    again = encode_request(system=system, messages=messages, **arguments)
    assert again == encoded
    body = json.loads(encoded.body)
    prompt = store_message({"role": "user", "content": body.get("system", [])}).parts
    sent = [store_message(message) for message in body["messages"]]
    repeated = encode_request(system=prompt, messages=sent, **arguments)
    assert json.loads(repeated.body) == body


@pytest.mark.parametrize(
    "body",
    [
        {"messages": [{"role": "user", "content": []}]},
        {"messages": [{"role": "user", "content": [{"text": "a", "image": {}}]}]},
        {"messages": [], "inferenceConfig": {"maxTokens": 0}},
        {"messages": [{"role": "assistant", "content": [{"text": "a"}]}]},
    ],
)
def test_the_validation_refuses_invalid_requests(body):
    with pytest.raises(AssertionError):
        validate(json.dumps(body).encode(), MODELS[0])


def test_botocore_accepts_a_token_count_request():
    encoded = encode_request(
        model=MODELS[0],
        system=[Text(text="s", cache=CacheMark())],
        messages=[OutgoingMessage(role="user", parts=(Image(media_type="image/png", data=PNG),))],
        parameters={},
    )
    shape = operation("CountTokens").input_shape
    given_ = {"input": {"converse": json.loads(encoded.body)}}
    parameters = {"modelId": MODELS[0], **as_parameters(given_, shape)}
    assert not botocore.validate.ParamValidator().validate(parameters, shape).has_errors()


def frame(kind: str, name: str, payload: bytes) -> bytes:
    """One frame of the event-stream encoding: lengths, headers, payload, two checksums."""
    fields = {":message-type": kind, f":{kind}-type": name, ":content-type": "application/json"}
    headers = b"".join(
        struct.pack("!B", len(key))
        + key.encode()
        + struct.pack("!BH", 7, len(value))
        + value.encode()
        for key, value in fields.items()
    )
    prelude = struct.pack("!II", 16 + len(headers) + len(payload), len(headers))
    checked = prelude + struct.pack("!I", binascii.crc32(prelude)) + headers + payload
    return checked + struct.pack("!I", binascii.crc32(checked))


def decode_frames(frames: bytes, size: int) -> tuple[list[Any], BedrockStreamDecoder]:
    buffer = EventStreamBuffer()
    decoder = BedrockStreamDecoder()
    events: list[Any] = []
    for place in range(0, len(frames), size):
        buffer.add_data(frames[place : place + size])
        for event in buffer:
            headers: Any = event.headers
            name = headers.get(":event-type") or headers[":exception-type"]
            events += decoder.decode(name, event.payload)
    return events, decoder


EVENTS: list[tuple[str, Any]] = [
    ("messageStart", {"role": "assistant"}),
    ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "caf"}}),
    ("contentBlockDelta", {"contentBlockIndex": 0, "delta": {"text": "é"}}),
    ("contentBlockStop", {"contentBlockIndex": 0}),
    (
        "contentBlockStart",
        {"contentBlockIndex": 1, "start": {"toolUse": {"toolUseId": "t", "name": "n"}}},
    ),
    ("contentBlockDelta", {"contentBlockIndex": 1, "delta": {"toolUse": {"input": '{"a":1}'}}}),
    ("contentBlockStop", {"contentBlockIndex": 1}),
    ("messageStop", {"stopReason": "tool_use"}),
    (
        "metadata",
        {"usage": {"inputTokens": 1, "outputTokens": 2, "totalTokens": 3}, "metrics": {}},
    ),
]


@pytest.mark.parametrize("size", [1, 7, 64, 100_000])
def test_frames_that_botocore_decodes_are_the_reply(size):
    frames = b"".join(frame("event", name, json.dumps(fields).encode()) for name, fields in EVENTS)
    events, decoder = decode_frames(frames, size)
    last = decoder.finish()
    assert last is not None
    assert len(events) == 4
    assert last.stop_reason == "tool_calls"
    assert decode_parts(last.message) == (
        Text(text="café"),
        ToolCall(id="t", name="n", arguments='{"a":1}'),
    )


def test_an_exception_frame_is_an_error_with_its_type():
    name, fields = EVENTS[1]
    frames = frame("event", name, json.dumps(fields).encode())
    frames += frame("exception", "throttlingException", b'{"message":"slow down"}')
    with pytest.raises(ReportedError, match="slow down") as caught:
        decode_frames(frames, 10)
    assert caught.value.details.status == 429
