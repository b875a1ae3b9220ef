"""Turns in PostgreSQL: start one with a lease, renew the lease, finish or drop the turn.

While a lease is valid no other process changes the conversation, so finishing a turn reads nothing
again. After a lost connection, a start is undone and repeated; a finish is checked first.
"""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import datetime

import asyncpg
import msgspec

from cllm.core.conversation import (
    LOCAL_OWNER,
    StoredConversation,
    Turn,
    check_id,
    choose_title,
)
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
from cllm.stores.leases import lease_expiry, poll
from cllm.stores.postgres import statements as sql
from cllm.stores.postgres.connection import (
    MAX_PAUSE,
    TOO_LONG,
    Connection,
    PostgresBase,
    is_connection_lost,
)
from cllm.stores.postgres.edits import (
    INTERRUPTION_JSON,
    add_row,
    add_variant,
    append_turn,
    decode_digest_before,
    rewrite_turn,
    settle_running_turn,
)
from cllm.stores.postgres.reader import POSTGRES_CODEC, decode_conversation, encode_messages
from cllm.stores.sql.rows import CONVERSATION_COLUMNS, decode_text, encode_window
from cllm.stores.sql.validation import check_opening, check_start
from cllm.wire.path_digest import ROOT, digest_turn

MAX_TURN_ID_BYTES = 2000
"""The limit of the primary key of events."""


class _LeaseRow(msgspec.Struct, frozen=True):
    """`is_taken_over`: from a process that did not release it."""

    conversation: str
    fence: int
    creates: bool
    expires_at: datetime
    is_taken_over: bool


class PostgresTurns(PostgresBase):
    _lease_seconds: float

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
        if len(start.id.encode()) > MAX_TURN_ID_BYTES:
            raise UsageError(TOO_LONG)
        await self._ready()

        async def begin() -> Lease:
            lease_row = await self._take_lease(ref, start, owner, create, wait)
            try:
                return await self._start_turn(lease_row, start, owner, create, tail)
            except (UsageError, StoreError) as error:
                await self._release_after_error(lease_row, start, owner, error)
                raise
            except BaseException:
                await self._undo_start(lease_row, start, owner)
                raise

        try:
            return await begin()
        except StoreUnavailableError as error:
            if not is_connection_lost(error.__cause__):
                raise
            try:
                return await begin()
            except UsageError:
                # The turn was stored, and another process has marked it as interrupted since.
                raise error from error.__cause__
        except ConversationExistsError:
            # Another process created it between the search and the lease.
            if create is None:
                raise
        return await begin()

    async def _take_lease(
        self,
        ref: str,
        start: TurnStart,
        owner: str,
        create: NewConversation | None,
        wait: float | None,
    ) -> _LeaseRow:
        new = (None, None) if create is None else (create.id, create.name)
        holder: str | None = None

        async def attempt() -> _LeaseRow | None:
            nonlocal holder
            now = self._clock()
            values = (owner, ref, start.id, self._lease_seconds, *new)
            try:
                rows = await self._connections.fetch(sql.TAKE_LEASE, values)
            except BaseException:
                await self._release_by_turn(start.id, owner)
                raise
            if not rows:
                raise ConversationNotFoundError(ref)
            key, creates, fence, holder = rows[0]
            if fence is None:
                return None
            expires_at = lease_expiry(now, self._lease_seconds)
            return _LeaseRow(key, fence, bool(creates), expires_at, holder is not None)

        lease_row = await poll(attempt, wait=wait, max_pause=MAX_PAUSE)
        if lease_row is None:
            raise ConversationBusyError(ref, turn_id=holder)
        return lease_row

    async def _start_turn(
        self,
        lease_row: _LeaseRow,
        start: TurnStart,
        owner: str,
        create: NewConversation | None,
        tail: Tail,
    ) -> Lease:
        now = self._clock()
        if lease_row.is_taken_over and not lease_row.creates:
            await self._connections.transact(
                lambda connection: settle_running_turn(connection, owner, lease_row.conversation)
            )
        before: bytes | None = None
        if not lease_row.creates:
            key = (owner, lease_row.conversation, start.place)
            rows = await self._connections.fetch(sql.DIGEST_BEFORE, key, idempotent=True)
            before = decode_digest_before(rows)
        if start.visible and start.place is None and not lease_row.creates:
            conversation = await self._load_and_insert_turn(
                lease_row, start, owner, tail, now=now, before=before
            )
        else:
            conversation = await self._load(lease_row, start, owner, tail)
        if conversation is not None:
            return await self._continue_conversation(
                lease_row, conversation, start, before, now=now
            )
        if create is None:
            raise ConversationNotFoundError(lease_row.conversation)
        return await self._create_conversation(lease_row, start, owner, create, now=now)

    async def _load_and_insert_turn(
        self,
        lease_row: _LeaseRow,
        start: TurnStart,
        owner: str,
        tail: Tail,
        *,
        now: datetime,
        before: bytes | None,
    ) -> StoredConversation | None:
        messages = encode_messages(start.messages, digest_turn(start.messages, before))
        values = (owner, lease_row.conversation, start.id, start.model, now, INTERRUPTION_JSON)
        window = encode_window(edits.build_first_window(start))
        statement, tail_values = (
            (sql.BEGIN, ()) if tail is None else (sql.BEGIN_TAIL, (sql.tail_parameter(tail),))
        )
        try:
            return decode_conversation(
                await self._connections.fetch(statement, (*values, *messages, window, *tail_values))
            )
        except asyncpg.UniqueViolationError as error:
            raise edits.duplicate_turn_error(lease_row.conversation, start.id) from error

    async def _load(
        self, lease_row: _LeaseRow, start: TurnStart, owner: str, tail: Tail
    ) -> StoredConversation | None:
        if lease_row.creates:
            return None
        key = (owner, lease_row.conversation)
        if tail is None or start.place is not None:
            return decode_conversation(
                await self._connections.fetch(sql.LOAD, key, idempotent=True)
            )
        if await self._connections.fetch(sql.HAS_TURN, (*key, start.id), idempotent=True):
            raise edits.duplicate_turn_error(lease_row.conversation, start.id)
        rows = await self._connections.fetch(
            sql.LOAD_TAIL, (*key, sql.tail_parameter(tail)), idempotent=True
        )
        return decode_conversation(rows)

    async def _continue_conversation(
        self,
        lease_row: _LeaseRow,
        stored: StoredConversation,
        start: TurnStart,
        before: bytes | None,
        *,
        now: datetime,
    ) -> Lease:
        conversation = edits.mark_interrupted(stored)
        turn = edits.start_turn(conversation, start, now=now)
        if start.visible and start.place is not None:

            async def insert(connection: Connection) -> None:
                await connection.execute(
                    sql.MARK_INTERRUPTED, stored.owner, stored.id, INTERRUPTION_JSON, turn.id, None
                )
                await add_variant(connection, conversation, turn, before)

            await self._connections.transact(insert)
        return _build_lease(lease_row, conversation, turn, start, before, created=False)

    async def _create_conversation(
        self,
        lease_row: _LeaseRow,
        start: TurnStart,
        owner: str,
        create: NewConversation,
        *,
        now: datetime,
    ) -> Lease:
        conversation = edits.build_conversation(create, key=create.id, owner=owner, now=now)
        turn = edits.start_turn(conversation, start, now=now)
        before = conversation.path_start or ROOT

        async def insert(connection: Connection) -> None:
            refs = [create.id, create.name or create.id]
            if await connection.fetchval(sql.NAME_EXISTS, owner, refs) is not None:
                raise ConversationExistsError(create.id)
            if start.visible:
                await add_row(connection, edits.with_running_turn(conversation, turn))
                await append_turn(connection, conversation, turn, before)
                await connection.execute(sql.CLEAR_CREATES, owner, create.id)

        try:
            await self._connections.transact(insert)
        except asyncpg.UniqueViolationError as error:
            raise ConversationExistsError(create.id) from error
        return _build_lease(lease_row, conversation, turn, start, before, created=True)

    async def _release_after_error(
        self, lease_row: _LeaseRow, start: TurnStart, owner: str, error: CllmError
    ) -> None:
        """Release the lease; nothing was written unless the connection was lost."""
        if isinstance(error, StoreUnavailableError):
            await self._undo_start(lease_row, start, owner)
            return
        with suppress(StoreUnavailableError):
            await self._connections.fetch(
                sql.RELEASE_VALID_LEASE,
                (owner, lease_row.conversation, lease_row.fence),
                idempotent=True,
            )

    async def _undo_start(self, lease_row: _LeaseRow, start: TurnStart, owner: str) -> None:
        """Undo a start that was interrupted after an unknown statement."""
        undo = sql.DROP_UNCONFIRMED_CREATED if lease_row.creates else sql.DROP_UNCONFIRMED
        with suppress(StoreUnavailableError):
            await self._connections.fetch(
                undo, (owner, lease_row.conversation, lease_row.fence, start.id), idempotent=True
            )

    async def _release_by_turn(self, turn_id: str, owner: str) -> None:
        with suppress(StoreUnavailableError):
            await self._connections.fetch(
                sql.RELEASE_LEASE_OF_TURN, (owner, turn_id), idempotent=True
            )

    async def renew_lease(self, lease: Lease) -> Lease:
        now = self._clock()
        owner, key = lease.conversation.owner, lease.conversation.id
        if not await self._connections.fetch(
            sql.RENEW_LEASE, (owner, key, lease.fence, self._lease_seconds), idempotent=True
        ):
            raise StaleLeaseError(key)
        return msgspec.structs.replace(lease, expires_at=lease_expiry(now, self._lease_seconds))

    async def cancel_turn(self, ref: str, turn_id: str, *, owner: str = LOCAL_OWNER) -> bool:
        await self._ready()

        async def cancel(connection: Connection) -> bool:
            if not await connection.fetch(sql.TAKE_FROM_TURN, owner, ref, turn_id):
                return False
            await settle_running_turn(connection, owner, ref, cancelled_at=self._clock())
            return True

        return await self._connections.transact(cancel)

    async def save_opening(self, lease: Lease, opening: Opening) -> Lease:
        check_opening(opening)
        opened = edits.lease_with_opening(lease, opening)
        new = opened.conversation
        if lease.visible and new != lease.conversation:
            row = dict(
                zip(CONVERSATION_COLUMNS, POSTGRES_CODEC.encode_conversation(new), strict=True)
            )
            values = (row["system"], row["system_record"], row["context_record"])
            key = (new.owner, new.id, lease.fence)
            if not await self._connections.fetch(
                sql.SAVE_OPENING, (*key, *values), idempotent=True
            ):
                raise StaleLeaseError(new.id)
        return opened

    async def finish_turn(
        self, lease: Lease, turn: Turn, *, opening: Opening | None = None
    ) -> None:
        if turn.id != lease.turn.id:
            raise edits.wrong_turn_error(lease.turn.id, turn.id)
        new = edits.with_finished_turn(lease.conversation, turn, opening=opening, now=self._clock())
        if new.title is None:
            new = await self._with_title(new)
        finish = self._finish_appended if _only_appends(lease, turn) else self._finish_rewritten
        try:
            await finish(lease, turn, new)
        except StoreUnavailableError as error:
            if not is_connection_lost(error.__cause__):
                raise
            await self._finish_if_undone(lease, turn, lambda: finish(lease, turn, new))
        except (UsageError, ConversationExistsError):
            key = (new.owner, new.id, lease.fence)
            await self._connections.fetch(sql.RELEASE_VALID_LEASE, key, idempotent=True)
            raise

    async def drop_turn(self, lease: Lease) -> None:
        owner, key = lease.conversation.owner, lease.conversation.id
        try:
            await self._drop(owner, key, lease.fence, lease.turn.id, created=lease.created)
        except StoreUnavailableError as error:
            if not is_connection_lost(error.__cause__):
                raise
            with suppress(StaleLeaseError):
                await self._drop(owner, key, lease.fence, lease.turn.id, created=lease.created)

    async def _drop(self, owner: str, key: str, fence: int, turn_id: str, *, created: bool) -> None:
        if created:
            rows = await self._connections.fetch(sql.DROP_CREATED, (owner, key, fence))
        else:
            rows = await self._connections.fetch(sql.DROP, (owner, key, fence, turn_id))
        if not rows:
            raise StaleLeaseError(key)

    async def _with_title(self, new: StoredConversation) -> StoredConversation:
        if new.first_sequence == 1:
            return new
        rows = await self._connections.fetch(
            sql.TITLE_MESSAGES, (new.owner, new.id), idempotent=True
        )
        if not rows:
            return new
        title = choose_title(decode_text(*row) for row in rows)
        return msgspec.structs.replace(new, title=title)

    async def _finish_appended(self, lease: Lease, turn: Turn, new: StoredConversation) -> None:
        owner, key = new.owner, new.id
        stored = len(lease.turn.messages)
        digests = digest_turn(turn.messages, lease.before)
        _, _, *values = POSTGRES_CODEC.encode_turn(turn)
        row = dict(zip(CONVERSATION_COLUMNS, POSTGRES_CODEC.encode_conversation(new), strict=True))
        rows = await self._connections.fetch(
            sql.FINISH,
            (
                owner,
                key,
                lease.fence,
                turn.id,
                *values,
                *(row[column] for column in _FINISH_COLUMNS),
                stored - 1,
                *encode_messages(turn.messages[stored:], digests[stored:]),
            ),
        )
        if not rows:
            raise StaleLeaseError(key)

    async def _finish_rewritten(self, lease: Lease, turn: Turn, new: StoredConversation) -> None:
        """Finish a turn that was hidden, is a variant, or changed its stored messages."""
        before = lease.conversation
        owner, key = before.owner, before.id

        async def save(connection: Connection) -> None:
            if not await connection.fetch(sql.RELEASE_VALID_LEASE, owner, key, lease.fence):
                raise StaleLeaseError(key)
            if lease.visible:
                await connection.execute(sql.DELETE_TURN, owner, key, turn.id)
            await connection.execute(
                sql.MARK_INTERRUPTED, owner, key, INTERRUPTION_JSON, turn.id, None
            )
            if lease.created and not lease.visible:
                await add_row(connection, new)
            await rewrite_turn(connection, before, turn, new, lease.before)

        try:
            await self._connections.transact(save)
        except asyncpg.UniqueViolationError as error:
            if error.table_name == "conversations":
                raise ConversationExistsError(key) from error
            raise edits.duplicate_turn_error(key, turn.id) from error

    async def _finish_if_undone(
        self, lease: Lease, turn: Turn, finish: Callable[[], Awaitable[None]]
    ) -> None:
        owner, key = lease.conversation.owner, lease.conversation.id
        values = (owner, key, turn.id, turn.state, lease.fence)
        if not await self._connections.fetch(sql.IS_FINISHED, values, idempotent=True):
            await finish()


def _build_lease(
    lease_row: _LeaseRow,
    conversation: StoredConversation,
    turn: Turn,
    start: TurnStart,
    before: bytes | None,
    *,
    created: bool,
) -> Lease:
    return Lease(
        conversation=conversation,
        turn=turn,
        fence=lease_row.fence,
        created=created,
        visible=start.visible,
        expires_at=lease_row.expires_at,
        before=before,
    )


_FINISH_COLUMNS = (
    "title",
    "updated_at",
    "message_count",
    "system",
    "system_record",
    "context_record",
)


def _only_appends(lease: Lease, turn: Turn) -> bool:
    stored = lease.turn
    return (
        lease.visible
        and turn.place == stored.place == stored.id
        and turn.messages[: len(stored.messages)] == stored.messages
    )
