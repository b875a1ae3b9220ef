"""Messages of every dialect in a conversation file, with their originals."""

import json
from datetime import UTC, datetime
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.message_strategies import messages

from cllm.core.conversation import StoredConversation, Turn
from cllm.core.message import Dialect, Message, Role, plain_message
from cllm.wire.conversation_file.codec import (
    decode_conversation,
    decode_summary,
    encode_conversation,
)

NOW = datetime(2026, 11, 15, 12, tzinfo=UTC)
PNG = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "QUJD"}}
PNG_FORM = {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}}


def message_of(role: Role, content: Any, dialect: Dialect = "anthropic") -> Message:
    side = "assistant" if role == "assistant" else "user"
    raw = msgspec.json.encode({"role": side, "content": content})
    return Message(role=role, raw=raw, dialect=dialect)


def result(call_id: str, content: Any = "ok") -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content}


def conversation(*turns: tuple[Message, ...], system: Message | None = None) -> StoredConversation:
    turns_made = tuple(
        Turn(id=f"t{at}", place=f"t{at}", state="complete", messages=given, started_at=NOW)
        for at, given in enumerate(turns)
    )
    return StoredConversation(
        id="demo", created_at=NOW, updated_at=NOW, turns=turns_made, system=system
    )


def written(original: StoredConversation) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(encode_conversation(original))
    return document


def read(document: dict[str, Any]) -> StoredConversation:
    data = msgspec.json.encode(document)
    known: dict[str, Any] = {"conversation_id": "demo", "path": "demo.json", "modified_at": NOW}
    decoded = decode_conversation(data, **known).conversation
    assert decode_summary(data, **known).message_count == decoded.message_count
    return decoded


def form(*given: Message) -> list[dict[str, Any]]:
    """The file's messages; what was given is what is read again."""
    original = conversation(given)
    document = written(original)
    assert read(document) == original
    forms: list[dict[str, Any]] = document["messages"]
    return forms


CALLS = message_of(
    "assistant",
    [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "Let me see.", "cache_control": {"type": "ephemeral"}},
        {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}},
        {"type": "tool_use", "id": "b", "name": "g", "input": {}},
    ],
)
RESULTS = message_of("user", [result("a"), result("b", [PNG]), {"type": "text", "text": "Go on."}])
LOOP = (plain_message("user", "Hi"), CALLS, RESULTS, plain_message("assistant", "Done."))


def test_tool_calls_have_their_names_and_arguments():
    assert form(CALLS) == [
        {
            "role": "assistant",
            "content": "Let me see.",
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "f", "arguments": '{"x":1}'}},
                {"id": "b", "type": "function", "function": {"name": "g", "arguments": "{}"}},
            ],
        }
    ]


def test_each_tool_result_is_a_separate_message_before_the_rest():
    assert form(RESULTS) == [
        {"role": "tool", "tool_call_id": "a", "content": "ok"},
        {"role": "tool", "tool_call_id": "b", "content": ""},
        {"role": "user", "content": [PNG_FORM, {"type": "text", "text": "Go on."}]},
    ]


def test_a_single_tool_result_is_one_message():
    assert form(message_of("user", [result("a", "sun")])) == [
        {"role": "tool", "tool_call_id": "a", "content": "sun"}
    ]


def test_tool_results_of_bedrock_are_encoded_the_same_way():
    content = [
        {"toolResult": {"toolUseId": "a", "content": [{"json": {"x": 1}}], "status": "error"}},
        {"toolResult": {"toolUseId": "b", "content": [{"text": "p"}, {"text": "q"}]}},
    ]
    texts = [{"type": "text", "text": "p"}, {"type": "text", "text": "q"}]
    assert form(message_of("user", content, "bedrock")) == [
        {"role": "tool", "tool_call_id": "a", "content": '{"x":1}'},
        {"role": "tool", "tool_call_id": "b", "content": texts},
    ]


@pytest.mark.parametrize(
    ("source", "more", "expected"),
    [
        (
            {"type": "base64", "media_type": "application/pdf", "data": "QUJD"},
            {"title": "a.pdf"},
            {
                "type": "file",
                "file": {
                    "filename": "a.pdf",
                    "file_data": "data:application/pdf;base64,QUJD",
                },
            },
        ),
        (
            {"type": "base64", "media_type": "application/pdf", "data": "QUJD"},
            {},
            {
                "type": "file",
                "file": {
                    "filename": "document.pdf",
                    "file_data": "data:application/pdf;base64,QUJD",
                },
            },
        ),
        ({"type": "file", "file_id": "f1"}, {}, {"type": "file", "file": {"file_id": "f1"}}),
        (
            {"type": "text", "media_type": "text/plain", "data": "plain"},
            {"title": "t"},
            {"type": "text", "text": "plain"},
        ),
        ({"type": "url", "url": "https://x/y"}, {}, {"type": "text", "text": "https://x/y"}),
    ],
)
def test_a_document_is_a_file_or_text(
    source: dict[str, str], more: dict[str, str], expected: dict[str, Any]
):
    given = [{"type": "text", "text": "See:"}, {"type": "document", "source": source, **more}]
    (message,) = form(message_of("user", given))
    assert message == {"role": "user", "content": [{"type": "text", "text": "See:"}, expected]}


def test_content_that_openai_does_not_have_is_only_in_the_original():
    given = [
        {"type": "thinking", "thinking": "secret", "signature": "s"},
        {"type": "redacted_thinking", "data": "secret"},
        {"type": "server_tool_use", "id": "s", "name": "secret", "input": {}},
    ]
    assert form(message_of("assistant", given)) == [{"role": "assistant", "content": ""}]


def test_an_unreadable_message_is_stored_with_its_text():
    assert form(message_of("user", "words", "bedrock")) == [{"role": "user", "content": "words"}]


def test_a_turn_owns_all_file_messages_of_its_messages():
    original = conversation(
        LOOP, LOOP, system=message_of("system", [{"type": "text", "text": "S"}])
    )
    document = written(original)
    assert [turn["messages"] for turn in document["metadata"]["cllm"]["turns"]] == [6, 6]
    assert [extra.get("span", 1) for extra in document["metadata"]["cllm"]["extras"]] == [
        1,
        1,
        3,
        1,
        3,
    ]
    assert read(document) == original


def test_an_edited_tool_result_replaces_its_original_message():
    document = written(conversation(LOOP))
    document["messages"][2]["content"] = "corrected"
    edited = read(document)
    assert [message.role for message in edited.messages] == [
        "user",
        "assistant",
        "tool",
        "tool",
        "user",
        "assistant",
    ]
    assert edited.messages[1] == CALLS
    assert {message.dialect for message in edited.messages[2:]} == {"openai"}
    assert edited.messages[2].text == "corrected"
    assert written(edited)["messages"] == document["messages"]


def test_a_deleted_tool_result_leaves_the_others_unchanged():
    document = written(conversation(LOOP))
    del document["messages"][3]
    edited = read(document)
    assert [message.dialect for message in edited.messages] == [
        "openai",
        "anthropic",
        "openai",
        "openai",
        "openai",
    ]


def test_the_original_of_several_moved_messages_is_found():
    original = conversation((plain_message("user", "one"), plain_message("assistant", "1")), LOOP)
    document = written(original)
    del document["messages"][:2]
    assert read(document).turns == original.turns[1:]


def test_tool_results_never_start_a_turn():
    document = written(conversation(LOOP, LOOP))
    del document["metadata"]["cllm"]["turns"]
    assert [turn.messages for turn in read(document).turns] == [LOOP, LOOP]


def test_a_record_that_splits_a_message_does_not_match():
    original = conversation(LOOP)
    document = written(original)
    forms = [
        Message(role=each["role"], raw=msgspec.json.encode(each)) for each in document["messages"]
    ]
    halves = written(conversation(tuple(forms[:3]), tuple(forms[3:])))
    document["metadata"]["cllm"]["turns"] = halves["metadata"]["cllm"]["turns"]
    edited = read(document)
    assert edited.messages == original.messages
    assert [len(turn.messages) for turn in edited.turns] == [4]


def test_a_record_with_a_negative_count_does_not_match():
    document = written(conversation((), LOOP))
    document["metadata"]["cllm"]["turns"][0]["messages"] = -1
    assert [turn.messages for turn in read(document).turns] == [LOOP]


@pytest.mark.parametrize("span", [0, -1, 3, 10**9])
def test_an_invalid_span_matches_nothing(span: int):
    document = written(conversation((CALLS,)))
    document["metadata"]["cllm"]["extras"][0]["span"] = span
    assert [message.dialect for message in read(document).messages] == ["openai"]


def test_an_original_of_a_plain_text_is_found():
    document = written(conversation((message_of("assistant", [{"type": "text", "text": "ok"}]),)))
    assert "span" not in document["metadata"]["cllm"]["extras"][0]
    assert document["messages"] == [{"role": "assistant", "content": "ok"}]
    assert read(document).messages[0].dialect == "anthropic"


KEPT = st.lists(st.lists(messages(), min_size=1, max_size=5).map(tuple), max_size=3).map(
    lambda turns: conversation(*turns)
)


@settings(max_examples=100, deadline=None)
@given(KEPT)
def test_messages_of_every_dialect_are_read_back(original: StoredConversation):
    assert read(written(original)) == original


@settings(max_examples=100, deadline=None)
@given(KEPT, st.data())
def test_an_edit_of_any_message_is_read(original: StoredConversation, data: st.DataObject):
    document = written(original)
    forms = document["messages"]
    if not forms:
        return
    at = data.draw(st.integers(0, len(forms) - 1))
    forms[at]["content"] = "edited by hand"
    edited = read(document)
    assert [m for m in edited.messages if m.text == "edited by hand"] == [
        Message(role=message.role, raw=message.raw)
        for message in edited.messages
        if message.text == "edited by hand"
    ]
    assert written(edited)["messages"] == forms
    untouched = [m for m in edited.messages if m.dialect != "openai"]
    foreign = [m for m in original.messages if m.dialect != "openai"]
    assert len(foreign) - len(untouched) <= 1
