"""Lists, searches and usage sums in PostgreSQL."""

import hashlib
from collections.abc import Sequence
from datetime import datetime
from typing import Any

import msgspec

from cllm.core.conversation import LOCAL_OWNER, Summary
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
from cllm.stores.postgres import list_statements as sql
from cllm.stores.postgres.connection import PostgresBase
from cllm.stores.postgres.reader import decode_summaries
from cllm.stores.postgres.statements import MAX_BIGINT, columns
from cllm.stores.search import MAX_RANKED, SearchMatch, SearchTerm, build_ranked_hits, parse_query
from cllm.stores.sql.paths import decode_matches, search_digests
from cllm.stores.sql.rows import MAX_FILTERED, SUMMARY_COLUMNS, decode_sum
from cllm.stores.sql.validation import check_text
from cllm.stores.usage import UNKNOWN_MODEL


class PostgresLists(PostgresBase):
    async def list_conversations(
        self,
        *,
        owner: str = LOCAL_OWNER,
        limit: int = 100,
        cursor: str | None = None,
        offset: int = 0,
        **filters: Any,
    ) -> Page:
        check_page_size(limit, "conversations")
        selected = ListFilter(**filters)
        values = (
            *_encode_filter(owner, selected),
            min(limit, MAX_BIGINT) + 1,
            min(max(offset, 0), MAX_BIGINT),
        )
        pool = await self._settle_dead_turns(owner)
        if cursor is not None:
            check_text(cursor)
            values = (*values, *decode_cursor(cursor))
        statement = sql.LIST.format(
            columns=columns(SUMMARY_COLUMNS, "c."),
            selected=sql.SELECTED,
            archived=sql.ARCHIVED[selected.archive_filter],
            after="" if cursor is None else sql.LIST_AFTER,
            limit="$8",
            offset="$9",
        )
        summaries = decode_summaries(await pool.fetch(statement, values, idempotent=True))
        items = summaries[:limit]
        return Page(
            items=items, next_cursor=encode_cursor(items[-1]) if len(summaries) > limit else None
        )

    async def count_conversations(self, *, owner: str = LOCAL_OWNER, **filters: Any) -> int:
        selected = ListFilter(**filters)
        values = _encode_filter(owner, selected)
        pool = await self._ready()
        archived = sql.ARCHIVED[selected.archive_filter]
        statement = sql.COUNT.format(selected=sql.SELECTED, archived=archived)
        return int((await pool.fetch(statement, values, idempotent=True))[0][0])

    async def read_overviews(
        self, ids: Sequence[str], *, owner: str = LOCAL_OWNER
    ) -> dict[str, Overview]:
        check_text(*ids)
        pool = await self._settle_dead_turns(owner)
        rows = await pool.fetch(sql.OVERVIEWS, (owner, list(ids)), idempotent=True)
        return dict(decode_overview(tuple(row)) for row in rows)

    async def read_version(self, *, owner: str = LOCAL_OWNER) -> str | None:  # noqa: ARG002
        """Return None: the newest conversations are as quick to read as a version would be."""
        return None

    async def count_all(self, *, owner: str = LOCAL_OWNER) -> ConversationCounts:
        pool = await self._ready()
        (row,) = await pool.fetch(sql.COUNT_ALL, (owner,), idempotent=True)
        return ConversationCounts(total=row[0], archived=row[1])

    async def list_running(self, *, owner: str = LOCAL_OWNER) -> tuple[str, ...]:
        pool = await self._settle_dead_turns(owner)
        rows = await pool.fetch(sql.RUNNING, (owner,), idempotent=True)
        return tuple(row[0] for row in rows)

    async def list_owners(self) -> tuple[str, ...]:
        pool = await self._ready()
        return tuple(row[0] for row in await pool.fetch(sql.OWNERS, (), idempotent=True))

    async def find_paths(
        self,
        digests: Sequence[bytes],
        *,
        owner: str = LOCAL_OWNER,
        family: str | None = None,
        side: bool = False,
        any_ids: bool = False,
    ) -> tuple[PathMatch, ...]:
        check_text(family)
        searched = search_digests(digests, any_ids=any_ids)
        pool = await self._settle_dead_turns(owner)
        rows = await pool.fetch(
            sql.FIND_PATHS[any_ids], (owner, searched, int(side), family), idempotent=True
        )
        return decode_matches([tuple(row) for row in rows])

    async def list_family(
        self, family: str, *, owner: str = LOCAL_OWNER, limit: int = 20
    ) -> tuple[Summary, ...]:
        check_page_size(limit, "conversations")
        check_text(family)
        pool = await self._settle_dead_turns(owner)
        values = (owner, family, min(limit, MAX_BIGINT))
        return decode_summaries(await pool.fetch(sql.LIST_FAMILY, values, idempotent=True))

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
        selected = SearchFilter(**filters)
        check_text(selected.model)
        pool = await self._settle_dead_turns(owner)
        statement = sql.SEARCH.format(
            archived=sql.ARCHIVED[selected.archive_filter],
            selected=sql.SEARCHED,
            block_bits=sql.BLOCK_BITS,
        )
        last = (await pool.fetch(sql.LAST_NUMBER, (), idempotent=True))[0][0]
        terms = build_tsquery(words, owner)
        values = (
            owner,
            terms,
            MAX_RANKED + 1,
            last,
            selected.model,
            selected.since,
            selected.origin,
        )
        rows = await pool.fetch(statement, values, idempotent=True)
        matches = [
            SearchMatch(
                conversation=row[0],
                title=row[1],
                sequence=row[2],
                role=row[3],
                raw=row[4],
                created_at=row[5],
                turn=row[6],
                ordinal=row[7],
            )
            for row in rows
        ]
        hits = build_ranked_hits(matches, words, limit=limit, offset=offset)
        if hits.more:
            return hits
        # The filters can have excluded the newest MAX_FILTERED matches.
        statement = sql.HAS_MORE_MATCHES.format(block_bits=sql.BLOCK_BITS)
        older = await pool.fetch(statement, (owner, terms, MAX_FILTERED, last), idempotent=True)
        return msgspec.structs.replace(hits, more=bool(older))

    async def usage(
        self,
        *,
        owner: str = LOCAL_OWNER,
        since: datetime | None = None,
        until: datetime | None = None,
        by: UsageBy = "day",
    ) -> tuple[UsageSum, ...]:
        pool = await self._settle_dead_turns(owner)
        statement = sql.USAGE.format(key=sql.USAGE_KEYS[by])
        rows = await pool.fetch(statement, (owner, since, until, UNKNOWN_MODEL), idempotent=True)
        sums = [decode_sum(tuple(row)) for row in rows]
        return tuple(sorted(sums, key=lambda each: each.key))


def _encode_filter(owner: str, selected: ListFilter) -> tuple[Any, ...]:
    """Return the values $1 to $7 of a list."""
    source, model, title = selected.source, selected.model, selected.title
    check_text(source, model, title)
    return owner, int(selected.side), source, model, selected.since, selected.origin, title


def build_tsquery(words: Sequence[SearchTerm], owner: str) -> str:
    """Return a tsquery of the words and the owner's term."""
    owner_hash = hashlib.sha256(owner.encode(errors="surrogatepass")).hexdigest()[:16]
    # Words have only letters and digits, so nothing needs escaping.
    quoted = map(_quote_term, words)
    return " & ".join((f"'@_{owner_hash}'", *quoted))


def _quote_term(word: SearchTerm) -> str:
    first = f"'@{word.text}':*" if word.prefix else f"'@{word.text}'"
    quoted = " | ".join((first, *(f"'@{text}'" for text in word.forms)))
    return f"({quoted})" if word.forms else quoted
