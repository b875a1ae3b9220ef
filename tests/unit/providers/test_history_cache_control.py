"""The cache breakpoints in requests to Anthropic and Bedrock."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.fake_cache import PromptCache
from tests.request_validation import validate_anthropic_request, validate_bedrock_request

from cllm.core.message import Dialect, Message, Role, plain_message
from cllm.core.prompt import Continuity, Original, Prompt
from cllm.providers.history import cache_control_for, repair_for
from cllm.wire.convert import AddCacheControl, encode_anthropic, encode_bedrock, no_cache_control
from cllm.wire.messages import EncodedRequest

CLAUDE = "claude-sonnet-4-5"
ON_BEDROCK = "eu.anthropic.claude-sonnet-4-5-20250929-v1:0"
LONG = "All work and no play makes Jack a dull boy. " * 200
EPHEMERAL = {"type": "ephemeral"}
CACHE_POINT = {"cachePoint": {"type": "default"}}


def message(role: Role, content: Any, dialect: Dialect = "anthropic") -> Message:
    raw = json.dumps({"role": role, "content": content}).encode()
    return Message(role=role, raw=raw, dialect=dialect)


def prompt(*messages: Message, **fields: Any) -> Prompt:
    defaults: dict[str, Any] = {
        "model": CLAUDE,
        "system": plain_message("system", LONG),
        "continuity": Continuity(fresh=len(messages)),
        "stream": False,
    }
    return Prompt(messages=messages or (plain_message("user", "Hello"),), **defaults | fields)


def to_anthropic(sent_prompt: Prompt) -> dict[str, Any]:
    add = cache_control_for("anthropic", sent_prompt.model, sent_prompt.continuity)
    encoded = encode_anthropic(sent_prompt, default_max_tokens=100, cache_control=add)
    validate_anthropic_request(encoded.body, sampling=False)
    assert not encoded.notices
    body: dict[str, Any] = json.loads(encoded.body)
    return body


def to_bedrock(sent_prompt: Prompt) -> dict[str, Any]:
    add = cache_control_for("bedrock", sent_prompt.model, sent_prompt.continuity)
    encoded = encode_bedrock(sent_prompt, cache_control=add)
    validate_bedrock_request(encoded.body, model=sent_prompt.model)
    assert not encoded.notices
    body: dict[str, Any] = json.loads(encoded.body)
    return body


def count_breakpoints(body: dict[str, Any]) -> int:
    text = json.dumps(body)
    return text.count('"cache_control"') + text.count('"cachePoint"')


def test_anthropic_gets_breakpoints_on_the_system_prompt_and_the_last_block():
    body = to_anthropic(prompt())

    assert body["system"] == [{"type": "text", "text": LONG, "cache_control": EPHEMERAL}]
    assert body["messages"][0]["content"] == [
        {"type": "text", "text": "Hello", "cache_control": EPHEMERAL}
    ]


@pytest.mark.parametrize("model", [ON_BEDROCK, "us.amazon.nova-lite-v1:0"])
def test_bedrock_gets_cache_points_after_the_system_prompt_and_the_last_block(model):
    body = to_bedrock(prompt(model=model))

    assert body["system"] == [{"text": LONG}, CACHE_POINT]
    assert body["messages"][0]["content"] == [{"text": "Hello"}, CACHE_POINT]


@pytest.mark.parametrize(
    "model",
    [
        "meta.llama3-70b-instruct-v1:0",
        "arn:aws:bedrock:us-east-1:1:application-inference-profile/x",
        "anthropic.claude-3-haiku-20240307-v1:0",
    ],
)
def test_a_model_without_a_known_cache_gets_no_cache_point(model):
    assert count_breakpoints(to_bedrock(prompt(model=model))) == 0


def test_a_prompt_without_a_continued_conversation_gets_no_breakpoint():
    assert count_breakpoints(to_anthropic(prompt(continuity=None))) == 0
    assert count_breakpoints(to_bedrock(prompt(continuity=None, model=ON_BEDROCK))) == 0


def test_a_prompt_below_the_minimum_gets_no_breakpoint():
    assert count_breakpoints(to_anthropic(prompt(system=plain_message("system", "Be brief.")))) == 0


def test_the_tokens_of_tools_count_as_system_tokens():
    tool = {"name": "look", "description": LONG, "input_schema": {"type": "object"}}

    body = to_anthropic(
        prompt(
            system=plain_message("system", "Be brief."),
            parameters={"tools": [tool]},
            dialect="anthropic",
        )
    )

    assert body["tools"] == [tool]
    assert body["system"][0]["cache_control"] == EPHEMERAL


HELLO = {"type": "text", "text": "Hello"}
CLIENT_PROMPTS = {
    "a text": prompt(message("user", [HELLO | {"cache_control": EPHEMERAL}])),
    "the system prompt": prompt(
        system=message("system", [{"type": "text", "text": LONG, "cache_control": EPHEMERAL}])
    ),
    "a tool": prompt(
        dialect="anthropic",
        parameters={
            "tools": [{"name": "f", "input_schema": {"type": "object"}, "cache_control": EPHEMERAL}]
        },
    ),
    "the request": prompt(dialect="anthropic", parameters={"cache_control": EPHEMERAL}),
    "a text in a result": prompt(
        message("user", [HELLO]),
        message("assistant", [{"type": "tool_use", "id": "c", "name": "f", "input": {}}]),
        message(
            "user",
            [
                {
                    "type": "tool_result",
                    "tool_use_id": "c",
                    "content": [HELLO | {"cache_control": EPHEMERAL}],
                }
            ],
        ),
        dialect="anthropic",
        parameters={"tools": [{"name": "f", "input_schema": {"type": "object"}}]},
    ),
}


@pytest.mark.parametrize("sent_prompt", CLIENT_PROMPTS.values(), ids=CLIENT_PROMPTS.keys())
def test_a_clients_cache_control_stays_the_only_one(sent_prompt):
    assert count_breakpoints(to_anthropic(sent_prompt)) == 1


def test_a_clients_cache_point_stays_the_only_one():
    sent_prompt = prompt(
        message("user", [{"text": "Hello"}, CACHE_POINT, {"text": "You"}], "bedrock"),
        model=ON_BEDROCK,
    )

    assert count_breakpoints(to_bedrock(sent_prompt)) == 1


def test_thinking_gets_no_breakpoint():
    thought = {"type": "thinking", "thinking": "Hm.", "signature": "c2ln"}
    body = to_anthropic(
        prompt(
            message("user", "Hello"),
            message("assistant", [{"type": "text", "text": "Yes"}, thought]),
            message("user", "Well?"),
            continuity=Continuity(fresh=3, passing=1),
        )
    )

    text, last = body["messages"][1]["content"]
    assert text["cache_control"] == EPHEMERAL
    assert last == thought
    assert body["messages"][2]["content"] == "Well?"


def test_no_cache_point_follows_a_document():
    document = {"document": {"format": "txt", "name": "n", "source": {"bytes": "aGVsbG8="}}}
    body = to_bedrock(
        prompt(message("user", [{"text": "Read"}, document], "bedrock"), model=ON_BEDROCK)
    )

    assert body["messages"][0]["content"] == [{"text": "Read"}, CACHE_POINT, document]


def test_the_last_of_several_tool_results_gets_the_breakpoint():
    calls = [
        {"id": f"c{n}", "type": "function", "function": {"name": "f", "arguments": "{}"}}
        for n in range(3)
    ]
    call_message = {"role": "assistant", "content": None, "tool_calls": calls}
    results = [{"role": "tool", "tool_call_id": call["id"], "content": "fine"} for call in calls]
    tool = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
    messages = (
        plain_message("user", "Go"),
        Message(role="assistant", raw=json.dumps(call_message).encode()),
        *(Message(role="tool", raw=json.dumps(result).encode()) for result in results),
    )

    for encoded in (
        to_anthropic(prompt(*messages, parameters={"tools": [tool]})),
        to_bedrock(prompt(*messages, parameters={"tools": [tool]}, model=ON_BEDROCK)),
    ):
        last = encoded["messages"][-1]["content"]
        assert count_breakpoints({"last": last}) == 1
        assert "cachePoint" in last[-1] or "cache_control" in last[-1]


def test_a_clients_own_body_gets_breakpoints_only_in_a_continued_conversation():
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
    continued = prompt(hello, original=original, **fields)
    passing = prompt(
        hello, original=original, **fields | {"continuity": Continuity(fresh=1, passing=1)}
    )

    assert encode_anthropic(alone, default_max_tokens=1).body == body
    assert count_breakpoints(to_anthropic(alone)) == 0
    assert count_breakpoints(to_anthropic(continued)) == 2
    assert count_breakpoints(to_anthropic(passing)) == 1


TOOL = {"type": "function", "function": {"name": "look", "parameters": {"type": "object"}}}
MODELS: tuple[tuple[Dialect, str], ...] = (
    ("anthropic", "claude-sonnet-4-5"),
    ("bedrock", "eu.anthropic.claude-sonnet-4-5-20250929-v1:0"),
    ("bedrock", "amazon.nova-pro-v1:0"),
)
TEXTS = st.sampled_from(["Hello", "Well?", " ", "", LONG])


def _stored_message(role: Role, dialect: Dialect = "openai", **fields: Any) -> Message:
    raw = json.dumps({"role": role, **fields}).encode()
    return Message(role=role, raw=raw, dialect=dialect)


@st.composite
def _user(draw: Any) -> list[Message]:
    texts = draw(st.lists(TEXTS, min_size=1, max_size=4))
    if draw(st.booleans()):
        return [plain_message("user", f"So: {texts[0]}")]
    blocks = [{"type": "text", "text": text} for text in ("So", *texts)]
    return [_stored_message("user", draw(st.sampled_from(["openai", "anthropic"])), content=blocks)]


@st.composite
def _answer(draw: Any) -> list[Message]:
    text = {"type": "text", "text": draw(st.sampled_from(["Yes", LONG]))}
    thought = {"type": "thinking", "thinking": "Hm", "signature": "c2ln"}
    blocks = [thought, text] if draw(st.booleans()) else [text]
    return [_stored_message("assistant", "anthropic", content=blocks)]


@st.composite
def _round(draw: Any) -> list[Message]:
    """Calls and their results; the last one may be missing, as after an interruption."""
    count = draw(st.integers(1, 24))
    calls = [
        {"id": f"c{n}", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        for n in range(count)
    ]
    answered = draw(st.sampled_from([count, count, count - 1]))
    text = draw(st.sampled_from([None, "Looking"]))
    return [
        _stored_message("assistant", content=text, tool_calls=calls),
        *(
            _stored_message(
                "tool", tool_call_id=f"c{n}", content=draw(st.sampled_from(["fine", ""]))
            )
            for n in range(answered)
        ),
    ]


@st.composite
def _histories(draw: Any) -> tuple[Message, ...]:
    turns = [
        stored
        for _ in range(draw(st.integers(0, 4)))
        for strategy in (_user(), *([_round()] * draw(st.integers(0, 2))), _answer())
        for stored in draw(strategy)
    ]
    return (*turns, *draw(_user()))


@st.composite
def _prompts(draw: Any) -> Prompt:
    messages = draw(_histories())
    fresh = draw(st.integers(1, len(messages)))
    passing = draw(st.sampled_from([0, 0, 1]))
    return Prompt(
        model="",
        system=plain_message("system", draw(st.sampled_from(["Be brief.", LONG]))),
        messages=messages,
        parameters={"tools": [TOOL]},
        stream=False,
        continuity=Continuity(fresh=max(fresh, passing), passing=passing),
    )


def _encode(prompt: Prompt, dialect: Dialect, add: AddCacheControl) -> EncodedRequest:
    repair = repair_for(dialect, prompt.model, provider="test")
    if dialect == "bedrock":
        return encode_bedrock(prompt, repair=repair, cache_control=add)
    return encode_anthropic(prompt, default_max_tokens=100, repair=repair, cache_control=add)


def _without_breakpoints(value: Any) -> Any:
    """A body, or a part of one, without breakpoints and with plain texts as blocks."""
    if isinstance(value, dict):
        listed = {"content", "system"} & {name for name in value if isinstance(value[name], str)}
        fields = value | {name: [{"type": "text", "text": value[name]}] for name in listed}
        return {
            name: _without_breakpoints(fields[name]) for name in fields if name != "cache_control"
        }
    if isinstance(value, list):
        return [_without_breakpoints(block) for block in value if "cachePoint" not in block]
    return value


@pytest.mark.parametrize(("dialect", "model"), MODELS)
@given(prompt=_prompts())
@settings(deadline=None, max_examples=60)
def test_breakpoints_change_nothing_else_and_follow_the_providers_rules(dialect, model, prompt):
    prompt = msgspec.structs.replace(prompt, model=model)
    add = cache_control_for(dialect, model, prompt.continuity)

    plain = _encode(prompt, dialect, no_cache_control)
    cached = _encode(prompt, dialect, add)

    body = json.loads(cached.body)
    assert _without_breakpoints(body) == _without_breakpoints(json.loads(plain.body))
    assert cached.notices == plain.notices
    assert cached.body == _encode(prompt, dialect, add).body
    assert PromptCache(minimum=0).count(body).marks <= 4
    if dialect == "bedrock":
        validate_bedrock_request(cached.body, model=model)
    else:
        validate_anthropic_request(cached.body, sampling=False)
