"""Lists, searches and sums on PostgreSQL: each is one query, and all are about one owner."""

# ruff: noqa: S608 - names of columns are put into the text; every value is bound

from datetime import datetime
from typing import Any

from cllm.core.errors import UsageError
from cllm.core.ports import ArchiveFilter, Hits, Page, UsageBy, UsageSum
from cllm.stores.finding import Term, query_terms
from cllm.stores.pages import decode_cursor, encode_cursor
from cllm.stores.sql.postgres_errors import reading
from cllm.stores.sql.postgres_pool import PostgresPool
from cllm.stores.sql.postgres_rows import summaries_of
from cllm.stores.sql.postgres_statements import MOST, names
from cllm.stores.sql.rows import SUMMARY_COLUMNS, USAGE_COLUMNS, check_text, decode_sum
from cllm.stores.sql.search import NEWEST, Found, owner_term, page_of_found
from cllm.stores.sums import UNKNOWN_MODEL

_ARCHIVED = {
    "active": "AND c.archived_at IS NULL",
    "archived": "AND c.archived_at IS NOT NULL",
    "all": "",
}
_LIST = """
SELECT {columns} FROM conversations c WHERE c.owner = $1 {archived} {after}
ORDER BY c.updated_at DESC, c.id LIMIT {limit} OFFSET {offset}
"""
_AFTER = "AND c.updated_at <= $4 AND (c.updated_at < $4 OR c.id > $5)"
_COUNT = "SELECT count(*) FROM conversations c WHERE c.owner = $1 {archived}"
# Few of the newest messages are of turns that run or failed; so many are looked at beside those
# that are ranked, so that the turns of all others need not be.
_SPARE = 500
_SEARCH = """
SELECT newest.conversation_id, newest.title, newest.sequence_number, m.role, m.raw, t.started_at
FROM (
    SELECT m.number, m.conversation_id, m.turn, m.ordinal, m.sequence_number, c.title
    FROM messages m JOIN conversations c ON c.owner = m.owner AND c.id = m.conversation_id
    WHERE m.owner = $1 AND m.terms @@ $2::text::tsquery AND m.sequence_number IS NOT NULL
        {archived}
    ORDER BY m.number DESC LIMIT $3
) AS newest
JOIN turns t ON t.owner = $1 AND t.conversation_id = newest.conversation_id
    AND t.number = newest.turn AND t.state IN ('complete', 'incomplete')
JOIN messages m ON m.owner = $1 AND m.conversation_id = newest.conversation_id
    AND m.turn = newest.turn AND m.ordinal = newest.ordinal
ORDER BY newest.number DESC LIMIT $4
"""
_SUMS = f"""
SELECT {{key}} AS key, count(*), {
    ", ".join(f"COALESCE(sum({column}), 0)" for column in USAGE_COLUMNS[:-1])
}, COALESCE(max(estimated), 0), sum(cost), count(*) FILTER (WHERE cost IS NULL)
FROM (
    SELECT COALESCE(t.model, c.model, $4) AS model, {names(USAGE_COLUMNS, "t.")}, t.cost, t.ended_at
    FROM turns t JOIN conversations c ON c.owner = t.owner AND c.id = t.conversation_id
    WHERE t.owner = $1 AND t.input_tokens IS NOT NULL AND t.ended_at IS NOT NULL
    UNION ALL
    SELECT model, {names(USAGE_COLUMNS)}, cost, ended_at FROM calls WHERE owner = $1
) AS used
WHERE ($2::timestamptz IS NULL OR ended_at >= $2) AND ($3::timestamptz IS NULL OR ended_at < $3)
GROUP BY 1
"""
_KEYS = {"day": "to_char(ended_at AT TIME ZONE 'UTC', 'YYYY-MM-DD')", "model": "model"}


async def list_page(
    pool: PostgresPool,
    *,
    owner: str,
    archive_filter: ArchiveFilter,
    limit: int,
    cursor: str | None,
    offset: int,
) -> Page:
    """A page of summaries, newest first; one more is asked for, to know whether there are any."""
    if limit < 1:
        raise UsageError(f"A page of {limit} conversations cannot be shown; ask for 1 or more.")
    given: tuple[Any, ...] = (owner, min(limit, MOST) + 1, min(max(offset, 0), MOST))
    if cursor is not None:
        check_text(cursor)
        given = (*given, *decode_cursor(cursor))
    sql = _LIST.format(
        columns=names(SUMMARY_COLUMNS, "c."),
        archived=_ARCHIVED[archive_filter],
        after="" if cursor is None else _AFTER,
        limit="$2",
        offset="$3",
    )
    found = summaries_of(await pool.fetch(sql, given, twice=True))
    items = found[:limit]
    return Page(items=items, next_cursor=encode_cursor(items[-1]) if len(found) > limit else None)


async def count(pool: PostgresPool, *, owner: str, archive_filter: ArchiveFilter) -> int:
    sql = _COUNT.format(archived=_ARCHIVED[archive_filter])
    return int((await pool.fetch(sql, (owner,), twice=True))[0][0])


async def search(
    pool: PostgresPool,
    query: str,
    *,
    owner: str,
    archive_filter: ArchiveFilter,
    limit: int,
    offset: int,
) -> Hits:
    """The newest messages that have all terms, the best of them first."""
    words = query_terms(query)
    sql = _SEARCH.format(archived=_ARCHIVED[archive_filter])
    wanted = " & ".join(map(_quoted, (Term(owner_term(owner)), *words)))
    rows = await pool.fetch(sql, (owner, wanted, NEWEST + 1 + _SPARE, NEWEST + 1), twice=True)
    found = [
        Found(
            conversation=row[0],
            title=row[1],
            sequence=row[2],
            role=row[3],
            raw=row[4],
            created_at=row[5],
        )
        for row in rows
    ]
    with reading():
        return page_of_found(found, words, limit=limit, offset=offset)


def _quoted(term: Term) -> str:
    """A term as tsquery writes it."""
    text = term.text.replace("\\", "\\\\").replace("'", "''")
    return f"'{text}':*" if term.prefix else f"'{text}'"


async def sums(
    pool: PostgresPool,
    *,
    owner: str,
    since: datetime | None,
    until: datetime | None,
    by: UsageBy,
) -> tuple[UsageSum, ...]:
    sql = _SUMS.format(key=_KEYS[by])
    rows = await pool.fetch(sql, (owner, since, until, UNKNOWN_MODEL), twice=True)
    found = [decode_sum(tuple(row)) for row in rows]
    return tuple(sorted(found, key=lambda each: each.key))
