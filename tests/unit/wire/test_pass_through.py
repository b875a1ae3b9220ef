"""Requests in the provider's protocol are sent byte for byte where possible."""

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


def encode_prompt(prompt: Prompt, dialect: Any) -> EncodedRequest:
    repair = repair_for(dialect, prompt.model, provider="x")
    if dialect == "openai":
        return encode_openai(prompt, repair=repair)
    return encode_anthropic(prompt, default_max_tokens=9, repair=repair)


@both
def test_a_body_without_changes_is_sent_byte_for_byte(dialect):
    body = written(BODIES[dialect])
    request = encode_prompt(read(dialect, body), dialect)

    assert request.body == body
    assert request.notices == ()


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
def test_a_plain_anthropic_body_is_sent_byte_for_byte(more):
    body = written({**PLAIN, **more})
    request = encode_prompt(read("anthropic", body), "anthropic")

    assert (request.body, request.notices) == (body, ())


@both
@pytest.mark.parametrize("stream", [False, None])
def test_stream_false_and_absent_are_equal(dialect, stream):
    body = written({**BODIES[dialect], "stream": stream})

    assert encode_prompt(read(dialect, body), dialect).body == body


def test_a_streamed_anthropic_body_is_sent_byte_for_byte():
    body = written({**ANTHROPIC, "stream": True})

    assert encode_prompt(read("anthropic", body), "anthropic").body == body


def test_include_usage_is_added_unless_the_client_set_it():
    silent = written({**OPENAI, "stream": True})
    asking = written({**OPENAI, "stream": True, "stream_options": {"include_usage": True}})

    sent = json.loads(encode_prompt(read("openai", silent), "openai").body)
    assert sent == {**OPENAI, "stream": True, "stream_options": {"include_usage": True}}
    assert encode_prompt(read("openai", asking), "openai").body == asking


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
def test_a_changed_prompt_is_encoded_again(dialect, change):
    body = written(BODIES[dialect])
    prompt = msgspec.structs.replace(read(dialect, body), **change)

    assert encode_prompt(prompt, dialect).body != body


@pytest.mark.parametrize(
    ("dialect", "model"), [("anthropic", "claude-3-7-sonnet-20250219"), ("openai", "gpt-4o")]
)
def test_a_body_for_another_model_keeps_all_fields(dialect, model):
    body = written(BODIES[dialect])
    prompt = msgspec.structs.replace(read(dialect, body), model=model)

    assert json.loads(encode_prompt(prompt, dialect).body) == {**BODIES[dialect], "model": model}


def test_only_reasoning_that_the_server_refuses_is_dropped():
    answer = {"role": "assistant", "content": "Hi", "odd": 1}
    messages = [OPENAI["messages"][1], {**answer, "reasoning_content": "hm"}, OPENAI["messages"][1]]
    body = written({**OPENAI, "messages": messages})
    request = encode_openai(read("openai", body), reasoning=TAKES_NONE)

    assert json.loads(request.body) == {**OPENAI, "messages": [messages[0], answer, messages[2]]}
    assert [notice.code for notice in request.notices] == ["thinking_left_out"]


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "reasoning_details"])
def test_a_body_with_accepted_reasoning_is_sent_byte_for_byte(field):
    answer = {"role": "assistant", "content": "Hi", field: "hm"}
    body = written({**OPENAI, "messages": [OPENAI["messages"][1], answer, OPENAI["messages"][1]]})

    assert encode_openai(read("openai", body)) == EncodedRequest(body=body)


def test_a_renamed_reasoning_field_changes_no_parameter():
    """The parameters are the client's own, and its model would be asked for others by us."""
    answer = {"role": "assistant", "content": "Hi", "reasoning_content": "hm"}
    fields = {"model": "o3", "messages": [SAID_HELLO, answer, SAID_HELLO], "temperature": 0.5}
    request = encode_openai(read("openai", written(fields)), reasoning=TAKES_REASONING)

    sent = {"role": "assistant", "content": "Hi", "reasoning": "hm"}
    assert json.loads(request.body) == {**fields, "messages": [SAID_HELLO, sent, SAID_HELLO]}
    assert request.notices == ()


def test_the_required_max_tokens_is_added_to_the_client_fields():
    fields = {name: value for name, value in ANTHROPIC.items() if name != "max_tokens"}
    sent = json.loads(encode_prompt(read("anthropic", written(fields)), "anthropic").body)

    assert sent == {**ANTHROPIC, "max_tokens": 9}


@both
def test_an_unanswered_call_is_repaired_and_the_rest_is_unchanged(dialect):
    fields = BODIES[dialect]
    body = written({**fields, "messages": fields["messages"][:-1]})
    request = encode_prompt(read(dialect, body), dialect)
    sent = json.loads(request.body)

    assert [notice.code for notice in request.notices] == ["interrupted_call_answered"]
    assert sent["messages"][:-1] == fields["messages"][:-1]
    assert {k: v for k, v in sent.items() if k != "messages"} == {
        k: v for k, v in fields.items() if k != "messages"
    }


@both
def test_the_clients_bytes_are_not_sent_to_another_protocol(dialect):
    other = "anthropic" if dialect == "openai" else "openai"
    fields = {**BODIES[dialect], "messages": BODIES[dialect]["messages"][:-1]}
    body = written(fields)

    assert encode_prompt(read(dialect, body), other).body != body
    assert encode_bedrock(read(dialect, body)).body != body


@both
def test_blank_text_is_dropped_for_anthropic_only(dialect):
    messages = [{"role": "user", "content": [{"type": "text", "text": t} for t in ("", "Hello")]}]
    fields = {"model": "claude-sonnet-4-5", "max_tokens": 9, "messages": messages}
    request = encode_prompt(read(dialect, written(fields)), dialect)

    assert (request.body == written(fields)) is (dialect == "openai")


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
def test_thinking_of_another_model_is_dropped(dialect, model, encode):
    history = (HELLO, thinking("one"), HELLO, thinking("two"), HELLO)
    prompt = Prompt(
        model=model,
        system=plain_message("system", "Be brief."),
        messages=history,
        foreign=frozenset({1}),
    )
    request = encode(prompt, repair_for(dialect, model, provider="x"))

    assert b'"one"' not in request.body
    assert b'"two"' in request.body
    assert request.body.count(b'"Hi"') == 2
    assert [(n.code, n.path) for n in request.notices] == [("thinking_left_out", "messages[1]")]


@pytest.mark.parametrize(("dialect", "model", "encode"), TARGETS)
def test_dropped_thinking_of_two_models_is_one_notice(dialect, model, encode):
    history = (HELLO, thinking(), HELLO, thinking(), HELLO)
    prompt = Prompt(model=model, messages=history, foreign=frozenset({1, 3}))
    request = encode(prompt, repair_for(dialect, model, provider="x"))

    assert b"hm" not in request.body
    assert [notice.code for notice in request.notices] == ["thinking_left_out"]
    assert "2 times" in request.notices[0].message


@pytest.mark.parametrize(("dialect", "model", "encode"), TARGETS)
def test_a_message_with_only_foreign_thinking_is_dropped(dialect, model, encode):
    block = {"type": "thinking", "thinking": "hm", "signature": "s"}
    raw = json.dumps({"role": "assistant", "content": [block]}).encode()
    alone = Message(role="assistant", raw=raw, dialect="anthropic")
    prompt = Prompt(model=model, messages=(HELLO, alone, HELLO), foreign=frozenset({1}))
    request = encode(prompt, repair_for(dialect, model, provider="x"))

    assert {message["role"] for message in json.loads(request.body)["messages"]} == {"user"}


def test_a_foreign_message_without_thinking_is_unchanged():
    prompt = msgspec.structs.replace(
        read("anthropic", written(ANTHROPIC)), foreign=frozenset({0, 2})
    )

    assert encode_prompt(prompt, "anthropic").body == written(ANTHROPIC)


REPAIR = repair_for("openai", "gpt-5", provider="x")
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


def test_a_responses_request_is_sent_unchanged_to_that_api():
    body = written(RESPONSES)
    sent = encode_responses(responses_request.decode_request(body), repair=REPAIR)

    assert sent.body == body
    assert not sent.names


CODEX: dict[str, Any] = {
    "model": "gpt-5",
    "stream": True,
    "input": [
        {
            "type": "message",
            "id": "msg_1",
            "role": "developer",
            "content": [{"type": "input_text", "text": "Be brief."}],
        },
        {"type": "message", "role": "developer", "content": "Ask before you write."},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi."}]},
        {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [],
            "content": None,
            "encrypted_content": "gAAAA",
        },
        {"type": "custom_tool_call", "id": "ctc_1", "call_id": "c", "name": "patch", "input": "+"},
        {"type": "custom_tool_call_output", "id": "ctco_1", "call_id": "c", "output": "Done."},
    ],
    "store": False,
    "include": ["reasoning.encrypted_content"],
}


def split_system(prompt: Prompt) -> Prompt:
    """Return the prompt of a recorded request: its first system message is the system prompt."""
    assert prompt.original is not None
    parts: dict[str, Any] = {"system": prompt.messages[0], "messages": prompt.messages[1:]}
    original = msgspec.structs.replace(prompt.original, **parts)
    return msgspec.structs.replace(prompt, **parts, original=original)


@pytest.mark.parametrize("content", [CODEX["input"][0]["content"], "Be brief."])
def test_a_system_item_and_nulls_are_sent_unchanged(content):
    first, *rest = CODEX["input"]
    body = written(CODEX | {"input": [first | {"content": content}, *rest]})
    prompt = responses_request.decode_request(body)

    assert encode_responses(prompt, repair=REPAIR).body == body
    assert encode_responses(split_system(prompt), repair=REPAIR).body == body


def test_another_system_prompt_replaces_a_system_item():
    prompt = split_system(responses_request.decode_request(written(CODEX)))
    changed = msgspec.structs.replace(prompt, system=plain_message("system", "Be polite."))

    sent = json.loads(encode_responses(changed, repair=REPAIR).body)

    assert sent["instructions"] == "Be polite."
    assert sent["input"][0]["content"] == "Ask before you write."


def test_an_item_id_of_this_server_is_not_sent():
    question = {"role": "user", "content": "Hi."}
    reply = {"type": "message", "role": "assistant", "content": "Hello."}
    item = reply | {"id": f"msg_{'0' * 64}_0"}
    body = written(RESPONSES | {"input": [question, item, question]})

    sent = encode_responses(responses_request.decode_request(body), repair=REPAIR)

    assert json.loads(sent.body)["input"] == [question, reply, question]


def test_store_false_is_sent_to_the_provider():
    body = written({name: RESPONSES[name] for name in RESPONSES if name != "store"})
    sent = encode_responses(responses_request.decode_request(body), repair=REPAIR)

    assert json.loads(sent.body)["store"] is False


@pytest.mark.parametrize("stream", [True, False])
def test_calls_answered_in_order_are_sent_byte_for_byte(stream):
    answer = OPENAI | {"stream": stream, "stream_options": {"include_usage": False}}

    assert encode_prompt(read("openai", written(answer)), "openai").body == written(answer)


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
def test_calls_answered_otherwise_are_repaired(messages):
    body = written(OPENAI | {"messages": messages})
    sent = encode_prompt(read("openai", body), "openai")

    assert sent.notices
    assert sent.body != body


def test_results_are_sorted_in_the_order_of_their_calls():
    call = OPENAI["messages"][2]["tool_calls"][0]
    calls = {"role": "assistant", "content": None, "tool_calls": [call, {**call, "id": "d"}]}
    results = [{"role": "tool", "tool_call_id": id_, "content": id_} for id_ in ("d", "c")]
    sent = encode_prompt(
        read("openai", written(OPENAI | {"messages": [SAID_HELLO, calls, *results]})), "openai"
    )

    assert json.loads(sent.body)["messages"] == [SAID_HELLO, calls, *reversed(results)]


def test_parameters_of_the_clients_own_request_are_unchanged():
    body = written({"model": "o3", "messages": [SAID_HELLO], "temperature": 0.5})

    assert encode_prompt(read("openai", body), "openai").body == body


def test_other_parameters_are_fitted_to_the_model():
    prompt = Prompt(
        model="o3",
        messages=(plain_message("user", "Hello"),),
        parameters={"temperature": 0.5, "max_tokens": 9, "stream_options": {}},
        stream=False,
    )
    sent = encode_prompt(prompt, "openai")

    assert json.loads(sent.body) == {
        "model": "o3",
        "messages": [SAID_HELLO],
        "max_completion_tokens": 9,
    }
    assert [notice.path for notice in sent.notices] == ["temperature"]


def test_a_rewritten_message_keeps_its_name_or_reports_the_loss():
    messages = [
        {"role": "user", "content": "Hello", "name": "ann"},
        {"role": "user", "content": "Hello?", "name": "bob"},
    ]
    prompt = read("openai", written({"model": "m", "messages": messages}))
    repair = repair_for("openai", "m", provider="test", profile="strict")
    sent = encode_openai(prompt, repair=repair, can_skip_repair=False)

    assert [notice.path for notice in sent.notices] == ["messages[1]", "messages[0].name"]
