"""Between any two protocols: the same conversation, whole, valid, and twice the same bytes."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from cllm.core.message import Dialect, Message, Role, plain_message
from cllm.core.prompt import Prompt
from cllm.wire.convert import (
    encode_anthropic,
    encode_bedrock,
    encode_openai,
    has_ordered_tool_results,
    parts_of,
)
from cllm.wire.errors import NotExpressibleError
from cllm.wire.messages import EncodedRequest

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


def heard(target: Any, body: Any) -> Iterator[tuple[str, Any]]:
    """What the target is told, as (role, kind, value), read by its own codec."""
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


def test_every_word_call_and_result_arrives_in_order(source, target):
    body = json.loads(encoded(source, target)[0].body)

    told = [pair for pair in heard(target, body) if pair != ("Text", "You are a pirate.")]

    assert told == [
        ("Text", "Read a.txt, please."),
        ("Text", "Reading."),
        ("ToolCall", CALL),
        ("ToolResult", "It says hello."),
        ("Text", "It says hello."),
        ("Text", "Thanks."),
    ]


def test_the_system_prompt_arrives_once_in_its_own_place(source, target):
    body = encoded(source, target)[0].body

    assert body.count(b"You are a pirate.") == 1
    decoded = json.loads(body)
    if target == "openai":
        assert decoded["messages"][0]["role"] == "system"
    else:
        assert "pirate" in json.dumps(decoded["system"])


def test_zero_limits_stops_and_tools_are_said_in_the_target_s_words(source, target):
    body = json.loads(encoded(source, target)[0].body)

    sampling = body["inferenceConfig"] if target == "bedrock" else body
    assert sampling["temperature"] == 0
    assert sampling.get("max_tokens", sampling.get("maxTokens")) == 99
    assert "END" in json.dumps(sampling)
    tools = body["toolConfig"]["tools"] if target == "bedrock" else body["tools"]
    assert len(tools) == 1
    assert "read" in json.dumps(tools)


def test_messages_in_the_target_s_own_words_keep_their_bytes(target):
    body = encoded(target, target)[0].body

    for message in SAID[target]:
        assert message.raw.replace(b", ", b",").replace(b": ", b":") in body.replace(
            b", ", b","
        ).replace(b": ", b":")


ANSWERED_AS_FUNCTION = {"role": "function", "name": "read", "content": "It says hello."}


@pytest.mark.parametrize("caller", [OPENAI[1], ANTHROPIC[1]], ids=["openai", "anthropic"])
def test_a_function_answers_the_call_that_a_provider_of_tools_has_made(caller, target):
    """A client that knows functions only was told of the call without its id."""
    encode, model = ENCODERS[target]
    answer = raw("openai", "tool", **ANSWERED_AS_FUNCTION)
    prompt = Prompt(
        model=model,
        messages=(plain_message("user", "Read a.txt, please."), caller, answer),
        parameters={"functions": [{"name": "read", "parameters": {"type": "object"}}]},
    )
    body = encode(prompt).body

    assert list(heard(target, json.loads(body)))[-2:] == [
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
def test_a_question_of_which_nothing_can_be_said_is_an_error_that_names_it(target):
    encode, model = ENCODERS[target]
    prompt = Prompt(model=model, messages=(*OPENAI[:4], AUDIO))

    with pytest.raises(NotExpressibleError, match=rf"(?i)messages\[4\]: nothing .* to {target}"):
        encode(prompt)


@pytest.mark.parametrize("target", ["anthropic", "bedrock"])
def test_an_earlier_message_of_which_nothing_can_be_said_is_noticed(target):
    encode, model = ENCODERS[target]
    prompt = Prompt(model=model, messages=(AUDIO, *OPENAI[3:]))

    assert [notice.code for notice in encode(prompt).notices] == ["part_left_out"]


@pytest.mark.parametrize(("ids", "is_expected"), [(("a", "b"), True), (("a", "a"), False)])
def test_calls_of_one_message_with_equal_ids_are_not_ordinary(
    ids: tuple[str, str], is_expected: bool
):
    function = {"name": "read", "arguments": "{}"}
    calls = [{"id": one, "type": "function", "function": function} for one in ids]
    history = (
        plain_message("user", "Read."),
        raw("openai", "assistant", role="assistant", content=None, tool_calls=calls),
        *(raw("openai", "tool", role="tool", tool_call_id=one, content="x") for one in ids),
    )

    assert has_ordered_tool_results(history) is is_expected
