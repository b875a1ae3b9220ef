"""Tool-name aliases: one per refused name or id, always the same, and reversed in answers."""

import json
import re
from typing import Any

import pytest

from cllm.core.message import Message, ToolCall, plain_message
from cllm.core.prompt import Prompt
from cllm.core.reply import ReplyFinished, ToolCallDelta
from cllm.wire.anthropic import response_decoder as anthropic_decoder
from cllm.wire.bedrock import response_decoder as bedrock_decoder
from cllm.wire.convert import encode_anthropic, encode_bedrock, encode_openai, parts_of
from cllm.wire.messages import Aliases, AliasRule, EncodedRequest, alias_field
from cllm.wire.openai import response_decoder as openai_decoder

NAME = "mcp.files/read file"
LONG = "n" * 200
ID = "functions.Bash:0"
ENCODERS: dict[str, Any] = {
    "openai": (encode_openai, "gpt-4o", r"[a-zA-Z0-9_-]{1,64}", r".{1,40}"),
    "anthropic": (
        lambda prompt: encode_anthropic(prompt, default_max_tokens=9),
        "claude-sonnet-4-5",
        r"[a-zA-Z0-9_-]{1,128}",
        r"[a-zA-Z0-9_-]+",
    ),
    "bedrock": (
        encode_bedrock,
        "anthropic.claude-sonnet-4-5-20250929-v1:0",
        r"[a-zA-Z0-9_-]{1,64}",
        r"[a-zA-Z0-9_.:-]{1,64}",
    ),
}


def build_request(
    source: str, name: str, call_id: str
) -> tuple[tuple[Message, ...], dict[str, Any]]:
    """A call of that name and id, its result, and the tool, as a client of the source has them."""
    function = {"name": name, "arguments": "{}"}
    if source == "openai":
        call: Any = {"id": call_id, "type": "function", "function": function}
        call = {"role": "assistant", "content": None, "tool_calls": [call]}
        result: Any = {"role": "tool", "tool_call_id": call_id, "content": "1"}
        tool: Any = {"type": "function", "function": {"name": name, "parameters": {}}}
        choice: Any = {"type": "function", "function": {"name": name}}
    else:
        block = {"type": "tool_use", "id": call_id, "name": name, "input": {}}
        call = {"role": "assistant", "content": [block]}
        answer = {"type": "tool_result", "tool_use_id": call_id, "content": "1"}
        result = {"role": "user", "content": [answer]}
        tool = {"name": name, "input_schema": {"type": "object"}}
        choice = {"type": "tool", "name": name}
    dialect: Any = source
    messages = (
        plain_message("user", "Hello"),
        Message(role="assistant", raw=json.dumps(call).encode(), dialect=dialect),
        Message(
            role="tool" if source == "openai" else "user",
            raw=json.dumps(result).encode(),
            dialect=dialect,
        ),
    )
    return messages, {"max_tokens": 9, "tools": [tool], "tool_choice": choice}


def encode_request(
    source: Any, target: str, *, name: str = "f", call_id: str = "a"
) -> EncodedRequest:
    encode, model, *_ = ENCODERS[target]
    messages, parameters = build_request(source, name, call_id)
    request: EncodedRequest = encode(
        Prompt(model=model, messages=messages, parameters=parameters, dialect=source)
    )
    return request


def calls(body: bytes, target: Any) -> list[ToolCall]:
    read = [
        Message(role=fields["role"], raw=json.dumps(fields).encode(), dialect=target)
        for fields in json.loads(body)["messages"]
        if fields["role"] == "assistant"
    ]
    return [p for message in read for p in parts_of(message) if isinstance(p, ToolCall)]


PAIRS = [
    (source, target)
    for source in ("openai", "anthropic")
    for target in ENCODERS
    if (source, target) != ("openai", "openai")
]


@pytest.mark.parametrize(("source", "target"), PAIRS)
@pytest.mark.parametrize("name", [NAME, LONG, "ä"])
def test_a_name_has_one_alias_in_tools_choice_and_history(source, target, name):
    request = encode_request(source, target, name=name)
    alias = calls(request.body, target)[0].name
    text = json.dumps(json.loads(request.body), ensure_ascii=False)

    assert re.fullmatch(ENCODERS[target][2], alias)
    assert request.names == {alias: name}
    assert text.count(f'"{alias}"') == 3
    assert f'"{name}"' not in text
    assert request == encode_request(source, target, name=name)


@pytest.mark.parametrize(("source", "target"), PAIRS)
@pytest.mark.parametrize("call_id", [ID, LONG, "é é"])
def test_an_id_has_one_alias_on_call_and_result(source, target, call_id):
    request = encode_request(source, target, call_id=call_id)
    alias = calls(request.body, target)[0].id

    assert re.fullmatch(ENCODERS[target][3], alias)
    assert request.body.count(f'"{alias}"'.encode()) == 2
    assert request.ids == ({} if alias == call_id else {alias: call_id})


@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_accepted_names_get_no_alias(source, target):
    request = encode_request(source, target, name="read_File-2", call_id="call_1")

    assert (request.names, request.ids) == ({}, {})


def test_openai_to_openai_has_no_aliases():
    request = encode_request("openai", "openai", name=NAME, call_id=LONG)

    assert calls(request.body, "openai")[0].name == NAME
    assert calls(request.body, "openai")[0].id == LONG
    assert (request.names, request.ids) == ({}, {})


def test_a_reply_in_the_targets_dialect_is_sent_with_the_alias():
    block = {"id": "a", "type": "function", "function": {"name": NAME, "arguments": "{}"}}
    reply = {"role": "assistant", "content": None, "tool_calls": [block]}
    messages, parameters = build_request("anthropic", NAME, "a")
    own = Message(role="assistant", raw=json.dumps(reply).encode())
    prompt = Prompt(
        model="gpt-4o",
        messages=(messages[0], own, messages[2]),
        parameters=parameters,
        dialect="anthropic",
    )
    request = encode_openai(prompt)

    assert calls(request.body, "openai")[0].name in request.names


def tool_names(events: list[Any]) -> tuple[list[str | None], str]:
    """The names in the deltas, and the name in the message."""
    last = events[-1]
    assert isinstance(last, ReplyFinished)
    saved_names = [part.name for part in parts_of(last.message) if isinstance(part, ToolCall)]
    return [e.name for e in events if isinstance(e, ToolCallDelta) and e.name], saved_names[0]


NAMES = {"alias_1": NAME}


def test_openai_answers_have_the_clients_tool_name():
    call = {"id": "c", "type": "function", "function": {"name": "alias_1", "arguments": "{}"}}
    message = {"role": "assistant", "content": None, "tool_calls": [call]}
    whole = {"choices": [{"message": message, "finish_reason": "tool_calls"}]}
    chunk = {"choices": [{"delta": {"tool_calls": [{**call, "index": 0}]}}]}
    end = {"choices": [{"delta": {}, "finish_reason": "tool_calls"}]}
    decoder = openai_decoder.OpenAIStreamDecoder(names=NAMES)
    events = [e for data in (chunk, end) for e in decoder.decode(json.dumps(data).encode())]

    assert tool_names(openai_decoder.decode_answer(json.dumps(whole).encode(), names=NAMES)) == (
        [NAME],
        NAME,
    )
    assert tool_names([*events, decoder.finish()]) == ([NAME], NAME)


def test_anthropic_answers_have_the_clients_tool_name():
    block = {"type": "tool_use", "id": "t", "name": "alias_1", "input": {"a": 1.0}}
    other = {"type": "text", "text": "alias_1"}
    whole = {"type": "message", "content": [block, other], "stop_reason": "tool_use"}
    events: list[tuple[str, dict[str, Any]]] = [
        ("message_start", {"message": {"usage": {}}}),
        ("content_block_start", {"index": 0, "content_block": {**block, "input": {}}}),
        (
            "content_block_delta",
            {"index": 0, "delta": {"type": "input_json_delta", "partial_json": "{}"}},
        ),
        ("content_block_stop", {"index": 0}),
        ("message_delta", {"delta": {"stop_reason": "tool_use"}}),
        ("message_stop", {}),
    ]
    decoder = anthropic_decoder.AnthropicStreamDecoder(names=NAMES)
    read = [
        event
        for name, fields in events
        for event in decoder.decode(name, json.dumps({"type": name, **fields}).encode())
    ]
    answer = anthropic_decoder.decode_answer(json.dumps(whole).encode(), names=NAMES)

    assert tool_names(answer) == ([NAME], NAME)
    assert tool_names([*read, decoder.finish()]) == ([NAME], NAME)
    assert answer[-1].message.json()["content"] == [{**block, "name": NAME}, other]  # type: ignore[union-attr]


def test_bedrock_answers_have_the_clients_tool_name():
    block = {"toolUse": {"toolUseId": "t", "name": "alias_1", "input": {}}}
    message = {"role": "assistant", "content": [block]}
    whole = {"output": {"message": message}, "stopReason": "tool_use"}

    answer = bedrock_decoder.decode_answer(json.dumps(whole).encode(), names=NAMES)
    assert tool_names(answer) == ([NAME], NAME)


def test_different_names_have_different_aliases():
    rule = AliasRule(max_length=64)
    words = ["a b", "a.b", "a/b", LONG, LONG + "n"]
    aliases = {rule.alias(word) for word in words} | {rule.alias("a b", again=1)}

    assert len(aliases) == len(words) + 1
    assert all(rule.accepts(alias) for alias in aliases)


def test_only_the_name_at_the_path_is_replaced():
    aliases = Aliases(names=AliasRule(), ids=AliasRule())
    tool = {"function": {"name": "a b", "x": 1}, "name": "a b"}
    changed = alias_field(tool, aliases, "function", "name")

    assert changed["function"]["name"] in aliases.names
    assert (changed["name"], changed["function"]["x"]) == ("a b", 1)
    assert tool["function"] == {"name": "a b", "x": 1}
    assert alias_field([], aliases, "name") == []
    assert alias_field({"name": 3}, aliases, "name") == {"name": 3}


def test_an_alias_is_the_same_in_every_process():
    assert AliasRule().alias("read file") == "read_file_1214148ebf663ce8"
