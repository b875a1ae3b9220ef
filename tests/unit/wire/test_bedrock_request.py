"""Requests that Converse accepts, whatever was said before in whichever words."""

import contextlib
import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cllm.core.errors import UnsendableError
from cllm.core.message import (
    AnyPart,
    CacheMark,
    Document,
    Image,
    Message,
    RedactedThinking,
    Refusal,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Unknown,
)
from cllm.core.options import (
    ForeignTool,
    JsonOutput,
    Reasoning,
    RequestOptions,
    Tool,
    ToolChoice,
)
from cllm.providers.history import repair_for
from cllm.wire.bedrock.parts import decode_parts
from cllm.wire.bedrock.request import encode_options, encode_request
from cllm.wire.errors import MalformedError, NotExpressibleError
from cllm.wire.messages import EncodedRequest, OutgoingMessage

CLAUDE = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"
OLD_CLAUDE = "anthropic.claude-3-haiku-20240307-v1:0"
NEW_CLAUDE = "us.anthropic.claude-opus-4-6-v1"
SONNET_37 = "us.anthropic.claude-3-7-sonnet-20250219-v1:0"
NOVA = "us.amazon.nova-pro-v1:0"
LLAMA = "meta.llama3-3-70b-instruct-v1:0"
MISTRAL = "mistral.mistral-large-2402-v1:0"
PNG = "iVBORw0KGgo="
POINT = {"cachePoint": {"type": "default"}}
HOUR = {"cachePoint": {"type": "default", "ttl": "1h"}}


def says(role: Role, *parts: AnyPart | str, raw: bytes | None = None) -> OutgoingMessage:
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
    placed = [msgspec.structs.replace(said, prompt_index=n) for n, said in enumerate(messages)]
    return encode_request(
        model=model,
        system=system,
        messages=placed,
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


# Roles and emptiness


def test_roles_alternate():
    messages = sent(says("user", "a"), says("user", "b"), says("assistant", "c"), says("user", "d"))
    assert [message["role"] for message in messages] == ["user", "assistant", "user"]
    assert messages[0]["content"] == [{"text": "a"}, {"text": "b"}]


def test_a_conversation_starts_with_the_user():
    encoded = request(says("assistant", "hello"), says("user", "hi"))
    assert json.loads(encoded.body)["messages"][0]["role"] == "user"
    assert "message_added" in codes(encoded)


@pytest.mark.parametrize("blank", ["", " ", "\n\t"])
def test_blank_text_is_not_sent(blank):
    assert sent(says("user", blank, "a"))[0]["content"] == [{"text": "a"}]


def test_nothing_asked_is_an_error():
    with pytest.raises(UnsendableError, match=r"messages\[0\]: a message says nothing"):
        request(says("user", " "))


def test_an_assistant_who_said_nothing_is_not_heard():
    assert len(sent(says("user", "a"), says("assistant", ""), says("user", "b"))) == 1


def test_content_null_beside_a_call_makes_no_text_block():
    messages = sent(says("user", "a"), says("assistant", "", call()), says("tool", result()))
    assert list(messages[1]["content"][0]) == ["toolUse"]


def test_no_message_at_all_is_an_error():
    with pytest.raises(UnsendableError, match="at least one"):
        request(says("system", "s"))


def test_the_last_word_of_claude_ends_without_white_space():
    messages = sent(says("user", "a"), own("assistant", {"text": "Well, \n"}))
    assert messages[1]["content"] == [{"text": "Well,"}]


def test_developer_and_system_messages_have_system_semantics():
    encoded = request(
        says("system", "one"),
        says("user", "a"),
        says("system", "two"),
        says("assistant", "b"),
        says("user", "c"),
        system=[Text(text="zero")],
    )
    decoded = json.loads(encoded.body)
    assert decoded["system"] == [{"text": "zero"}, {"text": "one"}, {"text": "two"}]
    assert [message["role"] for message in decoded["messages"]] == ["user", "assistant", "user"]
    assert [notice.path for notice in encoded.notices] == ["messages[2]"]


def test_system_blocks_and_their_breakpoints_are_kept():
    system = [Text(text="a", cache=CacheMark()), Text(text=" "), Text(text="b"), Image(url="x")]
    encoded = request(says("user", "q"), system=system)
    assert json.loads(encoded.body)["system"] == [{"text": "a"}, POINT, {"text": "b"}]
    assert codes(encoded) == {"part_left_out"}


def test_a_guarded_block_of_the_system_prompt_is_kept():
    guard = Unknown(dialect="bedrock", raw=b'{"guardContent":{"text":{"text":"x"}}}')
    assert body(says("user", "q"), system=[guard])["system"] == [json.loads(guard.raw)]


def test_no_system_prompt_none_sent():
    assert "system" not in body(says("user", "q"), system=[Text(text="")])


# Tools


def test_results_of_a_turn_are_one_message_in_call_order():
    messages = sent(
        says("user", "a"),
        says("assistant", call(call_id="x"), call(call_id="y")),
        says("tool", result("y")),
        says("tool", result("x")),
        says("user", "and?"),
    )
    assert len(messages) == 3
    content = messages[2]["content"]
    assert [block["toolResult"]["toolUseId"] for block in content[:2]] == ["x", "y"]
    assert content[2] == {"text": "and?"}


def test_an_error_has_the_status_error():
    messages = sent(
        says("user", "a"), says("assistant", call()), says("tool", result(is_error=True))
    )
    assert messages[2]["content"][0]["toolResult"]["status"] == "error"


@pytest.mark.parametrize("call_id", ["call {0}", "x" * 200, "", "ä"])
def test_an_id_that_bedrock_refuses_has_one_alias_on_call_and_result(call_id):
    messages = [
        says("user", "a"),
        says("assistant", call(call_id=call_id)),
        says("tool", result(call_id)),
    ]
    encoded = request(*messages)
    _, asked, answered = json.loads(encoded.body)["messages"]
    alias = asked["content"][0]["toolUse"]["toolUseId"]
    assert answered["content"][0]["toolResult"]["toolUseId"] == alias
    assert 1 <= len(alias) <= 64
    assert encoded.ids == {alias: call_id}
    assert encoded == request(*messages)


@pytest.mark.parametrize("call_id", ["functions.Bash:0", "toolu_01", "a-b.c:d_E"])
def test_a_valid_id_is_untouched(call_id):
    encoded = request(
        says("user", "a"), says("assistant", call(call_id=call_id)), says("tool", result(call_id))
    )
    assert json.loads(encoded.body)["messages"][1]["content"][0]["toolUse"]["toolUseId"] == call_id
    assert encoded.ids == {}


def test_a_name_that_bedrock_refuses_has_one_alias_everywhere():
    options = RequestOptions(
        tools=(Tool(name="fs.read/file"), Tool(name="plain")),
        tool_choice=ToolChoice(kind="tool", name="fs.read/file"),
    )
    parameters, _ = encode_options(options, model=CLAUDE)
    encoded = request(
        says("user", "a"),
        says("assistant", call("fs.read/file")),
        says("tool", result()),
        parameters=parameters,
    )
    decoded = json.loads(encoded.body)
    alias = decoded["messages"][1]["content"][0]["toolUse"]["name"]
    assert encoded.names == {alias: "fs.read/file"}
    tools = decoded["toolConfig"]["tools"]
    assert [tool["toolSpec"]["name"] for tool in tools] == [alias, "plain"]
    assert decoded["toolConfig"]["toolChoice"] == {"tool": {"name": alias}}


def test_calls_that_share_an_id_in_one_message_are_told_apart():
    messages = sent(
        says("user", "a"),
        says("assistant", call(call_id="x"), call(call_id="x")),
        says("tool", result("x", Text(text="1"))),
        says("tool", result("x", Text(text="2"))),
    )
    ids = [block["toolUse"]["toolUseId"] for block in messages[1]["content"]]
    results = [block["toolResult"] for block in messages[2]["content"]]
    assert len(set(ids)) == 2
    assert [block["toolUseId"] for block in results] == ids
    assert [block["content"][0]["text"] for block in results] == ["1", "2"]


def test_the_same_id_may_come_back_in_a_later_turn():
    turn = (says("user", "a"), says("assistant", call()), says("tool", result()))
    messages = sent(*turn, says("assistant", "b"), *turn)
    assert messages[1] == messages[5]


@pytest.mark.parametrize("text", ["", " "])
def test_a_blank_tool_result_has_a_word_in_it(text):
    messages = sent(
        says("user", "a"), says("assistant", call()), says("tool", result("c1", Text(text=text)))
    )
    assert messages[2]["content"][0]["toolResult"]["content"][0]["text"].strip()


def test_tools_of_the_history_are_named_in_stable_order_when_the_request_has_none():
    history = [
        says("user", "a"),
        says("assistant", call("zeta", "1"), call("alpha", "2"), call("zeta", "3")),
        says("tool", result("1"), result("2"), result("3")),
    ]
    tools = body(*history)["toolConfig"]["tools"]
    assert [tool["toolSpec"]["name"] for tool in tools] == ["zeta", "alpha"]
    assert all(tool["toolSpec"]["inputSchema"]["json"]["type"] == "object" for tool in tools)
    assert "toolConfig" not in body(says("user", "a"))


@pytest.mark.parametrize("given", [None, 3, {}, {"tools": []}, {"tools": [POINT]}, {"tools": [3]}])
def test_a_tool_config_without_tools_is_none(given):
    history = [says("user", "a"), says("assistant", call()), says("tool", result())]
    decoded = body(*history, parameters={"toolConfig": given})
    assert len(decoded["toolConfig"]["tools"]) == 1
    assert "toolConfig" not in body(says("user", "a"), parameters={"toolConfig": given})


def test_a_call_that_was_interrupted_is_answered_with_an_error():
    encoded = request(says("user", "a"), says("assistant", call()), says("user", "go on"))
    answer = json.loads(encoded.body)["messages"][2]["content"]
    assert answer[0]["toolResult"]["status"] == "error"
    assert answer[1] == {"text": "go on"}
    assert codes(encoded) == {"interrupted_call_answered", "tools_added"}


def test_a_call_at_the_very_end_is_answered_too():
    assert sent(says("user", "a"), says("assistant", call()))[2]["role"] == "user"


def test_a_result_without_its_call_is_kept_as_text():
    encoded = request(
        says("user", result("gone", Text(text="12 °C")), "so?"),
        says("assistant", "b"),
        says("user", result("gone", Image(media_type="image/png", data=PNG))),
    )
    messages = json.loads(encoded.body)["messages"]
    assert messages[0]["content"] == [{"text": "12 °C"}, {"text": "so?"}]
    assert "image" in messages[2]["content"][0]
    assert codes(encoded) == {"result_as_text"}


@pytest.mark.parametrize(
    "message",
    [
        says("user", "a", call()),
        says("assistant", "a", result("c1")),
        says("user", "a", Thinking(text="hm", signature="s")),
    ],
)
def test_a_part_in_a_message_of_the_wrong_role_is_an_error(message):
    with pytest.raises(UnsendableError, match=r"messages\[1\].*a role that cannot say it"):
        request(says("user", "a"), message, says("user", "b"))


def test_broken_arguments_do_not_break_the_conversation():
    encoded = request(
        says("user", "a"), says("assistant", call(arguments='{"a":')), says("tool", result())
    )
    asked = json.loads(encoded.body)["messages"][1]["content"][0]["toolUse"]
    assert asked["input"] == {"INVALID_JSON": '{"a":'}
    assert codes(encoded) == {"arguments_changed", "tools_added"}


@pytest.mark.parametrize("model", [LLAMA, MISTRAL])
def test_llama_and_mistral_get_tool_results_alone(model):
    messages = sent(
        says("user", "a"), says("assistant", call()), says("tool", result(), "and?"), model=model
    )
    assert [message["role"] for message in messages] == ["user", "assistant"] * 2 + ["user"]
    assert [list(block) for block in messages[2]["content"]] == [["toolResult"]]
    assert messages[4]["content"] == [{"text": "and?"}]


@pytest.mark.parametrize(
    "part",
    [
        Document(media_type="application/pdf", data="AA==", name="a"),
        Unknown(dialect="bedrock", raw=b'{"video":{"format":"mp4","source":{"bytes":"AA=="}}}'),
    ],
)
def test_claude_gets_no_document_or_video_beside_tool_results(part):
    history = [says("user", "a"), says("assistant", call()), says("tool", result(), part)]
    assert len(sent(*history)) == 5
    assert len(sent(*history, model=NOVA)) == 3
    assert len(sent(*history[:2], says("tool", result(), "text"))) == 3


def test_images_inside_a_result_are_kept():
    image = Image(media_type="image/jpg", data="/9j/")
    messages = sent(says("user", "a"), says("assistant", call()), says("tool", result("c1", image)))
    assert messages[2]["content"][0]["toolResult"]["content"] == [
        {"image": {"format": "jpeg", "source": {"bytes": "/9j/"}}}
    ]


# Thinking


def test_signed_thinking_goes_back_unmodified():
    parts = (Thinking(text=" hm ", signature="s"), RedactedThinking(data="AAEC"), Text(text="b"))
    messages = sent(says("user", "a"), says("assistant", *parts), says("user", "c"))
    assert messages[1]["content"] == [
        {"reasoningContent": {"reasoningText": {"text": " hm ", "signature": "s"}}},
        {"reasoningContent": {"redactedContent": "AAEC"}},
        {"text": "b"},
    ]


@pytest.mark.parametrize("signature", [None, ""])
def test_unsigned_thinking_is_dropped_and_the_rest_kept(signature):
    encoded = request(
        says("user", "a"), says("assistant", Thinking(text="hm", signature=signature), "b")
    )
    assert json.loads(encoded.body)["messages"][1]["content"] == [{"text": "b"}]
    assert codes(encoded) == {"thinking_left_out"}


def test_thinking_is_sent_to_no_model_that_cannot_think():
    thought = Thinking(text="hm", signature="s")
    hidden = RedactedThinking(data="AAEC")
    messages = [says("user", "a"), says("assistant", thought, hidden, "b"), says("user", "c")]
    assert b"reasoning" not in request(*messages, model=LLAMA).body
    assert request(*messages).body.count(b"reasoningContent") == 2


def test_redacted_thinking_that_is_no_base64_is_dropped():
    encoded = request(says("user", "a"), says("assistant", RedactedThinking(data="?"), "b"))
    assert b"reasoning" not in encoded.body


def test_thinking_alone_is_no_message():
    thought = Thinking(text="hm", signature="s")
    encoded = request(says("user", "a"), says("assistant", thought), says("user", "b"))
    assert [m["role"] for m in json.loads(encoded.body)["messages"]] == ["user"]
    assert "message_left_out" in codes(encoded)
    assert len(sent(says("user", "a"), says("assistant", thought), says("assistant", "b"))) == 2


@pytest.mark.parametrize(
    ("before", "kept"), [((), False), ((Thinking(text="hm", signature="s"),), True)]
)
def test_thinking_is_off_in_a_loop_that_began_without_it(before, kept):
    fields = {"thinking": {"type": "enabled", "budget_tokens": 1024}, "top_k": 1}
    loop = [says("user", "a"), says("assistant", *before, call()), says("tool", result())]
    parameters = {"additionalModelRequestFields": fields}
    encoded = request(*loop, parameters=parameters)
    said = json.loads(encoded.body)["additionalModelRequestFields"]
    assert ("thinking" in said) is kept
    assert said["top_k"] == 1
    assert ("thinking_disabled" in codes(encoded)) is not kept
    after = [*loop, says("assistant", "b"), says("user", "c")]
    assert "thinking" in body(*after, parameters=parameters)["additionalModelRequestFields"]
    assert "additionalModelRequestFields" not in body(*loop)


# Files


@pytest.mark.parametrize(
    "image",
    [
        Image(media_type="image/png", data=f"{PNG[:4]}\n{PNG[4:]}"),
        Image(url=f"data:image/png;base64,{PNG}"),
        Image(media_type="image/png", data=PNG, extra={"detail": "high"}),
    ],
)
def test_an_images_bytes_are_encoded_once(image):
    (message,) = sent(says("user", image))
    assert message["content"] == [{"image": {"format": "png", "source": {"bytes": PNG}}}]


@pytest.mark.parametrize(
    "part",
    [
        Image(url="https://x/y.png"),
        Image(media_type="image/tiff", data=PNG),
        Image(media_type="image/png", data="no base64!"),
        Image(media_type="image/png", data=""),
        Document(media_type="application/pdf", data="?", name="a"),
        Document(media_type="application/zip", data="AA==", name="a"),
    ],
)
def test_a_file_that_bedrock_cannot_take_is_an_error(part):
    with pytest.raises(NotExpressibleError):
        request(says("user", part))


def test_files_come_from_the_user_only():
    image = Image(media_type="image/png", data=PNG)
    encoded = request(says("user", "a"), says("assistant", image, "b"))
    assert json.loads(encoded.body)["messages"][1]["content"] == [{"text": "b"}]
    assert codes(encoded) == {"part_left_out"}
    made = {"image": {"format": "png", "source": {"bytes": PNG}}}
    assert sent(says("user", "a"), own("assistant", made))[1]["content"] == [made]


def test_a_document_has_a_text_beside_it():
    document = Document(media_type="application/pdf", data="AA==", name="a")
    (message,) = sent(says("user", document))
    assert [next(iter(block)) for block in message["content"]] == ["document", "text"]
    (message,) = sent(says("user", "read", document))
    assert len(message["content"]) == 2


def test_document_names_are_allowed_unique_and_the_same_every_time():
    names = ["a_b.pdf", "a_b.pdf", "x  y", None, "ü", "ok (1) [2]-3", "z" * 300, "z" * 300]
    parts = [Document(media_type="application/pdf", data="AA==", name=name) for name in names]
    encoded = request(says("user", "read", *parts))
    content = json.loads(encoded.body)["messages"][0]["content"][1:]
    given = [block["document"]["name"] for block in content]
    assert given[:6] == ["a-b-pdf", "a-b-pdf (2)", "x y", "document", "document (2)", names[5]]
    assert len(set(given)) == len(given)
    assert max(map(len, given)) <= 200
    assert encoded == request(says("user", "read", *parts))


def test_what_another_protocols_document_says_of_citations_is_kept():
    document = Document(
        text="t",
        media_type="text/plain",
        name="n",
        extra={"citations": {"enabled": True}, "context": "c", "odd": 1},
    )
    encoded = request(says("user", "q", document))
    assert json.loads(encoded.body)["messages"][0]["content"][1]["document"] == {
        "format": "txt",
        "name": "n",
        "source": {"text": "t"},
        "citations": {"enabled": True},
        "context": "c",
    }
    assert [notice.code for notice in encoded.notices] == ["field_left_out"]


def test_blocks_of_another_protocol_are_told_and_not_sent():
    foreign = Unknown(dialect="openai", raw=b'{"type":"input_audio"}')
    inside = result("c1", foreign, Text(text="t", extra={"odd": 1}))
    encoded = request(
        says("user", foreign, "a"),
        says("assistant", Refusal(text="no"), Refusal(text=" "), call()),
        says("tool", inside),
    )
    messages = json.loads(encoded.body)["messages"]
    assert messages[0]["content"] == [{"text": "a"}]
    assert messages[1]["content"][0] == {"text": "no"}
    assert messages[2]["content"][0]["toolResult"]["content"] == [{"text": "t"}]
    assert codes(encoded) == {
        "part_left_out",
        "refusal_as_text",
        "field_left_out",
        "blank_text_left_out",
        "tools_added",
    }


# Cache points


def marked(text: str, ttl: str | None = None) -> Text:
    return Text(text=text, cache=CacheMark(ttl=ttl))


def test_marks_are_cache_points_of_their_own_everywhere():
    tool = Tool(name="look", cache=CacheMark())
    parameters, _ = encode_options(RequestOptions(tools=(tool,)), model=CLAUDE)
    answer = ToolResult(call_id="c1", content=(Text(text="r"),), cache=CacheMark(ttl="5m"))
    decoded = body(
        says("user", "a"),
        says("assistant", marked("b"), call()),
        says("tool", answer),
        system=[marked("s")],
        parameters=parameters,
    )
    assert decoded["toolConfig"]["tools"][1] == POINT
    assert decoded["system"][1] == POINT
    assert decoded["messages"][1]["content"][1] == POINT
    assert decoded["messages"][2]["content"][1]["cachePoint"]["ttl"] == "5m"


def test_a_mark_inside_a_result_stands_on_the_result():
    messages = sent(
        says("user", "a"), says("assistant", call()), says("tool", result("c1", marked("r")))
    )
    assert messages[2]["content"][0]["toolResult"]["content"] == [{"text": "r"}]
    assert messages[2]["content"][1] == POINT


def test_the_mark_of_a_blank_text_stands_on_the_text_before_or_nowhere():
    assert sent(says("user", "a", marked(" ")))[0]["content"] == [{"text": "a"}, POINT]
    assert sent(says("user", marked(" "), "a"))[0]["content"] == [{"text": "a"}]


def test_no_cache_point_stands_directly_after_a_document():
    document = Document(
        media_type="application/pdf", data="AA==", name="a", cache=CacheMark(ttl="1h")
    )
    point = {"cachePoint": {"type": "default", "ttl": "1h"}}
    (message,) = sent(says("user", document, "q"))
    assert message["content"][1:] == [{"text": "q"}, point]
    (message,) = sent(says("user", "q", document))
    assert list(message["content"][2]) == ["text"]
    assert message["content"][3] == point
    (message,) = sent(says("user", document, marked("q")))
    assert message["content"][1:] == [{"text": "q"}, POINT]


def test_the_mark_of_a_document_does_not_stand_on_thinking():
    document = {"document": {"format": "pdf", "name": "a", "source": {"bytes": "AA=="}}}
    thought = {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "s"}}}
    messages = sent(says("user", "a"), own("assistant", document, POINT, thought, {"text": "b"}))
    assert messages[1]["content"] == [document, thought, {"text": "b"}, POINT]


def test_a_cache_point_that_is_first_or_second_in_a_row_is_not_sent():
    encoded = request(own("user", POINT, {"text": "a"}, POINT, POINT))
    assert json.loads(encoded.body)["messages"][0]["content"] == [{"text": "a"}, POINT]
    assert codes(encoded) == {"cache_mark_left_out"}


def test_thinking_carries_no_mark():
    thought = Thinking(text="hm", signature="s", cache=CacheMark())
    encoded = request(says("user", "a"), says("assistant", thought, marked("")), says("user", "b"))
    assert b"cachePoint" not in encoded.body


def test_never_more_than_four_cache_points():
    tools = [{"toolSpec": {"name": "a", "inputSchema": {"json": {}}}}, POINT]
    encoded = request(
        *(own("user" if n % 2 == 0 else "assistant", {"text": str(n)}, POINT) for n in range(6)),
        system=[marked("s")],
        parameters={"toolConfig": {"tools": tools}},
    )
    decoded = json.loads(encoded.body)
    assert encoded.body.count(b"cachePoint") == 4
    assert decoded["system"][1] == decoded["toolConfig"]["tools"][1] == POINT
    assert [len(message["content"]) for message in decoded["messages"]] == [1, 1, 1, 1, 2, 2]
    assert codes(encoded) == {"cache_mark_left_out"}


def test_five_marks_on_the_system_prompt_alone_are_four():
    encoded = request(says("user", "a"), system=[marked(str(n)) for n in range(5)])
    assert encoded.body.count(b"cachePoint") == 4
    assert json.loads(encoded.body)["system"][-1] == POINT


@pytest.mark.parametrize("model", [OLD_CLAUDE, LLAMA])
def test_marks_for_a_model_without_a_cache_are_stripped_and_told(model):
    tools = [{"toolSpec": {"name": "a", "inputSchema": {"json": {}}}}, POINT]
    encoded = request(
        says("user", marked("a")),
        system=[marked("s")],
        model=model,
        parameters={"toolConfig": {"tools": tools}},
    )
    assert b"cachePoint" not in encoded.body
    assert codes(encoded) == {"cache_mark_left_out"}


def test_nova_caches_messages_and_not_tools():
    tools = [{"toolSpec": {"name": "a", "inputSchema": {"json": {}}}}, POINT]
    encoded = request(
        says("user", marked("a")), model=NOVA, parameters={"toolConfig": {"tools": tools}}
    )
    assert encoded.body.count(b"cachePoint") == 1


@pytest.mark.parametrize(("model", "ttl"), [(SONNET_37, "1h"), (CLAUDE, "2d")])
def test_a_lifetime_that_the_model_does_not_know_is_left_out(model, ttl):
    encoded = request(says("user", marked("a", ttl)), model=model)
    assert json.loads(encoded.body)["messages"][0]["content"][1] == POINT
    assert codes(encoded) == {"cache_ttl_left_out"}


def test_an_hours_mark_does_not_follow_one_of_five_minutes():
    messages = sent(
        own(
            "user",
            {"text": "a"},
            POINT,
            {"text": "b"},
            *[{"cachePoint": {"type": "default", "ttl": "1h"}}],
        ),
        system=[marked("s", "1h")],
    )
    assert messages[0]["content"][3] == POINT


# Bytes


def test_a_message_in_bedrocks_words_is_sent_as_its_own_bytes():
    raw = b'{"content": [{"text":"caf\\u00e9"}], "role":"user"}'
    parts = decode_parts(Message(role="user", dialect="bedrock", raw=raw))
    assert raw in request(OutgoingMessage(role="user", parts=parts, raw=raw)).body


def test_own_calls_and_results_are_sent_as_their_own_bytes():
    use = {"toolUse": {"toolUseId": "a", "name": "n", "input": {"x": 1.5}}}
    answer = {
        "toolResult": {"toolUseId": "a", "content": [{"json": {"y": 2}}], "status": "success"}
    }
    messages = [own("user", {"text": "a"}), own("assistant", use, POINT), own("user", answer)]
    encoded = request(*messages)
    for message in messages:
        assert message.raw is not None
        assert message.raw in encoded.body


def test_the_same_request_twice_is_the_same_bytes():
    history = [says("user", "a"), says("assistant", call("ä", "ö")), says("tool", result("ö"))]
    assert request(*history).body == request(*history).body


def test_parameters_are_in_the_body_and_the_model_is_not():
    decoded = body(says("user", "a"), parameters={"modelId": "m", "serviceTier": {"type": "flex"}})
    assert set(decoded) == {"messages", "serviceTier"}


# Options


def options_of(options: RequestOptions, model: str = CLAUDE, **more: Any) -> dict[str, Any]:
    return encode_options(options, model=model, **more)[0]


def told(options: RequestOptions, model: str = CLAUDE) -> set[str]:
    return {f"{notice.code}:{notice.path}" for notice in encode_options(options, model=model)[1]}


def test_zero_is_said():
    said = options_of(RequestOptions(temperature=0, top_p=0, max_tokens=5, stop=()), SONNET_37)
    expected = {"temperature": 0, "topP": 0, "maxTokens": 5, "stopSequences": []}
    assert said == {"inferenceConfig": expected}
    assert options_of(RequestOptions()) == {}


def test_a_temperature_above_one_is_one():
    assert options_of(RequestOptions(temperature=1.7))["inferenceConfig"]["temperature"] == 1
    assert told(RequestOptions(temperature=1.7)) == {"parameter_changed:temperature"}


def test_stop_is_stop_sequences_and_the_matched_one_is_asked_for():
    said = options_of(RequestOptions(stop=("X", " ")))
    assert said["inferenceConfig"]["stopSequences"] == ["X"]
    assert said["additionalModelResponseFieldPaths"] == ["/stop_sequence"]
    assert "additionalModelResponseFieldPaths" not in options_of(RequestOptions(stop=("X",)), LLAMA)
    assert told(RequestOptions(stop=("X", " "))) == {"parameter_changed:stop"}


def test_strict_false_is_omitted():
    for strict in (False, None):
        tool = Tool(name="a", strict=strict, description="")
        spec = options_of(RequestOptions(tools=(tool,)))["toolConfig"]["tools"][0]["toolSpec"]
        assert spec == {"name": "a", "inputSchema": {"json": {"type": "object"}}}


def test_strict_true_is_said_where_it_is_known():
    tool = Tool(name="a", strict=True, extra={"odd": 1})
    assert options_of(RequestOptions(tools=(tool,)))["toolConfig"]["tools"][0]["toolSpec"]["strict"]
    assert told(RequestOptions(tools=(tool,)), LLAMA) == {
        "field_left_out:tools.a.strict",
        "field_left_out:tools.a.odd",
    }


def test_a_tool_of_another_protocol_is_an_error_that_names_it():
    tool = ForeignTool(dialect="anthropic", name="web_search", raw={})
    with pytest.raises(NotExpressibleError, match="web_search"):
        encode_options(RequestOptions(tools=(tool,)), model=CLAUDE)


def test_tool_choice_none_leaves_the_tools_out_unless_the_history_speaks_of_them():
    options = RequestOptions(tools=(Tool(name="a"),), tool_choice=ToolChoice(kind="none"))
    assert options_of(options) == {}
    assert "toolChoice" not in options_of(options, history_has_tools=True)["toolConfig"]


@pytest.mark.parametrize(
    ("choice", "model", "expected"),
    [
        (ToolChoice(kind="auto"), CLAUDE, {"auto": {}}),
        (ToolChoice(kind="any"), MISTRAL, {"any": {}}),
        (ToolChoice(kind="tool", name="a"), NOVA, {"tool": {"name": "a"}}),
        (ToolChoice(kind="auto"), LLAMA, None),
        (ToolChoice(kind="any"), LLAMA, None),
    ],
)
def test_a_tool_choice_is_said_where_the_model_has_it(choice, model, expected):
    options = RequestOptions(tools=(Tool(name="a"),), tool_choice=choice)
    assert options_of(options, model)["toolConfig"].get("toolChoice") == expected
    dropped = expected is None and choice.kind != "auto"
    assert bool(told(options, model)) is dropped


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (CLAUDE, {"top_k": 5}),
        (NOVA, {"inferenceConfig": {"topK": 5}}),
        (MISTRAL, {"top_k": 5}),
    ],
)
def test_top_k_is_said_in_the_familys_words(model, expected):
    said = options_of(RequestOptions(top_k=5), model)
    assert said == {"additionalModelRequestFields": expected}


def test_what_bedrock_has_no_word_for_is_told():
    options = RequestOptions(
        top_k=1,
        seed=1,
        user="u",
        parallel_tool_calls=False,
        output=JsonOutput(schema={}),
        reasoning=Reasoning(enabled=True, effort="high"),
        extra={"logprobs": True},
    )
    assert {path.partition(":")[2] for path in told(options, LLAMA)} == {
        "top_k",
        "seed",
        "user",
        "parallel_tool_calls",
        "response_format",
        "thinking",
        "logprobs",
    }
    assert options_of(options, LLAMA) == {}
    assert options_of(RequestOptions(reasoning=Reasoning(enabled=False)), LLAMA) == {}


def thinking(options: RequestOptions, model: str = SONNET_37) -> Any:
    return options_of(options, model).get("additionalModelRequestFields")


def test_thinking_is_asked_for_in_the_models_way():
    high = Reasoning(enabled=True, effort="high")
    assert thinking(RequestOptions(reasoning=high)) == {
        "thinking": {"type": "enabled", "budget_tokens": 16384}
    }
    assert thinking(RequestOptions(reasoning=high, max_tokens=2000)) == {
        "thinking": {"type": "enabled", "budget_tokens": 1999}
    }
    assert thinking(RequestOptions(reasoning=high), NEW_CLAUDE) == {
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "high"},
    }
    assert thinking(RequestOptions(reasoning=Reasoning(enabled=False))) == {
        "thinking": {"type": "disabled"}
    }


def test_thinking_in_anthropics_words_goes_as_it_came():
    raw = {"type": "enabled", "budget_tokens": 2048}
    said = Reasoning(enabled=True, effort="low", dialect="anthropic", raw=raw)
    assert thinking(RequestOptions(reasoning=said)) == {"thinking": raw}


def test_thinking_without_room_is_off_and_told():
    options = RequestOptions(reasoning=Reasoning(enabled=True, budget_tokens=4096), max_tokens=100)
    assert thinking(options) is None
    assert told(options, SONNET_37) == {"thinking_disabled:thinking"}


def test_thinking_is_off_while_a_tool_is_forced():
    options = RequestOptions(
        tools=(Tool(name="a"),),
        tool_choice=ToolChoice(kind="any"),
        reasoning=Reasoning(enabled=True, effort="low"),
    )
    assert thinking(options) is None
    assert told(options, SONNET_37) == {"thinking_disabled:thinking"}


def test_sampling_that_thinking_excludes_is_left_out_and_told():
    options = RequestOptions(
        temperature=0, top_k=5, top_p=0.5, reasoning=Reasoning(enabled=True, budget_tokens=2048)
    )
    said = options_of(options, SONNET_37)
    assert set(said) == {"additionalModelRequestFields", "inferenceConfig"}
    assert set(said["inferenceConfig"]) == {"maxTokens"}
    assert said["inferenceConfig"]["maxTokens"] > 2048
    assert len(told(options, SONNET_37)) == 3
    assert (
        options_of(RequestOptions(temperature=0), SONNET_37)["inferenceConfig"]["temperature"] == 0
    )


@pytest.mark.parametrize(
    ("model", "kept"),
    [
        (SONNET_37, {"temperature", "topP"}),
        (CLAUDE, {"temperature"}),
        ("us.anthropic.claude-opus-4-1-20250805-v1:0", {"temperature"}),
        ("us.anthropic.claude-opus-4-7", set()),
    ],
)
def test_sampling_that_a_model_refuses_is_left_out_and_told(model, kept):
    options = RequestOptions(temperature=0, top_p=0.5, max_tokens=9)
    assert set(options_of(options, model)["inferenceConfig"]) == {"maxTokens", *kept}
    assert len(told(options, model)) == 2 - len(kept)


def test_a_budget_for_a_model_that_decides_itself_is_left_to_it():
    raw = {"type": "enabled", "budget_tokens": 2048}
    said = Reasoning(enabled=True, budget_tokens=2048, dialect="anthropic", raw=raw)
    options = RequestOptions(reasoning=said)
    assert thinking(options, "us.anthropic.claude-opus-4-7") == {"thinking": {"type": "adaptive"}}
    assert told(options, "us.anthropic.claude-opus-4-7") == {
        "thinking_changed:thinking.budget_tokens"
    }


def test_only_beta_flags_that_bedrock_knows_are_sent():
    options = RequestOptions(extra={"betas": ["context-1m-2025-08-07", "made-up"]})
    assert thinking(options) == {"anthropic_beta": ["context-1m-2025-08-07"]}
    assert told(options) == {"beta_left_out:betas"}
    assert thinking(options, LLAMA) is None


def test_json_of_a_schema_is_asked_for_where_it_is_known():
    output = JsonOutput(schema={"type": "object"}, name="n")
    text = options_of(RequestOptions(output=output))["outputConfig"]["textFormat"]
    assert text["structure"] == {"jsonSchema": {"schema": '{"type":"object"}', "name": "n"}}
    assert told(RequestOptions(output=JsonOutput())) == {"field_left_out:response_format"}
    options_of(RequestOptions(output=JsonOutput(schema={})))


OPTIONS = st.builds(
    RequestOptions,
    max_tokens=st.none() | st.integers(4096, 9000),
    temperature=st.none() | st.floats(0, 1),
    top_p=st.none() | st.floats(0, 1),
    top_k=st.none() | st.integers(0, 9),
    stop=st.none() | st.just(("X", "Y")),
    tools=st.none()
    | st.just(
        (
            Tool(name="a", description="d", schema={"type": "object"}, cache=CacheMark(ttl="1h")),
            Tool(name="b", schema={"type": "object"}, strict=True),
        )
    ),
    extra=st.sampled_from(
        [
            {},
            {"serviceTier": {"type": "flex"}},
            {"betas": ["effort-2025-11-24"]},
            {"additionalModelRequestFields": {"custom": 1}},
        ]
    ),
)
CHOICES = st.none() | st.sampled_from(
    [ToolChoice(kind="auto"), ToolChoice(kind="any"), ToolChoice(kind="tool", name="a")]
)


@given(OPTIONS, CHOICES)
def test_options_that_claude_accepts_cause_no_notice(options, choice):
    if options.temperature is not None:
        options = msgspec.structs.replace(options, top_p=None)
    if options.tools:
        options = msgspec.structs.replace(options, tool_choice=choice)
    said, notices = encode_options(options, model=CLAUDE)
    assert notices == ()
    assert said.get("inferenceConfig", {}).get("maxTokens") == options.max_tokens
    assert ("toolConfig" in said) == bool(options.tools)


NOISE = st.recursive(
    st.none() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2)
        | st.dictionaries(
            st.sampled_from(
                [
                    "tools",
                    "toolChoice",
                    "toolSpec",
                    "name",
                    "cachePoint",
                    "tool",
                    "auto",
                    "type",
                    "ttl",
                    "thinking",
                    "inputSchema",
                    "json",
                ]
            ),
            inner,
            max_size=3,
        )
    ),
    max_leaves=6,
)


@given(
    st.dictionaries(
        st.sampled_from(["toolConfig", "inferenceConfig", "additionalModelRequestFields", "x"]),
        NOISE,
    )
)
def test_no_parameters_raise_anything_but_malformed(parameters):
    with contextlib.suppress(MalformedError):
        request(says("user", "a"), parameters=parameters)
