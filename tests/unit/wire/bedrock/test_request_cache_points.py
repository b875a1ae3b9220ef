"""The cache points in request bodies of Converse."""

import json
from typing import Any

import msgspec
import pytest

from cllm.core.message import (
    AnyPart,
    CacheMark,
    Document,
    Message,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
)
from cllm.core.options import (
    RequestOptions,
    Tool,
)
from cllm.providers.history import repair_for
from cllm.wire.bedrock.parts import decode_parts
from cllm.wire.bedrock.request import encode_options, encode_request
from cllm.wire.messages import EncodedRequest, OutgoingMessage

CLAUDE = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"
OLD_CLAUDE = "anthropic.claude-3-haiku-20240307-v1:0"
SONNET_37 = "us.anthropic.claude-3-7-sonnet-20250219-v1:0"
NOVA = "us.amazon.nova-pro-v1:0"
LLAMA = "meta.llama3-3-70b-instruct-v1:0"
POINT = {"cachePoint": {"type": "default"}}


def make_message(role: Role, *parts: AnyPart | str, raw: bytes | None = None) -> OutgoingMessage:
    typed = tuple(Text(text=part) if isinstance(part, str) else part for part in parts)
    return OutgoingMessage(role=role, parts=typed, raw=raw)


def own(role: Role, *blocks: Any) -> OutgoingMessage:
    raw = msgspec.json.encode({"role": role, "content": list(blocks)})
    parts = decode_parts(Message(role=role, raw=raw, dialect="bedrock"))
    return OutgoingMessage(role=role, parts=parts, raw=raw)


def call(name: str = "look", call_id: str = "c1", arguments: str = "{}") -> ToolCall:
    return ToolCall(id=call_id, name=name, arguments=arguments)


def result(call_id: str = "c1", *content: Any, is_error: bool = False) -> ToolResult:
    return ToolResult(call_id=call_id, content=content or (Text(text="ok"),), is_error=is_error)


def request(
    *messages: OutgoingMessage, model: str = CLAUDE, system: Any = None, parameters: Any = None
) -> EncodedRequest:
    indexed = [msgspec.structs.replace(m, prompt_index=n) for n, m in enumerate(messages)]
    return encode_request(
        model=model,
        system=system,
        messages=indexed,
        parameters=parameters or {},
        repair=repair_for("bedrock", model, provider="bedrock"),
    )


def body(*messages: OutgoingMessage, **options: Any) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(request(*messages, **options).body)
    return decoded


def sent(*messages: OutgoingMessage, **options: Any) -> list[dict[str, Any]]:
    decoded: list[dict[str, Any]] = body(*messages, **options)["messages"]
    return decoded


def codes(encoded: EncodedRequest) -> set[str]:
    return {notice.code for notice in encoded.notices}


def cached_text(text: str, ttl: str | None = None) -> Text:
    return Text(text=text, cache=CacheMark(ttl=ttl))


def test_cache_breakpoints_become_cache_points():
    tool = Tool(name="look", cache=CacheMark())
    parameters, _ = encode_options(RequestOptions(tools=(tool,)), model=CLAUDE)
    answer = ToolResult(call_id="c1", content=(Text(text="r"),), cache=CacheMark(ttl="5m"))
    decoded = body(
        make_message("user", "a"),
        make_message("assistant", cached_text("b"), call()),
        make_message("tool", answer),
        system=[cached_text("s")],
        parameters=parameters,
    )
    assert decoded["toolConfig"]["tools"][1] == POINT
    assert decoded["system"][1] == POINT
    assert decoded["messages"][1]["content"][1] == POINT
    assert decoded["messages"][2]["content"][1]["cachePoint"]["ttl"] == "5m"


def test_a_cache_point_in_a_result_moves_to_the_result():
    messages = sent(
        make_message("user", "a"),
        make_message("assistant", call()),
        make_message("tool", result("c1", cached_text("r"))),
    )
    assert messages[2]["content"][0]["toolResult"]["content"] == [{"text": "r"}]
    assert messages[2]["content"][1] == POINT


def test_the_cache_point_of_a_blank_text_moves_to_the_text_before():
    assert sent(make_message("user", "a", cached_text(" ")))[0]["content"] == [{"text": "a"}, POINT]
    assert sent(make_message("user", cached_text(" "), "a"))[0]["content"] == [{"text": "a"}]


def test_no_cache_point_follows_a_document_directly():
    document = Document(
        media_type="application/pdf", data="AA==", name="a", cache=CacheMark(ttl="1h")
    )
    point = {"cachePoint": {"type": "default", "ttl": "1h"}}
    (message,) = sent(make_message("user", document, "q"))
    assert message["content"][1:] == [{"text": "q"}, point]
    (message,) = sent(make_message("user", "q", document))
    assert list(message["content"][2]) == ["text"]
    assert message["content"][3] == point
    (message,) = sent(make_message("user", document, cached_text("q")))
    assert message["content"][1:] == [{"text": "q"}, POINT]


def test_the_cache_point_of_a_document_does_not_move_to_thinking():
    document = {"document": {"format": "pdf", "name": "a", "source": {"bytes": "AA=="}}}
    thought = {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"}}}
    messages = sent(
        make_message("user", "a"), own("assistant", document, POINT, thought, {"text": "b"})
    )
    assert messages[1]["content"] == [document, thought, {"text": "b"}, POINT]


def test_a_first_or_repeated_cache_point_is_not_sent():
    encoded = request(own("user", POINT, {"text": "a"}, POINT, POINT))
    assert json.loads(encoded.body)["messages"][0]["content"] == [{"text": "a"}, POINT]
    assert codes(encoded) == {"cache_mark_left_out"}


def test_thinking_has_no_cache_point():
    thought = Thinking(text="hm", signature="s", cache=CacheMark())
    encoded = request(
        make_message("user", "a"),
        make_message("assistant", thought, cached_text("")),
        make_message("user", "b"),
    )
    assert b"cachePoint" not in encoded.body


def test_at_most_four_cache_points_are_sent():
    tools = [{"toolSpec": {"name": "a", "inputSchema": {"json": {}}}}, POINT]
    encoded = request(
        *(own("user" if n % 2 == 0 else "assistant", {"text": str(n)}, POINT) for n in range(6)),
        system=[cached_text("s")],
        parameters={"toolConfig": {"tools": tools}},
    )
    decoded = json.loads(encoded.body)
    assert encoded.body.count(b"cachePoint") == 4
    assert decoded["system"][1] == decoded["toolConfig"]["tools"][1] == POINT
    assert [len(message["content"]) for message in decoded["messages"]] == [1, 1, 1, 1, 2, 2]
    assert codes(encoded) == {"cache_mark_left_out"}


def test_five_cache_points_of_the_system_prompt_become_four():
    encoded = request(make_message("user", "a"), system=[cached_text(str(n)) for n in range(5)])
    assert encoded.body.count(b"cachePoint") == 4
    assert json.loads(encoded.body)["system"][-1] == POINT


@pytest.mark.parametrize("model", [OLD_CLAUDE, LLAMA])
def test_cache_points_for_a_model_without_a_cache_are_dropped_and_reported(model):
    tools = [{"toolSpec": {"name": "a", "inputSchema": {"json": {}}}}, POINT]
    encoded = request(
        make_message("user", cached_text("a")),
        system=[cached_text("s")],
        model=model,
        parameters={"toolConfig": {"tools": tools}},
    )
    assert b"cachePoint" not in encoded.body
    assert codes(encoded) == {"cache_mark_left_out"}


def test_nova_caches_messages_and_not_tools():
    tools = [{"toolSpec": {"name": "a", "inputSchema": {"json": {}}}}, POINT]
    encoded = request(
        make_message("user", cached_text("a")),
        model=NOVA,
        parameters={"toolConfig": {"tools": tools}},
    )
    assert encoded.body.count(b"cachePoint") == 1


@pytest.mark.parametrize(("model", "ttl"), [(SONNET_37, "1h"), (CLAUDE, "2d")])
def test_an_unsupported_cache_ttl_is_not_sent(model, ttl):
    encoded = request(make_message("user", cached_text("a", ttl)), model=model)
    assert json.loads(encoded.body)["messages"][0]["content"][1] == POINT
    assert codes(encoded) == {"cache_ttl_left_out"}


def test_a_one_hour_breakpoint_does_not_follow_a_five_minute_one():
    messages = sent(
        own(
            "user",
            {"text": "a"},
            POINT,
            {"text": "b"},
            *[{"cachePoint": {"type": "default", "ttl": "1h"}}],
        ),
        system=[cached_text("s", "1h")],
    )
    assert messages[0]["content"][3] == POINT
