"""Conversations, idempotent requests (as hashes), stream events and calls in one SQLite file.

Each operation is one hop to a thread and one transaction. A fencing
number rejects late writers. Nothing is locked while a provider is called.
"""

import asyncio
import contextlib
import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TypeVar

import msgspec

from cllm.core.conversation import LOCAL_OWNER, StoredConversation, Summary, Turn, check_id
from cllm.core.errors import (
    ConversationBusyError,
    RequestInFlightError,
    SettingsError,
    StoreError,
    StoreUnavailableError,
    TurnNotFoundError,
    UsageError,
)
from cllm.core.message import Message
from cllm.core.ports import (
    UNANSWERED_KEPT,
    CallRecord,
    Clock,
    ImportedFields,
    KeptResponse,
    Lease,
    NewConversation,
    Opening,
    Outline,
    RequestClaim,
    RequestKey,
    Store,
    StreamEvent,
    Tail,
    TurnPart,
    TurnStart,
)
from cllm.stores import edits
from cllm.stores.editing_store import Change, ReadScope
from cllm.stores.leases import LEASE_SECONDS, ProcessLock, lease_expiry, poll
from cllm.stores.sql.rows import Row, decode_headers, decode_imported, decode_response, encode_json
from cllm.stores.sql.store import SqlStore
from cllm.stores.sql.validation import check_opening, check_start, check_text
from cllm.stores.sqlite import edits as sqlite_edits
from cllm.stores.sqlite import reader, turns
from cllm.stores.sqlite import statements as sql
from cllm.stores.sqlite.connection import BUSY_SECONDS, SqliteBase, SqliteFile, Synchronous
from cllm.stores.sqlite.lists import SqliteLists
from cllm.stores.sqlite.reader import SQLITE_CODEC, find_conversation
from cllm.stores.sqlite.turn_cache import TurnCache
from cllm.stores.sqlite.turns import check_lease

if TYPE_CHECKING:
    from cllm.core.ports.snapshot import ServerRow, Snapshot

T = TypeVar("T")

PATIENCE = 5.0
_SYNCHRONOUS: dict[str, Synchronous] = {
    "": "FULL",
    "synchronous=full": "FULL",
    "synchronous=normal": "NORMAL",
}


class SqliteRequests(SqliteBase):
    _process: ProcessLock

    async def check_writable(self) -> None:
        await self._file.check_writable()

    async def claim_request(
        self, request: RequestKey, *, seconds: float
    ) -> RequestClaim | KeptResponse:
        def write(db: sqlite3.Connection) -> RequestClaim | KeptResponse:
            now = self._clock()
            row = db.execute(sql.REQUEST, (request.owner, request.key)).fetchone()
            if row is not None and self._is_current(row, now):
                return decode_response(row[2:], request)
            claim = RequestClaim(request=request, until=now + timedelta(seconds=seconds))
            if row is not None and row[2] == request.body and row[3] is None:
                headers = decode_headers(row[4])
                claim = msgspec.structs.replace(claim, headers=headers, body=row[5])
            key = (request.owner, request.key, request.body)
            db.execute(
                sql.CLAIM_REQUEST,
                (
                    *key,
                    SQLITE_CODEC.encode_time(claim.until),
                    *_claim_values(claim),
                    self._process.name(),
                ),
            )
            return claim

        return await self._file.write(write)

    def _is_current(self, row: Row, now: datetime) -> bool:
        """Whether the row is a response that has not expired, or the claim of a living process."""
        expires_at, holder, _, status, *_ = row
        is_lost = status is None and self._process.is_dead(holder)
        return SQLITE_CODEC.decode_time(expires_at) > now and not is_lost

    async def renew_claim(self, claim: RequestClaim, *, seconds: float) -> RequestClaim:
        return await self._extend_claim(claim, seconds)

    async def keep_response(self, claim: RequestClaim, *, status: int, lifetime: float) -> None:
        await self._extend_claim(claim, lifetime, status)

    async def _extend_claim(
        self, claim: RequestClaim, seconds: float, status: int | None = None
    ) -> RequestClaim:
        """Extend a claim. Its expiry identifies it: a later claim expires later."""
        key = (claim.request.owner, claim.request.key, SQLITE_CODEC.encode_time(claim.until))

        def write(db: sqlite3.Connection) -> RequestClaim:
            until = self._clock() + timedelta(seconds=seconds)
            values = (SQLITE_CODEC.encode_time(until), status, *_claim_values(claim))
            if db.execute(sql.EXTEND_CLAIM, (*values, *key)).rowcount == 0:
                raise RequestInFlightError
            return msgspec.structs.replace(claim, until=until)

        return await self._file.write(write)

    async def forget_responses(self, header: str, value: str, *, owner: str = LOCAL_OWNER) -> None:
        def write(db: sqlite3.Connection) -> None:
            db.execute(sql.FORGET_RESPONSES, (owner, header, value))

        await self._file.write(write)

    async def add_events(self, lease: Lease, events: Sequence[StreamEvent]) -> None:
        key = (lease.conversation.owner, lease.conversation.id, lease.turn.id)

        def write(db: sqlite3.Connection) -> None:
            check_lease(db, lease, now=self._clock())
            db.executemany(sql.ADD_EVENT, [(*key, event.number, event.data) for event in events])

        await self._file.write(write)

    async def events_after(
        self, ref: str, turn_id: str, number: int, *, owner: str = LOCAL_OWNER
    ) -> tuple[StreamEvent, ...]:
        def read(db: sqlite3.Connection) -> tuple[StreamEvent, ...]:
            key = find_conversation(db, ref, owner)[:2]
            if db.execute(sql.TURN_BY_ID, (*key, turn_id)).fetchone() is None:
                raise TurnNotFoundError(key[1], turn_id)
            rows = db.execute(sql.EVENTS_AFTER, (*key, turn_id, number)).fetchall()
            return tuple(StreamEvent(number=row[0], data=row[1]) for row in rows)

        return await self._read_settled(owner, ref, read)

    async def drop_old_events(self, before: datetime) -> None:
        """Also delete the leases of conversations that were never created."""

        def write(db: sqlite3.Connection) -> None:
            now = self._clock()
            unanswered = SQLITE_CODEC.encode_time(now - UNANSWERED_KEPT)
            db.execute(sql.DROP_OLD_EVENTS, (SQLITE_CODEC.encode_time(before),))
            db.execute(sql.DROP_OLD_REQUESTS, (SQLITE_CODEC.encode_time(now), unanswered))
            db.execute(sql.DROP_OLD_LEASES, (unanswered,))

        await self._file.write(write)

    async def count_call(self, *calls: CallRecord, owner: str = LOCAL_OWNER) -> None:
        for call in calls:
            check_text(call.model)

        def write(db: sqlite3.Connection) -> None:
            db.executemany(
                sql.ADD_CALL, [(owner, *SQLITE_CODEC.encode_call(call)) for call in calls]
            )

        await self._file.write(write)


def _claim_values(claim: RequestClaim) -> tuple[str | None, bytes | None]:
    return encode_json(claim.headers), claim.body


class SqliteStore(SqliteLists, SqliteRequests, SqlStore):
    ends_turns_whole: ClassVar = True

    def __init__(
        self,
        path: Path | str,
        *,
        clock: Clock,
        synchronous: Synchronous = "FULL",
        lease_seconds: float = LEASE_SECONDS,
        patience: float = PATIENCE,
        busy_seconds: float = BUSY_SECONDS,
        read_seconds: float | None = None,
    ) -> None:
        """`busy_seconds`: how long to wait for a locked file; `read_seconds`: to read it."""
        self._cache = TurnCache()
        self._file = SqliteFile(
            Path(path),
            synchronous=synchronous,
            busy_seconds=busy_seconds,
            batches_writes=True,
            on_begin=self._cache.check_version,
            on_reset=self._cache.clear,
        )
        self._reader = SqliteFile(
            Path(path),
            synchronous=synchronous,
            busy_seconds=busy_seconds if read_seconds is None else read_seconds,
        )
        self._process = ProcessLock(Path(path))
        self._clock = clock
        self._lease_seconds = lease_seconds
        self._patience = patience

    async def is_same_store(self, other: Store) -> bool:
        from cllm.files import is_same_file  # noqa: PLC0415 - only a move

        if not isinstance(other, SqliteStore):
            return False
        return is_same_file(self._file.path, other._file.path)  # noqa: SLF001 - of this class

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
        check_start(start, create)

        def attempt(db: sqlite3.Connection) -> Lease | None:
            return turns.begin_turn(
                db,
                ref,
                start,
                owner=owner,
                create=create,
                tail=tail,
                now=self._clock(),
                lease_seconds=self._lease_seconds,
                cache=self._cache,
                process=self._process,
            )

        try:
            return await self._poll(attempt, ref, wait=wait, undo=self._undo_begin)
        except ConversationBusyError as error:
            holder = await self._file.read(
                lambda db: turns.find_lease_holder(db, ref, owner, create)
            )
            raise ConversationBusyError(ref, turn_id=holder) from error

    def _undo_begin(self, lease: Lease | None) -> Callable[[sqlite3.Connection], object]:
        def undo(db: sqlite3.Connection) -> None:
            if lease is not None:
                turns.drop_turn(db, lease, now=self._clock(), cache=self._cache)

        return undo

    async def renew_lease(self, lease: Lease) -> Lease:
        def renew(db: sqlite3.Connection) -> datetime:
            now = self._clock()
            expires_at = lease_expiry(now, self._lease_seconds)
            turns.renew_lease(db, lease, now=now, expires_at=expires_at)
            return expires_at

        return msgspec.structs.replace(lease, expires_at=await self._file.write(renew))

    async def save_opening(self, lease: Lease, opening: Opening) -> Lease:
        check_opening(opening)
        await self._file.write(lambda db: turns.save_opening(db, lease, opening, now=self._clock()))
        return edits.lease_with_opening(lease, opening)

    async def finish_turn(
        self, lease: Lease, turn: Turn, *, opening: Opening | None = None
    ) -> None:
        def finish(db: sqlite3.Connection) -> None:
            turns.finish_turn(
                db, lease, turn, opening=opening, now=self._clock(), cache=self._cache
            )

        def release(db: sqlite3.Connection) -> None:
            turns.release_lease(db, lease, cache=self._cache)

        if turn.id != lease.turn.id:
            raise edits.wrong_turn_error(lease.turn.id, turn.id)
        try:
            await self._file.write(finish)
        except UsageError:
            await self._file.write(release)
            raise
        except StoreUnavailableError:
            # The lease cannot be released either, for example because the disk is full.
            self._process.lost_turns.add(turn.id)
            raise
        except asyncio.CancelledError:
            # The result is unknown here: release the lease in case the write failed.
            with contextlib.suppress(StoreError):
                await self._file.write(release)
            raise

    async def cancel_turn(self, ref: str, turn_id: str, *, owner: str = LOCAL_OWNER) -> bool:
        return await self._file.write(
            lambda db: turns.cancel_turn(
                db, (owner, ref), turn_id, now=self._clock(), cache=self._cache
            )
        )

    async def drop_turn(self, lease: Lease) -> None:
        await self._file.write(
            lambda db: turns.drop_turn(db, lease, now=self._clock(), cache=self._cache)
        )

    async def load(
        self, ref: str, *, owner: str = LOCAL_OWNER, tail: Tail = None
    ) -> StoredConversation:
        return await self._read_settled(
            owner, ref, lambda db: reader.load(db, reader.find_conversation(db, ref, owner), tail)
        )

    async def outline(self, ref: str, *, owner: str = LOCAL_OWNER) -> Outline:
        return await self._read_settled(owner, ref, lambda db: reader.load_outline(db, ref, owner))

    async def messages_from(
        self, ref: str, parts: Sequence[TurnPart], *, most: int, owner: str = LOCAL_OWNER
    ) -> tuple[tuple[Message, ...], ...]:
        return await self._reader.read(
            lambda db: reader.messages_from(db, ref, parts, most=most, owner=owner)
        )

    async def imported_fields(
        self, ref: str, *, owner: str = LOCAL_OWNER, after: int = 0
    ) -> dict[str, ImportedFields]:
        values = (owner, check_id(ref), after)
        return await self._reader.read(
            lambda db: decode_imported(reader.fetch_rows(db, sql.IMPORTED, values))
        )

    async def summary(self, ref: str, *, owner: str = LOCAL_OWNER) -> Summary:
        return await self._read_settled(owner, ref, lambda db: reader.load_summary(db, ref, owner))

    async def delete(self, ref: str, *, owner: str = LOCAL_OWNER) -> None:
        await self._change(lambda db: sqlite_edits.delete_conversation(db, ref, owner), ref, owner)

    @contextlib.asynccontextmanager
    async def open_snapshot(self) -> AsyncIterator["Snapshot"]:
        from cllm.stores.sqlite.snapshot import open_snapshot  # noqa: PLC0415 - a backup's

        async with open_snapshot(self._file.path, clock=self._clock) as snapshot:
            yield snapshot

    async def add_server_rows(self, rows: Sequence["ServerRow"]) -> None:
        from cllm.stores.sqlite.snapshot import add_server_rows  # noqa: PLC0415 - a restore's

        await self._file.write(lambda db: add_server_rows(db, rows))

    async def close(self) -> None:
        await self._reader.close()
        await self._file.close()
        self._process.release()

    async def _read_settled(
        self, owner: str, ref: str | None, work: Callable[[sqlite3.Connection], T]
    ) -> T:
        dead: list[Row] = []

        def read(db: sqlite3.Connection) -> T:
            dead[:] = turns.find_dead_leases(
                db, owner, ref, now=self._clock(), process=self._process
            )
            return work(db)

        result = await self._reader.read(read)
        if not dead:
            return result
        # A file that cannot be written is still read.
        with contextlib.suppress(StoreUnavailableError):
            await self._file.write(lambda db: [self._free(db, key) for key in dead])
        return await self._reader.read(work)

    def _free(self, db: sqlite3.Connection, key: Row) -> bool:
        now = self._clock()
        return turns.free_conversation(db, key, now=now, cache=self._cache, process=self._process)

    async def _insert(
        self,
        new: StoredConversation,
        *,
        source: str | None = None,
        change: Change = lambda new: new,
    ) -> StoredConversation:
        return await self._file.write(
            lambda db: sqlite_edits.insert_conversation(
                db,
                new,
                source=source,
                change=change,
                now=self._clock(),
                process=self._process,
            )
        )

    async def _edit(
        self, ref: str, owner: str, change: Change, *, reads: ReadScope
    ) -> StoredConversation:
        return await self._change(
            lambda db: sqlite_edits.edit_conversation(db, ref, owner, change, reads=reads),
            ref,
            owner,
        )

    async def _change(self, work: Callable[[sqlite3.Connection], T], ref: str, owner: str) -> T:
        """Run the work while no turn is running."""

        def attempt(db: sqlite3.Connection) -> tuple[T] | None:
            self._cache.clear()
            return (work(db),) if self._free(db, reader.find_key(db, ref, owner)) else None

        return (await self._poll(attempt, ref, wait=self._patience))[0]

    async def _poll(
        self,
        attempt: Callable[[sqlite3.Connection], T | None],
        ref: str,
        *,
        wait: float | None,
        undo: Callable[[T | None], Callable[[sqlite3.Connection], object]] | None = None,
    ) -> T:
        result = await poll(lambda: self._file.write(attempt, undo=undo), wait=wait)
        if result is None:
            raise ConversationBusyError(ref)
        return result


def parse_location(location: str) -> tuple[Path, Synchronous]:
    """Return the file and the mode of a store URL: `PATH` or `PATH?synchronous=normal`."""
    path, _, query = location.partition("?")
    if not path or path == ":memory:":
        raise SettingsError("the store 'sqlite:' needs the path of a file: sqlite:PATH.")
    synchronous = _SYNCHRONOUS.get(query.lower())
    if synchronous is None:
        raise SettingsError(
            f"the store URL has the unknown option '?{query}'; use ?synchronous=full or "
            "?synchronous=normal, or no option."
        )
    return Path(path).expanduser(), synchronous
