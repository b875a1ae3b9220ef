"""Notices in a response header."""

import json

import pytest

from cllm.core.notice import Notice
from cllm.server.turns.task import MAX_NOTICES_LENGTH, MAX_TEXT_LENGTH, encode_notices


def notice(path: str) -> Notice:
    return Notice(code="field_dropped", path=path, message=f"The field {path} was removed.")


def test_notices_are_ascii_and_unique():
    header = encode_notices([notice("ä\r\nX-Evil: 1"), notice("ä\r\nX-Evil: 1")])

    assert header.isascii()
    assert header.isprintable()
    assert [one["path"] for one in json.loads(header)] == ["ä\r\nX-Evil: 1"]


def test_notices_that_do_not_fit_are_counted():
    notices = json.loads(encode_notices([notice(f"field {number}") for number in range(1000)]))

    assert notices[-1]["code"] == "more_notices"
    assert notices[-1]["message"] == f"{1001 - len(notices)} more notices are not shown."
    assert len(json.dumps(notices)) < 2 * MAX_NOTICES_LENGTH


def test_a_very_long_path_is_shortened():
    header = encode_notices([notice("x" * 1_000_000)])

    assert len(header) < MAX_NOTICES_LENGTH
    (shown,) = json.loads(header)
    assert shown["path"].endswith("...")


@pytest.mark.parametrize("character", ["😀", "ä", '"', "\n", "\ud83d"])
def test_the_limit_counts_encoded_characters(character: str):
    header = encode_notices([notice(character * 500)])

    (shown,) = json.loads(header)
    assert len(header) < 2 * MAX_TEXT_LENGTH + 100
    assert len(json.dumps(shown["path"])) > MAX_TEXT_LENGTH - 12
    assert set(shown["path"].removesuffix("...")) == {character}


def test_a_text_that_just_fits_is_complete():
    (shown,) = json.loads(encode_notices([notice("ä" * (MAX_TEXT_LENGTH // 6))]))

    assert shown["path"] == "ä" * (MAX_TEXT_LENGTH // 6)
