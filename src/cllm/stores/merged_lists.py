"""Merges the lists, search results and sums of several stores. Pure functions on values."""

from collections.abc import Iterable, Sequence

import msgspec

from cllm.core.conversation import Summary
from cllm.core.ports import MAX_MATCHES, Hits, Page, PathMatch, UsageSum
from cllm.core.reply import sum_costs
from cllm.stores.pagination import check_page_size, encode_cursor


def merge_pages(pages: Sequence[Page], *, limit: int, offset: int = 0) -> Page:
    """Merge pages that start at the same cursor and have up to `offset` + `limit` items each."""
    check_page_size(limit, "conversations")
    items = sort_summaries(item for page in pages for item in page.items)
    first = max(offset, 0)
    selected = items[first : first + limit]
    has_more = len(items) > first + limit or any(page.next_cursor is not None for page in pages)
    return Page(
        items=tuple(selected),
        notices=tuple(notice for page in pages for notice in page.notices),
        next_cursor=encode_cursor(selected[-1]) if selected and has_more else None,
    )


def sort_summaries(summaries: Iterable[Summary]) -> list[Summary]:
    """Sort as every store does: newest first, then by ID."""
    items = sorted(summaries, key=lambda summary: summary.id)
    items.sort(key=lambda summary: summary.updated_at, reverse=True)
    return items


def merge_hits(results: Sequence[Hits], *, limit: int, offset: int = 0) -> Hits:
    """Merge results that start at 0 and have up to `offset` + `limit` items each."""
    check_page_size(limit, "messages")
    items = [hit for hits in results for hit in hits.items]
    items.sort(key=lambda hit: hit.created_at, reverse=True)
    items.sort(key=lambda hit: -hit.relevance)
    first = max(offset, 0)
    return Hits(
        items=tuple(items[first : first + limit]),
        total=sum(hits.total for hits in results),
        more=any(hits.more for hits in results),
        notices=tuple(notice for hits in results for notice in hits.notices),
    )


def merge_usage(sums: Iterable[UsageSum]) -> tuple[UsageSum, ...]:
    """Add the sums with the same key."""
    totals: dict[str, UsageSum] = {}
    for one in sums:
        total = totals.get(one.key)
        totals[one.key] = one if total is None else _add_sums(total, one)
    return tuple(totals[key] for key in sorted(totals))


def _add_sums(total: UsageSum, one: UsageSum) -> UsageSum:
    return msgspec.structs.replace(
        total,
        calls=total.calls + one.calls,
        usage=total.usage + one.usage,
        cost=sum_costs((total.cost, one.cost)),
        unpriced=total.unpriced + one.unpriced,
    )


def merge_matches(results: Sequence[tuple[PathMatch, ...]]) -> tuple[PathMatch, ...]:
    """Select the matches of the first digest that any store has."""
    matches = [match for result in results for match in result]
    first = min((match.position for match in matches), default=0)
    return tuple(match for match in matches if match.position == first)[:MAX_MATCHES]
