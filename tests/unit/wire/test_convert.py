"""Prompts of any protocol encoded for any other protocol."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cllm.core.message import Dialect, Message, Role, plain_message
from cllm.core.prompt import Prompt
from cllm.wire.convert import (
    encode_anthropic,
    encode_bedrock,
    encode_openai,
    parts_of,
)
from cllm.wire.errors import NotExpressibleError
from cllm.wire.messages import EncodedRequest
from cllm.wire.openai.request import has_ordered_tool_results, splice_request

CALL = {"path": "a.txt", "deep": {"n": 1.0}}


def raw(dialect: Dialect, role: Role, /, **fields: Any) -> Message:
    return Message(role=role, dialect=dialect, raw=json.dumps(fields).encode())


OPENAI = (
    plain_message("user", "Read a.txt, please."),
    raw(
        "openai",
        "assistant",
        role="assistant",
        content="Reading.",
        tool_calls=[
            {
                "id": "call_1",
                "type": "function",
                "function": {"name": "read", "arguments": json.dumps(CALL)},
            }
        ],
    ),
    raw("openai", "tool", role="tool", tool_call_id="call_1", content="It says hello."),
    plain_message("assistant", "It says hello."),
    plain_message("user", "Thanks."),
)
ANTHROPIC = (
    raw("anthropic", "user", role="user", content="Read a.txt, please."),
    raw(
        "anthropic",
        "assistant",
        role="assistant",
        content=[
            {"type": "text", "text": "Reading."},
            {"type": "tool_use", "id": "call_1", "name": "read", "input": CALL},
        ],
    ),
    raw(
        "anthropic",
        "user",
        role="user",
        content=[
            {"type": "tool_result", "tool_use_id": "call_1", "content": "It says hello."},
        ],
    ),
    raw("anthropic", "assistant", role="assistant", content="It says hello."),
    raw("anthropic", "user", role="user", content=[{"type": "text", "text": "Thanks."}]),
)
BEDROCK = (
    raw("bedrock", "user", role="user", content=[{"text": "Read a.txt, please."}]),
    raw(
        "bedrock",
        "assistant",
        role="assistant",
        content=[
            {"text": "Reading."},
            {"toolUse": {"toolUseId": "call_1", "name": "read", "input": CALL}},
        ],
    ),
    raw(
        "bedrock",
        "user",
        role="user",
        content=[
            {"toolResult": {"toolUseId": "call_1", "content": [{"text": "It says hello."}]}},
        ],
    ),
    raw("bedrock", "assistant", role="assistant", content=[{"text": "It says hello."}]),
    raw("bedrock", "user", role="user", content=[{"text": "Thanks."}]),
)
PARAMETERS: dict[str, Any] = {
    "openai": {
        "temperature": 0,
        "max_tokens": 99,
        "stop": ["END"],
        "tools": [
            {"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}}
        ],
    },
    "anthropic": {
        "temperature": 0,
        "max_tokens": 99,
        "stop_sequences": ["END"],
        "tools": [{"name": "read", "input_schema": {"type": "object"}}],
    },
}
SAID: dict[str, Any] = {"openai": OPENAI, "anthropic": ANTHROPIC, "bedrock": BEDROCK}
ENCODERS: dict[str, Any] = {
    "openai": (encode_openai, "gpt-4o"),
    "anthropic": (lambda p: encode_anthropic(p, default_max_tokens=1), "claude-sonnet-4-5"),
    "bedrock": (encode_bedrock, "us.anthropic.claude-sonnet-4-5-20250929-v1:0"),
}


def encoded(source: Any, target: Any) -> tuple[EncodedRequest, EncodedRequest]:
    encode, model = ENCODERS[target]
    # No client sends requests in Converse's format: only its messages are stored.
    client: Any = "openai" if source == "bedrock" else source
    prompt = Prompt(
        model=model,
        system=plain_message("system", "You are a pirate."),
        messages=SAID[source],
        parameters=PARAMETERS[client],
        dialect=client,
    )
    return encode(prompt), encode(prompt)


@pytest.fixture(params=list(SAID))
def source(request):
    return request.param


@pytest.fixture(params=list(ENCODERS))
def target(request):
    return request.param


def test_the_same_prompt_gives_the_same_bytes(source, target):
    one, other = encoded(source, target)

    assert one.body == other.body


def decode_messages(target: Any, body: Any) -> Iterator[tuple[str, Any]]:
    """The messages of a body as (role, kind, value), decoded by the target's codec."""
    for message in body["messages"]:
        role = {"tool": "tool", "system": "system"}.get(message["role"], message["role"])
        again = Message(role=role, dialect=target, raw=json.dumps(message).encode())
        part: Any
        for part in parts_of(again):
            kind = type(part).__name__
            value = getattr(part, "arguments", None) or getattr(part, "text", None)
            if kind == "ToolResult":
                value = "".join(inner.text for inner in part.content)
            yield kind, json.loads(value or "") if kind == "ToolCall" else value


def test_texts_calls_and_results_are_sent_in_order(source, target):
    body = json.loads(encoded(source, target)[0].body)

    decoded = [
        pair for pair in decode_messages(target, body) if pair != ("Text", "You are a pirate.")
    ]

    assert decoded == [
        ("Text", "Read a.txt, please."),
        ("Text", "Reading."),
        ("ToolCall", CALL),
        ("ToolResult", "It says hello."),
        ("Text", "It says hello."),
        ("Text", "Thanks."),
    ]


def test_the_system_prompt_is_sent_once(source, target):
    body = encoded(source, target)[0].body

    assert body.count(b"You are a pirate.") == 1
    decoded = json.loads(body)
    if target == "openai":
        assert decoded["messages"][0]["role"] == "system"
    else:
        assert "pirate" in json.dumps(decoded["system"])


def test_options_are_converted_to_the_target_format(source, target):
    body = json.loads(encoded(source, target)[0].body)

    sampling = body["inferenceConfig"] if target == "bedrock" else body
    assert sampling["temperature"] == 0
    assert sampling.get("max_tokens", sampling.get("maxTokens")) == 99
    assert "END" in json.dumps(sampling)
    tools = body["toolConfig"]["tools"] if target == "bedrock" else body["tools"]
    assert len(tools) == 1
    assert "read" in json.dumps(tools)


def test_messages_in_the_targets_dialect_keep_their_bytes(target):
    body = encoded(target, target)[0].body

    for message in SAID[target]:
        assert message.raw.replace(b", ", b",").replace(b": ", b":") in body.replace(
            b", ", b","
        ).replace(b": ", b":")


ANSWERED_AS_FUNCTION = {"role": "function", "name": "read", "content": "It says hello."}


@pytest.mark.parametrize("caller", [OPENAI[1], ANTHROPIC[1]], ids=["openai", "anthropic"])
def test_a_function_result_answers_a_providers_tool_call(caller, target):
    """A client that knows functions only was told of the call without its id."""
    encode, model = ENCODERS[target]
    answer = raw("openai", "tool", **ANSWERED_AS_FUNCTION)
    prompt = Prompt(
        model=model,
        messages=(plain_message("user", "Read a.txt, please."), caller, answer),
        parameters={"functions": [{"name": "read", "parameters": {"type": "object"}}]},
    )
    body = encode(prompt).body

    assert list(decode_messages(target, json.loads(body)))[-2:] == [
        ("ToolCall", CALL),
        ("ToolResult", "It says hello."),
    ]
    assert body.count(b"call_1") == 2


AUDIO = raw(
    "openai",
    "user",
    role="user",
    content=[{"type": "input_audio", "input_audio": {"data": "aGk=", "format": "wav"}}],
)


@pytest.mark.parametrize("target", ["anthropic", "bedrock"])
def test_a_newest_message_that_cannot_be_sent_is_an_error(target):
    encode, model = ENCODERS[target]
    prompt = Prompt(model=model, messages=(*OPENAI[:4], AUDIO))

    with pytest.raises(
        NotExpressibleError, match=rf"(?i)messages\[4\].content\[0\]: {target} has no"
    ):
        encode(prompt)


@pytest.mark.parametrize("target", ["anthropic", "bedrock"])
def test_an_earlier_message_that_cannot_be_sent_is_a_notice(target):
    encode, model = ENCODERS[target]
    prompt = Prompt(model=model, messages=(AUDIO, *OPENAI[3:]))

    assert [notice.code for notice in encode(prompt).notices] == ["part_left_out"]


@pytest.mark.parametrize(("ids", "is_expected"), [(("a", "b"), True), (("a", "a"), False)])
def test_calls_with_equal_ids_are_not_ordered(ids: tuple[str, str], is_expected: bool):
    function = {"name": "read", "arguments": "{}"}
    calls = [{"id": one, "type": "function", "function": function} for one in ids]
    history = (
        plain_message("user", "Read."),
        raw("openai", "assistant", role="assistant", content=None, tool_calls=calls),
        *(raw("openai", "tool", role="tool", tool_call_id=one, content="x") for one in ids),
    )

    assert has_ordered_tool_results(history) is is_expected


HELLO = plain_message("user", "Hello")
JSON_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


def prompt(*messages: Message, **fields: Any) -> Prompt:
    return Prompt(model="gpt-test", messages=messages or (HELLO,), **fields)


def encode_request(prompt: Prompt) -> bytes:
    return splice_request(prompt, prompt.parameters)


def encode(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


class TestRequest:
    def test_a_request_has_the_model_the_messages_and_the_parameters(self):
        sent = prompt(
            system=plain_message("system", "Be brief."),
            parameters={"temperature": 0.5},
            stream=False,
        )

        assert json.loads(encode_request(sent)) == {
            "model": "gpt-test",
            "messages": [
                {"role": "system", "content": "Be brief."},
                {"role": "user", "content": "Hello"},
            ],
            "temperature": 0.5,
        }

    @given(
        st.lists(st.text(max_size=20), min_size=1, max_size=4),
        st.dictionaries(st.sampled_from(["temperature", "stop", "seed", "x"]), JSON_VALUES),
        st.booleans(),
    )
    def test_the_same_prompt_gives_the_same_bytes(self, texts, parameters, stream):
        def encode() -> bytes:
            messages = (plain_message("user", text) for text in texts)
            return encode_request(prompt(*messages, parameters=dict(parameters), stream=stream))

        assert encode() == encode()

    @pytest.mark.parametrize(
        "raw",
        [
            b'{"content":"order","role":"user","name":"z"}',
            b'{"role":"user","content":"\\u00e4 \\/ 1.0e5"}',
            b'{"role":"user","content":[{"type":"new","n":1e3,"big":123456789012345678901234}]}',
            b'{"role":"developer","content":"Be brief."}',
            b'{"role":"user","content":"this is my reasoning"}',
        ],
    )
    def test_the_bytes_of_a_message_are_unchanged(self, raw):
        sent = encode_request(prompt(Message(role="user", raw=raw), HELLO))

        assert b'"messages":[' + raw + b"," + HELLO.raw + b"]" in sent

    def test_a_message_that_mentions_reasoning_is_unchanged(self):
        raw = b'{"content":"my \\u00e4 reasoning","role":"assistant"}'

        assert raw in encode_request(prompt(Message(role="assistant", raw=raw), HELLO))

    @pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "reasoning_details"])
    def test_reasoning_is_spliced_like_any_other_field(self, field):
        raw = encode({"role": "assistant", "content": "4", field: ["2+2"], "refusal": "x"})

        assert raw in encode_request(prompt(Message(role="assistant", raw=raw), HELLO))

    @pytest.mark.parametrize("value", [0, 0.0, False, "", []])
    def test_falsy_parameters_are_sent(self, value):
        sent = json.loads(encode_request(prompt(parameters={"temperature": value})))

        assert sent["temperature"] == value

    @pytest.mark.parametrize(
        ("parameters", "options"),
        [
            ({}, {"include_usage": True}),
            ({"stream_options": {"x": 1}}, {"include_usage": True, "x": 1}),
            ({"stream_options": {"include_usage": False}}, {"include_usage": False}),
            ({"stream_options": None}, {"include_usage": True}),
        ],
    )
    def test_a_stream_requests_usage(self, parameters, options):
        sent = json.loads(encode_request(prompt(parameters=parameters)))

        assert sent["stream"] is True
        assert sent["stream_options"] == options

    def test_stream_is_not_sent_for_a_whole_answer(self):
        assert not {"stream", "stream_options"} & set(
            json.loads(encode_request(prompt(stream=False)))
        )

    @pytest.mark.parametrize(
        "parameters", [{"messages": []}, {"model": "other"}], ids=["messages", "model"]
    )
    def test_parameters_never_replace_the_model_or_the_messages(self, parameters):
        sent = json.loads(encode_request(prompt(parameters=parameters)))

        assert sent["model"] == "gpt-test"
        assert sent["messages"] == [{"role": "user", "content": "Hello"}]
