"""Histories in Anthropic's format: parts, system messages and cache breakpoints."""

import json
from typing import Any

import msgspec
import pytest

from cllm.core.message import (
    AnyPart,
    CacheMark,
    Document,
    Image,
    Message,
    Role,
    Text,
    ToolCall,
    ToolResult,
)
from cllm.providers.history import repair_for
from cllm.wire.anthropic.parts import decode_parts
from cllm.wire.anthropic.request import (
    EncodedMessagesRequest,
    encode_request,
)
from cllm.wire.convert import build_outgoing_message
from cllm.wire.messages import OutgoingMessage, Repair, no_repair, replace_parts

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
    repair: Repair | None = None,
    **parameters: Any,
) -> EncodedMessagesRequest:
    indexed = [msgspec.structs.replace(m, prompt_index=n) for n, m in enumerate(messages)]
    return encode_request(
        model=model,
        system=system,
        messages=indexed,
        parameters=parameters,
        stream=False,
        repair=repair or repair_for("anthropic", model, provider="anthropic"),
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


def test_system_messages_of_the_history_move_to_the_system_prompt():
    encoded = encode(HI, make_message("system", Text(text="B")), HI, system=[Text(text="A")])
    sent = json.loads(encoded.body)
    assert [block["text"] for block in sent["system"]] == ["A", "B"]
    assert len(sent["messages"]) == 2
    assert codes(encoded) == ["system_moved"]


@pytest.mark.parametrize(
    ("roles", "expected"),
    [
        (("user", "system", "assistant", "user"), ("user", "system", "assistant", "user")),
        (("user", "system", "system"), ("user", "system", "system")),
        (("user", "assistant", "user", "system"), ("user", "assistant", "user", "system")),
        (("user", "system", "user"), ("user", "user", "system")),
        (("user", "assistant", "system", "user"), ("user", "assistant", "user", "system")),
        (("system", "user"), ("user",)),
        (("user", "system", "assistant"), ("user", "system", "assistant")),
    ],
)
@pytest.mark.parametrize("is_own", [True, False])
def test_newer_models_get_system_messages_at_the_end_of_a_user_turn(roles, expected, is_own):
    messages = [own(r, "B") if is_own else make_message(r, Text(text="B")) for r in roles]
    encoded = encode(*messages, model=NEW, repair=no_repair)
    assert tuple(m["role"] for m in json.loads(encoded.body)["messages"]) == expected
    is_moved = roles != expected and roles[0] != "system"
    assert codes(encoded) == (["system_moved"] if is_moved else [])


@pytest.mark.parametrize("model", [OLD, NEW])
@pytest.mark.parametrize("after", [(), ("assistant", "user")])
def test_a_system_message_without_a_user_turn_is_sent_as_a_user_message(model, after):
    roles = ("user", "assistant", "system", *after)
    encoded = encode(*(make_message(role, Text(text="B")) for role in roles), model=model)
    sent = [message["role"] for message in json.loads(encoded.body)["messages"]]
    assert sent == ["user", "assistant", "user", *after]
    assert codes(encoded) == ["system_as_user"]


def test_a_system_message_after_a_blank_user_message_is_sent_as_a_user_message():
    blank = make_message("user", Text(text=" "))
    encoded = encode(blank, make_message("system", Text(text="B")), HI, model=NEW)
    assert [m["role"] for m in json.loads(encoded.body)["messages"]] == ["user", "system"]
    encoded = encode(
        HI, own("assistant", "a"), blank, own("system", "B"), own("assistant", "a"), HI, model=NEW
    )
    roles = [m["role"] for m in json.loads(encoded.body)["messages"]]
    assert roles == ["user", "assistant", "user", "assistant", "user"]


def test_a_system_message_between_call_and_result_is_sent_after_the_result():
    messages = (
        HI,
        make_message("assistant", call("a")),
        make_message("system", Text(text="B")),
        make_message("tool", result("a")),
    )
    roles = [message["role"] for message in history(*messages, model=NEW, tools=TOOLS)]
    assert roles == ["user", "assistant", "user", "system"]


def test_a_system_message_of_an_anthropic_client_stays_if_the_model_accepts_it():
    messages = (HI, own("system", "B"), own("assistant", "a"), HI)
    assert [message["role"] for message in history(*messages, model=NEW)] == [
        "user",
        "system",
        "assistant",
        "user",
    ]
    assert body(*messages, model=OLD)["system"] == "B"
    assert body(own("system", "B"), HI, model=NEW)["system"] == "B"


def test_a_system_prompt_of_blocks_keeps_its_cache_control():
    cached = Text(text="A", cache=CacheMark(ttl="1h"))
    sent = body(HI, system=[cached, Text(text=" "), Text(text="B")])["system"]
    control = {"type": "ephemeral", "ttl": "1h"}
    assert sent == [
        {"type": "text", "text": "A", "cache_control": control},
        {"type": "text", "text": "B"},
    ]
    assert "system" not in body(HI, system=[])
    assert body(HI, system=[Text(text="A")])["system"] == "A"


def test_a_part_that_a_system_prompt_cannot_contain_is_reported():
    assert codes(encode(HI, system=[Image(url="https://x")])) == ["part_left_out"]


def test_parts_of_another_protocol_are_converted():
    encoded = encode(
        make_message(
            "user",
            Image(media_type="image/jpeg", data="aGk=", extra={"image_url": {"detail": "low"}}),
            Image(url="https://x"),
            Document(media_type="text/plain", text="hi"),
            Document(media_type="application/pdf", data="aGk=", name="N"),
            Text(text="t"),
        )
    )
    jpeg, url, text, pdf, last = json.loads(encoded.body)["messages"][0]["content"]
    assert jpeg["source"]["media_type"] == "image/jpeg"
    assert set(jpeg) == {"type", "source"}
    assert url["source"]["type"] == "url"
    assert text["source"] == {"type": "text", "media_type": "text/plain", "data": "hi"}
    assert pdf["title"] == "N"
    assert pdf["source"] == {"type": "base64", "media_type": "application/pdf", "data": "aGk="}
    assert last["text"] == "t"
    assert codes(encoded) == ["field_left_out"]


def test_a_rewritten_anthropic_message_keeps_its_other_fields():
    raw = b'{"role":"user","content":[{"type":"text","text":"hi","odd":1}],"odd":2}'
    message = build_outgoing_message(
        Message(role="user", raw=raw, dialect="anthropic"), "anthropic"
    )
    encoded = encode(replace_parts(message, message.parts))
    assert json.loads(encoded.body)["messages"] == [json.loads(raw)]
    assert not encoded.notices


@pytest.mark.parametrize("arguments", ["{", "[1]", '"x"'])
def test_arguments_that_are_not_an_object_are_wrapped(arguments):
    call_message = make_message("assistant", call("a", arguments=arguments))
    encoded = encode(HI, call_message, make_message("tool", result("a")), tools=TOOLS)
    block = json.loads(encoded.body)["messages"][1]["content"][0]
    assert block["input"] == {"INVALID_JSON": arguments}
    assert codes(encoded) == ["arguments_changed"]


def test_images_and_errors_in_a_result_are_preserved():
    image = Image(media_type="image/png", data="aGk=", extra={"image_url": {"detail": "low"}})
    content = (Text(text="a"), image)
    answer = ToolResult(call_id="a", content=content, is_error=True, extra={"name": "f"})
    encoded = encode(
        HI, make_message("assistant", call("a")), make_message("tool", answer), tools=TOOLS
    )
    block = json.loads(encoded.body)["messages"][2]["content"][0]
    assert codes(encoded) == ["field_left_out"]
    assert block["is_error"] is True
    assert [inner["type"] for inner in block["content"]] == ["text", "image"]
    assert "name" not in block


def cached(text: str) -> OutgoingMessage:
    block = {"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}
    return own("user", [block])


def test_four_cache_breakpoints_are_sent():
    encoded = encode(
        cached("a"),
        own("assistant", "x"),
        cached("b"),
        system=[Text(text="s", cache=CacheMark())],
        tools=[{**TOOLS[0], "cache_control": {"type": "ephemeral"}}],
    )
    assert encoded.body.count(b"cache_control") == 4
    assert encoded.notices == ()


def test_no_cache_breakpoint_is_added():
    assert b"cache_control" not in encode(HI, system=[Text(text="s")]).body


def test_the_oldest_surplus_breakpoints_of_the_messages_are_dropped_first():
    inner = ToolResult(call_id="a", content=(Text(text="r", cache=CacheMark()),), cache=CacheMark())
    unknown = {"type": "search_result", "cache_control": {"type": "ephemeral"}}
    encoded = encode(
        own("user", [unknown]),
        make_message("assistant", call("a")),
        make_message("tool", inner),
        own("assistant", "x"),
        cached("b"),
        system=[Text(text="s", cache=CacheMark())],
        tools=TOOLS,
        cache_control={"type": "ephemeral"},
    )
    sent = json.loads(encoded.body)
    assert "cache_control" not in sent["messages"][0]["content"][0]
    result_block = sent["messages"][2]["content"][0]
    assert result_block["content"] == "r"
    assert "cache_control" in result_block
    assert encoded.body.count(b"cache_control") == 4
    assert codes(encoded) == ["cache_mark_left_out"]


@pytest.mark.parametrize("odd", ["abc", 5, [1], None])
def test_a_result_with_odd_content_is_sent_despite_surplus_breakpoints(odd):
    block = {"type": "tool_result", "tool_use_id": "a", "content": [odd]}
    texts = [
        {"type": "text", "text": "t", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
        *({"type": "text", "text": "t", "cache_control": {"type": "ephemeral"}} for _ in range(5)),
    ]
    encoded = encode(
        HI, make_message("assistant", call("a")), own("user", [block, *texts]), tools=TOOLS
    )
    sent = json.loads(encoded.body)["messages"][2]["content"]
    assert sent[0]["content"] == [odd]
    assert encoded.body.count(b"cache_control") == 4


def test_a_null_cache_control_of_an_unknown_block_does_not_count():
    odd = {"type": "weird", "cache_control": None}
    texts = [
        {"type": "text", "text": str(n), "cache_control": {"type": "ephemeral"}} for n in range(5)
    ]
    encoded = encode(own("user", [odd, *texts]), system=[Text(text="s", cache=CacheMark())])
    sent = json.loads(encoded.body)
    controls = [block.get("cache_control") for block in sent["messages"][0]["content"]]
    assert sum(control is not None for control in controls) == 3
    assert "cache_control" in sent["system"][0]


def test_a_breakpoint_that_moves_to_an_unknown_block_does_not_count():
    odd = {"type": "weird", "value": 1}
    blank = {"type": "text", "text": " ", "cache_control": {"type": "ephemeral"}}
    texts = [
        {"type": "text", "text": str(n), "cache_control": {"type": "ephemeral"}} for n in range(4)
    ]
    encoded = encode(own("user", [odd, blank, *texts]))
    assert encoded.body.count(b"cache_control") == 4
    assert "cache_mark_left_out" not in codes(encoded)


def test_surplus_breakpoints_of_the_first_tools_are_dropped_first():
    tools: list[Any] = [
        {**TOOLS[0], "name": f"t{n}", "cache_control": {"type": "ephemeral"}} for n in range(6)
    ]
    encoded = encode(HI, system=[Text(text="s", cache=CacheMark())], tools=[*tools, "odd"])
    sent = json.loads(encoded.body)
    assert ["cache_control" in tool for tool in sent["tools"][:6]] == [False] * 3 + [True] * 3
    assert "cache_control" in sent["system"][0]
    assert codes(encode(HI, tools="odd")) == []


def test_a_one_hour_breakpoint_does_not_follow_a_five_minute_one():
    long, short = CacheMark(ttl="1h"), CacheMark()
    encoded = encode(
        make_message("user", Text(text="a", cache=short)),
        make_message("assistant", call("a")),
        make_message(
            "tool", ToolResult(call_id="a", content=(Text(text="r", cache=long),), cache=long)
        ),
        system=[Text(text="s", cache=long)],
        tools=TOOLS,
    )
    sent = json.loads(encoded.body)
    assert sent["system"][0]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}
    answer = sent["messages"][2]["content"][0]
    assert answer["cache_control"] == {"type": "ephemeral"}
    assert answer["content"][0]["cache_control"] == {"type": "ephemeral"}
    assert codes(encoded) == ["cache_mark_changed"]


def test_a_one_hour_breakpoint_of_a_tool_does_not_follow_a_five_minute_one():
    tools = [
        {**TOOLS[0], "name": "f", "cache_control": {"type": "ephemeral"}},
        {**TOOLS[0], "name": "g", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
    ]
    encoded = encode(HI, tools=tools)
    assert [tool["cache_control"] for tool in json.loads(encoded.body)["tools"]] == [
        {"type": "ephemeral"},
        {"type": "ephemeral"},
    ]
    in_order = encode(HI, tools=tools[::-1])
    assert in_order.notices == ()
    assert json.loads(in_order.body)["tools"] == tools[::-1]
