from datetime import UTC, datetime, timedelta

import pytest

from cllm.core.conversation import Summary
from cllm.core.errors import UsageError
from cllm.core.notice import Notice
from cllm.stores.pagination import build_page, decode_cursor, encode_cursor

NOW = datetime(2026, 11, 16, tzinfo=UTC)
NOTICE = Notice(code="conversation_skipped", path="x", message="Skipped.")


def summary(key: str, minutes: int = 0) -> Summary:
    moment = NOW + timedelta(minutes=minutes)
    return Summary(id=key, created_at=NOW, updated_at=moment, message_count=0)


SUMMARIES = [summary("b"), summary("a"), summary("new", 2), summary("old", 1)]
OTHERS = SUMMARIES[:3]


def test_a_page_is_sorted_by_time_and_then_by_id():
    page = build_page(SUMMARIES, limit=10, cursor=None)
    assert [item.id for item in page.items] == ["new", "old", "a", "b"]
    assert page.next_cursor is None


def test_a_cursor_continues_after_the_last_item():
    first = build_page(OTHERS, limit=2, cursor=None, notices=(NOTICE,))
    assert [item.id for item in first.items] == ["new", "a"]
    assert first.notices == (NOTICE,)
    second = build_page(OTHERS, limit=2, cursor=first.next_cursor, notices=(NOTICE,))
    assert [item.id for item in second.items] == ["b"]
    assert (second.next_cursor, second.notices) == (None, ())


def test_an_offset_skips_the_newest():
    page = build_page(SUMMARIES, limit=1, cursor=None, offset=1)
    assert [item.id for item in page.items] == ["old"]
    negative = build_page(SUMMARIES, limit=1, cursor=None, offset=-5)
    assert [item.id for item in negative.items] == ["new"]


@pytest.mark.parametrize("limit", [0, -1])
def test_a_page_has_at_least_one_item(limit: int):
    with pytest.raises(UsageError, match="request 1 or more"):
        build_page(SUMMARIES, limit=limit, cursor=None)


def test_a_cursor_is_decoded_to_its_time_and_id():
    assert decode_cursor(encode_cursor(SUMMARIES[2])) == (NOW + timedelta(minutes=2), "new")


@pytest.mark.parametrize(
    "cursor", ["", "x", "2026-11-16", "2026-11-16T00:00:00~a", "2026-11-16T00:00:00+00:00", "~"]
)
def test_an_invalid_cursor_is_a_usage_error(cursor: str):
    with pytest.raises(UsageError, match="is not a cursor"):
        decode_cursor(cursor)
