"""Cache marks in what is sent to Anthropic and Bedrock: whose, on what, and where none are."""

import json
from typing import Any

import pytest
from tests.request_validation import validate_anthropic_request, validate_bedrock_request

from cllm.core.message import Dialect, Message, Role, plain_message
from cllm.core.prompt import Continuity, Original, Prompt
from cllm.providers.history import cache_control_for
from cllm.wire.convert import encode_anthropic, encode_bedrock

CLAUDE = "claude-sonnet-4-5"
ON_BEDROCK = "eu.anthropic.claude-sonnet-4-5-20250929-v1:0"
LONG = "All work and no play makes Jack a dull boy. " * 200
MARK = {"type": "ephemeral"}
POINT = {"cachePoint": {"type": "default"}}


def message(role: Role, content: Any, dialect: Dialect = "anthropic") -> Message:
    raw = json.dumps({"role": role, "content": content}).encode()
    return Message(role=role, raw=raw, dialect=dialect)


def prompt(*messages: Message, **fields: Any) -> Prompt:
    given: dict[str, Any] = {
        "model": CLAUDE,
        "system": plain_message("system", LONG),
        "continuity": Continuity(fresh=len(messages)),
        "stream": False,
    }
    return Prompt(messages=messages or (plain_message("user", "Hello"),), **given | fields)


def to_anthropic(asked: Prompt) -> dict[str, Any]:
    mark = cache_control_for("anthropic", asked.model, asked.continuity)
    encoded = encode_anthropic(asked, default_max_tokens=100, cache_control=mark)
    validate_anthropic_request(encoded.body, sampling=False)
    assert not encoded.notices
    body: dict[str, Any] = json.loads(encoded.body)
    return body


def to_bedrock(asked: Prompt) -> dict[str, Any]:
    mark = cache_control_for("bedrock", asked.model, asked.continuity)
    encoded = encode_bedrock(asked, cache_control=mark)
    validate_bedrock_request(encoded.body, model=asked.model)
    assert not encoded.notices
    body: dict[str, Any] = json.loads(encoded.body)
    return body


def marked(body: dict[str, Any]) -> int:
    text = json.dumps(body)
    return text.count('"cache_control"') + text.count('"cachePoint"')


def test_anthropic_has_a_mark_on_the_system_prompt_and_on_the_last_block():
    body = to_anthropic(prompt())

    assert body["system"] == [{"type": "text", "text": LONG, "cache_control": MARK}]
    assert body["messages"][0]["content"] == [
        {"type": "text", "text": "Hello", "cache_control": MARK}
    ]


@pytest.mark.parametrize("model", [ON_BEDROCK, "us.amazon.nova-lite-v1:0"])
def test_bedrock_has_a_cache_point_behind_each(model):
    body = to_bedrock(prompt(model=model))

    assert body["system"] == [{"text": LONG}, POINT]
    assert body["messages"][0]["content"] == [{"text": "Hello"}, POINT]


@pytest.mark.parametrize(
    "model",
    [
        "meta.llama3-70b-instruct-v1:0",
        "arn:aws:bedrock:us-east-1:1:application-inference-profile/x",
        "anthropic.claude-3-haiku-20240307-v1:0",
    ],
)
def test_a_model_that_may_have_no_cache_gets_no_cache_point(model):
    assert marked(to_bedrock(prompt(model=model))) == 0


def test_without_a_conversation_that_goes_on_there_are_none():
    assert marked(to_anthropic(prompt(continuity=None))) == 0
    assert marked(to_bedrock(prompt(continuity=None, model=ON_BEDROCK))) == 0


def test_below_the_minimum_there_are_none():
    assert marked(to_anthropic(prompt(system=plain_message("system", "Be brief.")))) == 0


def test_tools_count_with_the_system_prompt_that_they_stand_before():
    tool = {"name": "look", "description": LONG, "input_schema": {"type": "object"}}

    body = to_anthropic(
        prompt(
            system=plain_message("system", "Be brief."),
            parameters={"tools": [tool]},
            dialect="anthropic",
        )
    )

    assert body["tools"] == [tool]
    assert body["system"][0]["cache_control"] == MARK


HELLO = {"type": "text", "text": "Hello"}
BY_CLIENT = {
    "a text": prompt(message("user", [HELLO | {"cache_control": MARK}])),
    "the system prompt": prompt(
        system=message("system", [{"type": "text", "text": LONG, "cache_control": MARK}])
    ),
    "a tool": prompt(
        dialect="anthropic",
        parameters={
            "tools": [{"name": "f", "input_schema": {"type": "object"}, "cache_control": MARK}]
        },
    ),
    "the request": prompt(dialect="anthropic", parameters={"cache_control": MARK}),
    "a text in a result": prompt(
        message("user", [HELLO]),
        message("assistant", [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]),
        message(
            "user",
            [
                {
                    "type": "tool_result",
                    "tool_use_id": "c",
                    "content": [HELLO | {"cache_control": MARK}],
                }
            ],
        ),
        dialect="anthropic",
        parameters={"tools": [{"name": "f", "input_schema": {"type": "object"}}]},
    ),
}


@pytest.mark.parametrize("asked", BY_CLIENT.values(), ids=BY_CLIENT.keys())
def test_a_mark_of_the_client_is_the_only_one(asked):
    assert marked(to_anthropic(asked)) == 1


def test_a_cache_point_of_the_client_is_the_only_one():
    asked = prompt(
        message("user", [{"text": "Hello"}, POINT, {"text": "You"}], "bedrock"), model=ON_BEDROCK
    )

    assert marked(to_bedrock(asked)) == 1


def test_thinking_and_blank_text_have_no_mark():
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
    body = to_anthropic(
        prompt(
            message("user", "Hello"),
            message("assistant", [{"type": "text", "text": "Yes"}, thought]),
            message("user", "Well?"),
            continuity=Continuity(fresh=3, passing=1),
        )
    )

    said, last = body["messages"][1]["content"]
    assert said["cache_control"] == MARK
    assert last == thought
    assert body["messages"][2]["content"] == "Well?"


def test_no_cache_point_follows_a_document():
    document = {"document": {"format": "txt", "name": "n", "source": {"bytes": "aGVsbG8="}}}
    body = to_bedrock(
        prompt(message("user", [{"text": "Read"}, document], "bedrock"), model=ON_BEDROCK)
    )

    assert body["messages"][0]["content"] == [{"text": "Read"}, POINT, document]


def test_all_results_of_a_turn_are_in_one_message_with_the_mark_on_the_last():
    calls = [
        {"id": f"c{n}", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        for n in range(3)
    ]
    asked = {"role": "assistant", "content": None, "tool_calls": calls}
    results = [{"role": "tool", "tool_call_id": call["id"], "content": "fine"} for call in calls]
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    messages = (
        plain_message("user", "Go"),
        Message(role="assistant", raw=json.dumps(asked).encode()),
        *(Message(role="tool", raw=json.dumps(result).encode()) for result in results),
    )

    for encoded in (
        to_anthropic(prompt(*messages, parameters={"tools": [tool]})),
        to_bedrock(prompt(*messages, parameters={"tools": [tool]}, model=ON_BEDROCK)),
    ):
        last = encoded["messages"][-1]["content"]
        assert marked({"last": last}) == 1
        assert "cachePoint" in last[-1] or "cache_control" in last[-1]


def test_the_body_of_a_client_that_begins_a_conversation_is_marked_and_else_as_it_was():
    hello = message("user", "Hello")
    system = message("system", LONG)
    body = json.dumps(
        {
            "model": CLAUDE,
            "max_tokens": 100,
            "system": LONG,
            "messages": [{"role": "user", "content": "Hello"}],
        }
    ).encode()
    fields: dict[str, Any] = {
        "system": system,
        "parameters": {"max_tokens": 100},
        "dialect": "anthropic",
    }
    original = Original(body=body, model=CLAUDE, messages=(hello,), stream=False, **fields)

    alone = prompt(hello, original=original, continuity=None, **fields)
    begun = prompt(hello, original=original, **fields)
    passing = prompt(
        hello, original=original, **fields | {"continuity": Continuity(fresh=1, passing=1)}
    )

    assert encode_anthropic(alone, default_max_tokens=1).body == body
    assert marked(to_anthropic(alone)) == 0
    assert marked(to_anthropic(begun)) == 2
    assert marked(to_anthropic(passing)) == 1
