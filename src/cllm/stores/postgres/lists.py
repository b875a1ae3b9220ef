"""Lists, searches and usage sums in PostgreSQL."""

# ruff: noqa: S608 - only column names are inserted into the text

import hashlib
from collections.abc import Sequence
from datetime import datetime
from typing import Any

from cllm.core.conversation import LOCAL_OWNER
from cllm.core.ports import ArchiveFilter, Hits, Page, UsageBy, UsageSum
from cllm.stores.pagination import check_page_size, decode_cursor, encode_cursor
from cllm.stores.postgres.connection import PostgresBase
from cllm.stores.postgres.reader import decode_summaries
from cllm.stores.postgres.statements import MAX_BIGINT, columns
from cllm.stores.search import MAX_RANKED, SearchMatch, SearchTerm, build_ranked_hits, parse_query
from cllm.stores.sql.rows import SUMMARY_COLUMNS, USAGE_COLUMNS, decode_sum
from cllm.stores.sql.validation import check_text
from cllm.stores.usage import UNKNOWN_MODEL

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
# Revision 0005 prefixes indexed terms with the number of their block of 2 ** _BLOCK_BITS messages.
# The search reads the newest block first; `@` is replaced by its number. OFFSET 0 fixes the order
# of execution: with its estimates the planner would read whole tables.
_BLOCK_BITS = 15
_LAST_NUMBER = "SELECT last_value FROM messages_number_seq"
_SEARCH = """
WITH newest AS MATERIALIZED (
    SELECT matches.*
    FROM generate_series($4::bigint >> {block_bits}, 0, -1) AS block
    CROSS JOIN LATERAL (
        SELECT m.*, c.id, c.title, t.started_at
        FROM (
            SELECT number, conversation, turn, ordinal FROM messages
            WHERE owner = $1 AND sequence_number IS NOT NULL
                AND message_terms(owner, number, raw, terms)
                    @@ replace($2, '@', to_hex(block) || '.')::tsquery
            ORDER BY number DESC OFFSET 0) AS m
        CROSS JOIN LATERAL (
            SELECT c.id, c.title FROM conversations c
            WHERE c.owner = $1 AND c.number = m.conversation {archived} OFFSET 0) AS c
        CROSS JOIN LATERAL (
            SELECT started_at FROM turns
            WHERE owner = $1 AND conversation = m.conversation AND number = m.turn
                AND state IN ('complete', 'incomplete') OFFSET 0) AS t
        ORDER BY m.number DESC LIMIT $3) AS matches
    LIMIT $3)
SELECT newest.id, newest.title, m.sequence_number, m.role, m.raw, newest.started_at
FROM newest CROSS JOIN LATERAL (
    SELECT sequence_number, role, raw FROM messages
    WHERE owner = $1 AND conversation = newest.conversation AND turn = newest.turn
        AND ordinal = newest.ordinal OFFSET 0) AS m
ORDER BY newest.number DESC
"""
_USAGE = f"""
SELECT {{key}} AS key, count(*), {
    ", ".join(f"COALESCE(sum({column}), 0)" for column in USAGE_COLUMNS[:-1])
}, COALESCE(max(estimated), 0), sum(cost), count(*) FILTER (WHERE cost IS NULL)
FROM (
    SELECT COALESCE(t.model, c.model, $4) AS model, {
    columns(USAGE_COLUMNS, "t.")
}, t.cost, t.ended_at
    FROM turns t JOIN conversations c ON c.owner = t.owner AND c.number = t.conversation
    WHERE t.owner = $1 AND t.input_tokens IS NOT NULL AND t.ended_at IS NOT NULL
    UNION ALL
    SELECT model, {columns(USAGE_COLUMNS)}, cost, ended_at FROM calls WHERE owner = $1
) AS used
WHERE ($2::timestamptz IS NULL OR ended_at >= $2) AND ($3::timestamptz IS NULL OR ended_at < $3)
GROUP BY 1
"""
_KEYS = {"day": "to_char(ended_at AT TIME ZONE 'UTC', 'YYYY-MM-DD')", "model": "model"}


class PostgresLists(PostgresBase):
    async def list_conversations(
        self,
        *,
        owner: str = LOCAL_OWNER,
        archive_filter: ArchiveFilter = "active",
        limit: int = 100,
        cursor: str | None = None,
        offset: int = 0,
    ) -> Page:
        check_page_size(limit, "conversations")
        pool = await self._ready()
        values: tuple[Any, ...] = (
            owner,
            min(limit, MAX_BIGINT) + 1,
            min(max(offset, 0), MAX_BIGINT),
        )
        if cursor is not None:
            check_text(cursor)
            values = (*values, *decode_cursor(cursor))
        sql = _LIST.format(
            columns=columns(SUMMARY_COLUMNS, "c."),
            archived=_ARCHIVED[archive_filter],
            after="" if cursor is None else _AFTER,
            limit="$2",
            offset="$3",
        )
        summaries = decode_summaries(await pool.fetch(sql, values, idempotent=True))
        items = summaries[:limit]
        return Page(
            items=items, next_cursor=encode_cursor(items[-1]) if len(summaries) > limit else None
        )

    async def count_conversations(
        self, *, owner: str = LOCAL_OWNER, archive_filter: ArchiveFilter = "active"
    ) -> int:
        pool = await self._ready()
        sql = _COUNT.format(archived=_ARCHIVED[archive_filter])
        return int((await pool.fetch(sql, (owner,), idempotent=True))[0][0])

    async def search(
        self,
        query: str,
        *,
        owner: str = LOCAL_OWNER,
        archive_filter: ArchiveFilter = "active",
        limit: int = 20,
        offset: int = 0,
    ) -> Hits:
        words = parse_query(query)
        pool = await self._ready()
        sql = _SEARCH.format(archived=_ARCHIVED[archive_filter], block_bits=_BLOCK_BITS)
        last = (await pool.fetch(_LAST_NUMBER, (), idempotent=True))[0][0]
        rows = await pool.fetch(
            sql, (owner, build_tsquery(words, owner), MAX_RANKED + 1, last), idempotent=True
        )
        matches = [
            SearchMatch(
                conversation=row[0],
                title=row[1],
                sequence=row[2],
                role=row[3],
                raw=row[4],
                created_at=row[5],
            )
            for row in rows
        ]
        return build_ranked_hits(matches, words, limit=limit, offset=offset)

    async def usage(
        self,
        *,
        owner: str = LOCAL_OWNER,
        since: datetime | None = None,
        until: datetime | None = None,
        by: UsageBy = "day",
    ) -> tuple[UsageSum, ...]:
        pool = await self._ready()
        sql = _USAGE.format(key=_KEYS[by])
        rows = await pool.fetch(sql, (owner, since, until, UNKNOWN_MODEL), idempotent=True)
        sums = [decode_sum(tuple(row)) for row in rows]
        return tuple(sorted(sums, key=lambda each: each.key))


def build_tsquery(words: Sequence[SearchTerm], owner: str) -> str:
    """A tsquery of the words and the owner's term."""
    owner_hash = hashlib.sha256(owner.encode(errors="surrogatepass")).hexdigest()[:16]
    # Words have only letters and digits, so nothing needs escaping.
    quoted = (f"'@{word.text}':*" if word.prefix else f"'@{word.text}'" for word in words)
    return " & ".join((f"'@_{owner_hash}'", *quoted))
