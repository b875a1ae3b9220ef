"""Notices as a header has them."""

import json

import pytest

from cllm.core.notice import Notice
from cllm.server.turns.task import MAX_NOTICES_LENGTH, MAX_TEXT_LENGTH, encode_notices


def notice(path: str) -> Notice:
    return Notice(code="field_dropped", path=path, message=f"The field {path} was left out.")


def test_they_are_ascii_and_said_once():
    header = encode_notices([notice("ä\r\nX-Evil: 1"), notice("ä\r\nX-Evil: 1")])

    assert header.isascii()
    assert header.isprintable()
    assert [told["path"] for told in json.loads(header)] == ["ä\r\nX-Evil: 1"]


def test_there_are_as_many_as_fit_and_a_word_about_the_others():
    told = json.loads(encode_notices([notice(f"field {number}") for number in range(1000)]))

    assert told[-1]["code"] == "more_notices"
    assert told[-1]["message"] == f"{1001 - len(told)} more notices are not shown."
    assert len(json.dumps(told)) < 2 * MAX_NOTICES_LENGTH


def test_one_about_a_field_with_a_name_without_end_is_short_too():
    header = encode_notices([notice("x" * 1_000_000)])

    assert len(header) < MAX_NOTICES_LENGTH
    (told,) = json.loads(header)
    assert told["path"].endswith("...")


@pytest.mark.parametrize("letter", ["😀", "ä", '"', "\n", "\ud83d"])
def test_letters_are_counted_as_the_header_has_them(letter: str):
    header = encode_notices([notice(letter * 500)])

    (told,) = json.loads(header)
    assert len(header) < 2 * MAX_TEXT_LENGTH + 100
    assert len(json.dumps(told["path"])) > MAX_TEXT_LENGTH - 12
    assert set(told["path"].removesuffix("...")) == {letter}


def test_words_that_just_fit_are_said_whole():
    (told,) = json.loads(encode_notices([notice("ä" * (MAX_TEXT_LENGTH // 6))]))

    assert told["path"] == "ä" * (MAX_TEXT_LENGTH // 6)
