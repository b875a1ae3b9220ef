"""A client that speaks the provider's protocol: its own bytes, wherever they say all there is."""

import json
from typing import Any

import msgspec
import pytest

from cllm.core.message import Message, plain_message
from cllm.core.prompt import Prompt
from cllm.providers.history import repair_for
from cllm.wire.anthropic import request as anthropic_request
from cllm.wire.convert import encode_anthropic, encode_bedrock, encode_openai, encode_responses
from cllm.wire.messages import EncodedRequest
from cllm.wire.openai import request as openai_request
from cllm.wire.reasoning import TAKES_NONE, TAKES_REASONING
from cllm.wire.responses import request as responses_request

OPENAI: dict[str, Any] = {
    "model": "gpt-4o",
    "messages": [
        {"role": "developer", "content": "Be brief.", "odd": 1},
        {"role": "user", "content": [{"type": "text", "text": "Hello", "odd": [1.0]}], "name": "x"},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {
                    "id": "c",
                    "type": "function",
                    "function": {"name": "f", "arguments": "{ }", "odd": 2},
                    "odd": 3,
                }
            ],
            "odd": {},
        },
        {"role": "tool", "tool_call_id": "c", "content": "", "odd": 4},
    ],
    "tools": [{"type": "function", "function": {"name": "f", "odd": 5}, "odd": 6}],
    "temperature": 1.0,
    "odd": {"deep": [None, 1e3]},
}
ANTHROPIC: dict[str, Any] = {
    "model": "claude-sonnet-4-5",
    "max_tokens": 100,
    "system": [{"type": "text", "text": "Be brief.", "odd": 1}],
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "Hello", "odd": [1.0]}], "odd": 2},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "hm", "signature": "s"},
                {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1.0}, "odd": 3},
            ],
        },
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t", "content": "1", "odd": 4},
                {"type": "unheard_of", "odd": 5},
            ],
        },
    ],
    "tools": [{"name": "f", "input_schema": {"type": "object"}, "odd": 6}],
    "odd": {"deep": [None, 1e3]},
}
BODIES = {"openai": OPENAI, "anthropic": ANTHROPIC}
CODECS: dict[str, Any] = {"openai": openai_request, "anthropic": anthropic_request}
both = pytest.mark.parametrize("dialect", ["openai", "anthropic"])


def written(fields: dict[str, Any]) -> bytes:
    """As no encoder of ours would write it."""
    return json.dumps(fields, indent=3).encode()


def read(dialect: str, body: bytes) -> Prompt:
    prompt: Prompt = CODECS[dialect].decode_request(body)
    return prompt


def encoded(prompt: Prompt, dialect: Any) -> EncodedRequest:
    repair = repair_for(dialect, prompt.model, provider="x")
    if dialect == "openai":
        return encode_openai(prompt, repair=repair)
    return encode_anthropic(prompt, default_max_tokens=9, repair=repair)


@both
def test_a_body_that_needs_nothing_goes_as_its_own_bytes(dialect):
    body = written(BODIES[dialect])
    made = encoded(read(dialect, body), dialect)

    assert made.body == body
    assert made.notices == ()


PLAIN: dict[str, Any] = {
    "model": "claude-sonnet-4-5",
    "max_tokens": 5000,
    "messages": [
        {"role": "user", "content": "Hello"},
        {"role": "assistant", "content": [{"type": "text", "text": "Hi."}]},
        {"role": "user", "content": [{"type": "text", "text": "A"}, {"type": "text", "text": "B"}]},
    ],
}
TOOL: dict[str, Any] = {"name": "f", "input_schema": {"type": "object"}}
MARKED = {"cache_control": {"type": "ephemeral"}}


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"system": "Be brief."},
        {"system": [{"type": "text", "text": "Be brief.", **MARKED}]},
        {"system": ""},
        {"temperature": 0.5, "metadata": {"user_id": "u"}, "stop_sequences": ["x"]},
        {"thinking": {"type": "enabled", "budget_tokens": 2000}},
        {"tools": [TOOL, {**TOOL, "name": "g", **MARKED}]},
        {"messages": [{"content": "Hello", "role": "user"}]},
    ],
)
def test_an_ordinary_body_for_anthropic_goes_as_its_own_bytes(more):
    body = written({**PLAIN, **more})
    made = encoded(read("anthropic", body), "anthropic")

    assert (made.body, made.notices) == (body, ())


@both
@pytest.mark.parametrize("stream", [False, None])
def test_not_to_stream_may_be_said_or_not(dialect, stream):
    body = written({**BODIES[dialect], "stream": stream})

    assert encoded(read(dialect, body), dialect).body == body


def test_anthropic_is_asked_for_a_stream_in_the_client_s_bytes():
    body = written({**ANTHROPIC, "stream": True})

    assert encoded(read("anthropic", body), "anthropic").body == body


def test_openai_is_asked_for_the_usage_of_a_stream_unless_the_client_did():
    silent = written({**OPENAI, "stream": True})
    asking = written({**OPENAI, "stream": True, "stream_options": {"include_usage": True}})

    sent = json.loads(encoded(read("openai", silent), "openai").body)
    assert sent == {**OPENAI, "stream": True, "stream_options": {"include_usage": True}}
    assert encoded(read("openai", asking), "openai").body == asking


@both
@pytest.mark.parametrize(
    "change",
    [
        {"model": "other-claude-3"},
        {"parameters": {"max_tokens": 3}},
        {"messages": (plain_message("user", "Other"),)},
        {"system": plain_message("system", "Other")},
    ],
    ids=lambda change: next(iter(change)),
)
def test_a_prompt_that_says_something_else_is_not_the_client_s_body(dialect, change):
    body = written(BODIES[dialect])
    prompt = msgspec.structs.replace(read(dialect, body), **change)

    assert encoded(prompt, dialect).body != body


@pytest.mark.parametrize(
    ("dialect", "model"), [("anthropic", "claude-3-7-sonnet-20250219"), ("openai", "gpt-4o")]
)
def test_another_model_is_sent_all_that_the_client_said(dialect, model):
    body = written(BODIES[dialect])
    prompt = msgspec.structs.replace(read(dialect, body), model=model)

    assert json.loads(encoded(prompt, dialect).body) == {**BODIES[dialect], "model": model}


def test_reasoning_that_a_server_does_not_take_is_not_sent_back_and_all_else_is():
    said = {"role": "assistant", "content": "Hi", "odd": 1}
    messages = [OPENAI["messages"][1], {**said, "reasoning_content": "hm"}, OPENAI["messages"][1]]
    body = written({**OPENAI, "messages": messages})
    made = encode_openai(read("openai", body), reasoning=TAKES_NONE)

    assert json.loads(made.body) == {**OPENAI, "messages": [messages[0], said, messages[2]]}
    assert [notice.code for notice in made.notices] == ["thinking_left_out"]


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "reasoning_details"])
def test_a_body_with_reasoning_goes_as_its_own_bytes_to_a_server_that_takes_it(field):
    said = {"role": "assistant", "content": "Hi", field: "hm"}
    body = written({**OPENAI, "messages": [OPENAI["messages"][1], said, OPENAI["messages"][1]]})

    assert encode_openai(read("openai", body)) == EncodedRequest(body=body)


def test_renaming_a_field_of_reasoning_changes_no_parameter():
    """The parameters are the client's own, and its model would be asked for others by us."""
    said = {"role": "assistant", "content": "Hi", "reasoning_content": "hm"}
    fields = {"model": "o3", "messages": [SAID_HELLO, said, SAID_HELLO], "temperature": 0.5}
    made = encode_openai(read("openai", written(fields)), reasoning=TAKES_REASONING)

    sent = {"role": "assistant", "content": "Hi", "reasoning": "hm"}
    assert json.loads(made.body) == {**fields, "messages": [SAID_HELLO, sent, SAID_HELLO]}
    assert made.notices == ()


def test_a_limit_that_anthropic_wants_is_added_to_all_that_the_client_said():
    fields = {name: value for name, value in ANTHROPIC.items() if name != "max_tokens"}
    sent = json.loads(encoded(read("anthropic", written(fields)), "anthropic").body)

    assert sent == {**ANTHROPIC, "max_tokens": 9}


@both
def test_an_interrupted_call_is_mended_and_all_else_is_as_the_client_said_it(dialect):
    fields = BODIES[dialect]
    body = written({**fields, "messages": fields["messages"][:-1]})
    made = encoded(read(dialect, body), dialect)
    sent = json.loads(made.body)

    assert [notice.code for notice in made.notices] == ["interrupted_call_answered"]
    assert sent["messages"][:-1] == fields["messages"][:-1]
    assert {k: v for k, v in sent.items() if k != "messages"} == {
        k: v for k, v in fields.items() if k != "messages"
    }


@both
def test_the_client_s_bytes_are_not_for_another_protocol(dialect):
    other = "anthropic" if dialect == "openai" else "openai"
    body = written(BODIES[dialect])

    assert encoded(read(dialect, body), other).body != body
    assert encode_bedrock(read(dialect, body)).body != body


@both
def test_a_blank_text_is_left_out_of_a_body_for_anthropic_alone(dialect):
    messages = [{"role": "user", "content": [{"type": "text", "text": t} for t in ("", "Hello")]}]
    fields = {"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": messages}
    made = encoded(read(dialect, written(fields)), dialect)

    assert (made.body == written(fields)) is (dialect == "openai")


def thinking(signature: str = "s") -> Message:
    content = [
        {"type": "thinking", "thinking": "hm", "signature": signature},
        {"type": "redacted_thinking", "data": "AAEC"},
        {"type": "text", "text": "Hi"},
    ]
    raw = json.dumps({"role": "assistant", "content": content}).encode()
    return Message(role="assistant", raw=raw, dialect="anthropic")


HELLO = plain_message("user", "Hello")
TARGETS: Any = [
    (
        "anthropic",
        "claude-sonnet-4-5",
        lambda p, m: encode_anthropic(p, default_max_tokens=9, repair=m),
    ),
    (
        "bedrock",
        "anthropic.claude-sonnet-4-5-20250929-v1:0",
        lambda p, m: encode_bedrock(p, repair=m),
    ),
]


@pytest.mark.parametrize(("dialect", "model", "encode"), TARGETS)
def test_what_another_model_thought_is_left_out_and_the_rest_kept(dialect, model, encode):
    history = (HELLO, thinking("one"), HELLO, thinking("two"), HELLO)
    prompt = Prompt(
        model=model,
        system=plain_message("system", "Be brief."),
        messages=history,
        foreign=frozenset({1}),
    )
    made = encode(prompt, repair_for(dialect, model, provider="x"))

    assert b'"one"' not in made.body
    assert b'"two"' in made.body
    assert made.body.count(b'"Hi"') == 2
    assert [(n.code, n.path) for n in made.notices] == [("thinking_left_out", "messages[1]")]


@pytest.mark.parametrize(("dialect", "model", "encode"), TARGETS)
def test_what_two_other_models_thought_is_one_notice(dialect, model, encode):
    history = (HELLO, thinking(), HELLO, thinking(), HELLO)
    prompt = Prompt(model=model, messages=history, foreign=frozenset({1, 3}))
    made = encode(prompt, repair_for(dialect, model, provider="x"))

    assert b"hm" not in made.body
    assert [notice.code for notice in made.notices] == ["thinking_left_out"]
    assert "2 times" in made.notices[0].message


@pytest.mark.parametrize(("dialect", "model", "encode"), TARGETS)
def test_a_message_of_another_model_s_thinking_alone_is_no_message(dialect, model, encode):
    block = {"type": "thinking", "thinking": "hm", "signature": "s"}
    raw = json.dumps({"role": "assistant", "content": [block]}).encode()
    alone = Message(role="assistant", raw=raw, dialect="anthropic")
    prompt = Prompt(model=model, messages=(HELLO, alone, HELLO), foreign=frozenset({1}))
    made = encode(prompt, repair_for(dialect, model, provider="x"))

    assert [message["role"] for message in json.loads(made.body)["messages"]] == ["user"]


def test_a_foreign_message_without_thinking_keeps_its_bytes():
    prompt = msgspec.structs.replace(
        read("anthropic", written(ANTHROPIC)), foreign=frozenset({0, 2})
    )

    assert encoded(prompt, "anthropic").body == written(ANTHROPIC)


MEND = repair_for("openai", "gpt-5", provider="x")
SAID_HELLO = {"role": "user", "content": "Hello"}
RESPONSES: dict[str, Any] = {
    "model": "gpt-5",
    "instructions": "Be brief.",
    "input": [
        {"type": "message", "role": "user", "content": "Hello", "odd": 1},
        {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "a.b", "arguments": "{}"},
        {"type": "function_call_output", "call_id": "c", "output": "1", "odd": 2},
    ],
    "tools": [{"type": "function", "name": "a.b", "parameters": {}, "odd": 3}],
    "store": True,
    "odd": {"deep": [None, 1e3]},
}


def test_a_request_of_the_responses_api_goes_as_it_is_to_that_api():
    body = written(RESPONSES)
    sent = encode_responses(responses_request.decode_request(body), repair=MEND)

    assert sent.body == body
    assert not sent.names


def test_a_client_that_asks_for_no_storing_is_not_kept_at_the_provider():
    body = written({name: RESPONSES[name] for name in RESPONSES if name != "store"})
    sent = encode_responses(responses_request.decode_request(body), repair=MEND)

    assert json.loads(sent.body)["store"] is False


@pytest.mark.parametrize("stream", [True, False])
def test_calls_that_are_answered_in_order_go_as_the_bytes_they_came_as(stream):
    said = OPENAI | {"stream": stream, "stream_options": {"include_usage": False}}

    assert encoded(read("openai", written(said)), "openai").body == written(said)


@pytest.mark.parametrize(
    "messages",
    [
        OPENAI["messages"][:3],
        [*OPENAI["messages"][:2], OPENAI["messages"][3]],
        [*OPENAI["messages"], OPENAI["messages"][3]],
        [*OPENAI["messages"][:3], OPENAI["messages"][1], OPENAI["messages"][3]],
    ],
    ids=["no result", "no call", "a result twice", "a late result"],
)
def test_calls_that_are_answered_otherwise_are_looked_at(messages):
    body = written(OPENAI | {"messages": messages})
    sent = encoded(read("openai", body), "openai")

    assert sent.notices
    assert sent.body != body


def test_results_in_another_order_than_their_calls_are_put_in_order():
    call = OPENAI["messages"][2]["tool_calls"][0]
    calls = {"role": "assistant", "content": None, "tool_calls": [call, {**call, "id": "d"}]}
    results = [{"role": "tool", "tool_call_id": id_, "content": id_} for id_ in ("d", "c")]
    sent = encoded(
        read("openai", written(OPENAI | {"messages": [SAID_HELLO, calls, *results]})), "openai"
    )

    assert json.loads(sent.body)["messages"] == [SAID_HELLO, calls, *reversed(results)]


def test_parameters_that_a_client_chose_for_its_model_are_its_own():
    body = written({"model": "o3", "messages": [SAID_HELLO], "temperature": 0.5})

    assert encoded(read("openai", body), "openai").body == body


def test_parameters_of_nobody_s_request_are_fitted_to_the_model():
    prompt = Prompt(
        model="o3",
        messages=(plain_message("user", "Hello"),),
        parameters={"temperature": 0.5, "max_tokens": 9, "stream_options": {}},
        stream=False,
    )
    sent = encoded(prompt, "openai")

    assert json.loads(sent.body) == {
        "model": "o3",
        "messages": [SAID_HELLO],
        "max_completion_tokens": 9,
    }
    assert [notice.path for notice in sent.notices] == ["temperature"]


def test_a_message_that_has_to_be_rewritten_keeps_its_name_or_says_that_it_does_not():
    messages = [
        {"role": "user", "content": "Hello", "name": "ann"},
        {"role": "user", "content": "Hello?", "name": "bob"},
    ]
    prompt = read("openai", written({"model": "m", "messages": messages}))
    repair = repair_for("openai", "m", provider="test", profile="strict")
    sent = encode_openai(prompt, repair=repair, can_skip_repair=False)

    assert [notice.path for notice in sent.notices] == ["messages[1]", "messages[0].name"]
