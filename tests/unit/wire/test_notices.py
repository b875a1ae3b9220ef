"""Every notice code of the source has a line in the reference.

The codes are read from the source by `tests/notice_codes.py`.
"""

import re
from pathlib import Path

from tests.notice_codes import collect_notice_codes, find_codes

ROOT = Path(__file__).parents[3]
REFERENCE = ROOT / "docs" / "reference" / "notices.md"
LINE = re.compile(r"^\| `(\w+)` \| \S", re.MULTILINE)
OTHER_WORDS = re.compile(r"dropped|moved_|added_|changed_|wrapped|needs_|block_")


def test_the_reference_lists_exactly_the_codes_of_the_source():
    explained = LINE.findall(REFERENCE.read_text(encoding="utf-8"))
    assert set(explained) == collect_notice_codes()
    assert explained == sorted(set(explained))


def test_codes_are_found_in_every_form():
    source = """
SENTENCES = {"why": ("a", "A sentence.")}
NOTICES = {"b": "A sentence."}
notices.add("c", "path", "message")
notes.add("d", "path", "message")
self._notes.add("e" if x else "f", "path", "message")
notices.add("g", "path", "message")
Notice(code="h", message="")
CODE = "i"
Notice(code=CODE, message="")
Problem(code="not a notice")
seen.add("not a notice")
"""
    assert set(find_codes(source)) == set("abcdefghi")


def test_codes_name_the_subject_before_the_action():
    assert [code for code in collect_notice_codes() if OTHER_WORDS.search(code)] == []
