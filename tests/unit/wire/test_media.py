"""Media in messages, media types, and base64 data."""

import pytest

from cllm.core.message import Document, Image, Message, Text, ToolResult, plain_message
from cllm.core.prompt import Prompt
from cllm.wire.errors import NotExpressibleError
from cllm.wire.media import (
    find_first_media,
    find_media,
    find_unanswered_media,
    normalize_base64,
    normalize_media_type,
    replace_media_by_text,
)
from cllm.wire.messages import OutgoingMessage, no_repair
from cllm.wire.openai.parts import encode_parts

IMAGE = Image(media_type="image/png", data="iVBORw==")
PDF = Document(media_type="application/pdf", data="JVBERg==", name="a.pdf")


def prompt(*messages: Message) -> Prompt:
    return Prompt(model="m", messages=messages)


def test_a_prompt_of_text_has_no_media():
    assert find_first_media(prompt(plain_message("user", "an image_url and a file"))) is None


@pytest.mark.parametrize(("part", "word"), [(IMAGE, "an image"), (PDF, "a file")])
def test_the_first_media_is_returned_with_its_path(part, word):
    message = encode_parts("user", (Text(text="What is this?"), part, IMAGE))

    found = find_first_media(prompt(plain_message("user", "Hello"), message))

    assert found == ("messages[1]", word)


def test_media_are_found_in_order():
    message = encode_parts("user", (PDF, Text(text="and"), IMAGE))

    assert list(find_media(message)) == [PDF, IMAGE]


def test_media_are_found_in_tool_results_of_any_dialect():
    raw = (
        b'{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":['
        b'{"type":"image","source":{"type":"url","url":"https://x.example/a.png"}}]}]}'
    )
    message = Message(role="user", raw=raw, dialect="anthropic")

    assert list(find_media(message)) == [Image(url="https://x.example/a.png")]


def test_a_text_document_is_not_media():
    raw = (
        b'{"role":"user","content":[{"type":"document","source":'
        b'{"type":"text","media_type":"text/plain","data":"Luna"}}]}'
    )
    message = Message(role="user", raw=raw, dialect="anthropic")

    assert list(find_media(message)) == []


def test_only_media_after_the_last_answer_are_unanswered():
    shown = encode_parts("user", (Text(text="What is this?"), IMAGE))
    answer = plain_message("assistant", "A cat.")

    assert find_unanswered_media(prompt(shown)) == ("messages[0]", "an image")
    assert find_unanswered_media(prompt(shown, answer, plain_message("user", "Thanks."))) is None


def test_media_in_tool_results_are_not_unanswered():
    raw = (
        b'{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":['
        b'{"type":"image","source":{"type":"url","url":"https://x.example/a.png"}}]}]}'
    )

    assert find_unanswered_media(prompt(Message(role="user", raw=raw, dialect="anthropic"))) is None


def test_media_are_replaced_by_text_with_a_notice():
    user = OutgoingMessage(role="user", parts=(Text(text="Look."), IMAGE), prompt_index=0)
    answer = OutgoingMessage(role="assistant", parts=(Text(text="I see."),), prompt_index=1)
    result = OutgoingMessage(
        role="tool", parts=(ToolResult(call_id="1", content=(PDF,)),), prompt_index=2
    )
    repaired = replace_media_by_text(no_repair)((user, answer, result))

    assert repaired.messages[0].parts[1] == Text(text="(an image, which this model cannot see)")
    assert repaired.messages[1] is answer
    assert repaired.messages[2].parts == (
        ToolResult(call_id="1", content=(Text(text="(a file, which this model cannot see)"),)),
    )
    assert [notice.code for notice in repaired.notices] == ["part_left_out"]


def test_a_history_without_media_is_unchanged():
    words = OutgoingMessage(role="user", parts=(Text(text="Hello"),))

    assert replace_media_by_text(no_repair)((words,)) == no_repair((words,))


@pytest.mark.parametrize(
    ("media_type", "expected"),
    [
        ("image/png", "image/png"),
        ("IMAGE/Jpg", "image/jpeg"),
        (" text/Plain ; charset=utf-8", "text/plain"),
        ("text/x-markdown", "text/markdown"),
        ("image/bmp", "image/bmp"),
        ("", ""),
        (None, ""),
    ],
)
def test_media_types_are_normalized(media_type, expected):
    assert normalize_media_type(media_type) == expected


def test_data_without_line_breaks_is_unchanged():
    image = Image(media_type="image/png", data="aGk=")

    assert normalize_base64(image, "aGk=") is image


def test_line_breaks_in_data_are_removed():
    assert normalize_base64(Document(data="aG\nk="), "aG\nk=").data == "aGk="


@pytest.mark.parametrize("data", ["", " ", "?", "abc", "aGk=aGk=", "é"])
def test_invalid_base64_is_an_error(data):
    with pytest.raises(NotExpressibleError, match="data of the document"):
        normalize_base64(Document(data=data), data)
