"""Changes to conversations in which no turn runs, on PostgreSQL.

A change has the conversation's lease for as long as its transaction lasts: a turn that begins
meanwhile waits for its end and then sees it, and a change waits for no turn longer than told.
"""

from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import asyncpg

from cllm.core.conversation import Conversation
from cllm.core.errors import (
    ConversationBusyError,
    ConversationExistsError,
    ConversationNotFoundError,
)
from cllm.core.identity import check_id
from cllm.core.ports import Clock
from cllm.stores import edits
from cllm.stores.sql import postgres_statements as sql
from cllm.stores.sql.postgres_beginnings import INTERRUPTED
from cllm.stores.sql.postgres_pool import LONGEST_PAUSE, Connection, PostgresPool
from cllm.stores.sql.postgres_rows import conversation_of
from cllm.stores.sql.postgres_writing import insert_copy, insert_whole, update_row, write_changes
from cllm.stores.waiting import wait_until

T = TypeVar("T")
Change = Callable[[Conversation], Conversation]

_SECONDS = 60.0
_A_CHANGE = "-"
_FREE = "DELETE FROM leases WHERE owner = $1 AND conversation_id = $2"
_DELETE = """
WITH gone AS (DELETE FROM events WHERE owner = $1 AND conversation_id = $2)
DELETE FROM conversations WHERE owner = $1 AND id = $2
"""
_BEGUN = """
SELECT 1 FROM leases WHERE owner = $1 AND creates = 1 AND expires_at > clock_timestamp()
    AND (conversation_id = ANY($2::text[]) OR name = ANY($2::text[]))
"""
_TAKEN = """
SELECT ref FROM unnest($2::text[]) AS ref
WHERE EXISTS (SELECT FROM conversations WHERE owner = $1 AND (id = ref OR name = ref)) LIMIT 1
"""


class PostgresEdits:
    """Changes, each in one transaction."""

    def __init__(self, pool: PostgresPool, *, clock: Clock, patience: float) -> None:
        self._pool = pool
        self._clock = clock
        self._patience = patience

    async def change(self, ref: str, owner: str, change: Change) -> Conversation:
        """Apply a change to the whole conversation."""

        async def work(connection: Connection, key: str) -> Conversation:
            stored = _found(await connection.fetch(sql.LOAD, owner, key), key)
            changed = change(edits.settled(stored, now=self._clock()))
            if changed != stored:
                await write_changes(connection, stored, changed)
            return changed

        return await self._alone(ref, owner, work)

    async def change_row(self, ref: str, owner: str, change: Change) -> Conversation:
        """Apply a change to what a conversation says about itself; no turn is looked at."""

        async def work(connection: Connection, key: str) -> Conversation:
            await connection.execute(sql.SETTLE, owner, key, self._clock(), INTERRUPTED, _A_CHANGE)
            stored = _found(await connection.fetch(sql.LOAD_TAIL, owner, key, 0), key)
            changed = change(stored)
            await update_row(connection, changed)
            return changed

        return await self._alone(ref, owner, work)

    async def delete(self, ref: str, owner: str) -> None:
        async def work(connection: Connection, key: str) -> None:
            await connection.execute(_DELETE, owner, key)

        await self._alone(ref, owner, work)

    async def create(self, conversation: Conversation) -> Conversation:
        """Keep a new conversation and its turns, unless a first turn is about to make it."""

        async def work(connection: Connection) -> Conversation:
            await _check_free(connection, conversation)
            await _check_not_begun(connection, conversation)
            await insert_whole(connection, conversation)
            return conversation

        return await self._added(work, conversation)

    async def branch(
        self, ref: str, fresh: Conversation, branch_of: Callable[[Conversation], Conversation]
    ) -> Conversation:
        """Keep a new conversation that has turns of another one, as that is at this moment."""
        check_id(ref)

        async def work(connection: Connection) -> Conversation:
            source = _found(await connection.fetch(sql.LOAD, fresh.owner, ref), ref)
            await _check_free(connection, fresh)
            branch = branch_of(source)
            await _check_not_begun(connection, fresh)
            await insert_copy(connection, branch, source.id)
            return branch

        return await self._added(work, fresh)

    async def _added(
        self,
        work: Callable[[Connection], Awaitable[Conversation]],
        conversation: Conversation,
    ) -> Conversation:
        try:
            return await self._pool.transact(work, frozen=True)
        except asyncpg.UniqueViolationError as error:
            raise ConversationExistsError(conversation.id) from error

    async def _alone(
        self, ref: str, owner: str, work: Callable[[Connection, str], Awaitable[T]]
    ) -> T:
        """Do the work while nobody runs a turn in the conversation."""
        check_id(ref)

        async def within(connection: Connection) -> tuple[T] | None:
            given: tuple[Any, ...] = (owner, ref, _A_CHANGE, _SECONDS, None, None)
            taken = await connection.fetchrow(sql.TAKE, *given)
            if taken is None:
                raise ConversationNotFoundError(ref)
            if taken["fence"] is None:
                return None
            done = await work(connection, taken["id"])
            await connection.execute(_FREE, owner, taken["id"])
            return (done,)

        done = await wait_until(
            lambda: self._pool.transact(within), wait=self._patience, longest_pause=LONGEST_PAUSE
        )
        if done is None:
            raise ConversationBusyError(ref)
        return done[0]


def _found(rows: list[asyncpg.Record], ref: str) -> Conversation:
    found = conversation_of(rows)
    if found is None:
        raise ConversationNotFoundError(ref)
    return found


def _refs(conversation: Conversation) -> list[str]:
    return [conversation.id, conversation.name or conversation.id]


async def _check_free(connection: Connection, new: Conversation) -> None:
    taken = await connection.fetchval(_TAKEN, new.owner, _refs(new))
    if taken is not None:
        raise ConversationExistsError(taken)


async def _check_not_begun(connection: Connection, new: Conversation) -> None:
    if await connection.fetchval(_BEGUN, new.owner, _refs(new)) is not None:
        raise ConversationBusyError(new.id)
