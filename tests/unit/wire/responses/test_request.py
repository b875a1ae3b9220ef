"""Responses API requests, decoded and encoded."""

import json
from typing import Any

import pytest

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
    plain_message,
)
from cllm.core.prompt import Prompt
from cllm.wire.convert import encode_anthropic, encode_bedrock, encode_openai, encode_responses
from cllm.wire.errors import FieldError, NotExpressibleError
from cllm.wire.messages import EncodedRequest, OutgoingMessage
from cllm.wire.reasoning import TAKES_NONE
from cllm.wire.responses.parts import decode_parts, encode_parts
from cllm.wire.responses.request import (
    decode_request,
    encode_request,
    has_references,
    is_reference,
)
from cllm.wire.responses.response_encoder import encode_answer
from cllm.wire.responses.response_fields import ResponseFields

MODEL = "gpt-5-codex"
SEALED = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "X"}
CALL = {"type": "function_call", "id": "fc_1", "call_id": "c", "name": "f", "arguments": "{}"}
SAID = {
    "type": "message",
    "id": "msg_1",
    "status": "completed",
    "role": "assistant",
    "phase": "final_answer",
    "content": [{"type": "output_text", "text": "Hi", "annotations": []}],
}


def outgoing(role: Role, *parts: AnyPart) -> OutgoingMessage:
    return OutgoingMessage(role=role, parts=parts)


def own_message(*items: Any, role: Role = "assistant") -> OutgoingMessage:
    raw = json.dumps({"role": role, "content": items}, separators=(",", ":")).encode()
    message = Message(role=role, raw=raw, dialect="responses")
    return OutgoingMessage(role=role, parts=decode_parts(message), raw=raw)


def request(
    *messages: OutgoingMessage, model: str = MODEL, stream: bool = False, **fields: Any
) -> tuple[dict[str, Any], list[str]]:
    """The body, and the notice codes."""
    given: dict[str, Any] = {"system": None, "parameters": {}} | fields
    encoded = encode_request(model=model, messages=messages, stream=stream, **given)
    body: dict[str, Any] = json.loads(encoded.body)
    return body, [notice.code for notice in encoded.notices]


class TestHistory:
    def test_an_answer_of_this_api_is_sent_unchanged(self):
        items = [SEALED, {"type": "web_search_call", "id": "ws_1", "new": 1}, SAID, CALL]

        body, codes = request(own_message(*items))

        assert body["input"] == items
        assert codes == []

    def test_null_fields_are_not_sent(self):
        body, codes = request(own_message(SEALED | {"content": None, "status": None}, SAID))

        assert body["input"][0] == SEALED
        assert codes == []

    def test_encrypted_reasoning_is_sent_without_its_text(self):
        open_text = {"content": [{"type": "reasoning_text", "text": "secret"}]}

        body, _ = request(own_message(SEALED | open_text, SAID))

        assert body["input"][0] == SEALED

    def test_reasoning_without_encrypted_content_is_dropped(self):
        stored: dict[str, Any] = {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [],
            "encrypted_content": None,
        }

        body, codes = request(own_message(stored, SAID, CALL))

        assert [item.get("id") for item in body["input"]] == [None, None]
        assert [item["type"] for item in body["input"]] == ["message", "function_call"]
        assert body["input"][0]["phase"] == "final_answer"
        assert codes == ["thinking_left_out"]

    def test_plain_reasoning_content_is_sent(self):
        open_item = {
            "type": "reasoning",
            "id": "rs_1",
            "summary": [],
            "content": [{"type": "reasoning_text", "text": "Hm"}],
        }

        body, codes = request(own_message(open_item, SAID))

        assert body["input"] == [open_item, SAID]
        assert codes == []

    def test_reasoning_without_a_following_item_is_dropped(self):
        body, codes = request(own_message(SAID, SEALED), outgoing("user", Text(text="Go on")))

        assert [item["role"] for item in body["input"]] == ["assistant", "user"]
        assert codes == ["thinking_left_out"]

    def test_reasoning_keeps_its_position_in_a_changed_message(self):
        parts = (*own_message(SEALED, SAID, SEALED | {"id": "rs_2"}, CALL).parts,)

        body, codes = request(outgoing("assistant", *parts))

        kinds = [(item["type"], item.get("id")) for item in body["input"]]
        assert kinds == [
            ("reasoning", "rs_1"),
            ("message", None),
            ("reasoning", "rs_2"),
            ("function_call", None),
        ]
        assert body["input"][0] == SEALED
        assert codes == []

    @pytest.mark.parametrize(
        "thought", [Thinking(text="secret", signature="Eq"), RedactedThinking(data="secret")]
    )
    def test_thinking_of_another_protocol_is_dropped_with_a_notice(self, thought):
        body, codes = request(outgoing("assistant", thought, Text(text="Hi")))

        assert body["input"] == [{"type": "message", "role": "assistant", "content": "Hi"}]
        assert codes == ["thinking_left_out"]

    def test_a_result_contains_images_and_files(self):
        result = ToolResult(
            call_id="c",
            content=(
                Text(text="see"),
                Image(media_type="image/png", data="QUJD"),
                Document(media_type="application/pdf", data="QUJD"),
            ),
        )

        body, codes = request(outgoing("tool", result))

        assert body["input"] == [
            {
                "type": "function_call_output",
                "call_id": "c",
                "output": [
                    {"type": "input_text", "text": "see"},
                    {
                        "type": "input_image",
                        "detail": "auto",
                        "image_url": "data:image/png;base64,QUJD",
                    },
                    {
                        "type": "input_file",
                        "filename": "document.pdf",
                        "file_data": "data:application/pdf;base64,QUJD",
                    },
                ],
            }
        ]
        assert codes == []

    def test_results_and_text_of_a_message_keep_their_order(self):
        body, codes = request(
            outgoing(
                "user",
                ToolResult(call_id="a", content=(Text(text="1"),), is_error=True),
                ToolResult(call_id="b"),
                Text(text="And now?"),
            )
        )

        assert [item.get("call_id", item.get("role")) for item in body["input"]] == [
            "a",
            "b",
            "user",
        ]
        assert body["input"][1]["output"] == ""
        assert codes == ["error_flag_left_out"]
        assert "is_error" not in json.dumps(body)

    @pytest.mark.parametrize("raw", [True, False], ids=["own", "other"])
    def test_a_long_id_has_one_alias_for_call_and_result(self, raw):
        long = "call_" + "x" * 100
        call = ToolCall(id=long, name="f", arguments="")
        result = ToolResult(call_id=long)
        messages = [outgoing("assistant", call), outgoing("tool", result)]
        if raw:
            output = {"type": "function_call_output", "call_id": long, "output": ""}
            messages = [own_message(CALL | {"call_id": long}), own_message(output, role="tool")]

        body, codes = request(*messages)

        first, second = (item["call_id"] for item in body["input"])
        assert first == second
        assert len(first) == 64
        assert body["input"][0]["arguments"] == "{}"
        assert codes == []

    def test_a_refused_name_has_one_alias_everywhere(self):
        encoded = encode_request(
            model=MODEL,
            system=None,
            messages=[outgoing("assistant", ToolCall(id="c", name="my.tool", arguments="{}"))],
            parameters={
                "tools": [{"type": "function", "name": "my.tool"}],
                "tool_choice": {"type": "function", "name": "my.tool"},
            },
            stream=False,
        )

        sent = json.loads(encoded.body)
        ((alias, name),) = encoded.names.items()
        assert name == "my.tool"
        assert "." not in alias
        assert sent["input"][0]["name"] == alias
        assert sent["tools"][0]["name"] == sent["tool_choice"]["name"] == alias

    def test_unsupported_parts_are_reported(self):
        body, codes = request(
            outgoing(
                "user",
                Text(text="a", cache=CacheMark(), extra={"citations": []}),
                Document(text="plain", name="a.txt"),
                Unknown(dialect="anthropic", raw=b'{"type":"new"}'),
                ToolCall(id="c", name="f", arguments="{}"),
            )
        )

        assert body["input"][0]["content"] == [
            {"type": "input_text", "text": "a"},
            {"type": "input_text", "text": "plain"},
        ]
        assert codes == [
            "cache_mark_left_out",
            "field_left_out",
            "document_name_left_out",
            "part_left_out",
            "part_left_out",
        ]

    def test_a_refusal_stays_a_refusal(self):
        body, _ = request(outgoing("assistant", Refusal(text="No."), Text(text="Sorry")))

        kinds = [block["type"] for block in body["input"][0]["content"]]
        assert kinds == ["refusal", "output_text"]

    def test_an_empty_message_is_not_sent(self):
        body, _ = request(outgoing("assistant", Text(text="")), outgoing("user", Text(text="Hi")))

        assert [item["role"] for item in body["input"]] == ["user"]


class TestSystemPrompt:
    def test_one_text_is_sent_as_instructions(self):
        body, _ = request(outgoing("user", Text(text="Hi")), system=[Text(text="Be brief.")])

        assert body["instructions"] == "Be brief."
        assert len(body["input"]) == 1

    def test_blocks_are_the_first_item(self):
        body, _ = request(
            outgoing("user", Text(text="Hi")),
            system=[Text(text="Be brief."), Text(text="Be kind.")],
        )

        assert "instructions" not in body
        assert body["input"][0]["role"] == "system"
        assert [block["text"] for block in body["input"][0]["content"]] == ["Be brief.", "Be kind."]


class TestDefaults:
    def test_store_is_false_and_encrypted_reasoning_is_included(self):
        body, _ = request(outgoing("user", Text(text="Hi")))

        assert body["store"] is False
        assert body["include"] == ["reasoning.encrypted_content"]

    def test_encrypted_reasoning_is_not_requested_from_models_without_reasoning(self):
        body, _ = request(outgoing("user", Text(text="Hi")), model="gpt-4.1")

        assert body["store"] is False
        assert "include" not in body

    def test_store_and_include_of_the_client_are_sent(self):
        chosen = {"store": True, "include": ["file_search_call.results"]}
        sealed = {"include": ["file_search_call.results", "reasoning.encrypted_content"]}

        stored, _ = request(parameters=chosen)
        included, _ = request(parameters=sealed)
        added, _ = request(parameters={"include": ["file_search_call.results"]})

        assert (stored["store"], stored["include"]) == (True, ["file_search_call.results"])
        assert included["include"] == added["include"] == sealed["include"]

    @pytest.mark.parametrize("stream", [True, False])
    def test_stream_is_sent_only_for_a_stream(self, stream):
        body, _ = request(stream=stream, parameters={"stream_options": {}, "stream": not stream})

        assert body.get("stream", False) is stream
        assert ("stream_options" in body) is stream


def body(**fields: Any) -> bytes:
    return json.dumps({"model": MODEL, **fields}).encode()


class TestDecodeRequest:
    def test_items_keep_their_bytes_and_order(self):
        items = [
            b'{"role":"user","content":"Hi"}',
            b'{"type":"reasoning", "id":"rs_1","summary":[],"encrypted_content":"X"}',
            b'{"type":"function_call","call_id":"c","name":"f","arguments":"{}"}',
            b'{"type":"function_call_output","call_id":"c","output":"8"}',
            b'{"type":"message","role":"assistant","content":[{"type":"output_text","text":"8"}]}',
            b'{"type":"web_search_call","id":"ws_1"}',
            b'{"role":"developer","content":"Be brief."}',
        ]
        sent = b'{"model":"m","instructions":"Do.","input":[' + b",".join(items) + b'],"user":"u"}'

        prompt = decode_request(sent)

        assert [message.role for message in prompt.messages] == [
            "user",
            "assistant",
            "tool",
            "assistant",
            "system",
        ]
        assert prompt.messages[0].raw == items[0]
        assert prompt.messages[1].raw == (
            b'{"role":"assistant","content":[' + items[1] + b"," + items[2] + b"]}"
        )
        assert (prompt.dialect, prompt.model, prompt.stream) == ("responses", "m", False)
        assert prompt.parameters == {"user": "u"}
        assert prompt.system is not None
        assert prompt.system.text == "Do."

    def test_a_decoded_request_is_encoded_equally(self):
        items = [{"role": "user", "content": "Hi"}, SEALED, SAID, CALL]
        output = {"type": "function_call_output", "call_id": "c", "output": "8"}
        sent = {
            "input": [*items, output],
            "instructions": "Do.",
            "tools": [{"type": "web_search"}],
            "store": False,
            "include": ["reasoning.encrypted_content"],
            "new_field": 1,
        }

        encoded = encode_responses(decode_request(body(**sent)))

        assert json.loads(encoded.body) == {"model": MODEL, **sent}
        assert encoded.notices == ()

    def test_a_string_input_is_a_user_message(self):
        prompt = decode_request(body(input="Hi", stream=True, instructions=None))

        assert [(message.role, message.text) for message in prompt.messages] == [("user", "Hi")]
        assert prompt.stream
        assert prompt.system is None

    @pytest.mark.parametrize(
        ("fields", "path"),
        [
            ({}, "input"),
            ({"input": 5}, "input"),
            ({"input": ["Hi"]}, "input[0]"),
            ({"input": [{}]}, "input[0].type"),
            ({"input": [{"type": 5}]}, "input[0].type"),
            ({"input": [{"role": "robot", "content": "Hi"}]}, "input[0].role"),
            ({"input": [{"role": "user"}]}, "input[0].content"),
            ({"input": [{"role": "user", "content": ["Hi"]}]}, "input[0].content[0]"),
            (
                {"input": [{"role": "user", "content": [{"type": "input_text"}]}]},
                "input[0].content[0].text",
            ),
            ({"input": [{"type": "function_call", "name": "f"}]}, "input[0].call_id"),
            ({"input": [{"type": "function_call", "call_id": "c"}]}, "input[0].name"),
            ({"input": [{"type": "function_call_output", "call_id": "c"}]}, "input[0].output"),
            ({"input": "Hi", "instructions": 5}, "instructions"),
            ({"input": "Hi", "stream": "yes"}, "stream"),
            ({"input": "Hi", "model": " "}, "model"),
        ],
    )
    def test_an_invalid_body_is_reported_with_its_path(self, fields, path):
        with pytest.raises(FieldError) as caught:
            decode_request(body(**fields))

        assert caught.value.path == path

    @pytest.mark.parametrize("sent", [b"", b"{", b"[]", b'"Hi"', b"[" * 100_000, b"\xff"])
    def test_a_body_that_is_not_a_json_object_is_refused(self, sent):
        with pytest.raises(FieldError):
            decode_request(sent)


def ask_anthropic(prompt: Prompt) -> EncodedRequest:
    return encode_anthropic(prompt, default_max_tokens=100)


class TestOtherProtocols:
    PROMPT = Prompt(
        model=MODEL,
        system=plain_message("system", "Be brief."),
        messages=(plain_message("user", "Hi"),),
        parameters={"max_tokens": 50, "tools": [{"type": "function", "function": {"name": "f"}}]},
    )

    def test_a_chat_conversation_is_encoded_for_responses(self):
        encoded = encode_responses(self.PROMPT)

        assert json.loads(encoded.body) == {
            "model": MODEL,
            "instructions": "Be brief.",
            "input": [{"type": "message", "role": "user", "content": "Hi"}],
            "max_output_tokens": 50,
            "tools": [
                {
                    "type": "function",
                    "name": "f",
                    "parameters": {"type": "object", "properties": {}},
                    "strict": False,
                }
            ],
            "store": False,
            "include": ["reasoning.encrypted_content"],
            "stream": True,
        }
        assert encoded.notices == ()

    def test_equal_prompts_are_equal_bytes(self):
        assert encode_responses(self.PROMPT).body == encode_responses(self.PROMPT).body

    def test_a_responses_answer_is_sent_to_chat_without_reasoning(self):
        parts: list[AnyPart] = [
            Thinking(text="secret", signature="sealed", extra={"id": "rs_1"}),
            Text(text="Hi"),
            ToolCall(id="c", name="f", arguments="{}"),
        ]
        answer = encode_parts("assistant", parts)
        result = encode_parts("tool", [ToolResult(call_id="c", content=(Text(text="8"),))])
        prompt = Prompt(model="gpt-4o", messages=(plain_message("user", "?"), answer, result))

        encoded = encode_openai(prompt, reasoning=TAKES_NONE)

        assert json.loads(encoded.body)["messages"][1:] == [
            {
                "role": "assistant",
                "content": "Hi",
                "tool_calls": [
                    {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
                ],
            },
            {"role": "tool", "tool_call_id": "c", "content": "8"},
        ]
        assert b"secret" not in encoded.body
        assert b"sealed" not in encoded.body
        assert [notice.code for notice in encoded.notices] == ["thinking_left_out"]

        elsewhere = encode_openai(prompt)
        assert json.loads(elsewhere.body)["messages"][1]["reasoning_content"] == "secret"
        assert b"sealed" not in elsewhere.body
        assert [notice.code for notice in elsewhere.notices] == ["signature_left_out"]

    @pytest.mark.parametrize("encode", [ask_anthropic, encode_bedrock])
    @pytest.mark.parametrize("dialect", ["responses", "openai"])
    def test_thinking_encrypted_by_openai_is_sent_only_to_openai(self, encode, dialect):
        answer = encode_parts(
            "assistant",
            [
                Thinking(text="secret", signature="sealed", extra={"id": "rs_1"}),
                RedactedThinking(data="sealed", extra={"id": "rs_2"}),
                Text(text="Hi"),
            ],
        )
        included = (plain_message("user", "?"), answer, plain_message("user", "!"))
        prompt = Prompt(model="anthropic.claude-sonnet-4", messages=included, dialect=dialect)

        encoded = encode(prompt)

        assert b"sealed" not in encoded.body
        assert b"secret" not in encoded.body
        assert b"Hi" in encoded.body
        assert "thinking_left_out" in [notice.code for notice in encoded.notices]

    def test_thinking_of_claude_is_sent_only_to_claude(self):
        """A client of this API that talks to Claude sends Claude's thinking as reasoning items."""
        parts: list[AnyPart] = [Thinking(text="Hm.", signature="signed"), Text(text="Hi")]
        heading = ResponseFields(id="resp_1", model="claude", created=7)
        answer = encode_answer(parts, stop_reason="end", usage=None, heading=heading)
        output = json.loads(answer)["output"]
        items = [{"role": "user", "content": "?"}, *output, {"role": "user", "content": "!"}]
        prompt = decode_request(body(input=items))

        to_claude = json.loads(ask_anthropic(prompt).body)
        to_openai = encode_responses(prompt)

        assert to_claude["messages"][1]["content"] == [
            {"type": "thinking", "thinking": "Hm.", "signature": "signed"},
            {"type": "text", "text": "Hi"},
        ]
        assert b"signed" not in to_openai.body
        assert [notice.code for notice in to_openai.notices] == ["thinking_left_out"]

    def test_encrypted_thinking_of_another_model_is_dropped_with_its_ids(self):
        raw = json.dumps({"role": "assistant", "content": [SEALED, SAID, CALL]}).encode()
        output = {"type": "function_call_output", "call_id": "c", "output": "8"}
        messages = (
            plain_message("user", "?"),
            Message(role="assistant", raw=raw, dialect="responses"),
            Message(
                role="tool",
                raw=json.dumps({"role": "tool", "content": [output]}).encode(),
                dialect="responses",
            ),
        )

        own_message = encode_responses(Prompt(model=MODEL, messages=messages))
        other = encode_responses(Prompt(model=MODEL, messages=messages, foreign=frozenset({1})))

        assert json.loads(own_message.body)["input"][1:] == [SEALED, SAID, CALL, output]
        sent = json.loads(other.body)["input"][1:]
        assert [item["type"] for item in sent] == [
            "message",
            "function_call",
            "function_call_output",
        ]
        assert all("id" not in item for item in sent)
        assert [notice.code for notice in other.notices] == ["thinking_left_out"]


def test_a_trigger_of_compaction_is_input_of_the_user():
    trigger = {"type": "compaction_trigger"}
    items = [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, trigger]

    prompt = decode_request(json.dumps({"model": MODEL, "input": items}).encode())

    assert [message.role for message in prompt.messages] == ["user", "assistant", "user"]
    (part,) = decode_parts(prompt.messages[-1])
    assert isinstance(part, Unknown)
    assert json.loads(encode_parts("user", (part,)).raw) == trigger
    sent = json.loads(encode_responses(prompt).body)
    assert sent["input"][-1] == trigger


@pytest.mark.parametrize("encode", [ask_anthropic, encode_openai])
def test_other_protocols_have_no_trigger_of_compaction(encode: Any):
    items = [{"role": "user", "content": "a"}, {"type": "compaction_trigger"}]
    prompt = decode_request(json.dumps({"model": MODEL, "input": items}).encode())

    with pytest.raises(NotExpressibleError, match="compaction_trigger"):
        encode(prompt)


@pytest.mark.parametrize(
    ("item", "expected"),
    [
        ({"type": "item_reference", "id": "msg_1"}, True),
        ({"type": "item_reference"}, True),
        ({"type": None, "id": "msg_1"}, True),
        ({"id": "msg_1"}, True),
        ({}, False),
        ({"type": None}, False),
        ({"id": "msg_1", "role": "user", "content": "x"}, False),
        ({"type": [], "id": "msg_1"}, False),
        ({"type": "message", "role": "user", "content": "item_reference"}, False),
        ("item_reference", False),
    ],
)
def test_references_are_recognised(item: Any, expected: bool):
    assert is_reference(item) is expected
    assert has_references([item]) is expected
    assert not has_references(item)
