"""Messages of any protocol as OpenAI messages in a conversation file."""

import json
from typing import Any

import pytest

from cllm.core.message import Dialect, Message, Role, plain_message
from cllm.wire.conversation_file.forms import openai_forms

PNG = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "AA=="}}


def forms(role: Role, content: Any, dialect: Dialect = "anthropic") -> list[dict[str, Any]]:
    raw = json.dumps({"role": role, "content": content}).encode()
    return [form.json() for form in openai_forms(Message(role=role, raw=raw, dialect=dialect))]


def result(content: Any) -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": "a", "content": content}


def test_an_openai_message_loses_only_its_reasoning():
    raw = b'{"role":"assistant","content":"Hi","reasoning":"hm","odd":1}'

    (form,) = openai_forms(Message(role="assistant", raw=raw))

    assert form.json() == {"role": "assistant", "content": "Hi", "odd": 1}
    assert openai_forms(plain_message("user", "Hi")) == (plain_message("user", "Hi"),)


def test_a_system_message_has_its_text():
    assert forms("system", [{"type": "text", "text": "S"}]) == [{"role": "system", "content": "S"}]


def test_an_assistant_has_text_and_calls_without_thinking():
    content = [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "text", "text": "a", "cache_control": {"type": "ephemeral"}},
        {"type": "tool_use", "id": "a", "name": "f", "input": {}},
    ]

    (form,) = forms("assistant", content)

    assert form["content"] == "a"
    assert form["tool_calls"][0]["function"] == {"name": "f", "arguments": "{}"}


def test_each_result_is_a_message_and_its_media_follow():
    first, second = forms("user", [result([{"type": "text", "text": "sun"}, PNG])])

    assert first == {"role": "tool", "tool_call_id": "a", "content": "sun"}
    assert second["content"][0]["type"] == "image_url"


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ({"type": "text", "media_type": "text/plain", "data": "words"}, "words"),
        ({"type": "url", "url": "https://x/y"}, "https://x/y"),
    ],
)
def test_a_document_without_data_is_text(source, expected):
    assert forms("user", [{"type": "document", "source": source}])[0]["content"] == expected


def test_a_document_with_data_gets_a_name():
    source = {"type": "base64", "media_type": "application/pdf", "data": "AA=="}

    (form,) = forms("user", [{"type": "document", "source": source}])

    assert form["content"][0]["file"]["filename"] == "document.pdf"


def test_a_message_that_cannot_be_decoded_has_its_text():
    assert forms("tool", 5, "bedrock")[0]["role"] == "user"
