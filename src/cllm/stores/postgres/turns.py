"""A turn in PostgreSQL: started with a lease, renewed, finished or dropped.

While a lease is valid nobody else changes the conversation, so its end reads nothing again. After a
lost connection a start is undone and repeated; an end is looked up first.
"""

# ruff: noqa: S608 - only column names are put into the text

from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime, timedelta

import asyncpg
import msgspec

from cllm.core.conversation import LOCAL_OWNER, StoredConversation, Turn, check_id, make_title
from cllm.core.errors import (
    CllmError,
    ConversationBusyError,
    ConversationExistsError,
    ConversationNotFoundError,
    StaleLeaseError,
    StoreError,
    StoreUnavailableError,
    UsageError,
)
from cllm.core.ports import Lease, NewConversation, Opening, Tail, TurnStart
from cllm.stores import edits
from cllm.stores.locks import wait_until
from cllm.stores.postgres import statements as sql
from cllm.stores.postgres.connection import (
    LONGEST_PAUSE,
    TOO_LONG,
    Connection,
    PostgresBase,
    is_lost,
)
from cllm.stores.postgres.edits import (
    INTERRUPTED,
    add_variant,
    append_turn,
    insert_row,
    save,
    update_row,
)
from cllm.stores.postgres.reader import CODEC, conversation_of, message_arrays
from cllm.stores.sql.rows import CONVERSATION_COLUMNS, check_start, decode_text

LONGEST_ID = 2000
"""Bytes of a turn's id, limited by the key of its events."""
_TAKEN = """
SELECT id FROM conversations WHERE owner = $1
    AND (id = ANY($2::text[]) OR name = ANY($2::text[])) LIMIT 1
"""
_HAS_TURN = f"SELECT 1 FROM turns WHERE {sql.OF_CONVERSATION} AND {sql.has_id('$3')}"
_SHOWN = "UPDATE leases SET creates = 0 WHERE owner = $1 AND conversation_id = $2"


class _Taken(msgspec.Struct, frozen=True):
    conversation: str
    fence: int
    creates: bool
    expires_at: datetime


class PostgresTurns(PostgresBase):
    _seconds: float
    """How long a lease lasts."""

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
        check_id(ref)
        check_start(start, create)
        if len(start.id.encode()) > LONGEST_ID:
            raise UsageError(TOO_LONG)
        await self._ready()

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
            try:
                return await once()
            except UsageError:
                # The turn was stored, and another process has settled it since.
                raise error from error.__cause__
        except ConversationExistsError:
            # Another process created it between the search and the lease.
            if create is None:
                raise
        return await once()

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
                rows = await self._connections.fetch(sql.TAKE, given)
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
    ) -> StoredConversation | None:
        said = message_arrays(start.messages)
        given = (owner, taken.conversation, start.id, start.model, now, INTERRUPTED)
        statement, more = (
            (sql.BEGIN, ()) if tail is None else (sql.BEGIN_TAIL, (sql.tail_count(tail),))
        )
        try:
            return conversation_of(await self._connections.fetch(statement, (*given, *said, *more)))
        except asyncpg.UniqueViolationError as error:
            raise edits.taken_turn(taken.conversation, start.id) from error

    async def _found(
        self, taken: _Taken, start: TurnStart, owner: str, tail: Tail
    ) -> StoredConversation | None:
        if taken.creates:
            return None
        key = (owner, taken.conversation)
        if tail is None or start.place is not None:
            return conversation_of(await self._connections.fetch(sql.LOAD, key, twice=True))
        if await self._connections.fetch(_HAS_TURN, (*key, start.id), twice=True):
            raise edits.taken_turn(taken.conversation, start.id)
        rows = await self._connections.fetch(
            sql.LOAD_TAIL, (*key, sql.tail_count(tail)), twice=True
        )
        return conversation_of(rows)

    async def _granted(
        self, taken: _Taken, found: StoredConversation, start: TurnStart, *, now: datetime
    ) -> Lease:
        conversation = edits.settled(found, now=now)
        turn = edits.started_turn(conversation, start, now=now)
        if start.visible and start.place is not None:

            async def show(connection: Connection) -> None:
                await connection.execute(
                    sql.SETTLE, found.owner, found.id, now, INTERRUPTED, turn.id
                )
                await add_variant(connection, conversation, turn)

            await self._connections.transact(show)
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
            await self._connections.transact(make)
        except asyncpg.UniqueViolationError as error:
            raise ConversationExistsError(create.id) from error
        return _lease(taken, conversation, turn, start, created=True)

    async def _give_up(self, taken: _Taken, start: TurnStart, owner: str, error: CllmError) -> None:
        """Release the lease; nothing was written unless the connection was lost."""
        if isinstance(error, StoreUnavailableError):
            await self._drop_taken(taken, start, owner)
            return
        with suppress(StoreUnavailableError):
            await self._connections.fetch(
                sql.GIVE_BACK, (owner, taken.conversation, taken.fence), twice=True
            )

    async def _drop_taken(self, taken: _Taken, start: TurnStart, owner: str) -> None:
        """Undo a start that may have been interrupted anywhere."""
        undo = sql.DROP_BEGUN if taken.creates else sql.DROP_UNTAKEN
        with suppress(StoreUnavailableError):
            await self._connections.fetch(
                undo, (owner, taken.conversation, taken.fence, start.id), twice=True
            )

    async def _undo_take(self, turn_id: str, owner: str) -> None:
        with suppress(StoreUnavailableError):
            await self._connections.fetch(sql.FORGET, (owner, turn_id), twice=True)

    async def renew_lease(self, lease: Lease) -> Lease:
        asked = self._clock()
        owner, key = lease.conversation.owner, lease.conversation.id
        if not await self._connections.fetch(
            sql.RENEW, (owner, key, lease.fence, self._seconds), twice=True
        ):
            raise StaleLeaseError(key)
        return msgspec.structs.replace(lease, expires_at=expiry(asked, self._seconds))

    async def finish_turn(
        self, lease: Lease, turn: Turn, *, opening: Opening | None = None
    ) -> None:
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
            await self._connections.fetch(sql.GIVE_BACK, key, twice=True)
            raise

    async def drop_turn(self, lease: Lease) -> None:
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
            ended = await self._connections.fetch(sql.DROP_CREATED, (owner, key, fence))
        else:
            ended = await self._connections.fetch(sql.DROP, (owner, key, fence, turn_id))
        if not ended:
            raise StaleLeaseError(key)

    async def _with_title(self, new: StoredConversation) -> StoredConversation:
        if new.first_sequence == 1:
            return new
        rows = await self._connections.fetch(sql.FIRST_SAID, (new.owner, new.id), twice=True)
        if not rows:
            return new
        return msgspec.structs.replace(new, title=make_title(decode_text(*rows[0])))

    async def _finish_shown(self, lease: Lease, turn: Turn, new: StoredConversation) -> None:
        owner, key = new.owner, new.id
        shown = len(lease.turn.messages)
        _, _, *ending = CODEC.encode_turn(turn)
        row = dict(zip(CONVERSATION_COLUMNS, CODEC.encode_conversation(new), strict=True))
        ended = await self._connections.fetch(
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

    async def _finish_otherwise(self, lease: Lease, turn: Turn, new: StoredConversation) -> None:
        """Finish a turn that was hidden, is a variant, or changed its messages."""
        before = lease.conversation
        owner, key = before.owner, before.id

        async def keep(connection: Connection) -> None:
            if not await connection.fetch(sql.GIVE_BACK, owner, key, lease.fence):
                raise StaleLeaseError(key)
            if lease.visible:
                await connection.execute(_DELETE_TURN, owner, key, turn.id)
            await connection.execute(sql.SETTLE, owner, key, new.updated_at, INTERRUPTED, turn.id)
            if any(shown.place == turn.place for shown in before.turns):
                await add_variant(connection, before, turn)
                variants = (*before.variants, turn)
                old = msgspec.structs.replace(before, variants=variants)
                await save(connection, old, new)
                return
            if lease.created and not lease.visible:
                await insert_row(connection, new)
            else:
                await update_row(connection, new)
            await append_turn(connection, before, turn)

        try:
            await self._connections.transact(keep)
        except asyncpg.UniqueViolationError as error:
            if error.table_name == "conversations":
                raise ConversationExistsError(key) from error
            raise edits.taken_turn(key, turn.id) from error

    async def _finish_again(
        self, lease: Lease, turn: Turn, finish: Callable[[], Awaitable[None]]
    ) -> None:
        owner, key = lease.conversation.owner, lease.conversation.id
        found = (owner, key, turn.id, turn.state, lease.fence)
        if not await self._connections.fetch(sql.FINISHED, found, twice=True):
            await finish()


def _lease(
    taken: _Taken, conversation: StoredConversation, turn: Turn, start: TurnStart, *, created: bool
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
    """Counted from before the lease was requested."""
    return asked + timedelta(seconds=seconds)


_DELETE_TURN = f"DELETE FROM turns WHERE {sql.OF_CONVERSATION} AND {sql.has_id('$3')}"
_KEPT = ("title", "updated_at", "message_count", "system", "system_record", "context_record")


def _only_adds(lease: Lease, turn: Turn) -> bool:
    shown = lease.turn
    return (
        lease.visible
        and turn.place == shown.place == shown.id
        and turn.messages[: len(shown.messages)] == shown.messages
    )
