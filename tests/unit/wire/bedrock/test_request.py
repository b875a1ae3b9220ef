"""Request bodies of Converse."""

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
    RequestOptions,
    Tool,
    ToolChoice,
)
from cllm.providers.history import repair_for
from cllm.wire.bedrock.parts import decode_parts
from cllm.wire.bedrock.request import encode_options, encode_request
from cllm.wire.errors import MalformedError
from cllm.wire.messages import EncodedRequest, OutgoingMessage

CLAUDE = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"
NOVA = "us.amazon.nova-pro-v1:0"
LLAMA = "meta.llama3-3-70b-instruct-v1:0"
MISTRAL = "mistral.mistral-large-2402-v1:0"
PNG = "iVBORw0KGgo="
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


def test_roles_alternate():
    messages = sent(
        make_message("user", "a"),
        make_message("user", "b"),
        make_message("assistant", "c"),
        make_message("user", "d"),
    )
    assert [message["role"] for message in messages] == ["user", "assistant", "user"]
    assert messages[0]["content"] == [{"text": "a"}, {"text": "b"}]


def test_the_first_message_is_the_users():
    encoded = request(make_message("assistant", "hello"), make_message("user", "hi"))
    assert json.loads(encoded.body)["messages"][0]["role"] == "user"
    assert "message_added" in codes(encoded)


@pytest.mark.parametrize("blank", ["", " ", "\n\t"])
def test_blank_text_is_not_sent(blank):
    assert sent(make_message("user", blank, "a"))[0]["content"] == [{"text": "a"}]


def test_a_blank_user_message_is_an_error():
    with pytest.raises(UnsendableError, match=r"messages\[0\]: a message has no content"):
        request(make_message("user", " "))


def test_an_empty_assistant_message_is_not_sent():
    assert (
        len(
            sent(
                make_message("user", "a"), make_message("assistant", ""), make_message("user", "b")
            )
        )
        == 1
    )


def test_null_content_with_calls_has_no_text_block():
    messages = sent(
        make_message("user", "a"),
        make_message("assistant", "", call()),
        make_message("tool", result()),
    )
    assert list(messages[1]["content"][0]) == ["toolUse"]


def test_a_prompt_without_messages_is_an_error():
    with pytest.raises(UnsendableError, match="at least one"):
        request(make_message("system", "s"))


def test_a_prefilled_answer_ends_without_white_space():
    messages = sent(make_message("user", "a"), own("assistant", {"text": "Well, \n"}))
    assert messages[1]["content"] == [{"text": "Well,"}]


def test_developer_and_system_messages_move_to_the_system_prompt():
    encoded = request(
        make_message("system", "one"),
        make_message("user", "a"),
        make_message("system", "two"),
        make_message("assistant", "b"),
        make_message("user", "c"),
        system=[Text(text="zero")],
    )
    decoded = json.loads(encoded.body)
    assert decoded["system"] == [{"text": "zero"}, {"text": "one"}, {"text": "two"}]
    assert [message["role"] for message in decoded["messages"]] == ["user", "assistant", "user"]
    assert [notice.path for notice in encoded.notices] == ["messages[2]"]


def test_a_system_message_after_the_last_reply_is_sent_as_a_user_message():
    encoded = request(
        make_message("user", "a"), make_message("assistant", "b"), make_message("system", "12")
    )
    sent_messages = json.loads(encoded.body)["messages"]
    assert [message["role"] for message in sent_messages] == ["user", "assistant", "user"]
    assert sent_messages[-1]["content"] == [{"text": "12"}]
    assert codes(encoded) == {"system_as_user"}


def test_system_blocks_and_their_cache_points_are_sent():
    system = [Text(text="a", cache=CacheMark()), Text(text=" "), Text(text="b"), Image(url="x")]
    encoded = request(make_message("user", "q"), system=system)
    assert json.loads(encoded.body)["system"] == [{"text": "a"}, POINT, {"text": "b"}]
    assert codes(encoded) == {"part_left_out"}


def test_a_guard_block_of_the_system_prompt_is_sent():
    guard = Unknown(dialect="bedrock", raw=b'{"guardContent":{"text":{"text":"x"}}}')
    assert body(make_message("user", "q"), system=[guard])["system"] == [json.loads(guard.raw)]


def test_without_a_system_prompt_none_is_sent():
    assert "system" not in body(make_message("user", "q"), system=[Text(text="")])


def test_tool_results_are_one_message_in_the_order_of_the_calls():
    messages = sent(
        make_message("user", "a"),
        make_message("assistant", call(call_id="x"), call(call_id="y")),
        make_message("tool", result("y")),
        make_message("tool", result("x")),
        make_message("user", "and?"),
    )
    assert len(messages) == 3
    content = messages[2]["content"]
    assert [block["toolResult"]["toolUseId"] for block in content[:2]] == ["x", "y"]
    assert content[2] == {"text": "and?"}


def test_an_error_has_the_status_error():
    messages = sent(
        make_message("user", "a"),
        make_message("assistant", call()),
        make_message("tool", result(is_error=True)),
    )
    assert messages[2]["content"][0]["toolResult"]["status"] == "error"


@pytest.mark.parametrize("call_id", ["call {0}", "x" * 200, "", "ä"])
def test_an_invalid_id_gets_the_same_alias_in_call_and_result(call_id):
    messages = [
        make_message("user", "a"),
        make_message("assistant", call(call_id=call_id)),
        make_message("tool", result(call_id)),
    ]
    encoded = request(*messages)
    _, call_message, result_message = json.loads(encoded.body)["messages"]
    alias = call_message["content"][0]["toolUse"]["toolUseId"]
    assert result_message["content"][0]["toolResult"]["toolUseId"] == alias
    assert 1 <= len(alias) <= 64
    assert encoded.ids == {alias: call_id}
    assert encoded == request(*messages)


@pytest.mark.parametrize("call_id", ["functions.Bash:0", "toolu_01", "a-b.c:d_E"])
def test_a_valid_id_is_unchanged(call_id):
    encoded = request(
        make_message("user", "a"),
        make_message("assistant", call(call_id=call_id)),
        make_message("tool", result(call_id)),
    )
    assert json.loads(encoded.body)["messages"][1]["content"][0]["toolUse"]["toolUseId"] == call_id
    assert encoded.ids == {}


def test_an_invalid_tool_name_gets_one_alias_everywhere():
    options = RequestOptions(
        tools=(Tool(name="fs.read/file"), Tool(name="plain")),
        tool_choice=ToolChoice(kind="tool", name="fs.read/file"),
    )
    parameters, _ = encode_options(options, model=CLAUDE)
    encoded = request(
        make_message("user", "a"),
        make_message("assistant", call("fs.read/file")),
        make_message("tool", result()),
        parameters=parameters,
    )
    decoded = json.loads(encoded.body)
    alias = decoded["messages"][1]["content"][0]["toolUse"]["name"]
    assert encoded.names == {alias: "fs.read/file"}
    tools = decoded["toolConfig"]["tools"]
    assert [tool["toolSpec"]["name"] for tool in tools] == [alias, "plain"]
    assert decoded["toolConfig"]["toolChoice"] == {"tool": {"name": alias}}


def test_duplicate_ids_in_one_message_become_unique():
    messages = sent(
        make_message("user", "a"),
        make_message("assistant", call(call_id="x"), call(call_id="x")),
        make_message("tool", result("x", Text(text="1"))),
        make_message("tool", result("x", Text(text="2"))),
    )
    ids = [block["toolUse"]["toolUseId"] for block in messages[1]["content"]]
    results = [block["toolResult"] for block in messages[2]["content"]]
    assert len(set(ids)) == 2
    assert [block["toolUseId"] for block in results] == ids
    assert [block["content"][0]["text"] for block in results] == ["1", "2"]


def test_a_call_id_can_be_reused_in_a_later_turn():
    turn = (
        make_message("user", "a"),
        make_message("assistant", call()),
        make_message("tool", result()),
    )
    messages = sent(*turn, make_message("assistant", "b"), *turn)
    assert messages[1] == messages[5]


@pytest.mark.parametrize("text", ["", " "])
def test_a_blank_tool_result_is_filled(text):
    messages = sent(
        make_message("user", "a"),
        make_message("assistant", call()),
        make_message("tool", result("c1", Text(text=text))),
    )
    assert messages[2]["content"][0]["toolResult"]["content"][0]["text"].strip()


def test_tools_of_the_history_are_added_in_stable_order():
    history = [
        make_message("user", "a"),
        make_message("assistant", call("zeta", "1"), call("alpha", "2"), call("zeta", "3")),
        make_message("tool", result("1"), result("2"), result("3")),
    ]
    tools = body(*history)["toolConfig"]["tools"]
    assert [tool["toolSpec"]["name"] for tool in tools] == ["zeta", "alpha"]
    assert all(tool["toolSpec"]["inputSchema"]["json"]["type"] == "object" for tool in tools)
    assert "toolConfig" not in body(make_message("user", "a"))


@pytest.mark.parametrize("config", [None, 3, {}, {"tools": []}, {"tools": [POINT]}, {"tools": [3]}])
def test_a_tool_config_without_tools_is_none(config):
    history = [
        make_message("user", "a"),
        make_message("assistant", call()),
        make_message("tool", result()),
    ]
    decoded = body(*history, parameters={"toolConfig": config})
    assert len(decoded["toolConfig"]["tools"]) == 1
    assert "toolConfig" not in body(make_message("user", "a"), parameters={"toolConfig": config})


def test_an_interrupted_call_gets_an_error_result():
    encoded = request(
        make_message("user", "a"), make_message("assistant", call()), make_message("user", "go on")
    )
    answer = json.loads(encoded.body)["messages"][2]["content"]
    assert answer[0]["toolResult"]["status"] == "error"
    assert answer[1] == {"text": "go on"}
    assert codes(encoded) == {"interrupted_call_answered", "tools_added"}


def test_an_open_call_at_the_end_gets_a_result():
    assert sent(make_message("user", "a"), make_message("assistant", call()))[2]["role"] == "user"


def test_a_result_without_a_call_is_sent_as_text():
    encoded = request(
        make_message("user", result("gone", Text(text="12 °C")), "so?"),
        make_message("assistant", "b"),
        make_message("user", result("gone", Image(media_type="image/png", data=PNG))),
    )
    messages = json.loads(encoded.body)["messages"]
    assert messages[0]["content"] == [{"text": "12 °C"}, {"text": "so?"}]
    assert "image" in messages[2]["content"][0]
    assert codes(encoded) == {"result_as_text"}


@pytest.mark.parametrize(
    "message",
    [
        make_message("user", "a", call()),
        make_message("assistant", "a", result("c1")),
        make_message("user", "a", Thinking(text="hm", signature="s")),
    ],
)
def test_a_part_in_a_message_of_the_wrong_role_is_an_error(message):
    with pytest.raises(
        UnsendableError, match=r"messages\[1\].*a part is not allowed in a message of this role"
    ):
        request(make_message("user", "a"), message, make_message("user", "b"))


def test_invalid_arguments_are_wrapped():
    encoded = request(
        make_message("user", "a"),
        make_message("assistant", call(arguments='{"a":')),
        make_message("tool", result()),
    )
    sent_call = json.loads(encoded.body)["messages"][1]["content"][0]["toolUse"]
    assert sent_call["input"] == {"INVALID_JSON": '{"a":'}
    assert codes(encoded) == {"arguments_changed", "tools_added"}


@pytest.mark.parametrize("model", [LLAMA, MISTRAL])
def test_llama_and_mistral_get_tool_results_alone(model):
    messages = sent(
        make_message("user", "a"),
        make_message("assistant", call()),
        make_message("tool", result(), "and?"),
        model=model,
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
def test_claude_gets_no_document_or_video_with_tool_results(part):
    history = [
        make_message("user", "a"),
        make_message("assistant", call()),
        make_message("tool", result(), part),
    ]
    assert len(sent(*history)) == 5
    assert len(sent(*history, model=NOVA)) == 3
    assert len(sent(*history[:2], make_message("tool", result(), "text"))) == 3


def test_images_in_a_result_are_sent():
    image = Image(media_type="image/jpg", data="/9j/")
    messages = sent(
        make_message("user", "a"),
        make_message("assistant", call()),
        make_message("tool", result("c1", image)),
    )
    assert messages[2]["content"][0]["toolResult"]["content"] == [
        {"image": {"format": "jpeg", "source": {"bytes": "/9j/"}}}
    ]


def test_signed_thinking_is_unchanged():
    parts = (Thinking(text=" hm ", signature="s"), RedactedThinking(data="AAEC"), Text(text="b"))
    messages = sent(
        make_message("user", "a"), make_message("assistant", *parts), make_message("user", "c")
    )
    assert messages[1]["content"] == [
        {"reasoningContent": {"reasoningText": {"text": " hm ", "signature": "s"}}},
        {"reasoningContent": {"redactedContent": "AAEC"}},
        {"text": "b"},
    ]


@pytest.mark.parametrize("signature", [None, ""])
def test_only_thinking_without_a_signature_is_dropped(signature):
    encoded = request(
        make_message("user", "a"),
        make_message("assistant", Thinking(text="hm", signature=signature), "b"),
    )
    assert json.loads(encoded.body)["messages"][1]["content"] == [{"text": "b"}]
    assert codes(encoded) == {"thinking_left_out"}


def test_thinking_is_not_sent_to_a_model_without_thinking():
    thought = Thinking(text="hm", signature="s")
    hidden = RedactedThinking(data="AAEC")
    messages = [
        make_message("user", "a"),
        make_message("assistant", thought, hidden, "b"),
        make_message("user", "c"),
    ]
    assert b"reasoning" not in request(*messages, model=LLAMA).body
    assert request(*messages).body.count(b"reasoningContent") == 2


def test_redacted_thinking_that_is_not_base64_is_dropped():
    encoded = request(
        make_message("user", "a"), make_message("assistant", RedactedThinking(data="?"), "b")
    )
    assert b"reasoning" not in encoded.body


def test_a_message_of_thinking_alone_is_not_sent():
    thought = Thinking(text="hm", signature="s")
    encoded = request(
        make_message("user", "a"), make_message("assistant", thought), make_message("user", "b")
    )
    assert [m["role"] for m in json.loads(encoded.body)["messages"]] == ["user"]
    assert "message_left_out" in codes(encoded)
    assert (
        len(
            sent(
                make_message("user", "a"),
                make_message("assistant", thought),
                make_message("assistant", "b"),
            )
        )
        == 2
    )


@pytest.mark.parametrize(
    ("before", "is_sent"), [((), False), ((Thinking(text="hm", signature="s"),), True)]
)
def test_thinking_is_disabled_in_a_tool_loop_that_started_without_it(before, is_sent):
    fields = {"thinking": {"type": "enabled", "budget_tokens": 1024}, "top_k": 1}
    loop = [
        make_message("user", "a"),
        make_message("assistant", *before, call()),
        make_message("tool", result()),
    ]
    parameters = {"additionalModelRequestFields": fields}
    encoded = request(*loop, parameters=parameters)
    fields = json.loads(encoded.body)["additionalModelRequestFields"]
    assert ("thinking" in fields) is is_sent
    assert fields["top_k"] == 1
    assert ("thinking_disabled" in codes(encoded)) is not is_sent
    after = [*loop, make_message("assistant", "b"), make_message("user", "c")]
    assert "thinking" in body(*after, parameters=parameters)["additionalModelRequestFields"]
    assert "additionalModelRequestFields" not in body(*loop)


def test_an_images_bytes_are_encoded_once():
    image = Image(media_type="image/png", data=PNG, extra={"detail": "high"})
    (message,) = sent(make_message("user", image))
    assert message["content"] == [{"image": {"format": "png", "source": {"bytes": PNG}}}]


def test_an_image_of_an_own_reply_is_sent():
    made = {"image": {"format": "png", "source": {"bytes": PNG}}}
    assert sent(make_message("user", "a"), own("assistant", made))[1]["content"] == [made]


def test_a_document_is_sent_with_a_text():
    document = Document(media_type="application/pdf", data="AA==", name="a")
    (message,) = sent(make_message("user", document))
    assert [next(iter(block)) for block in message["content"]] == ["document", "text"]
    (message,) = sent(make_message("user", "read", document))
    assert len(message["content"]) == 2


def test_document_titles_are_valid_unique_and_stable():
    names = ["a_b.pdf", "a_b.pdf", "x  y", None, "ü", "ok (1) [2]-3", "z" * 300, "z" * 300]
    parts = [Document(media_type="application/pdf", data="AA==", name=name) for name in names]
    encoded = request(make_message("user", "read", *parts))
    content = json.loads(encoded.body)["messages"][0]["content"][1:]
    titles = [block["document"]["name"] for block in content]
    assert titles[:6] == ["a-b-pdf", "a-b-pdf (2)", "x y", "document", "document (2)", names[5]]
    assert len(set(titles)) == len(titles)
    assert max(map(len, titles)) <= 200
    assert encoded == request(make_message("user", "read", *parts))


def test_the_citations_setting_of_another_protocols_document_is_sent():
    document = Document(
        text="t",
        media_type="text/plain",
        name="n",
        extra={"citations": {"enabled": True}, "context": "c", "odd": 1},
    )
    encoded = request(make_message("user", "q", document))
    assert json.loads(encoded.body)["messages"][0]["content"][1]["document"] == {
        "format": "txt",
        "name": "n",
        "source": {"text": "t"},
        "citations": {"enabled": True},
        "context": "c",
    }
    assert [notice.code for notice in encoded.notices] == ["field_left_out"]


def test_blocks_of_another_protocol_are_reported_and_not_sent():
    foreign = Unknown(dialect="openai", raw=b'{"type":"input_audio"}')
    inside = result("c1", foreign, Text(text="t", extra={"odd": 1}))
    encoded = request(
        make_message("user", foreign, "a"),
        make_message("assistant", Refusal(text="no"), Refusal(text=" "), call()),
        make_message("tool", inside),
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


def test_a_bedrock_message_keeps_its_bytes():
    raw = b'{"content": [{"text":"caf\\u00e9"}], "role":"user"}'
    parts = decode_parts(Message(role="user", dialect="bedrock", raw=raw))
    assert raw in request(OutgoingMessage(role="user", parts=parts, raw=raw)).body


def test_bedrock_calls_and_results_keep_their_bytes():
    use = {"toolUse": {"toolUseId": "a", "name": "n", "input": {"x": 1.5}}}
    answer = {
        "toolResult": {"toolUseId": "a", "content": [{"json": {"y": 2}}], "status": "success"}
    }
    messages = [own("user", {"text": "a"}), own("assistant", use, POINT), own("user", answer)]
    encoded = request(*messages)
    for message in messages:
        assert message.raw is not None
        assert message.raw in encoded.body


def test_equal_requests_have_equal_bytes():
    history = [
        make_message("user", "a"),
        make_message("assistant", call("ä", "ö")),
        make_message("tool", result("ö")),
    ]
    assert request(*history).body == request(*history).body


def test_parameters_are_in_the_body_and_the_model_is_not():
    decoded = body(
        make_message("user", "a"), parameters={"modelId": "m", "serviceTier": {"type": "flex"}}
    )
    assert set(decoded) == {"messages", "serviceTier"}


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
def test_any_parameters_raise_only_malformed(parameters):
    with contextlib.suppress(MalformedError):
        request(make_message("user", "a"), parameters=parameters)
