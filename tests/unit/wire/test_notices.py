"""One vocabulary of notices: every code that the source can produce has its line in the reference.

The codes are read from the source by `tests/notice_codes.py`.
"""

import re
from pathlib import Path

import pytest
from tests.notice_codes import collect_notice_codes, find_codes

from cllm.core.notice import Notice
from cllm.wire.messages import NoticeMerger

ROOT = Path(__file__).parents[3]
REFERENCE = ROOT / "docs" / "reference" / "notices.md"
LINE = re.compile(r"^\| `(\w+)` \| \S", re.MULTILINE)
OTHER_WORDS = re.compile(r"dropped|moved_|added_|changed_|wrapped|needs_|block_")


def test_every_code_that_the_source_produces_is_explained_and_no_other():
    explained = LINE.findall(REFERENCE.read_text(encoding="utf-8"))
    assert set(explained) == collect_notice_codes()
    assert explained == sorted(set(explained))


def test_the_codes_are_read_from_every_form_they_are_written_in():
    source = """
SENTENCES = {"why": ("a", "A sentence.")}
NOTICES = {"b": "A sentence."}
notices.add("c", "path", "message")
notes.add("d", "path", "message")
self._notes.add("e" if x else "f", "path", "message")
under_way.changed("g", 3)
Notice(code="h", message="")
CODE = "i"
Notice(code=CODE, message="")
Problem(code="not a notice")
seen.add("not a notice")
"""
    assert set(find_codes(source)) == set("abcdefghi")


def test_a_code_says_what_became_of_something_in_one_order_of_words():
    assert [code for code in collect_notice_codes() if OTHER_WORDS.search(code)] == []


class TestNotes:
    def test_the_same_thing_in_several_places_is_one_notice(self):
        notes = NoticeMerger({"why": ("part_left_out", "It was left out.")})
        notes.report("why", "messages[1]")
        notes.report("why", "messages[4]")
        notes.add("part_left_out", "system", "Another was left out.")
        assert notes.notices() == (
            Notice(code="part_left_out", path="messages[1]", message="It was left out. (2 times)"),
            Notice(code="part_left_out", path="system", message="Another was left out."),
        )

    def test_the_same_sentence_about_another_thing_is_another_notice(self):
        notes = NoticeMerger({"field": ("field_left_out", "There is no such field.")})
        notes.report("field", "a", subject="a")
        notes.report("field", "b", subject="b")
        assert [notice.path for notice in notes.notices()] == ["a", "b"]

    def test_a_reason_without_a_sentence_is_a_mistake_of_ours(self):
        with pytest.raises(KeyError):
            NoticeMerger().report("why", "messages[0]")

    def test_notices_of_others_are_taken_as_they_are(self):
        notes = NoticeMerger()
        notice = Notice(code="a", path="p", message="m")
        notes.extend([notice])
        assert notes.notices() == (notice,)
