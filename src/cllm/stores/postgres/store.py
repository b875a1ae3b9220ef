"""Conversations in PostgreSQL, for those who outgrow one machine.

Each operation takes a connection for one statement or one short transaction. Turns, changes,
lists and a server's records have modules of their own; here is what the port asks for.
"""

# ruff: noqa: S608 - names of columns are put into the text; every value is bound

import asyncio
from collections.abc import Sequence
from datetime import datetime

import asyncpg

from cllm.core.conversation import LOCAL_OWNER, Conversation, Summary, Turn
from cllm.core.errors import ConversationExistsError, ConversationNotFoundError
from cllm.core.identity import check_id
from cllm.core.message import Message
from cllm.core.ports import (
    ArchiveFilter,
    CallRecord,
    Clock,
    Hits,
    KeptResponse,
    Lease,
    NewConversation,
    Opening,
    Outline,
    Page,
    RequestClaim,
    RequestKey,
    StreamEvent,
    Tail,
    TurnPart,
    TurnStart,
    UsageBy,
    UsageSum,
)
from cllm.stores.edits import Change, Reads
from cllm.stores.postgres import lists
from cllm.stores.postgres import reading as parting
from cllm.stores.postgres import requests as records
from cllm.stores.postgres import statements as sql
from cllm.stores.postgres.connection import Connection, PostgresPool, split_url, with_postgres
from cllm.stores.postgres.edits import delete, edit, insert, while_free
from cllm.stores.postgres.reading import conversation_of, summaries_of
from cllm.stores.postgres.turns import PostgresBeginnings, PostgresTurns
from cllm.stores.sql import HEAD, VERSION_TABLE
from cllm.stores.sql.rows import SUMMARY_COLUMNS
from cllm.stores.sql.store import SqlStore

LEASE_SECONDS = 60.0

_SUMMARY = f"""
SELECT {sql.names(SUMMARY_COLUMNS)} FROM conversations WHERE owner = $1 AND id = {sql.RESOLVED}
"""
_REVISION = f'SELECT version_num FROM "{VERSION_TABLE}"'


class PostgresStore(SqlStore):
    """Conversations of any number of owners, for any number of processes and machines."""

    def __init__(
        self,
        url: str,
        *,
        clock: Clock,
        lease_seconds: float = LEASE_SECONDS,
        patience: float = 5.0,
    ) -> None:
        self._url, options = split_url(url)
        self._clock = clock
        self._connections = PostgresPool(self._url, options)
        self._beginnings = PostgresBeginnings(
            self._connections, clock=clock, lease_seconds=lease_seconds
        )
        self._turns = PostgresTurns(self._connections, clock=clock, lease_seconds=lease_seconds)
        self._patience = patience
        self._preparing = asyncio.Lock()
        self._is_ready = False

    async def begin_turn(
        self,
        ref: str,
        start: TurnStart,
        *,
        owner: str = LOCAL_OWNER,
        create: NewConversation | None = None,
        wait: float | None = 0,
        tail: Tail = None,
    ) -> Lease:
        await self._ready()
        return await self._beginnings.begin(
            ref, start, owner=owner, create=create, wait=wait, tail=tail
        )

    async def renew_lease(self, lease: Lease) -> Lease:
        return await self._turns.renew(lease)

    async def finish_turn(
        self, lease: Lease, turn: Turn, *, opening: Opening | None = None
    ) -> None:
        await self._turns.finish(lease, turn, opening=opening)

    async def drop_turn(self, lease: Lease) -> None:
        await self._turns.drop(lease)

    async def load(self, ref: str, *, owner: str = LOCAL_OWNER, tail: Tail = None) -> Conversation:
        check_id(ref)
        pool = await self._ready()
        if tail is None:
            rows = await pool.fetch(sql.LOAD, (owner, ref), twice=True)
        else:
            rows = await pool.fetch(sql.LOAD_TAIL, (owner, ref, sql.tail_count(tail)), twice=True)
        found = conversation_of(rows)
        if found is None:
            raise ConversationNotFoundError(ref)
        return found

    async def outline(self, ref: str, *, owner: str = LOCAL_OWNER) -> Outline:
        return await parting.outline(await self._ready(), ref, owner=owner)

    async def messages_from(
        self, ref: str, parts: Sequence[TurnPart], *, most: int, owner: str = LOCAL_OWNER
    ) -> tuple[tuple[Message, ...], ...]:
        pool = await self._ready()
        return await parting.messages_from(pool, ref, parts, most=most, owner=owner)

    async def summary(self, ref: str, *, owner: str = LOCAL_OWNER) -> Summary:
        check_id(ref)
        pool = await self._ready()
        rows = await pool.fetch(_SUMMARY, (owner, ref), twice=True)
        if not rows:
            raise ConversationNotFoundError(ref)
        return summaries_of(rows)[0]

    async def list_conversations(
        self,
        *,
        owner: str = LOCAL_OWNER,
        archive_filter: ArchiveFilter = "active",
        limit: int = 100,
        cursor: str | None = None,
        offset: int = 0,
    ) -> Page:
        return await lists.list_page(
            await self._ready(),
            owner=owner,
            archive_filter=archive_filter,
            limit=limit,
            cursor=cursor,
            offset=offset,
        )

    async def count_conversations(
        self, *, owner: str = LOCAL_OWNER, archive_filter: ArchiveFilter = "active"
    ) -> int:
        return await lists.count(await self._ready(), owner=owner, archive_filter=archive_filter)

    async def search(
        self,
        query: str,
        *,
        owner: str = LOCAL_OWNER,
        archive_filter: ArchiveFilter = "active",
        limit: int = 20,
        offset: int = 0,
    ) -> Hits:
        return await lists.search(
            await self._ready(),
            query,
            owner=owner,
            archive_filter=archive_filter,
            limit=limit,
            offset=offset,
        )

    async def usage(
        self,
        *,
        owner: str = LOCAL_OWNER,
        since: datetime | None = None,
        until: datetime | None = None,
        by: UsageBy = "day",
    ) -> tuple[UsageSum, ...]:
        return await lists.sums(await self._ready(), owner=owner, since=since, until=until, by=by)

    async def delete(self, ref: str, *, owner: str = LOCAL_OWNER) -> None:
        async def work(connection: Connection, key: str) -> None:
            await delete(connection, owner, key)

        await while_free(await self._ready(), ref, owner, work, patience=self._patience)

    async def claim_request(
        self, request: RequestKey, *, seconds: float
    ) -> RequestClaim | KeptResponse:
        return await records.claim(await self._ready(), request, seconds=seconds)

    async def renew_claim(self, claim: RequestClaim, *, seconds: float) -> RequestClaim:
        return await records.hold(await self._ready(), claim, seconds=seconds)

    async def keep_response(self, claim: RequestClaim, *, status: int, lifetime: float) -> None:
        await records.hold(await self._ready(), claim, seconds=lifetime, status=status)

    async def forget_responses(self, header: str, value: str, *, owner: str = LOCAL_OWNER) -> None:
        await records.forget(await self._ready(), header, value, owner=owner)

    async def add_events(self, lease: Lease, events: Sequence[StreamEvent]) -> None:
        await records.add_events(await self._ready(), lease, events)

    async def events_after(
        self, ref: str, turn_id: str, number: int, *, owner: str = LOCAL_OWNER
    ) -> tuple[StreamEvent, ...]:
        pool = await self._ready()
        return await records.events_after(pool, ref, turn_id, number, owner=owner)

    async def drop_old_events(self, before: datetime) -> None:
        await records.drop_old(await self._ready(), before)

    async def count_call(self, *calls: CallRecord, owner: str = LOCAL_OWNER) -> None:
        pool = await self._ready()
        for call in calls:
            await records.count_call(pool, call, owner=owner)

    async def close(self) -> None:
        """Close all connections; leases run out by themselves."""
        await self._connections.close()

    async def _insert(
        self, new: Conversation, *, source: str | None = None, change: Change = lambda new: new
    ) -> Conversation:
        async def work(connection: Connection) -> Conversation:
            return await insert(connection, new, source=source, change=change)

        pool = await self._ready()
        try:
            return await pool.transact(work, frozen=True)
        except asyncpg.UniqueViolationError as error:
            raise ConversationExistsError(new.id) from error

    async def _edit(self, ref: str, owner: str, change: Change, *, reads: Reads) -> Conversation:
        async def work(connection: Connection, key: str) -> Conversation:
            return await edit(connection, owner, key, change, reads=reads, now=self._clock())

        return await while_free(await self._ready(), ref, owner, work, patience=self._patience)

    async def _ready(self) -> PostgresPool:
        """The connections, once the database has been seen to have the tables that it needs."""
        if not self._is_ready:
            async with self._preparing:
                if not self._is_ready:
                    await self._prepare()
                    self._is_ready = True
        return self._connections

    async def _prepare(self) -> None:
        """Bring an empty database up; an older one has to be brought up by a person."""
        if await self._connections.run(_revision, twice=True) == HEAD:
            return
        from cllm.stores.sql import migrate  # noqa: PLC0415

        await asyncio.to_thread(with_postgres, self._url, migrate.prepare)


async def _revision(connection: "asyncpg.pool.PoolConnectionProxy[asyncpg.Record]") -> str | None:
    try:
        rows = await connection.fetch(_REVISION)
    except asyncpg.UndefinedTableError:
        return None
    found: str | None = rows[0][0] if len(rows) == 1 else None
    return found
