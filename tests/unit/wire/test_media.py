"""Finding what a message holds beside words."""

import pytest

from cllm.core.message import Document, Image, Message, Text, plain_message
from cllm.core.prompt import Prompt
from cllm.wire.media import first_media, media_in
from cllm.wire.openai_parts import encode_parts

IMAGE = Image(media_type="image/png", data="iVBORw==")
PDF = Document(media_type="application/pdf", data="JVBERg==", name="a.pdf")


def prompt(*messages: Message) -> Prompt:
    return Prompt(model="m", messages=messages)


def test_a_prompt_of_words_holds_none():
    assert first_media(prompt(plain_message("user", "an image_url and a file"))) is None


@pytest.mark.parametrize(("part", "word"), [(IMAGE, "an image"), (PDF, "a file")])
def test_the_first_one_is_named_with_its_place(part, word):
    message = encode_parts("user", (Text(text="What is this?"), part, IMAGE))

    found = first_media(prompt(plain_message("user", "Hello"), message))

    assert found == ("messages[1]", word)


def test_they_are_found_in_their_order():
    message = encode_parts("user", (PDF, Text(text="and"), IMAGE))

    assert list(media_in(message)) == [PDF, IMAGE]


def test_they_are_found_in_a_tool_result_of_another_dialect():
    raw = (
        b'{"role":"user","content":[{"type":"tool_result","tool_use_id":"1","content":['
        b'{"type":"image","source":{"type":"url","url":"https://x.example/a.png"}}]}]}'
    )
    message = Message(role="user", raw=raw, dialect="anthropic")

    assert list(media_in(message)) == [Image(url="https://x.example/a.png")]


def test_a_document_that_is_a_text_is_words():
    raw = (
        b'{"role":"user","content":[{"type":"document","source":'
        b'{"type":"text","media_type":"text/plain","data":"Luna"}}]}'
    )
    message = Message(role="user", raw=raw, dialect="anthropic")

    assert list(media_in(message)) == []
