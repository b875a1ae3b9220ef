"""The texts of `cllm conversations show`."""

from datetime import UTC, datetime

import pytest

from cllm.cli.conversations.show import _media_text, _message_lines, _system_text
from cllm.core.conversation import StoredConversation, SystemRecord
from cllm.core.message import Document, Image, plain_message

THEN = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (Image(url="https://a/b.png"), "[image: https://a/b.png]"),
        (Image(media_type="image/png", data="QUJD"), "[image: image/png, 3 bytes]"),
        (Image(media_type="image/png", data="QUI="), "[image: image/png, 2 bytes]"),
        (
            Document(media_type="application/pdf", data="QQ==", name="a.pdf"),
            "[file: a.pdf, 1 bytes]",
        ),
        (Document(media_type="application/pdf", file_id="f-1"), "[file: f-1]"),
        (Document(media_type="application/pdf"), "[file: no name]"),
    ],
)
def test_the_text_of_an_image_or_a_file(part, expected):
    assert _media_text(part) == expected


def test_a_message_without_media_is_its_text():
    assert list(_message_lines(plain_message("user", "Hello"))) == ["Hello"]
    assert list(_message_lines(plain_message("user", ""))) == []


def conversation(**fields) -> StoredConversation:
    return StoredConversation(id="demo", created_at=THEN, updated_at=THEN, turns=(), **fields)


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, "not recorded"),
        ({"system": plain_message("system", "A")}, "stored, source not recorded"),
        ({"system_record": SystemRecord(policy="dynamic")}, "dynamic"),
        (
            {"system_record": SystemRecord(policy="captured")},
            "none (none was configured when the conversation started)",
        ),
        (
            {
                "system": plain_message("system", "A"),
                "system_record": SystemRecord(policy="captured", source="--system"),
            },
            "captured, from --system",
        ),
    ],
)
def test_the_source_of_the_system_prompt(fields, expected):
    assert _system_text(conversation(**fields)) == expected
