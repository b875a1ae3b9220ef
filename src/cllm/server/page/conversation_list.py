"""The list column: search field, filters and rows."""

import shlex
from collections.abc import Iterator, Sequence
from datetime import datetime
from html import escape, unescape
from itertools import groupby
from typing import Any, Literal
from urllib.parse import quote, urlencode

import msgspec
from markupsafe import Markup

from cllm.core.conversation import Summary
from cllm.core.errors import ConversationNotFoundError, UsageError
from cllm.core.notice import Notice
from cllm.core.ports import ArchiveFilter, Hit, Hits
from cllm.server.api.conversation_lists import list_page, publish_summary, search_page
from cllm.server.api.conversation_ref import find_conversation
from cllm.server.http.parameters import Count, ListQuery, SearchQuery, read_query
from cllm.server.page.figures import format_day, format_time
from cllm.server.page.layout import EMPTY, render
from cllm.server.page.texts import TEXTS
from cllm.server.state import ApiRequest
from cllm.stores.pagination import matches_filter

PAGE_SIZE = 100
MAX_BEFORE_MATCH = 16
FIRST_COMMANDS = ('cllm "Explain this error" < error.log', "cllm chat", "cllm demo")
SOURCES = ("", "shell", "chat", "api")
DAYS = ("", "1", "7", "30", "365")
ARCHIVE_FILTERS = ("active", "archived", "all")


class Selection(msgspec.Struct, frozen=True, kw_only=True):
    """The query of `/` and `/search`. An empty value selects everything, as a form sends it."""

    q: str = ""
    archive_filter: ArchiveFilter = "active"
    source: Literal["", "shell", "chat", "api"] = ""
    model: str = ""
    days: Literal["", "1", "7", "30", "365"] = ""
    cursor: str = ""
    offset: Count = 0

    @property
    def is_filtered(self) -> bool:
        return bool(self.source or self.model or self.days or self.archive_filter != "active")

    @property
    def filter_count(self) -> int:
        """The number of filters in the folded part of the form."""
        return sum((self.archive_filter != "active", bool(self.model), bool(self.days)))

    def url(self, **changes: Any) -> str:
        """Return the path and query of this selection, with other values."""
        values = msgspec.structs.asdict(msgspec.structs.replace(self, **changes))
        defaults = msgspec.structs.asdict(EVERYTHING)
        query = urlencode({key: value for key, value in values.items() if value != defaults[key]})
        path = "/search" if values["q"] else "/"
        return f"{path}?{query}" if query else path


EVERYTHING = Selection()


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
    state: str = "complete"
    model: str = ""
    is_hit: bool = False


class Day(msgspec.Struct, frozen=True, kw_only=True):
    """The rows of a day in UTC; the scripts group them by local days."""

    label: str
    rows: tuple[Row, ...]


class Empty(msgspec.Struct, frozen=True, kw_only=True):
    """What an empty list shows: why, and the commands that would fill it."""

    title: str
    text: str
    commands: tuple[str, ...]
    reset_url: str | None = None


class Rows(msgspec.Struct, frozen=True, kw_only=True):
    days: tuple[Day, ...]
    next_url: str | None = None
    status: str = ""
    notices: tuple[Notice, ...] = ()


def read_selection(request: ApiRequest) -> Selection:
    return read_query(request, Selection)


async def render_list(request: ApiRequest, selection: Selection = EVERYTHING) -> Markup:
    """Return the column: the form and the first page of rows."""
    return render(
        "list.html",
        rows=await render_rows(request, selection),
        selection=selection,
        sources=SOURCES,
        days=DAYS,
        archive_filters=ARCHIVE_FILTERS,
    )


async def render_rows(request: ApiRequest, selection: Selection = EVERYTHING) -> Markup:
    """Return one page of rows, and the link to the next page."""
    rows = await (_search if selection.q.strip() else _list)(request, selection)
    is_empty = not (rows.days or selection.cursor or selection.offset)
    empty = _describe_empty(selection, str(request.base_url).rstrip("/"))
    return render("rows.html", page=rows, is_empty=is_empty, empty=empty)


def _describe_empty(selection: Selection, address: str) -> Empty:
    if selection.q:
        word = shlex.quote(selection.q)
        return Empty(
            title=TEXTS["empty_search_title"],
            text=TEXTS["empty_search_text"],
            commands=(
                f"cllm search {word}",
                f"cllm conversations search --archived {word}",
                f"cllm {word}",
            ),
            reset_url=selection.url(q=""),
        )
    if selection.archive_filter == "archived":
        return Empty(
            title=TEXTS["empty_archive_title"],
            text=TEXTS["empty_archive_text"],
            commands=(
                "cllm conversations list",
                "cllm conversations archive ID",
                "cllm conversations unarchive ID",
            ),
            reset_url="/",
        )
    if selection.is_filtered:
        return Empty(
            title=TEXTS["empty_filter_title"],
            text=TEXTS["empty_filter_text"],
            commands=FIRST_COMMANDS,
            reset_url="/",
        )
    client = f"OPENAI_BASE_URL={address}/v1 python app.py"
    return Empty(
        title=TEXTS["empty_title"],
        text=TEXTS["empty_text"],
        commands=(*FIRST_COMMANDS[:2], client),
    )


async def render_row(request: ApiRequest, selection: Selection) -> Markup:
    """Return the row of the conversation in the path, empty if it is not in the selection."""
    ref = await find_conversation(request)
    try:
        summary = await ref.store.summary(ref.id, owner=ref.owner)
    except ConversationNotFoundError:
        return EMPTY
    if not matches_filter(summary, selection.archive_filter):
        return EMPTY
    return render("row.html", row=_build_row(publish_summary(summary, ref.prefix)))


async def _list(request: ApiRequest, selection: Selection) -> Rows:
    query = ListQuery(
        limit=PAGE_SIZE,
        archive_filter=selection.archive_filter,
        cursor=selection.cursor or None,
    )
    page, _ = await list_page(request, query)
    following = page.next_cursor
    return Rows(
        days=tuple(_group_by_day([_build_row(item) for item in page.items])),
        next_url=None if following is None else selection.url(cursor=following),
        notices=page.notices,
    )


async def _search(request: ApiRequest, selection: Selection) -> Rows:
    query = SearchQuery(
        q=selection.q,
        limit=PAGE_SIZE,
        offset=selection.offset,
        archive_filter=selection.archive_filter,
    )
    try:
        hits = await search_page(request, query)
    except UsageError:
        # While a person types, the query may have no word yet.
        return Rows(days=())
    end = selection.offset + len(hits.items)
    rows = tuple(map(_build_hit_row, hits.items))
    return Rows(
        days=(Day(label="", rows=rows),) if rows else (),
        next_url=selection.url(offset=end) if end < hits.total else None,
        status=_count_messages(hits) if rows else "",
        notices=hits.notices,
    )


def _count_messages(hits: Hits) -> str:
    if hits.total == 1:
        return TEXTS["search_count_one"]
    return TEXTS["search_count"].format(count=f"{hits.total}{'+' if hits.more else ''}")


def _group_by_day(rows: Sequence[Row]) -> Iterator[Day]:
    for label, group in groupby(rows, key=lambda row: format_day(row.time)):
        yield Day(label=label, rows=tuple(group))


def _build_row(summary: Summary) -> Row:
    return Row(
        id=summary.id,
        href=conversation_url(summary.id),
        title=summary.title or summary.name or TEXTS["untitled"],
        line="",
        time=summary.updated_at,
        clock=format_time(summary.updated_at),
        tokens="",
        cost="",
        model=summary.model or "",
    )


def _build_hit_row(hit: Hit) -> Row:
    return Row(
        id=hit.conversation,
        href=f"{conversation_url(hit.conversation)}?at={hit.sequence}#m-{hit.sequence}",
        title=hit.title or TEXTS["untitled"],
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
