from datetime import UTC, datetime, timedelta

import pytest

from cllm.core.conversation import Summary
from cllm.core.errors import UsageError
from cllm.core.notice import Notice
from cllm.stores.pagination import build_page, decode_cursor, encode_cursor, matches_filter

NOW = datetime(2026, 11, 16, tzinfo=UTC)
NOTICE = Notice(code="conversation_skipped", path="x", message="Skipped.")


def summary(key: str, minutes: int = 0, *, archived: bool = False) -> Summary:
    moment = NOW + timedelta(minutes=minutes)
    return Summary(
        id=key,
        created_at=NOW,
        updated_at=moment,
        message_count=0,
        archived_at=moment if archived else None,
    )


SUMMARIES = [summary("b"), summary("a"), summary("new", 2), summary("old", 1, archived=True)]


def test_a_page_is_sorted_by_time_and_then_by_id():
    page = build_page(SUMMARIES, archive_filter="all", limit=10, cursor=None)
    assert [item.id for item in page.items] == ["new", "old", "a", "b"]
    assert page.next_cursor is None


def test_a_cursor_continues_after_the_last_item():
    first = build_page(SUMMARIES, archive_filter="active", limit=2, cursor=None, notices=(NOTICE,))
    assert [item.id for item in first.items] == ["new", "a"]
    assert first.notices == (NOTICE,)
    second = build_page(
        SUMMARIES, archive_filter="active", limit=2, cursor=first.next_cursor, notices=(NOTICE,)
    )
    assert [item.id for item in second.items] == ["b"]
    assert (second.next_cursor, second.notices) == (None, ())


def test_an_offset_skips_the_newest():
    page = build_page(SUMMARIES, archive_filter="all", limit=1, cursor=None, offset=1)
    assert [item.id for item in page.items] == ["old"]
    negative = build_page(SUMMARIES, archive_filter="all", limit=1, cursor=None, offset=-5)
    assert [item.id for item in negative.items] == ["new"]


@pytest.mark.parametrize("limit", [0, -1])
def test_a_page_has_at_least_one_item(limit: int):
    with pytest.raises(UsageError, match="request 1 or more"):
        build_page(SUMMARIES, archive_filter="all", limit=limit, cursor=None)


def test_the_filter_selects_by_archive_time():
    active, archived = SUMMARIES[0], SUMMARIES[3]
    assert [matches_filter(each, "active") for each in (active, archived)] == [True, False]
    assert [matches_filter(each, "archived") for each in (active, archived)] == [False, True]
    assert matches_filter(archived, "all")


def test_a_cursor_is_decoded_to_its_time_and_id():
    assert decode_cursor(encode_cursor(SUMMARIES[2])) == (NOW + timedelta(minutes=2), "new")


@pytest.mark.parametrize(
    "cursor", ["", "x", "2026-11-16", "2026-11-16T00:00:00~a", "2026-11-16T00:00:00+00:00", "~"]
)
def test_an_invalid_cursor_is_a_usage_error(cursor: str):
    with pytest.raises(UsageError, match="is not a cursor"):
        decode_cursor(cursor)
