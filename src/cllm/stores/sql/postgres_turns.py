"""Turns on PostgreSQL that have begun: their lease is renewed, and given back with what was said.

While a lease lasts nobody else changes the conversation, so what it was when the turn began is
all that is needed to end it; nothing is read again. After a lost connection an ending is looked up
before it is called lost.
"""

# ruff: noqa: S608 - names of columns are put into the text; every value is bound

from collections.abc import Awaitable, Callable
from contextlib import suppress

import asyncpg
import msgspec

from cllm.core.conversation import Conversation, Turn, title_from
from cllm.core.errors import (
    ConversationExistsError,
    StaleLeaseError,
    StoreUnavailableError,
    UsageError,
)
from cllm.core.ports import Clock, Lease, Opening
from cllm.stores import edits
from cllm.stores.sql import postgres_statements as sql
from cllm.stores.sql.postgres_beginnings import INTERRUPTED, expiry
from cllm.stores.sql.postgres_errors import is_lost
from cllm.stores.sql.postgres_pool import Connection, PostgresPool
from cllm.stores.sql.postgres_rows import CODEC, message_arrays
from cllm.stores.sql.postgres_writing import append_turn, insert_row, update_row, write_changes
from cllm.stores.sql.rows import CONVERSATION_COLUMNS, decode_text

_DELETE_TURN = f"DELETE FROM turns WHERE {sql.OF_CONVERSATION} AND {sql.has_id('$3')}"
_KEPT = ("title", "updated_at", "message_count", "system", "system_record", "context_record")


class PostgresTurns:
    """How a turn goes on and ends."""

    def __init__(self, pool: PostgresPool, *, clock: Clock, lease_seconds: float) -> None:
        self._pool = pool
        self._clock = clock
        self._seconds = lease_seconds

    async def renew(self, lease: Lease) -> Lease:
        asked = self._clock()
        owner, key = lease.conversation.owner, lease.conversation.id
        if not await self._pool.fetch(
            sql.RENEW, (owner, key, lease.fence, self._seconds), twice=True
        ):
            raise StaleLeaseError(key)
        return msgspec.structs.replace(lease, expires_at=expiry(asked, self._seconds))

    async def finish(self, lease: Lease, turn: Turn, *, opening: Opening | None) -> None:
        if turn.id != lease.turn.id:
            raise edits.not_its_turn(lease.turn.id, turn.id)
        new = edits.with_finished(lease.conversation, turn, opening=opening, now=self._clock())
        if new.title is None:
            new = await self._with_title(new)
        finish = self._finish_shown if _only_adds(lease, turn) else self._finish_otherwise
        try:
            await finish(lease, turn, new)
        except StoreUnavailableError as error:
            if not is_lost(error.__cause__):
                raise
            await self._finish_again(lease, turn, lambda: finish(lease, turn, new))
        except (UsageError, ConversationExistsError):
            key = (new.owner, new.id, lease.fence)
            await self._pool.fetch(sql.GIVE_BACK, key, twice=True)
            raise

    async def drop(self, lease: Lease) -> None:
        owner, key = lease.conversation.owner, lease.conversation.id
        try:
            await self._drop(owner, key, lease.fence, lease.turn.id, created=lease.created)
        except StoreUnavailableError as error:
            if not is_lost(error.__cause__):
                raise
            with suppress(StaleLeaseError):
                await self._drop(owner, key, lease.fence, lease.turn.id, created=lease.created)

    async def _drop(self, owner: str, key: str, fence: int, turn_id: str, *, created: bool) -> None:
        if created:
            ended = await self._pool.fetch(sql.DROP_CREATED, (owner, key, fence))
        else:
            ended = await self._pool.fetch(sql.DROP, (owner, key, fence, turn_id))
        if not ended:
            raise StaleLeaseError(key)

    async def _with_title(self, new: Conversation) -> Conversation:
        """A title from what was said first, if that is not among what was loaded."""
        if new.first_sequence == 1:
            return new
        rows = await self._pool.fetch(sql.FIRST_SAID, (new.owner, new.id), twice=True)
        if not rows:
            return new
        return msgspec.structs.replace(new, title=title_from(decode_text(*rows[0])))

    async def _finish_shown(self, lease: Lease, turn: Turn, new: Conversation) -> None:
        owner, key = new.owner, new.id
        shown = len(lease.turn.messages)
        _, _, *ending = CODEC.encode_turn(turn)
        row = dict(zip(CONVERSATION_COLUMNS, CODEC.encode_conversation(new), strict=True))
        ended = await self._pool.fetch(
            sql.FINISH,
            (
                owner,
                key,
                lease.fence,
                turn.id,
                *ending,
                *(row[column] for column in _KEPT),
                shown - 1,
                lease.conversation.message_count + shown,
                *message_arrays(turn.messages[shown:]),
            ),
        )
        if not ended:
            raise StaleLeaseError(key)

    async def _finish_otherwise(self, lease: Lease, turn: Turn, new: Conversation) -> None:
        """A turn that was hidden, that takes another's place, or that was shown otherwise."""
        before = lease.conversation
        owner, key = before.owner, before.id

        async def keep(connection: Connection) -> None:
            if not await connection.fetch(sql.GIVE_BACK, owner, key, lease.fence):
                raise StaleLeaseError(key)
            if lease.visible:
                await connection.execute(_DELETE_TURN, owner, key, turn.id)
            await connection.execute(sql.SETTLE, owner, key, new.updated_at, INTERRUPTED, turn.id)
            if any(shown.place == turn.place for shown in before.turns):
                await write_changes(connection, before, new)
                return
            if lease.created and not lease.visible:
                await insert_row(connection, new)
            else:
                await update_row(connection, new)
            await append_turn(connection, before, turn)

        try:
            await self._pool.transact(keep)
        except asyncpg.UniqueViolationError as error:
            if error.table_name == "conversations":
                raise ConversationExistsError(key) from error
            raise edits.taken_turn(key, turn.id) from error

    async def _finish_again(
        self, lease: Lease, turn: Turn, finish: Callable[[], Awaitable[None]]
    ) -> None:
        """Finish after a lost connection, unless that was done just before it was lost."""
        owner, key = lease.conversation.owner, lease.conversation.id
        found = (owner, key, turn.id, turn.state, lease.fence)
        if not await self._pool.fetch(sql.FINISHED, found, twice=True):
            await finish()


def _only_adds(lease: Lease, turn: Turn) -> bool:
    """Whether the turn stands where it was shown and its messages are those shown, and more."""
    shown = lease.turn
    return (
        lease.visible
        and turn.place == shown.place == shown.id
        and turn.messages[: len(shown.messages)] == shown.messages
    )
