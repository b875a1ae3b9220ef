"""Lists, searches and sums on PostgreSQL: each is one query, and all are about one owner."""

# ruff: noqa: S608 - names of columns are put into the text; every value is bound

from datetime import datetime
from typing import Any

from cllm.core.ports import ArchiveFilter, Hits, Page, UsageBy, UsageSum
from cllm.stores.finding import Term, query_terms
from cllm.stores.pages import check_page, decode_cursor, encode_cursor
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
# A word that few messages have is looked up in the index, and all of its matches are known. Of any
# other only so many are taken from there, in no order; the newest are found by walking back through
# so many messages, until there are enough. So no word costs more than these numbers say.
_FEW = 5_000
_WALKED = 25_000
# Few of the newest messages are of turns that run or failed; so many are found beside those that
# are ranked.
_SPARE = 500
_SEARCH = """
WITH found AS MATERIALIZED (
    SELECT m.number, m.conversation_id, m.turn, m.ordinal FROM messages m
    WHERE m.owner = $1 AND m.terms @@ $2::text::tsquery AND m.sequence_number IS NOT NULL
    LIMIT $3 + 1),
walked AS MATERIALIZED (
    SELECT recent.number, recent.conversation_id, recent.turn, recent.ordinal
    FROM (SELECT * FROM messages WHERE owner = $1 ORDER BY number DESC LIMIT $4) AS recent
    JOIN conversations c ON c.owner = $1 AND c.id = recent.conversation_id {archived}
    WHERE (SELECT count(*) FROM found) > $3
        AND recent.terms @@ $2::text::tsquery AND recent.sequence_number IS NOT NULL
    ORDER BY recent.number DESC LIMIT $5),
newest AS MATERIALIZED (
    SELECT matches.*, c.title, t.started_at
    FROM (
        SELECT * FROM found WHERE (SELECT count(*) FROM walked) < $5
        UNION SELECT * FROM walked
    ) AS matches
    JOIN conversations c ON c.owner = $1 AND c.id = matches.conversation_id {archived}
    JOIN turns t ON t.owner = $1 AND t.conversation_id = matches.conversation_id
        AND t.number = matches.turn AND t.state IN ('complete', 'incomplete')
    ORDER BY matches.number DESC LIMIT $6)
SELECT m.conversation_id, newest.title, m.sequence_number, m.role, m.raw, newest.started_at
FROM newest JOIN messages m ON m.owner = $1 AND m.conversation_id = newest.conversation_id
    AND m.turn = newest.turn AND m.ordinal = newest.ordinal
ORDER BY newest.number DESC
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
    check_page(limit, "conversations")
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
    bounds = (_FEW, _WALKED, NEWEST + 1 + _SPARE, NEWEST + 1)
    rows = await pool.fetch(sql, (owner, wanted, *bounds), twice=True)
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
