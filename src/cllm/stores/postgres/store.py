"""Conversations in PostgreSQL, for more than one machine.

Each operation uses a connection for one statement or one short transaction.
"""

import asyncpg

from cllm.core.conversation import LOCAL_OWNER, Conversation
from cllm.core.errors import ConversationExistsError
from cllm.core.ports import Clock
from cllm.stores.edits import Change, Reads
from cllm.stores.postgres.connection import Connection
from cllm.stores.postgres.edits import delete, edit, insert, while_free
from cllm.stores.postgres.lists import PostgresLists
from cllm.stores.postgres.reading import PostgresReading
from cllm.stores.postgres.requests import PostgresRequests
from cllm.stores.postgres.turns import PostgresTurns
from cllm.stores.sql.store import SqlStore

LEASE_SECONDS = 60.0


class PostgresStore(PostgresTurns, PostgresReading, PostgresLists, PostgresRequests, SqlStore):
    def __init__(
        self,
        url: str,
        *,
        clock: Clock,
        lease_seconds: float = LEASE_SECONDS,
        patience: float = 5.0,
    ) -> None:
        super().__init__(url, clock=clock)
        self._seconds = lease_seconds
        self._patience = patience

    async def delete(self, ref: str, *, owner: str = LOCAL_OWNER) -> None:
        async def work(connection: Connection, key: str) -> None:
            await delete(connection, owner, key)

        await while_free(await self._ready(), ref, owner, work, patience=self._patience)

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
