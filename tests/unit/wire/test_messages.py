"""Notices of one request, and arguments that arrive in pieces."""

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cllm.core.message import Role
from cllm.core.notice import Notice
from cllm.wire.messages import (
    NoticeMerger,
    ObjectScanner,
    OutgoingMessage,
    find_stray_system,
    is_json_object,
)


class TestNoticeMerger:
    def test_equal_notices_are_counted(self):
        notes = NoticeMerger({"why": ("part_left_out", "It was left out.")})
        notes.report("why", "messages[1]")
        notes.report("why", "messages[4]")
        notes.add("part_left_out", "system", "Another was left out.")
        assert notes.notices() == (
            Notice(code="part_left_out", path="messages[1]", message="It was left out. (2 times)"),
            Notice(code="part_left_out", path="system", message="Another was left out."),
        )

    def test_another_subject_is_another_notice(self):
        notes = NoticeMerger({"field": ("field_left_out", "There is no such field.")})
        notes.report("field", "a", subject="a")
        notes.report("field", "b", subject="b")
        assert [notice.path for notice in notes.notices()] == ["a", "b"]

    def test_an_unknown_reason_is_an_error(self):
        with pytest.raises(KeyError):
            NoticeMerger().report("why", "messages[0]")

    def test_notices_of_other_codecs_are_added(self):
        notes = NoticeMerger()
        notice = Notice(code="a", path="p", message="m")
        notes.extend([notice])
        assert notes.notices() == (notice,)


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text('"\\{}[]a ', max_size=6),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.text(max_size=3), values),
    max_leaves=6,
)
_SCRAPS = st.text('{}[]"\\:,a1 \n', max_size=12)
_TEXTS = st.one_of(
    st.builds(json.dumps, _VALUES),
    st.builds("".join, st.lists(st.builds(json.dumps, _VALUES) | _SCRAPS, max_size=3)),
)


@given(
    text=_TEXTS, cuts=st.lists(st.integers(0, 40), max_size=8), checked=st.sets(st.integers(0, 9))
)
def test_pieces_are_an_object_if_their_text_is(text: str, cuts: list[int], checked: set[int]):
    places = [0, *sorted(min(cut, len(text)) for cut in cuts), len(text)]
    pieces: list[str] = []
    scanner = ObjectScanner(pieces)
    for number, (begin, end) in enumerate(pairwise(places)):
        pieces.append(text[begin:end])
        if number not in checked:
            assert scanner.is_object() == is_json_object("".join(pieces))

    assert scanner.is_object() == is_json_object(text)


@pytest.mark.parametrize("text", ['{"a": "}"}', '{"\\"": {"b": [1]}}', ' {"a": "\\\\"}\n', "{}"])
def test_single_characters_are_scanned(text: str):
    pieces: list[str] = []
    scanner = ObjectScanner(pieces)
    for letter in text:
        pieces.append(letter)
        assert scanner.is_object() == is_json_object("".join(pieces))

    assert scanner.is_object()
    pieces.append("x")
    assert not scanner.is_object()


@pytest.mark.parametrize(
    ("roles", "expected"),
    [
        ("su", set()),
        ("usa", set()),
        ("uasu", set()),
        ("uas", {2}),
        ("uassa", {2, 3}),
        ("uasaus", {2}),
    ],
)
def test_system_messages_without_a_user_turn_are_found(roles, expected):
    names: dict[str, Role] = {"s": "system", "u": "user", "a": "assistant"}
    messages = [OutgoingMessage(role=names[role], parts=()) for role in roles]

    assert find_stray_system(messages) == expected
