"""Notices as a header has them."""

import json

from cllm.core.notice import Notice
from cllm.server.running import LONGEST_NOTICES, encode_notices


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
    assert told[-1]["message"] == f"There are {1001 - len(told)} notices more."
    assert len(json.dumps(told)) < 2 * LONGEST_NOTICES


def test_one_about_a_field_with_a_name_without_end_is_short_too():
    header = encode_notices([notice("x" * 1_000_000)])

    assert len(header) < LONGEST_NOTICES
    (told,) = json.loads(header)
    assert told["path"].endswith("...")
