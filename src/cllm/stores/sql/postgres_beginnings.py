"""Turns begun on PostgreSQL: a lease is taken, and the conversation looked at once it is.

After a lost connection a beginning is undone and made again. What is not known to have been taken
is given back. Never ends a turn.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime, timedelta

import asyncpg
import msgspec

from cllm.core.conversation import Conversation, Turn
from cllm.core.errors import (
    CllmError,
    ConversationBusyError,
    ConversationExistsError,
    ConversationNotFoundError,
    StoreError,
    StoreUnavailableError,
    UsageError,
)
from cllm.core.identity import check_id
from cllm.core.ports import Clock, Lease, NewConversation, Tail, TurnStart
from cllm.stores import edits
from cllm.stores.sql import postgres_statements as sql
from cllm.stores.sql.given import check_new
from cllm.stores.sql.keepable import check_messages, check_text
from cllm.stores.sql.postgres_errors import TOO_LONG, is_lost
from cllm.stores.sql.postgres_pool import LONGEST_PAUSE, Connection, PostgresPool
from cllm.stores.sql.postgres_rows import conversation_of, message_arrays
from cllm.stores.sql.postgres_writing import add_variant, append_turn, insert_row
from cllm.stores.sql.rows import encode_json
from cllm.stores.waiting import wait_until

INTERRUPTED = encode_json(edits.INTERRUPTION)
LONGEST_ID = 2000
"""Bytes of a turn's id: in the key of its events there is room for so many."""
_TAKEN = """
SELECT id FROM conversations WHERE owner = $1
    AND (id = ANY($2::text[]) OR name = ANY($2::text[])) LIMIT 1
"""
_HAS_TURN = f"SELECT 1 FROM turns WHERE {sql.OF_CONVERSATION} AND {sql.has_id('$3')}"  # noqa: S608
_SHOWN = "UPDATE leases SET creates = 0 WHERE owner = $1 AND conversation_id = $2"


class _Taken(msgspec.Struct, frozen=True):
    """A lease that was taken, and until when by our own clock."""

    conversation: str
    fence: int
    creates: bool
    expires_at: datetime


class PostgresBeginnings:
    """How a turn begins."""

    def __init__(self, pool: PostgresPool, *, clock: Clock, lease_seconds: float) -> None:
        self._pool = pool
        self._clock = clock
        self._seconds = lease_seconds

    async def begin(
        self,
        ref: str,
        start: TurnStart,
        *,
        owner: str,
        create: NewConversation | None,
        wait: float | None,
        tail: Tail,
    ) -> Lease:
        check_id(ref)
        check_messages(start.messages)
        check_text(start.id, start.model)
        if len(start.id.encode()) > LONGEST_ID:
            raise UsageError(TOO_LONG)
        if create is not None:
            check_new(create)

        async def once() -> Lease:
            taken = await self._take(ref, start, owner, create, wait)
            try:
                return await self._open(taken, start, owner, create, tail)
            except (UsageError, StoreError) as error:
                await self._give_up(taken, start, owner, error)
                raise
            except BaseException:
                await self._drop_taken(taken, start, owner)
                raise

        try:
            return await once()
        except StoreUnavailableError as error:
            if not is_lost(error.__cause__):
                raise
            return await self._begin_again(once, error)
        except ConversationExistsError:
            # Somebody made it in the moment between the look for it and the lease.
            if create is None:
                raise
        return await once()

    async def _begin_again(
        self, begin: Callable[[], Awaitable[Lease]], lost: StoreUnavailableError
    ) -> Lease:
        """Begin after a lost connection.

        If the turn is there all the same, it was begun, and somebody who took its lease when that
        had run out has found it interrupted.
        """
        try:
            return await begin()
        except UsageError:
            raise lost from lost.__cause__

    async def _take(
        self,
        ref: str,
        start: TurnStart,
        owner: str,
        create: NewConversation | None,
        wait: float | None,
    ) -> _Taken:
        new = (None, None) if create is None else (create.id, create.name)
        holder: str | None = None

        async def attempt() -> _Taken | None:
            nonlocal holder
            asked = self._clock()
            given = (owner, ref, start.id, self._seconds, *new)
            try:
                rows = await self._pool.fetch(sql.TAKE, given)
            except BaseException:
                await self._undo_take(start.id, owner)
                raise
            if not rows:
                raise ConversationNotFoundError(ref)
            key, creates, fence, holder = rows[0]
            if fence is None:
                return None
            return _Taken(key, fence, bool(creates), expiry(asked, self._seconds))

        taken = await wait_until(attempt, wait=wait, longest_pause=LONGEST_PAUSE)
        if taken is None:
            raise ConversationBusyError(ref, turn_id=holder)
        return taken

    async def _open(
        self,
        taken: _Taken,
        start: TurnStart,
        owner: str,
        create: NewConversation | None,
        tail: Tail,
    ) -> Lease:
        """The conversation as it is now that nobody else changes it, and the turn in it."""
        now = self._clock()
        if start.visible and start.place is None and not taken.creates:
            found = await self._begin_shown(taken, start, owner, tail, now)
        else:
            found = await self._found(taken, start, owner, tail)
        if found is not None:
            return await self._granted(taken, found, start, now=now)
        if create is None:
            raise ConversationNotFoundError(taken.conversation)
        return await self._created(taken, start, owner, create, now=now)

    async def _begin_shown(
        self, taken: _Taken, start: TurnStart, owner: str, tail: Tail, now: datetime
    ) -> Conversation | None:
        said = message_arrays(start.messages)
        given = (owner, taken.conversation, start.id, start.model, now, INTERRUPTED)
        statement, more = (
            (sql.BEGIN, ()) if tail is None else (sql.BEGIN_TAIL, (sql.tail_count(tail),))
        )
        try:
            return conversation_of(await self._pool.fetch(statement, (*given, *said, *more)))
        except asyncpg.UniqueViolationError as error:
            raise edits.taken_turn(taken.conversation, start.id) from error

    async def _found(
        self, taken: _Taken, start: TurnStart, owner: str, tail: Tail
    ) -> Conversation | None:
        """The conversation for a turn that is not shown in it yet, and cannot be there before."""
        if taken.creates:
            return None
        key = (owner, taken.conversation)
        if tail is None or start.place is not None:
            return conversation_of(await self._pool.fetch(sql.LOAD, key, twice=True))
        if await self._pool.fetch(_HAS_TURN, (*key, start.id), twice=True):
            raise edits.taken_turn(taken.conversation, start.id)
        rows = await self._pool.fetch(sql.LOAD_TAIL, (*key, sql.tail_count(tail)), twice=True)
        return conversation_of(rows)

    async def _granted(
        self, taken: _Taken, found: Conversation, start: TurnStart, *, now: datetime
    ) -> Lease:
        conversation = edits.settled(found, now=now)
        turn = edits.started_turn(conversation, start, now=now)
        if start.visible and start.place is not None:

            async def show(connection: Connection) -> None:
                await connection.execute(
                    sql.SETTLE, found.owner, found.id, now, INTERRUPTED, turn.id
                )
                await add_variant(connection, conversation, turn)

            await self._pool.transact(show)
        return _lease(taken, conversation, turn, start, created=False)

    async def _created(
        self,
        taken: _Taken,
        start: TurnStart,
        owner: str,
        create: NewConversation,
        *,
        now: datetime,
    ) -> Lease:
        conversation = edits.new_conversation(create, key=create.id, owner=owner, now=now)
        turn = edits.started_turn(conversation, start, now=now)

        async def make(connection: Connection) -> None:
            refs = [create.id, create.name or create.id]
            if await connection.fetchval(_TAKEN, owner, refs) is not None:
                raise ConversationExistsError(create.id)
            if start.visible:
                await insert_row(connection, edits.with_running(conversation, turn))
                await append_turn(connection, conversation, turn)
                await connection.execute(_SHOWN, owner, create.id)

        try:
            await self._pool.transact(make)
        except asyncpg.UniqueViolationError as error:
            raise ConversationExistsError(create.id) from error
        return _lease(taken, conversation, turn, start, created=True)

    async def _give_up(self, taken: _Taken, start: TurnStart, owner: str, error: CllmError) -> None:
        """Give the lease back; what was to be written was not, unless the connection was lost."""
        if isinstance(error, StoreUnavailableError):
            await self._drop_taken(taken, start, owner)
            return
        with suppress(StoreUnavailableError):
            await self._pool.fetch(
                sql.GIVE_BACK, (owner, taken.conversation, taken.fence), twice=True
            )

    async def _drop_taken(self, taken: _Taken, start: TurnStart, owner: str) -> None:
        """Undo a beginning about which nobody knows how far it came."""
        undo = sql.DROP_BEGUN if taken.creates else sql.DROP_UNTAKEN
        with suppress(StoreUnavailableError):
            await self._pool.fetch(
                undo, (owner, taken.conversation, taken.fence, start.id), twice=True
            )

    async def _undo_take(self, turn_id: str, owner: str) -> None:
        """Give back a lease about which nobody knows whether it was taken."""
        with suppress(StoreUnavailableError):
            await self._pool.fetch(sql.FORGET, (owner, turn_id), twice=True)


def _lease(
    taken: _Taken, conversation: Conversation, turn: Turn, start: TurnStart, *, created: bool
) -> Lease:
    return Lease(
        conversation=conversation,
        turn=turn,
        fence=taken.fence,
        created=created,
        visible=start.visible,
        expires_at=taken.expires_at,
    )


def expiry(asked: datetime, seconds: float) -> datetime:
    """Until when a lease lasts at least: counted from before it was asked for."""
    return asked + timedelta(seconds=seconds)
