"""Conversations, idempotent requests (as hashes), stream events and calls in PostgreSQL.

Each operation uses a connection for one statement or one short transaction. A claim of a request
expires by the database's clock.
"""

import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from typing import TYPE_CHECKING

import asyncpg
import msgspec

from cllm.core.conversation import LOCAL_OWNER, StoredConversation, check_id, find_running
from cllm.core.errors import (
    ConversationBusyError,
    ConversationExistsError,
    ConversationNotFoundError,
    RequestInFlightError,
    StaleLeaseError,
    StoreUnavailableError,
    TurnNotFoundError,
)
from cllm.core.ports import (
    UNANSWERED_KEPT,
    CallRecord,
    Clock,
    KeptResponse,
    Lease,
    Outline,
    RequestClaim,
    RequestKey,
    Store,
    StreamEvent,
    Tail,
)
from cllm.stores.editing_store import Change, ReadScope
from cllm.stores.leases import LEASE_SECONDS
from cllm.stores.postgres import request_statements as requests
from cllm.stores.postgres import statements as sql
from cllm.stores.postgres.connection import (
    Connection,
    PostgresBase,
    PostgresPool,
    postgres_error,
    read_revision,
)
from cllm.stores.postgres.edits import (
    delete_conversation,
    edit_conversation,
    insert_conversation,
    run_while_free,
    settle_running_turn,
)
from cllm.stores.postgres.lists import PostgresLists
from cllm.stores.postgres.reader import POSTGRES_CODEC, PostgresReader
from cllm.stores.postgres.turns import PostgresTurns
from cllm.stores.sql import HEAD
from cllm.stores.sql.rows import decode_headers, decode_response, encode_json
from cllm.stores.sql.store import SqlStore

if TYPE_CHECKING:
    from cllm.core.ports.snapshot import ServerRow, Snapshot


class PostgresRequests(PostgresBase):
    async def check_writable(self) -> None:
        pool = await self._ready()
        revision = await pool.run(read_revision, idempotent=True)
        if revision != HEAD:
            from cllm.stores.sql.migrate import describe_mismatch  # noqa: PLC0415 - rarely needed

            raise StoreUnavailableError(describe_mismatch(revision))
        ((read_only,),) = await pool.fetch(requests.IS_READ_ONLY, (), idempotent=True)
        if read_only:
            raise postgres_error(asyncpg.ReadOnlySQLTransactionError())

    async def claim_request(
        self, request: RequestKey, *, seconds: float
    ) -> RequestClaim | KeptResponse:
        pool = await self._ready()
        key = (request.owner, request.key)
        while True:
            values = (*key, request.body, float(seconds))
            if claimed := await pool.fetch(requests.CLAIM_REQUEST, values):
                until, stored, response = claimed[0]
                headers = decode_headers(stored)
                return RequestClaim(request=request, until=until, headers=headers, body=response)
            rows = await pool.fetch(requests.REQUEST, key, idempotent=True)
            if rows:
                return decode_response(tuple(rows[0]), request)

    async def renew_claim(self, claim: RequestClaim, *, seconds: float) -> RequestClaim:
        return await self._extend_claim(claim, seconds)

    async def keep_response(self, claim: RequestClaim, *, status: int, lifetime: float) -> None:
        await self._extend_claim(claim, lifetime, status)

    async def _extend_claim(
        self, claim: RequestClaim, seconds: float, status: int | None = None
    ) -> RequestClaim:
        """Extend a claim. Its expiry identifies it: a later claim expires later."""
        key = (claim.request.owner, claim.request.key, claim.until)
        values = (float(seconds), status, encode_json(claim.headers), claim.body)
        rows = await (await self._ready()).fetch(requests.EXTEND_CLAIM, (*key, *values))
        if not rows:
            raise RequestInFlightError
        return msgspec.structs.replace(claim, until=rows[0]["expires_at"])

    async def forget_responses(self, header: str, value: str, *, owner: str = LOCAL_OWNER) -> None:
        await (await self._ready()).fetch(
            requests.FORGET_RESPONSES, (owner, header, value), idempotent=True
        )

    async def add_events(self, lease: Lease, events: Sequence[StreamEvent]) -> None:
        pool = await self._ready()
        key = (lease.conversation.owner, lease.conversation.id, lease.turn.id, lease.fence)
        numbers = [event.number for event in events]
        data = [event.data for event in events]
        if not await pool.fetch(requests.ADD_EVENTS, (*key, numbers, data), idempotent=True):
            raise StaleLeaseError(lease.conversation.id)

    async def events_after(
        self, ref: str, turn_id: str, number: int, *, owner: str = LOCAL_OWNER
    ) -> tuple[StreamEvent, ...]:
        pool = await self._ready()
        rows = await pool.fetch(
            requests.EVENTS_AFTER, (owner, check_id(ref), turn_id, number), idempotent=True
        )
        if rows[0]["id"] is None:
            raise ConversationNotFoundError(ref)
        if not rows[0]["turn_exists"]:
            raise TurnNotFoundError(rows[0]["id"], turn_id)
        return tuple(
            StreamEvent(number=row["number"], data=row["data"])
            for row in rows
            if row["number"] is not None
        )

    async def drop_old_events(self, before: datetime) -> None:
        pool = await self._ready()
        await pool.fetch(requests.DROP_OLD_EVENTS, (before,), idempotent=True)
        for statement in (requests.DROP_OLD_REQUESTS, requests.DROP_OLD_LEASES):
            await pool.fetch(statement, (UNANSWERED_KEPT,), idempotent=True)

    async def count_call(self, *calls: CallRecord, owner: str = LOCAL_OWNER) -> None:
        pool = await self._ready()
        for call in calls:
            await pool.fetch(requests.ADD_CALL, (owner, *POSTGRES_CODEC.encode_call(call)))


class PostgresStore(PostgresTurns, PostgresReader, PostgresLists, PostgresRequests, SqlStore):
    def __init__(
        self,
        url: str,
        *,
        clock: Clock,
        lease_seconds: float = LEASE_SECONDS,
        patience: float = 5.0,
    ) -> None:
        super().__init__(url, clock=clock)
        self._lease_seconds = lease_seconds
        self._patience = patience

    async def load(
        self, ref: str, *, owner: str = LOCAL_OWNER, tail: Tail = None
    ) -> StoredConversation:
        conversation = await super().load(ref, owner=owner, tail=tail)
        if find_running(conversation) and await self._settle(conversation.id, owner):
            conversation = await super().load(ref, owner=owner, tail=tail)
        return conversation

    async def outline(self, ref: str, *, owner: str = LOCAL_OWNER) -> Outline:
        outline = await super().outline(ref, owner=owner)
        conversation = outline.conversation
        if find_running(conversation) and await self._settle(conversation.id, owner):
            outline = await super().outline(ref, owner=owner)
        return outline

    async def is_same_store(self, other: Store) -> bool:
        """Whether a lock in one database is held in the other, and both have the same table.

        Poolers hide the address of a database, and a copy of it has the same identifiers.
        """
        if not isinstance(other, PostgresStore):
            return False
        connections = other._connections  # noqa: SLF001 - of this class
        key = uuid.uuid4().int >> 65

        async def compare(connection: Connection) -> bool:
            held = await connection.fetchrow(sql.HOLD_COMPARISON_LOCK, key)
            (tried,) = await connections.fetch(sql.TRY_COMPARISON_LOCK, (key,))
            has_same_table = held is not None and held["table_id"] == tried["table_id"]
            return has_same_table and not tried["is_free"]

        return await self._connections.transact(compare)

    @asynccontextmanager
    async def open_snapshot(self) -> AsyncIterator["Snapshot"]:
        from cllm.stores.postgres.snapshot import open_snapshot  # noqa: PLC0415 - a backup's

        async with open_snapshot(await self._ready(), self._url, clock=self._clock) as snapshot:
            yield snapshot

    async def add_server_rows(self, rows: Sequence["ServerRow"]) -> None:
        from cllm.stores.postgres.snapshot import add_server_rows  # noqa: PLC0415 - a restore's

        pool = await self._ready()
        await pool.transact(lambda connection: add_server_rows(connection, rows))

    async def _settle(self, key: str, owner: str) -> bool:
        """End a running turn whose process died; False while its lease is valid."""
        pool = await self._ready()
        if await pool.fetch(sql.HAS_LEASE, (owner, key), idempotent=True):
            return False

        async def work(connection: Connection, key: str) -> None:
            await settle_running_turn(connection, owner, key)

        # Another process may have continued or deleted it; a read-only server is still read.
        with suppress(ConversationBusyError, ConversationNotFoundError, StoreUnavailableError):
            await run_while_free(pool, key, owner, work, patience=0)
        return True

    async def _settle_dead_turns(self, owner: str) -> PostgresPool:
        pool = await self._ready()
        for row in await pool.fetch(sql.DEAD_LEASES, (owner,), idempotent=True):
            await self._settle(row[0], owner)
        return pool

    async def delete(self, ref: str, *, owner: str = LOCAL_OWNER) -> None:
        async def work(connection: Connection, key: str) -> None:
            await delete_conversation(connection, owner, key)

        await run_while_free(await self._ready(), ref, owner, work, patience=self._patience)

    async def _insert(
        self,
        new: StoredConversation,
        *,
        source: str | None = None,
        change: Change = lambda new: new,
    ) -> StoredConversation:
        async def work(connection: Connection) -> StoredConversation:
            return await insert_conversation(connection, new, source=source, change=change)

        pool = await self._ready()
        try:
            return await pool.transact(work)
        except asyncpg.UniqueViolationError as error:
            raise ConversationExistsError(new.id) from error

    async def _edit(
        self, ref: str, owner: str, change: Change, *, reads: ReadScope
    ) -> StoredConversation:
        async def work(connection: Connection, key: str) -> StoredConversation:
            return await edit_conversation(connection, owner, key, change, reads=reads)

        return await run_while_free(await self._ready(), ref, owner, work, patience=self._patience)
