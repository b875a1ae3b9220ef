"""Notices of one request, and system messages between replies."""

import pytest

from cllm.core.message import Role
from cllm.core.notice import Notice
from cllm.wire.messages import NoticeMerger, OutgoingMessage, find_stray_system


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
