"""The list column: search field, filters and rows."""

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from html import escape, unescape
from itertools import groupby
from urllib.parse import quote

import msgspec
from markupsafe import Markup

from cllm.core.conversation import Summary
from cllm.core.errors import UsageError
from cllm.core.notice import Notice
from cllm.core.ports import Hit, Hits, Origin, Overview
from cllm.server.api.conversation_lists import (
    find_stores,
    find_titles,
    list_page,
    publish_summary,
    search_page,
)
from cllm.server.api.conversation_ref import StoreRef, find_conversation
from cllm.server.http.parameters import ListQuery, SearchQuery
from cllm.server.page.empty_list import ServerFacts, describe_empty_list
from cllm.server.page.figures import UNKNOWN, format_cost, format_day, format_time, format_tokens
from cllm.server.page.layout import EMPTY, render
from cllm.server.page.selection import ARCHIVE_FILTERS, DAYS, EVERYTHING, ORIGINS, Selection
from cllm.server.page.texts import TEXTS
from cllm.server.state import ApiRequest

PAGE_SIZE = 100
MAX_TITLES = 20
"""The newest conversations with a matching title that a search shows."""
MAX_BEFORE_MATCH = 16
MAX_LENGTH = 200
MARKS = re.compile(r"```\w*|[*`]+|(?:^|(?<=\s))(?:#{1,6}|>|-{3,})(?=\s)|\|[\s:|-]*")
"""Marks of Markdown in the start of a message: fences, emphasis, headings, quotes, tables."""
NO_OVERVIEW = Overview()


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A conversation or a matching message. `line` is text, or HTML with the words in `<b>`.

    `clock` is `time` in UTC; the scripts replace it by local time.
    """

    id: str
    href: str
    title: str
    line: str | Markup
    time: datetime
    clock: str
    tokens: str = ""
    cost: str = ""
    state: str | None = None
    model: str = ""
    is_hit: bool = False


class Day(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of a day in UTC; the scripts group them by local days."""

    label: str
    rows: tuple[Row, ...]


class Rows(msgspec.Struct, frozen=True, kw_only=True):
    days: tuple[Day, ...]
    next_url: str | None = None
    status: str = ""
    notices: tuple[Notice, ...] = ()


async def render_list(request: ApiRequest, selection: Selection = EVERYTHING) -> Markup:
    """Return the column: the form and the first page of rows."""
    return render(
        "list.html",
        rows=await render_rows(request, selection),
        selection=selection,
        origins=ORIGINS,
        days=DAYS,
        archive_filters=ARCHIVE_FILTERS,
    )


async def render_rows(request: ApiRequest, selection: Selection = EVERYTHING) -> Markup:
    """Return one page of rows, and the link to the next page."""
    rows = await (_search if selection.q.strip() else _list)(request, selection)
    is_empty = not (rows.days or selection.cursor or selection.offset)
    facts = ServerFacts(
        address=str(request.base_url).rstrip("/"),
        model=request.server.app.model,
        has_keys=bool(request.server.settings.keys),
    )
    empty = describe_empty_list(selection, facts)
    return render("rows.html", page=rows, is_empty=is_empty, empty=empty)


async def render_row(request: ApiRequest, selection: Selection) -> Markup:
    """Return the row of the conversation in the path, empty if it is not in the selection."""
    ref = await find_conversation(request)
    summary = await ref.store.summary(ref.id, owner=ref.owner)
    if not _is_selected(summary, ref, request, selection):
        return EMPTY
    overviews = await ref.store.read_overviews([summary.id], owner=ref.owner)
    overview = overviews.get(summary.id, NO_OVERVIEW)
    return render("row.html", row=_build_row(publish_summary(summary, ref.prefix), overview))


def _is_selected(
    summary: Summary, ref: StoreRef, request: ApiRequest, selection: Selection
) -> bool:
    unnamed: Origin = "shell" if ref.store is request.server.files else "client"
    return selection.includes(summary, unnamed=unnamed, now=request.server.clock())


async def _list(request: ApiRequest, selection: Selection) -> Rows:
    since = selection.since(request.server.clock())
    query = ListQuery(
        limit=PAGE_SIZE,
        archive_filter=selection.archive_filter,
        origin=selection.origin or None,
        model=selection.model or None,
        since=None if since is None else since.isoformat(),
        cursor=selection.cursor or None,
    )
    page, _ = await list_page(request, query)
    overviews = await _read_overviews(request, page.items)
    rows = [_build_row(item, overviews.get(item.id, NO_OVERVIEW)) for item in page.items]
    following = page.next_cursor
    return Rows(
        days=tuple(_group_by_day(rows)),
        next_url=None if following is None else selection.url(cursor=following),
        notices=page.notices,
    )


async def _read_overviews(request: ApiRequest, items: Sequence[Summary]) -> Mapping[str, Overview]:
    """Return the overviews by public ID."""
    overviews: dict[str, Overview] = {}
    rest = [item.id for item in items]
    # The store without a prefix is the first; every ID starts with its prefix.
    for ref in reversed(find_stores(None, request)):
        own = [one.removeprefix(ref.prefix) for one in rest if one.startswith(ref.prefix)]
        rest = [one for one in rest if not one.startswith(ref.prefix)]
        if own:
            found = await ref.store.read_overviews(own, owner=ref.owner)
            overviews |= {f"{ref.prefix}{own_id}": value for own_id, value in found.items()}
    return overviews


async def _search(request: ApiRequest, selection: Selection) -> Rows:
    filters = selection.filters(request.server.clock())
    query = SearchQuery(
        q=selection.words,
        limit=PAGE_SIZE,
        offset=selection.offset,
        archive_filter=selection.archive_filter,
    )
    try:
        hits = await search_page(request, query, **filters)
    except UsageError:
        # While a person types, the query may have no word yet.
        return Rows(days=())
    titles = () if selection.offset else await _find_titles(request, selection, hits)
    end = selection.offset + len(hits.items)
    rows = (*titles, *map(_build_hit_row, hits.items))
    return Rows(
        days=(Day(label="", rows=rows),) if rows else (),
        next_url=selection.url(offset=end) if end < hits.total else None,
        status=_count_results(len(titles), hits) if rows else _describe_nothing(hits),
        notices=hits.notices,
    )


async def _find_titles(request: ApiRequest, selection: Selection, hits: Hits) -> tuple[Row, ...]:
    """Return the conversations whose title has the words, except those with one of the hits."""
    page = await find_titles(
        request,
        " ".join(selection.q.split()),
        limit=MAX_TITLES,
        archive_filter=selection.archive_filter,
        **selection.filters(request.server.clock()),
    )
    found = {hit.conversation for hit in hits.items}
    items = [item for item in page.items if item.id not in found]
    overviews = await _read_overviews(request, items)
    return tuple(_build_title_row(one, overviews.get(one.id, NO_OVERVIEW)) for one in items)


def _count_results(titles: int, hits: Hits) -> str:
    """Return the number of titles and messages."""
    counts = [_count_messages(hits)] if hits.total or not titles else []
    if titles:
        text = TEXTS["search_titles_one"] if titles == 1 else TEXTS["search_titles"]
        counts.insert(0, text.format(count=titles))
    return ", ".join(counts)


def _describe_nothing(hits: Hits) -> str:
    return TEXTS["search_incomplete"] if hits.more else ""


def _count_messages(hits: Hits) -> str:
    if hits.total == 1 and not hits.more:
        return TEXTS["search_count_one"]
    return TEXTS["search_count"].format(count=f"{hits.total}{'+' if hits.more else ''}")


def _group_by_day(rows: Sequence[Row]) -> Iterator[Day]:
    for label, group in groupby(rows, key=lambda row: format_day(row.time)):
        yield Day(label=label, rows=tuple(group))


def _build_row(summary: Summary, overview: Overview) -> Row:
    return Row(
        id=summary.id,
        href=conversation_url(summary.id),
        title=(summary.title or summary.name or TEXTS["untitled"])[:MAX_LENGTH],
        line=_remove_marks(overview.last_line),
        time=summary.updated_at,
        clock=format_time(summary.updated_at),
        tokens=format_tokens(overview.tokens or None),
        cost=_format_cost(overview),
        state=overview.state,
        model=(summary.model or "")[:MAX_LENGTH],
    )


def _remove_marks(line: str) -> str:
    """Return the text of a line of Markdown."""
    return " ".join(MARKS.sub(" ", line).split())


def _format_cost(overview: Overview) -> str:
    """Return the cost; with a plus sign if replies of unknown price are left out."""
    if overview.unpriced and not overview.cost:
        return UNKNOWN
    return format_cost(overview.cost) + ("+" if overview.unpriced else "")


def _build_title_row(summary: Summary, overview: Overview) -> Row:
    row = _build_row(summary, overview)
    return msgspec.structs.replace(row, clock=format_day(row.time), tokens="", cost="", is_hit=True)


def _build_hit_row(hit: Hit) -> Row:
    return Row(
        id=hit.conversation,
        href=f"{conversation_url(hit.conversation)}?at={hit.sequence}#m-{hit.sequence}",
        title=(hit.title or TEXTS["untitled"])[:MAX_LENGTH],
        line=_shorten_start(hit.highlight),
        time=hit.created_at,
        clock=format_day(hit.created_at),
        is_hit=True,
    )


def _shorten_start(highlight: str) -> Markup:
    """Return the snippet with its first match near the start, so that a narrow row shows it."""
    before, tag, rest = highlight.partition("<b>")
    text = unescape(before)
    if tag and len(text) > MAX_BEFORE_MATCH:
        before = f"…{escape(text[-MAX_BEFORE_MATCH:])}"
    return Markup(before + tag + rest)  # noqa: S704 - the search escapes the text


def conversation_url(conversation_id: str) -> str:
    return f"/c/{quote(conversation_id, safe=':')}"
