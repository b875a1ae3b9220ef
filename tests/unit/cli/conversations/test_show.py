"""The texts of `cllm conversations show`."""

from datetime import UTC, datetime

import pytest

from cllm.cli.conversations.show import (
    LAST_TURN,
    _media_text,
    _message_lines,
    _system_text,
    choose_turn,
    content_text,
    head_lines,
)
from cllm.core.conversation import Branch, StoredConversation, SystemRecord, Turn
from cllm.core.errors import SequenceNotFoundError, TurnNotFoundError, UsageError
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
        (
            {"system_record": SystemRecord(policy="dynamic")},
            "dynamic (each request sends its own; none is stored)",
        ),
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
        (
            {
                "system": plain_message("system", "--- Context: A ---"),
                "system_record": SystemRecord(policy="captured", source="none"),
            },
            "captured, only the output of the context commands",
        ),
    ],
)
def test_the_source_of_the_system_prompt(fields, expected):
    assert _system_text(conversation(**fields)) == expected


def make_turn(name: str) -> Turn:
    messages = (plain_message("user", "Q"), plain_message("assistant", "A"))
    return Turn(id=name, place=name, state="complete", messages=messages, started_at=THEN)


def test_a_turn_is_found_by_number_and_id():
    stored = StoredConversation(
        id="demo",
        created_at=THEN,
        updated_at=THEN,
        turns=(make_turn("one"), make_turn("two")),
        variants=(make_turn("three"),),
    )

    assert choose_turn(stored, LAST_TURN).id == "two"
    assert choose_turn(stored, "2").id == "one"
    assert choose_turn(stored, "three").id == "three"
    with pytest.raises(SequenceNotFoundError):
        choose_turn(stored, "5")
    with pytest.raises(TurnNotFoundError):
        choose_turn(stored, "none")
    with pytest.raises(UsageError, match="no messages yet"):
        choose_turn(conversation(), LAST_TURN)


def test_the_head_names_what_is_special():
    plain = list(head_lines(conversation()))
    special = list(
        head_lines(
            conversation(
                title="Cats",
                archived_at=THEN,
                source="codex",
                parent=Branch(conversation="pets", sequence=4),
                variants=(make_turn("a"),),
            )
        )
    )

    assert [line.split(":")[0] for line in special if line not in plain] == [
        *("Title", "Archived", "Source", "Parent", "Variants")
    ]


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ("Hello", "Hello"),
        (None, ""),
        ([{"type": "text", "text": "A"}, {"type": "image_url"}, 3], "A\n[image_url]"),
    ],
)
def test_content_that_is_not_a_text_is_named(content, expected):
    assert content_text(content) == expected
