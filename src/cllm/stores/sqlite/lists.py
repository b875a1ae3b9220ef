"""Lists, searches and usage sums in SQLite.

A damaged row becomes a notice and does not hide other rows.
"""

import sqlite3
from collections.abc import Sequence
from contextlib import suppress
from datetime import datetime
from types import NoneType
from typing import Any

import msgspec

from cllm.core.conversation import LOCAL_OWNER, Summary
from cllm.core.notice import Notice
from cllm.core.ports import (
    ConversationCounts,
    Hits,
    Overview,
    Page,
    PathMatch,
    UsageBy,
    UsageSum,
)
from cllm.stores.filters import ListFilter, SearchFilter
from cllm.stores.overviews import decode_overview
from cllm.stores.pagination import check_page_size, decode_cursor, encode_cursor
from cllm.stores.search import (
    SearchMatch,
    build_match,
    build_ranked_hits,
    owner_term,
    parse_query,
)
from cllm.stores.sql.paths import decode_matches, search_digests
from cllm.stores.sql.rows import (
    SUMMARY_COLUMNS,
    Row,
    UnreadableRowError,
    decode_number,
    decode_role,
    decode_sum,
)
from cllm.stores.sqlite import statements as sql
from cllm.stores.sqlite.connection import SqliteBase
from cllm.stores.sqlite.reader import (
    REPLACEABLE_COLUMNS,
    SQLITE_CODEC,
    decode_lossy,
    fetch_rows,
    with_replacements,
)

MAX_BIGINT = 2**62
NEXT_PAGE_ROWS = 1000
_TYPES: dict[str, tuple[type, ...]] = {
    "id": (str,),
    "message_count": (int,),
    "side": (int,),
    "parent_id": (str, NoneType),
    "parent_sequence": (int, NoneType),
    **dict.fromkeys(REPLACEABLE_COLUMNS, (str, NoneType)),
}
_NAME_AT = SUMMARY_COLUMNS.index("name")
_SUMMARY_TYPES = tuple(
    (SUMMARY_COLUMNS.index(column), frozenset(kinds)) for column, kinds in _TYPES.items()
)


class SqliteLists(SqliteBase):
    async def list_conversations(
        self,
        *,
        owner: str = LOCAL_OWNER,
        limit: int = 100,
        cursor: str | None = None,
        offset: int = 0,
        **filters: Any,
    ) -> Page:
        """Return one page of summaries; a row that cannot be read becomes a notice.

        A page of only unreadable rows would have no cursor, so it extends to the first readable
        row.
        """
        check_page_size(limit, "conversations")
        max_items, first = min(limit, MAX_BIGINT), min(max(offset, 0), MAX_BIGINT)
        selected = ListFilter(**filters)

        def read(db: sqlite3.Connection) -> Page:
            size, skip = max_items, first
            items: list[Summary] = []
            notices: list[Notice] = []
            while True:
                rows = _fetch_page(db, owner, selected, cursor, (size + 1, skip))
                used = _decode_page(rows[:size], max_items, items, notices)
                has_more = len(rows) > used
                if items or not has_more:
                    break
                skip += used
                size = max(size, NEXT_PAGE_ROWS)
            next_cursor = encode_cursor(items[-1]) if has_more else None
            return Page(items=tuple(items), notices=tuple(notices), next_cursor=next_cursor)

        return await self._read_settled(owner, None, read)

    async def count_conversations(self, *, owner: str = LOCAL_OWNER, **filters: Any) -> int:
        selected = ListFilter(**filters)
        statement, values = sql.COUNT[selected.archive_filter], _encode_filter(owner, selected)
        rows = await self._reader.read(lambda db: fetch_rows(db, statement, values))
        count: int = rows[0][0]
        return count

    async def read_overviews(
        self, ids: Sequence[str], *, owner: str = LOCAL_OWNER
    ) -> dict[str, Overview]:
        values = (owner, msgspec.json.encode(ids).decode())

        def read(db: sqlite3.Connection) -> dict[str, Overview]:
            rows = fetch_rows(db, sql.OVERVIEWS, values)
            return dict(decode_overview((*map(decode_lossy, row[:2]), *row[2:])) for row in rows)

        return await self._read_settled(owner, None, read)

    async def read_version(self, *, owner: str = LOCAL_OWNER) -> str | None:  # noqa: ARG002
        """Return SQLite's counter of commits by other connections: all writes are by another."""
        rows = await self._reader.read(lambda db: fetch_rows(db, sql.DATA_VERSION, ()))
        return str(rows[0][0])

    async def count_all(self, *, owner: str = LOCAL_OWNER) -> ConversationCounts:
        rows = await self._reader.read(lambda db: fetch_rows(db, sql.COUNT_ALL, (owner,)))
        return ConversationCounts(total=rows[0][0], archived=rows[0][1])

    async def list_running(self, *, owner: str = LOCAL_OWNER) -> tuple[str, ...]:
        def read(db: sqlite3.Connection) -> tuple[str, ...]:
            return tuple(decode_lossy(row[0]) for row in fetch_rows(db, sql.RUNNING, (owner,)))

        return await self._read_settled(owner, None, read)

    async def list_owners(self) -> tuple[str, ...]:
        rows = await self._reader.read(lambda db: fetch_rows(db, sql.OWNERS, ()))
        return tuple(owner for (owner,) in rows)

    async def find_paths(
        self,
        digests: Sequence[bytes],
        *,
        owner: str = LOCAL_OWNER,
        family: str | None = None,
        side: bool = False,
        any_ids: bool = False,
    ) -> tuple[PathMatch, ...]:
        searched = search_digests(digests, any_ids=any_ids)
        values = (owner, b"".join(searched), len(searched), int(side), family)
        statement = sql.FIND_PATHS[any_ids]
        return await self._read_settled(
            owner, None, lambda db: decode_matches(fetch_rows(db, statement, values))
        )

    async def list_family(
        self, family: str, *, owner: str = LOCAL_OWNER, limit: int = 20
    ) -> tuple[Summary, ...]:
        check_page_size(limit, "conversations")

        def read(db: sqlite3.Connection) -> tuple[Summary, ...]:
            items: list[Summary] = []
            rows = fetch_rows(db, sql.LIST_FAMILY, (owner, family, min(limit, MAX_BIGINT)))
            _decode_page(rows, len(rows), items, [])
            return tuple(items)

        return await self._read_settled(owner, None, read)

    async def search(
        self,
        query: str,
        *,
        owner: str = LOCAL_OWNER,
        limit: int = 20,
        offset: int = 0,
        **filters: Any,
    ) -> Hits:
        words = parse_query(query)
        match = build_match(words, owner_term(owner))
        selected = SearchFilter(**filters)
        since = SQLITE_CODEC.encode_optional_time(selected.since)
        values = (match, owner, selected.model, since, selected.origin)

        def read(db: sqlite3.Connection) -> Hits:
            rows = fetch_rows(db, sql.SEARCH[selected.archive_filter], values)
            matches: list[SearchMatch] = []
            notices: list[Notice] = []
            rows.reverse()
            while rows:
                # Removed one by one, so that long texts are in memory once.
                _decode_match(rows.pop(), matches, notices)
            hits = build_ranked_hits(matches, words, limit=limit, offset=offset)
            if not hits.more:
                # The filters can have excluded the newest MAX_FILTERED matches.
                older = fetch_rows(db, sql.HAS_MORE_MATCHES, (match,))
                hits = msgspec.structs.replace(hits, more=bool(older))
            return msgspec.structs.replace(hits, notices=tuple(dict.fromkeys(notices)))

        return await self._read_settled(owner, None, read)

    async def usage(
        self,
        *,
        owner: str = LOCAL_OWNER,
        since: datetime | None = None,
        until: datetime | None = None,
        by: UsageBy = "day",
    ) -> tuple[UsageSum, ...]:
        def read(db: sqlite3.Connection) -> tuple[UsageSum, ...]:
            times = (
                SQLITE_CODEC.encode_optional_time(since),
                SQLITE_CODEC.encode_optional_time(until),
            )
            rows = fetch_rows(db, sql.USAGE[by], (owner, *times))
            return tuple(decode_sum((decode_lossy(row[0]), *row[1:])) for row in rows)

        return await self._read_settled(owner, None, read)


def check_summary_row(row: Row) -> None:
    """Raise UnreadableRowError for a row of SUMMARY_COLUMNS with a value of another type."""
    for at, kinds in _SUMMARY_TYPES:
        if type(row[at]) not in kinds:
            raise UnreadableRowError(SUMMARY_COLUMNS[at])


def are_summary_rows(rows: Sequence[Row]) -> bool:
    """Whether `check_summary_row` accepts all rows; checks by column, which is faster."""
    columns = tuple(zip(*rows, strict=True))
    for at, kinds in _SUMMARY_TYPES:
        if columns and not kinds.issuperset(map(type, columns[at])):
            return False
    return True


def summary_ref(row: Row) -> str:
    name = row[_NAME_AT]
    return name if isinstance(name, str) else str(decode_lossy(row[0]))


def skipped_conversation_notice(ref: str) -> Notice:
    return Notice(
        code="conversation_skipped",
        path=ref,
        message=f"Conversation {ref!r} is not listed: its row in the database cannot be read. "
        "Repair the row, or delete the conversation.",
    )


def damaged_conversation_notice(ref: str) -> Notice:
    return Notice(
        code="conversation_damaged",
        path=ref,
        message=f"Conversation {ref!r} contains text that is not UTF-8, which is not shown. "
        "Change its title, or delete the conversation.",
    )


def skipped_message_notice(ref: str) -> Notice:
    return Notice(
        code="message_skipped",
        path=ref,
        message=f"A matching message of conversation {ref!r} cannot be read and is not shown. "
        "Repair its row in the database, or delete the conversation.",
    )


def _fetch_page(
    db: sqlite3.Connection,
    owner: str,
    selected: ListFilter,
    cursor: str | None,
    span: tuple[int, int],
) -> list[Row]:
    values = _encode_filter(owner, selected)
    if cursor is None:
        return fetch_rows(db, sql.LIST[selected.archive_filter], (*values, *span))
    updated_at, last_id = decode_cursor(cursor)
    after = (*values, SQLITE_CODEC.encode_time(updated_at), last_id, *span)
    return fetch_rows(db, sql.LIST_AFTER[selected.archive_filter], after)


def _encode_filter(owner: str, selected: ListFilter) -> tuple[str | int | None, ...]:
    """Return the values ?1 to ?7 of a list."""
    since = SQLITE_CODEC.encode_optional_time(selected.since)
    side, source, title = int(selected.side), selected.source, selected.title
    return owner, side, source, selected.model, since, selected.origin, title


def _decode_page(
    rows: Sequence[Row], max_items: int, items: list[Summary], notices: list[Notice]
) -> int:
    """Add summaries; return how many rows were used."""
    if len(rows) <= max_items - len(items) and are_summary_rows(rows):
        with suppress(UnreadableRowError):
            items += SQLITE_CODEC.decode_summaries(rows)
            return len(rows)
    for used, row in enumerate(rows):
        if len(items) == max_items:
            return used
        _decode_or_skip(row, items, notices)
    return len(rows)


def _decode_or_skip(row: Row, items: list[Summary], notices: list[Notice]) -> None:
    readable = with_replacements(row, SUMMARY_COLUMNS)
    try:
        check_summary_row(readable)
        items.append(SQLITE_CODEC.decode_summary(readable))
    except UnreadableRowError:
        notices.append(skipped_conversation_notice(summary_ref(row)))
    else:
        if readable is not row:
            notices.append(damaged_conversation_notice(summary_ref(row)))


def _decode_match(row: Row, matches: list[SearchMatch], notices: list[Notice]) -> None:
    conversation, title, first, role, raw, started_at, turn, ordinal = row
    try:
        match = SearchMatch(
            conversation=decode_lossy(conversation),
            title=None if title is None else decode_lossy(title),
            turn=decode_lossy(turn),
            ordinal=decode_number(ordinal),
            sequence=decode_number(first) + decode_number(ordinal),
            role=decode_role(role),
            raw=decode_lossy(raw),
            created_at=SQLITE_CODEC.decode_time(started_at),
        )
    except UnreadableRowError:
        notices.append(skipped_message_notice(decode_lossy(conversation)))
        return
    matches.append(match)
    if isinstance(conversation, bytes) or isinstance(title, bytes):
        notices.append(damaged_conversation_notice(match.conversation))
