"""Request bodies of the Messages API, decoded and encoded."""

import contextlib
import copy
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cllm.core.message import (
    AnyPart,
    CacheMark,
    Message,
    RedactedThinking,
    Refusal,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from cllm.providers.history import repair_for
from cllm.wire.anthropic.parts import decode_parts
from cllm.wire.anthropic.request import (
    EncodedMessagesRequest,
    decode_options,
    decode_request,
    encode_request,
)
from cllm.wire.errors import FieldError, MalformedError
from cllm.wire.messages import OutgoingMessage

OLD = "claude-sonnet-4-20250514"
NEW = "claude-opus-4-8"


def make_message(role: Role, *parts: AnyPart) -> OutgoingMessage:
    """A message of another protocol."""
    return OutgoingMessage(role=role, parts=parts)


def own(role: Role, content: Any) -> OutgoingMessage:
    """A message of an Anthropic client."""
    raw = json.dumps({"role": role, "content": content}).encode()
    parts = decode_parts(Message(role=role, raw=raw, dialect="anthropic"))
    return OutgoingMessage(role=role, parts=parts, raw=raw)


def encode(
    *messages: OutgoingMessage,
    system: list[AnyPart] | None = None,
    model: str = OLD,
    **parameters: Any,
) -> EncodedMessagesRequest:
    indexed = [msgspec.structs.replace(m, prompt_index=n) for n, m in enumerate(messages)]
    return encode_request(
        model=model,
        system=system,
        messages=indexed,
        parameters=parameters,
        stream=False,
        repair=repair_for("anthropic", model, provider="anthropic"),
    )


def body(*messages: OutgoingMessage, **rest: Any) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(encode(*messages, **rest).body)
    return decoded


def history(*messages: OutgoingMessage, **rest: Any) -> list[Any]:
    sent: list[Any] = body(*messages, **rest)["messages"]
    return sent


def codes(encoded: EncodedMessagesRequest) -> list[str]:
    return [notice.code for notice in encoded.notices]


def call(call_id: str, name: str = "f", arguments: str = "{}") -> ToolCall:
    return ToolCall(id=call_id, name=name, arguments=arguments)


def result(call_id: str, text: str = "ok") -> ToolResult:
    return ToolResult(call_id=call_id, content=(Text(text=text),))


HI = make_message("user", Text(text="hi"))
TOOLS = [{"name": "f", "input_schema": {"type": "object"}}]


def test_thinking_is_disabled_in_a_tool_loop_that_started_without_it():
    enabled = {"type": "enabled", "budget_tokens": 2000}
    loop = (HI, make_message("assistant", call("a")), make_message("tool", result("a")))
    encoded = encode(*loop, tools=TOOLS, thinking=enabled)
    assert json.loads(encoded.body)["thinking"] == {"type": "disabled"}
    assert codes(encoded) == ["thinking_disabled"]
    signed = make_message("assistant", Thinking(text="hm", signature="s"), call("a"))
    assert body(HI, signed, loop[2], tools=TOOLS, thinking=enabled)["thinking"] == enabled
    over = (*loop, own("assistant", "done"), HI)
    assert body(*over, tools=TOOLS, thinking=enabled)["thinking"] == enabled


ODD = st.sampled_from([None, 3, -1.5, "x", [], {}, [None], {"type": "x"}, True, [{"name": 3}]])


def test_conflicting_parameters_of_an_anthropic_client_are_fitted():
    thinking = {"type": "enabled", "budget_tokens": 2000}
    given_choice = {"type": "any", "name": None}
    parameters: dict[str, Any] = {
        "temperature": 0,
        "top_p": 0.5,
        "thinking": thinking,
        "tool_choice": given_choice,
    }
    encoded = encode(HI, model="claude-opus-4-6", tools=TOOLS, **parameters)
    sent = json.loads(encoded.body)
    assert (sent["temperature"], sent["thinking"]) == (0, {"type": "disabled"})
    assert "top_p" not in sent
    assert codes(encoded) == ["thinking_disabled", "parameter_left_out"]


def test_unchanged_messages_keep_their_bytes():
    messages = [
        own("user", [{"type": "text", "text": "hi", "new": 1}]),
        own("assistant", [{"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1.0}}]),
        own("user", [{"type": "tool_result", "tool_use_id": "t1"}, {"type": "text", "text": "?"}]),
    ]
    encoded = encode(*messages, tools=TOOLS, max_tokens=9)
    for message in messages:
        assert message.raw is not None
        assert message.raw in encoded.body
    assert encoded.notices == ()
    assert encoded.ids == {}


def test_equal_requests_have_equal_bytes():
    messages = (HI, make_message("assistant", call("a.b")), make_message("tool", result("a.b")))
    assert encode(*messages) == encode(*messages)


def test_consecutive_messages_of_one_role_are_sent_as_they_are():
    messages = (
        HI,
        make_message("user", Text(text="there")),
        own("assistant", "yes"),
        own("user", "!"),
    )
    sent = history(*messages)
    assert [message["role"] for message in sent] == ["user", "user", "assistant", "user"]
    assert not encode(*messages).notices


def test_a_history_that_starts_with_the_assistant_is_sent_as_it_is():
    sent = history(own("assistant", "Hello, I can help."), HI)
    assert [message["role"] for message in sent] == ["assistant", "user"]


def test_thinking_is_disabled_in_a_loop_whose_results_are_followed_by_text():
    messages = (
        HI,
        make_message("assistant", call("a")),
        own("user", [{"type": "tool_result", "tool_use_id": "a", "content": "ok"}]),
        own("user", "And now?"),
    )
    encoded = encode(*messages, tools=TOOLS, thinking={"type": "enabled", "budget_tokens": 1024})
    assert json.loads(encoded.body)["thinking"] == {"type": "disabled"}


def test_tool_results_are_one_user_message_in_the_order_of_the_calls():
    sent = history(
        HI,
        make_message("assistant", call("a"), call("b")),
        make_message("tool", result("b")),
        make_message("tool", result("a")),
        make_message("user", Text(text="and?")),
        tools=TOOLS,
    )
    assert len(sent) == 3
    assert [block.get("tool_use_id") for block in sent[2]["content"]] == ["a", "b", None]


def test_tool_results_are_sent_before_text():
    blocks = [{"type": "text", "text": "x"}, {"type": "tool_result", "tool_use_id": "a"}]
    sent = history(HI, make_message("assistant", call("a")), own("user", blocks), tools=TOOLS)
    assert [block["type"] for block in sent[2]["content"]] == ["tool_result", "text"]


def test_an_interrupted_call_gets_an_error_result():
    encoded = encode(
        HI,
        make_message("assistant", call("a"), call("b")),
        make_message("user", Text(text="go on"), result("b")),
        tools=TOOLS,
    )
    first, second, third = json.loads(encoded.body)["messages"][2]["content"]
    assert (first["tool_use_id"], first["is_error"]) == ("a", True)
    assert second["tool_use_id"] == "b"
    assert third["text"] == "go on"
    assert codes(encoded) == ["result_moved", "interrupted_call_answered"]


def test_an_open_call_at_the_end_gets_a_result():
    sent = history(HI, make_message("assistant", call("a")), tools=TOOLS)
    assert sent[2]["content"][0]["tool_use_id"] == "a"
    assert sent[2]["content"][0]["is_error"] is True


def test_a_call_id_can_be_reused_in_a_later_turn():
    turn = (
        HI,
        make_message("assistant", call("a")),
        make_message("tool", result("a")),
        own("assistant", "ok"),
    )
    encoded = encode(*turn, *turn, tools=TOOLS)
    assert encoded.notices == ()
    assert encoded.ids == {}


@pytest.mark.parametrize("own_id", ["functions.Bash:0", "x" * 200, "", "é"])
def test_an_invalid_id_gets_the_same_alias_in_call_and_result(own_id):
    encoded = encode(
        HI,
        make_message("assistant", call(own_id)),
        make_message("tool", result(own_id)),
        tools=TOOLS,
    )
    sent = json.loads(encoded.body)["messages"]
    alias = sent[1]["content"][0]["id"]
    assert sent[2]["content"][0]["tool_use_id"] == alias
    assert alias.replace("_", "").isalnum()
    assert len(alias) <= 64
    assert encoded.ids == {alias: own_id}


def test_duplicate_ids_in_one_message_become_unique():
    encoded = encode(
        HI,
        make_message("assistant", call("a"), call("a")),
        make_message("tool", result("a", "one")),
        make_message("tool", result("a", "two")),
        tools=TOOLS,
    )
    sent = json.loads(encoded.body)["messages"]
    ids = [block["id"] for block in sent[1]["content"]]
    assert len(set(ids)) == 2
    assert [block["tool_use_id"] for block in sent[2]["content"]] == ids
    assert [block["content"] for block in sent[2]["content"]] == ["one", "two"]


def test_valid_ids_are_unchanged():
    sent = history(
        HI, make_message("assistant", call("call_A-1")), make_message("tool", result("call_A-1"))
    )
    assert sent[1]["content"][0]["id"] == "call_A-1"


def test_a_result_without_a_call_is_sent_as_text():
    encoded = encode(make_message("tool", result("x.y")), tools=TOOLS)
    assert json.loads(encoded.body)["messages"] == [{"role": "user", "content": "ok"}]
    assert codes(encoded) == ["result_as_text"]


def test_null_content_with_calls_has_no_text_block():
    sent = history(HI, make_message("assistant", Text(text=""), call("a")), tools=TOOLS)
    assert [block["type"] for block in sent[1]["content"]] == ["tool_use"]


@pytest.mark.parametrize("blank", ["", " ", "\n\t "])
def test_blank_text_is_not_sent(blank):
    assert history(own("user", [{"type": "text", "text": blank}]), HI) == [
        {"role": "user", "content": "hi"}
    ]
    assert history(own("user", blank), HI) == [{"role": "user", "content": "hi"}]
    assert history(make_message("user", Refusal(text=blank)), HI)[0]["content"] == "hi"


@pytest.mark.parametrize("content", ["", " ", [], [{"type": "text", "text": " "}], None])
def test_an_empty_result_has_no_content(content):
    block = {"type": "tool_result", "tool_use_id": "a"}
    if content is not None:
        block = {**block, "content": content}
    sent = history(HI, make_message("assistant", call("a")), own("user", [block]), tools=TOOLS)
    assert sent[2]["content"] == [{"type": "tool_result", "tool_use_id": "a"}]


@pytest.mark.parametrize("signature", [None, ""])
def test_only_thinking_without_a_signature_is_dropped(signature):
    thought = {"type": "thinking", "thinking": "hm", "signature": signature}
    use = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
    encoded = encode(
        HI,
        own("assistant", [thought, {"type": "text", "text": "t"}, use]),
        make_message("tool", result("a")),
        tools=TOOLS,
    )
    sent = json.loads(encoded.body)["messages"]
    assert [block["type"] for block in sent[1]["content"]] == ["text", "tool_use"]
    assert codes(encoded) == ["thinking_left_out"]


def test_thinking_from_another_provider_is_dropped_with_a_notice():
    encoded = encode(HI, make_message("assistant", Thinking(text="hm"), Text(text="a")), HI)
    assert b"hm" not in encoded.body
    assert codes(encoded) == ["thinking_left_out"]
    assert encoded.notices[0].path == "messages[1]"


def test_signed_and_redacted_thinking_keep_their_position():
    parts = (
        Thinking(text="hm", signature="s", cache=CacheMark()),
        RedactedThinking(data="d"),
        call("a"),
    )
    sent = history(HI, make_message("assistant", *parts), tools=TOOLS)
    assert sent[1]["content"][:2] == [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "redacted_thinking", "data": "d"},
    ]


def test_an_assistant_message_is_never_thinking_alone():
    for parts in ((Thinking(text="hm"),), (Thinking(text="hm", signature="s"),)):
        sent = history(HI, make_message("assistant", *parts), make_message("user", Text(text="?")))
        assert [message["role"] for message in sent] == ["user", "user"]
    sent = history(
        HI, make_message("assistant", Thinking(text="hm", signature="s")), own("assistant", "a")
    )
    assert len(sent[1]["content"]) == 2


def test_tools_are_added_for_calls_in_the_history():
    messages = (
        HI,
        make_message("assistant", call("a", "g"), call("b", "f")),
        make_message("tool", result("a"), result("b")),
    )
    encoded = encode(*messages)
    sent = json.loads(encoded.body)
    assert [tool["name"] for tool in sent["tools"]] == ["g", "f"]
    assert sent["tool_choice"] == {"type": "none"}
    assert codes(encoded) == ["tools_added"]


def test_equal_notices_are_merged():
    turn = (HI, make_message("assistant", Thinking(text="hm"), Text(text="a")))
    encoded = encode(*turn, *turn, *turn)
    assert len(encoded.notices) == 1
    assert encoded.notices[0].message.endswith("(3 times)")


def test_stream_is_sent_only_for_a_stream():
    for stream in (True, False):
        encoded = encode_request(
            model="m",
            system=None,
            messages=[HI],
            parameters={"stream": True, "model": "x"},
            stream=stream,
        )
        sent = json.loads(encoded.body)
        assert sent.get("stream", False) is stream
        assert sent["model"] == "m"


def request(**fields: Any) -> bytes:
    given_fields = {"model": "m", "messages": [{"role": "user", "content": "hi"}], **fields}
    return json.dumps(given_fields).encode()


def test_a_request_keeps_its_messages_byte_for_byte():
    first = b'{"role": "user",  "content":[{"type":"text","text":"\\u00e9","new":1.0}]}'
    second = b'{"content":"x","role":"assistant"}'
    data = (
        b'{"model":"m","max_tokens":5,"messages":[' + first + b" , " + second + b'],"stream":true}'
    )
    prompt = decode_request(data)
    assert [message.raw for message in prompt.messages] == [first, second]
    assert [message.role for message in prompt.messages] == ["user", "assistant"]
    assert prompt.dialect == "anthropic"
    assert prompt.stream
    assert prompt.model == "m"
    assert prompt.parameters == {"max_tokens": 5}
    assert prompt.system is None


def test_a_system_prompt_is_decoded_as_a_message():
    prompt = decode_request(request(system="S"))
    assert prompt.system is not None
    assert (prompt.system.role, prompt.system.dialect) == ("system", "anthropic")
    assert decode_parts(prompt.system) == (Text(text="S"),)
    blocks = [{"type": "text", "text": "S", "cache_control": {"type": "ephemeral"}}]
    prompt = decode_request(request(system=blocks))
    assert prompt.system is not None
    assert prompt.system.json() == {"role": "system", "content": blocks}
    nothings: list[Any] = ["", [], None]
    for nothing in nothings:
        assert decode_request(request(system=nothing)).system is None


def test_every_other_field_is_a_parameter():
    fields = {"temperature": 0, "new": {"a": [1]}, "tools": TOOLS, "metadata": {"user_id": "u"}}
    assert decode_request(request(**fields)).parameters == fields


@pytest.mark.parametrize(
    ("data", "path"),
    [
        (request(model=3), "model"),
        (request(messages="x"), "messages"),
        (request(messages=[3]), "messages[0]"),
        (request(messages=[{"role": "user"}]), "messages[0]"),
        (request(messages=[{"role": "tool", "content": "x"}]), "messages[0].role"),
        (request(messages=[{"role": "user", "content": 3}]), "messages[0].content"),
        (request(messages=[{"role": "user", "content": [{}]}]), "messages[0].content[0]"),
        (
            request(messages=[{"role": "user", "content": [{"type": 3}]}]),
            "messages[0].content[0].type",
        ),
        (request(system=3), "system"),
        (request(stream="yes"), "stream"),
        (b"", ""),
        (b"[]", ""),
        (b"{}", ""),
        (b"\xff", ""),
        (b"[" * 100_000, ""),
    ],
)
def test_an_invalid_request_names_the_path_of_its_field(data, path):
    with pytest.raises(FieldError) as caught:
        decode_request(data)
    assert caught.value.path == path


@given(st.binary(max_size=80))
def test_any_bytes_give_a_request_or_malformed(data):
    with contextlib.suppress(MalformedError):
        decode_request(data)


BLOCKS: list[dict[str, Any]] = [
    {"type": "text", "text": "t", "cache_control": {"type": "ephemeral"}},
    {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}},
    {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "r"}]},
    {"type": "thinking", "thinking": "hm", "signature": "s"},
    {"type": "image", "source": {"type": "url", "url": "https://x"}},
]


@given(st.data())
def test_a_damaged_request_is_encoded_or_malformed(data):
    fields: dict[str, Any] = {
        "model": NEW,
        "system": "S",
        "max_tokens": 5,
        "tools": TOOLS,
        "messages": [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": BLOCKS},
            {"role": "user", "content": BLOCKS},
        ],
    }
    fields = json.loads(json.dumps(fields))
    for _ in range(data.draw(st.integers(1, 3))):
        inside: Any = fields
        while isinstance(inside, dict | list) and inside and data.draw(st.integers(0, 3)):
            keys = sorted(inside) if isinstance(inside, dict) else range(len(inside))
            key = data.draw(st.sampled_from(keys))
            if not isinstance(inside[key], dict | list) or data.draw(st.booleans()):
                inside[key] = copy.deepcopy(data.draw(ODD))
                break
            inside = inside[key]
    raw = msgspec.json.encode(fields)
    try:
        prompt = decode_request(raw)
        outgoing = [
            OutgoingMessage(role=m.role, parts=decode_parts(m), raw=m.raw) for m in prompt.messages
        ]
        decode_options(prompt.parameters)
        system = decode_parts(prompt.system) if prompt.system else None
    except MalformedError:
        return
    sent = encode_request(
        model=prompt.model,
        system=system,
        messages=outgoing,
        parameters=prompt.parameters,
        stream=prompt.stream,
    )
    json.loads(sent.body)
