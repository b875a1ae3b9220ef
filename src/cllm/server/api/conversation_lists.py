"""Lists and searches conversations: those of the server's store, and the conversation files.

A server without keys on loopback merges both into one list. IDs of files have the prefix `files:`,
which is part of the order and of the cursor.
"""

from collections.abc import Awaitable, Callable
from typing import Any, Self, TypeVar

import msgspec
from msgspec.structs import replace

from cllm.core.conversation import Summary
from cllm.core.errors import StoreUnavailableError
from cllm.core.notice import Notice
from cllm.core.ports import Hits, Page
from cllm.server.api.conversation_ref import StoreRef, find_store, hide_paths
from cllm.server.http.parameters import ListQuery, SearchQuery, StoreName, read_timestamp
from cllm.server.state import ApiRequest
from cllm.stores.merged_lists import merge_hits, merge_pages
from cllm.stores.pagination import decode_cursor, format_cursor

T = TypeVar("T")
FILES: StoreName = "files"
MAX_ITEMS = 2**31
AFTER_ALL_IDS = "\U0010ffff"
LEFT_OUT = Notice(
    code="store_unavailable",
    path=FILES,
    message="The conversation files are left out, because their folder cannot be read; ask the "
    "server's operator to check it.",
)


def find_stores(name: str | None, request: ApiRequest) -> tuple[StoreRef, ...]:
    """Return the stores of a list: the named one, or all."""
    first = find_store(name, request)
    if name is not None or not request.server.lists_files:
        return (first,)
    return first, find_store(FILES, request)


class _Span(msgspec.Struct, frozen=True, kw_only=True):
    """The items to read from each store, and how many of the merged ones to skip."""

    limit: int
    offset: int
    skipped: int

    @classmethod
    def of(cls, query: ListQuery | SearchQuery, refs: tuple[StoreRef, ...]) -> Self:
        if len(refs) == 1:
            return cls(limit=query.limit, offset=query.offset, skipped=0)
        limit = min(query.limit + query.offset, MAX_ITEMS)
        return cls(limit=limit, offset=0, skipped=query.offset)


async def list_page(request: ApiRequest, query: ListQuery) -> tuple[Page, int]:
    """Return the page, with public IDs, and the number of conversations in all pages."""
    refs = find_stores(query.store, request)
    span = _Span.of(query, refs)
    selection: dict[str, Any] = {
        "archive_filter": query.archive_filter,
        "source": query.source,
        "side": query.side,
        "model": query.model,
        "since": read_timestamp(query.since, field="since"),
        "origin": query.origin,
    }

    async def read_page(ref: StoreRef) -> Page:
        page = await ref.store.list_conversations(
            owner=ref.owner,
            limit=span.limit,
            offset=span.offset,
            cursor=None if query.cursor is None else localize_cursor(query.cursor, ref.prefix),
            **selection,
        )
        items = tuple(publish_summary(item, ref.prefix) for item in page.items)
        return replace(page, items=items, notices=hide_paths(page.notices, ref))

    async def count(ref: StoreRef) -> int:
        return await ref.store.count_conversations(owner=ref.owner, **selection)

    pages, notices = await read_stores(refs, read_page)
    counts, _ = await read_stores(refs, count)
    page = merge_pages(pages, limit=query.limit, offset=span.skipped)
    return replace(page, notices=(*page.notices, *notices)), sum(counts)


async def search_page(request: ApiRequest, query: SearchQuery, **selection: Any) -> Hits:
    """Return the hits, with public IDs, in the selected conversations."""
    refs = find_stores(query.store, request)
    span = _Span.of(query, refs)

    async def search(ref: StoreRef) -> Hits:
        hits = await ref.store.search(
            query.q,
            owner=ref.owner,
            archive_filter=query.archive_filter,
            limit=span.limit,
            offset=span.offset,
            **selection,
        )
        items = tuple(
            replace(hit, conversation=f"{ref.prefix}{hit.conversation}") for hit in hits.items
        )
        return replace(hits, items=items, notices=hide_paths(hits.notices, ref))

    results, notices = await read_stores(refs, search)
    hits = merge_hits(results, limit=query.limit, offset=span.skipped)
    return replace(hits, notices=(*hits.notices, *notices))


async def find_titles(request: ApiRequest, title: str, *, limit: int, **selection: Any) -> Page:
    """Return the newest selected conversations whose title contains a text, with public IDs."""

    async def read_page(ref: StoreRef) -> Page:
        page = await ref.store.list_conversations(
            owner=ref.owner, title=title, limit=limit, **selection
        )
        return replace(
            page, items=tuple(publish_summary(item, ref.prefix) for item in page.items), notices=()
        )

    pages, _ = await read_stores(find_stores(None, request), read_page)
    return merge_pages(pages, limit=limit)


async def read_stores(
    refs: tuple[StoreRef, ...], read: Callable[[StoreRef], Awaitable[T]]
) -> tuple[list[T], tuple[Notice, ...]]:
    """Return the results of all stores.

    Unreadable files are a notice, unless only files are requested.
    """
    results = [await read(refs[0])]
    try:
        results += [await read(ref) for ref in refs[1:]]
    except StoreUnavailableError:
        return results, (LEFT_OUT,)
    return results, ()


def publish_summary(summary: Summary, prefix: str) -> Summary:
    """Return the summary with the IDs that clients see."""
    if not prefix:
        return summary
    parent = summary.parent
    if parent is not None:
        parent = replace(parent, conversation=f"{prefix}{parent.conversation}")
    return replace(summary, id=f"{prefix}{summary.id}", parent=parent)


def localize_cursor(cursor: str, prefix: str) -> str:
    """Return the cursor for the store whose public IDs have this prefix.

    At the time of the cursor, a public ID is before or after all IDs of another prefix.
    """
    updated_at, last_id = decode_cursor(cursor)
    if last_id.startswith(prefix):
        return format_cursor(updated_at, last_id.removeprefix(prefix))
    return format_cursor(updated_at, AFTER_ALL_IDS if last_id > prefix else "")
