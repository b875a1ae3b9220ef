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
from cllm.core.errors import ConversationNotFoundError
from cllm.core.identity import check_id
from cllm.core.message import Message
from cllm.core.ports import (
    ArchiveFilter,
    CallRecord,
    Changes,
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
from cllm.stores import edits
from cllm.stores.edits import Change, EditingStore, with_changes
from cllm.stores.pages import summary_of
from cllm.stores.postgres import lists
from cllm.stores.postgres import reading as parting
from cllm.stores.postgres import requests as records
from cllm.stores.postgres import statements as sql
from cllm.stores.postgres.connection import PostgresPool, split_url, with_postgres
from cllm.stores.postgres.edits import PostgresEdits
from cllm.stores.postgres.reading import conversation_of, summaries_of
from cllm.stores.postgres.turns import PostgresBeginnings, PostgresTurns
from cllm.stores.sql import HEAD, VERSION_TABLE
from cllm.stores.sql.checks import check_json, check_new, check_opening, check_text, check_whole
from cllm.stores.sql.rows import SUMMARY_COLUMNS

LEASE_SECONDS = 60.0

_SUMMARY = f"""
SELECT {sql.names(SUMMARY_COLUMNS)} FROM conversations WHERE owner = $1 AND id = {sql.RESOLVED}
"""
_REVISION = f'SELECT version_num FROM "{VERSION_TABLE}"'


class PostgresStore(EditingStore):
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
        self._edits = PostgresEdits(self._connections, clock=clock, patience=patience)
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

    async def create(
        self,
        new: NewConversation,
        *,
        owner: str = LOCAL_OWNER,
        opening: Opening | None = None,
    ) -> Conversation:
        check_new(new)
        check_opening(opening)
        await self._ready()
        return await self._edits.create(edits.with_opening(self._new(new, owner), opening))

    async def add(self, conversation: Conversation, *, owner: str = LOCAL_OWNER) -> None:
        check_whole(conversation)
        await self._ready()
        await self._edits.create(edits.added(conversation, owner=owner, now=self._clock()))

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

    async def update(self, ref: str, changes: Changes, *, owner: str = LOCAL_OWNER) -> Summary:
        def change(conversation: Conversation) -> Conversation:
            changed = with_changes(conversation, changes, now=self._clock())
            check_text(changed.title)
            check_json(changed.metadata, changed.summary)
            return changed

        await self._ready()
        return summary_of(await self._edits.change_row(ref, owner, change))

    async def capture(
        self, ref: str, opening: Opening, *, owner: str = LOCAL_OWNER
    ) -> Conversation | None:
        check_opening(opening)
        return await super().capture(ref, opening, owner=owner)

    async def delete(self, ref: str, *, owner: str = LOCAL_OWNER) -> None:
        await self._ready()
        await self._edits.delete(ref, owner)

    async def branch(
        self,
        ref: str,
        new: NewConversation,
        *,
        at: int | None = None,
        opening: Opening | None = None,
        owner: str = LOCAL_OWNER,
    ) -> Conversation:
        check_id(ref)
        check_new(new)
        check_opening(opening)
        await self._ready()
        fresh = self._new(new, owner)

        def branch_of(source: Conversation) -> Conversation:
            return edits.branch_of(source, fresh, at=at, opening=opening)

        return await self._edits.branch(ref, fresh, branch_of)

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

    async def _edit(self, ref: str, owner: str, change: Change) -> Conversation:
        await self._ready()
        return await self._edits.change(ref, owner, change)

    def _new(self, new: NewConversation, owner: str) -> Conversation:
        return edits.new_conversation(new, key=new.id, owner=owner, now=self._clock())

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
