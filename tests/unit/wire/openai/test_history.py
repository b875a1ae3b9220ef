"""Messages of other protocols, encoded as OpenAI messages."""

import json
import string
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cllm.core.message import (
    AnyPart,
    CacheMark,
    Document,
    Image,
    RedactedThinking,
    Refusal,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Unknown,
)
from cllm.core.notice import Notice
from cllm.wire.messages import EncodedRequest, OutgoingMessage
from cllm.wire.openai.parts import decode_parts
from cllm.wire.openai.request import decode_request, encode_request

WORDS = st.text(alphabet=st.characters(codec="utf-8"), min_size=1, max_size=20)
NAMES = st.text(alphabet=string.ascii_letters + "_-", min_size=1, max_size=20)
CALL = ToolCall(id="c1", name="weather", arguments='{"city":"Bern"}')
OTHER_CALL = ToolCall(id="c2", name="weather", arguments='{"city":"Basel"}')


def user(*parts: AnyPart) -> OutgoingMessage:
    return OutgoingMessage(role="user", parts=parts)


def assistant(*parts: AnyPart) -> OutgoingMessage:
    return OutgoingMessage(role="assistant", parts=parts)


def result(call_id: str, *content: Any, **fields: Any) -> ToolResult:
    texts = tuple(Text(text=part) if isinstance(part, str) else part for part in content)
    return ToolResult(call_id=call_id, content=texts, **fields)


def encode(*messages: OutgoingMessage, **fields: Any) -> EncodedRequest:
    given = {"model": "gpt-4o", "system": None, "parameters": {}, "stream": False, **fields}
    indexed = [
        msgspec.structs.replace(message, prompt_index=n) for n, message in enumerate(messages)
    ]
    return encode_request(messages=indexed, **given)


def encode_messages(*messages: OutgoingMessage, **fields: Any) -> list[dict[str, Any]]:
    messages_sent: list[dict[str, Any]] = json.loads(encode(*messages, **fields).body)["messages"]
    return messages_sent


def codes(notices: tuple[Notice, ...]) -> list[str]:
    return [notice.code for notice in notices]


class TestToolResults:
    def test_results_follow_their_calls_in_order_before_user_text(self):
        messages = encode_messages(
            assistant(CALL, OTHER_CALL),
            user(Text(text="And now?"), result("c2", "rain"), result("c1", "sun")),
        )

        assert messages[1:] == [
            {"role": "tool", "tool_call_id": "c1", "content": "sun"},
            {"role": "tool", "tool_call_id": "c2", "content": "rain"},
            {"role": "user", "content": "And now?"},
        ]

    def test_results_of_several_messages_precede_other_messages(self):
        messages = encode_messages(
            assistant(CALL, OTHER_CALL),
            user(Text(text="Wait.")),
            user(result("c2", "rain")),
            user(result("c1", "sun")),
        )

        assert [message["role"] for message in messages] == ["assistant", "tool", "tool", "user"]
        assert [message.get("tool_call_id") for message in messages[1:3]] == ["c1", "c2"]

    def test_the_same_id_in_a_later_turn_is_paired_by_position(self):
        messages = encode_messages(
            assistant(CALL),
            user(result("c1", "first")),
            assistant(CALL),
            user(result("c1", "second")),
        )

        assert [message["content"] for message in messages] == [None, "first", None, "second"]

    def test_an_image_in_a_result_moves_to_a_user_message_with_a_notice(self):
        image = Image(media_type="image/png", data="QUJD")
        encoded = encode(assistant(CALL), user(result("c1", "a map:", image), Text(text="See?")))
        messages = json.loads(encoded.body)["messages"]

        assert messages[1] == {"role": "tool", "tool_call_id": "c1", "content": "a map:"}
        assert messages[2]["content"] == [
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}},
            {"type": "text", "text": "See?"},
        ]
        assert encoded.notices[0].code == "media_moved"
        assert encoded.notices[0].path == "messages[1].content[0].content[1]"

    def test_a_result_with_only_an_image_is_an_empty_tool_message(self):
        messages = encode_messages(
            assistant(CALL), user(result("c1", Image(url="https://x/y.png")))
        )

        assert messages[1]["content"] == ""
        assert messages[2]["role"] == "user"

    @pytest.mark.parametrize("text", ["", " "])
    def test_a_blank_result_is_sent(self, text):
        assert encode_messages(assistant(CALL), user(result("c1", text)))[1]["role"] == "tool"

    def test_the_error_flag_of_a_result_is_dropped_with_a_notice(self):
        encoded = encode(assistant(CALL), user(result("c1", "no such city", is_error=True)))

        assert json.loads(encoded.body)["messages"][1] == {
            "role": "tool",
            "tool_call_id": "c1",
            "content": "no such city",
        }
        assert codes(encoded.notices) == ["error_flag_left_out"]

    def test_a_call_without_arguments_has_an_empty_object(self):
        call = encode_messages(assistant(ToolCall(id="c", name="now", arguments="")))[0][
            "tool_calls"
        ][0]

        assert call["function"] == {"name": "now", "arguments": "{}"}

    def test_an_id_that_openai_refuses_has_one_alias_on_call_and_result(self):
        long = "functions.Bash:" + "0" * 200
        encoded = encode(
            assistant(ToolCall(id=long, name="f", arguments="{}"), CALL),
            user(result("c1", "a"), result(long, "b")),
        )
        call, first, second = json.loads(encoded.body)["messages"]

        assert call["tool_calls"][0]["id"] == first["tool_call_id"]
        assert len(first["tool_call_id"]) <= 40
        assert second["tool_call_id"] == "c1"
        assert encoded.ids == {first["tool_call_id"]: long}
        assert not encoded.notices

    def test_an_openai_result_has_the_alias_of_its_call(self):
        long = "x" * 41
        raw = msgspec.json.encode({"role": "tool", "tool_call_id": long, "content": "b"})
        call, answer = encode_messages(
            assistant(ToolCall(id=long, name="f", arguments="{}")),
            OutgoingMessage(role="tool", parts=(result(long, "b"),), raw=raw),
        )

        assert call["tool_calls"][0]["id"] == answer["tool_call_id"] != long

    def test_an_id_of_openai_is_never_changed(self):
        long = "x" * 41
        call = ToolCall(id=long, name="f", arguments="{}")
        raw = b'{"role":"assistant","content":null,"tool_calls":[]}'
        messages = encode_messages(
            OutgoingMessage(role="assistant", parts=(call,), raw=raw), user(result(long, "b"))
        )

        assert messages[1]["tool_call_id"] == long

    def test_results_before_any_call_keep_their_position(self):
        messages = encode_messages(user(Text(text="Hi")), user(result("c9", "x")))

        assert [message["role"] for message in messages] == ["user", "tool"]

    def test_a_foreign_block_in_a_result_is_dropped_with_a_notice(self):
        foreign = Unknown(dialect="anthropic", raw=b'{"type":"search_result"}')
        own = Unknown(dialect="openai", raw=b'{"type":"new"}')
        encoded = encode(assistant(CALL), user(result("c1", "a", foreign, own)))

        assert json.loads(encoded.body)["messages"][1]["content"] == [
            {"type": "text", "text": "a"},
            {"type": "new"},
        ]
        assert codes(encoded.notices) == ["part_left_out"]

    def test_cache_control_and_fields_of_a_result_are_dropped_with_notices(self):
        marked = result("c1", "a", cache=CacheMark(), extra={"toolset_name": "x"})
        encoded = encode(assistant(CALL), user(marked))

        assert b"toolset" not in encoded.body
        assert codes(encoded.notices) == ["cache_mark_left_out", "field_left_out"]


class TestMessages:
    def test_thinking_is_never_visible_text(self):
        encoded = encode(
            assistant(
                Thinking(text="secret plan", signature="s"),
                RedactedThinking(data="xyz"),
                Text(text="Hello"),
            )
        )

        assert json.loads(encoded.body)["messages"] == [{"role": "assistant", "content": "Hello"}]
        assert b"secret" not in encoded.body
        assert b"xyz" not in encoded.body
        assert codes(encoded.notices) == ["thinking_left_out"]

    def test_content_is_null_only_with_tool_calls(self):
        assert encode_messages(assistant(CALL))[0]["content"] is None
        assert encode_messages(assistant(Text(text=" \n"), CALL))[0]["content"] is None
        assert encode_messages(assistant(Text(text="")))[0]["content"] == ""
        assert encode_messages(assistant(Thinking(text="hm")))[0]["content"] == ""
        assert encode_messages(assistant())[0]["content"] == ""

    def test_white_space_is_sent(self):
        assert encode_messages(assistant(Text(text=" ")))[0]["content"] == " "
        assert (
            len(encode_messages(user(Text(text="a"), Text(text=""), Text(text="\n")))[0]["content"])
            == 2
        )

    def test_a_refusal_stays_a_refusal(self):
        assert encode_messages(assistant(Refusal(text="No.")))[0]["content"] == [
            {"type": "refusal", "refusal": "No."}
        ]

    def test_images_and_documents_are_openais_parts(self):
        content = encode_messages(
            user(
                Image(url="https://x/y.png", extra={"image_url": {"detail": "low"}}),
                Document(media_type="application/pdf", data="QUJD", name="a.pdf"),
                Document(media_type="application/pdf", data="QUJD"),
                Document(data="QUJD"),
                Document(file_id="file-1"),
                Document(text="plain"),
            )
        )[0]["content"]

        data = "data:application/pdf;base64,QUJD"
        assert content == [
            {"type": "image_url", "image_url": {"url": "https://x/y.png", "detail": "low"}},
            {"type": "file", "file": {"filename": "a.pdf", "file_data": data}},
            {"type": "file", "file": {"filename": "document.pdf", "file_data": data}},
            {
                "type": "file",
                "file": {
                    "filename": "document.octet-stream",
                    "file_data": "data:application/octet-stream;base64,QUJD",
                },
            },
            {"type": "file", "file": {"file_id": "file-1"}},
            {"type": "text", "text": "plain"},
        ]

    @pytest.mark.parametrize(
        ("part", "code"),
        [
            (Document(text="a", name="b"), "document_name_left_out"),
            (Unknown(dialect="anthropic", raw=b"{}"), "part_left_out"),
            (Text(text="a", cache=CacheMark()), "cache_mark_left_out"),
            (Text(text="a", extra={"citations": []}), "field_left_out"),
            (Image(url="https://x", extra={"transformations": []}), "field_left_out"),
            (Refusal(text="No."), "part_left_out"),
            (CALL, "part_left_out"),
        ],
    )
    def test_user_parts_that_openai_refuses_are_reported(self, part, code):
        encoded = encode(user(Text(text="Hi"), part))

        assert codes(encoded.notices) == [code]
        assert encoded.notices[0].path.startswith("messages[0].content[1]")
        assert json.loads(encoded.body)["messages"][0]["role"] == "user"

    @pytest.mark.parametrize("part", [Image(url="https://x"), Document(file_id="f"), result("c")])
    def test_assistant_parts_that_openai_refuses_are_reported(self, part):
        assert codes(encode(assistant(Text(text="Hi"), part)).notices) == ["part_left_out"]

    def test_an_unknown_openai_block_is_sent(self):
        raw = b'{"type":"input_audio","input_audio":{"data":"QUJD","format":"wav"}}'

        assert raw in encode(user(Unknown(dialect="openai", raw=raw))).body

    def test_cache_control_is_dropped_with_one_notice(self):
        marked = Text(text="a", cache=CacheMark(ttl="1h"))
        encoded = encode(user(marked), assistant(marked), user(marked), system=[marked])

        assert b"cache_control" not in encoded.body
        assert codes(encoded.notices) == ["cache_mark_left_out"]
        assert encoded.notices[0].path == "system[0]"
        assert "4 times" in encoded.notices[0].message

    def test_a_system_prompt_of_blocks_keeps_its_blocks(self):
        messages = encode_messages(
            user(Text(text="Hi")), system=[Text(text="One."), Text(text="Two.")]
        )

        assert messages[0] == {
            "role": "system",
            "content": [{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}],
        }

    def test_a_system_prompt_of_one_text_is_a_string(self):
        assert encode_messages(system=[Text(text="One.")]) == [
            {"role": "system", "content": "One."}
        ]

    @pytest.mark.parametrize("system", [None, [], [Text(text=" ")]])
    def test_an_empty_system_prompt_is_not_sent(self, system):
        assert encode_messages(user(Text(text="Hi")), system=system) == [
            {"role": "user", "content": "Hi"}
        ]

    def test_a_system_message_keeps_its_position(self):
        messages = encode_messages(
            user(Text(text="Hi")), OutgoingMessage(role="system", parts=(Text(text="Be brief."),))
        )

        assert messages[1] == {"role": "system", "content": "Be brief."}

    def test_an_openai_message_is_sent_unchanged(self):
        raws = [
            b'{"content":"\\u00e4 1.0e5","role":"user","name":"z"}',
            b'{"role":"assistant","content":null,"tool_calls":[{"id":"a","x":1.50}]}',
            b'{"role":"tool", "tool_call_id":"a","content":"ok"}',
        ]
        roles: list[Any] = ["user", "assistant", "tool"]
        parts: list[Any] = [(), (ToolCall(id="a", name="f", arguments=""),), (result("a", "ok"),)]
        body = encode(
            *(
                OutgoingMessage(role=role, parts=part, raw=raw)
                for role, part, raw in zip(roles, parts, raws, strict=True)
            )
        ).body

        assert b",".join(raws) in body

    @pytest.mark.parametrize("stream", [True, False])
    def test_stream_options_are_sent_only_with_a_stream(self, stream):
        given = {"stream": not stream, "stream_options": {"include_obfuscation": False}, "n": 1}
        body = json.loads(encode(user(), parameters=given, stream=stream).body)
        options = {"include_usage": True, "include_obfuscation": False}

        assert body.get("stream_options") == (options if stream else None)
        assert body.get("stream") == (True if stream else None)
        assert body["n"] == 1

    def test_parameters_never_replace_the_model_or_the_messages(self):
        given: dict[str, Any] = {"model": "other", "messages": [], "stream_options": None}
        body = json.loads(encode(user(Text(text="Hi")), parameters=given, stream=True).body)

        assert body["model"] == "gpt-4o"
        assert len(body["messages"]) == 1

    @given(
        st.lists(
            st.one_of(
                st.lists(st.builds(Text, text=WORDS), min_size=1, max_size=3).map(
                    lambda parts: user(*parts)
                ),
                st.lists(
                    st.builds(Text, text=WORDS.filter(str.strip))
                    | st.builds(ToolCall, id=NAMES, name=NAMES, arguments=st.just("{}")),
                    min_size=1,
                    max_size=3,
                    unique_by=lambda part: getattr(part, "id", id(part)),
                ).map(lambda parts: assistant(*sorted(parts, key=lambda p: type(p).__name__))),
            ),
            max_size=6,
        )
    )
    def test_messages_survive_encoding(self, answers):
        messages = [each for message in answers for each in (message, user(Text(text="And?")))]
        encoded = encode(*messages)
        prompt = decode_request(encoded.body)

        assert [decode_parts(message) for message in prompt.messages] == [
            message.parts for message in messages
        ]
        assert encoded == encode(*messages)
        assert encoded.notices == ()
