from datetime import UTC, datetime, timedelta

import pytest

from cllm.core.conversation import Summary
from cllm.core.errors import UsageError
from cllm.core.notice import Notice
from cllm.core.ports import MAX_MATCHES, Hit, Hits, Page, PathMatch, UsageSum
from cllm.core.reply import Usage
from cllm.stores.merged_lists import merge_hits, merge_matches, merge_pages, merge_usage
from cllm.stores.pagination import decode_cursor

NOW = datetime(2026, 11, 16, tzinfo=UTC)
NOTICES = tuple(Notice(code=code, message=code) for code in ("first", "second"))


def summary(key: str, minutes: int = 0) -> Summary:
    return Summary(
        id=key, created_at=NOW, updated_at=NOW + timedelta(minutes=minutes), message_count=0
    )


def page(*items: Summary, more: bool = False, notices: tuple[Notice, ...] = ()) -> Page:
    return Page(items=items, notices=notices, next_cursor="more" if more else None)


def hit(key: str, relevance: float, minutes: int = 0) -> Hit:
    return Hit(
        conversation=key,
        title=None,
        sequence=1,
        role="user",
        snippet="",
        created_at=NOW + timedelta(minutes=minutes),
        relevance=relevance,
    )


def match(key: str, position: int) -> PathMatch:
    return PathMatch(
        conversation=key,
        turn="t",
        ordinal=0,
        position=position,
        sequence=1,
        message_count=1,
        state="complete",
    )


def ids(merged: Page) -> list[str]:
    return [item.id for item in merged.items]


def test_pages_are_merged_by_time_and_then_by_id():
    merged = merge_pages(
        [page(summary("b"), summary("d")), page(summary("c", 1), summary("a"))], limit=9
    )
    assert ids(merged) == ["c", "a", "b", "d"]
    assert merged.next_cursor is None


def test_the_cursor_is_the_last_item_of_the_merged_page():
    merged = merge_pages([page(summary("a", 2)), page(summary("b", 1), summary("c"))], limit=2)
    assert ids(merged) == ["a", "b"]
    assert decode_cursor(merged.next_cursor or "") == (NOW + timedelta(minutes=1), "b")


def test_a_page_that_is_not_the_last_of_its_store_is_not_the_last_of_both():
    merged = merge_pages([page(summary("a", 2), more=True), page()], limit=1)
    assert merged.next_cursor is not None


def test_an_offset_skips_items_of_both_pages():
    merged = merge_pages(
        [page(summary("a", 2)), page(summary("b", 1), summary("c"))], limit=1, offset=2
    )
    assert ids(merged) == ["c"]
    assert merged.next_cursor is None


def test_the_notices_of_both_pages_remain():
    merged = merge_pages([page(notices=NOTICES[:1]), page(notices=NOTICES[1:])], limit=1)
    assert merged.notices == NOTICES


def test_an_empty_page_is_refused():
    with pytest.raises(UsageError):
        merge_pages([], limit=0)
    with pytest.raises(UsageError):
        merge_hits([], limit=0)


def test_hits_are_merged_by_relevance_and_then_by_time():
    results = [
        Hits(items=(hit("a", 0.9), hit("b", 0.1)), total=2, notices=NOTICES[:1]),
        Hits(items=(hit("c", 0.9, 1), hit("d", 0.5)), total=7, more=True, notices=NOTICES[1:]),
    ]
    merged = merge_hits(results, limit=2, offset=1)
    assert [one.conversation for one in merged.items] == ["a", "d"]
    assert (merged.total, merged.more, merged.notices) == (9, True, NOTICES)


def test_usage_is_added_by_key():
    one = UsageSum(key="b", calls=1, usage=Usage(input=1), cost=None, unpriced=1)
    two = UsageSum(key="b", calls=2, usage=Usage(input=2), cost=0.5)
    three = UsageSum(key="a", calls=3, usage=Usage(output=1), cost=1.0)
    merged = merge_usage([one, two, three])
    assert [total.key for total in merged] == ["a", "b"]
    assert merged[1] == UsageSum(key="b", calls=3, usage=Usage(input=3), cost=0.5, unpriced=1)


def test_only_matches_of_the_first_digest_remain():
    merged = merge_matches([(match("a", 1),), (match("b", 0), match("c", 0))])
    assert [one.conversation for one in merged] == ["b", "c"]
    assert merge_matches([(), ()]) == ()


def test_matches_are_bounded():
    matches = tuple(match("a", 0) for _ in range(MAX_MATCHES))
    assert len(merge_matches([matches, matches])) == MAX_MATCHES
