"""Conversations in one SQLite file, for one machine and any number of owners.

Each operation is one hop to a thread and one transaction. Leases expire by the clock; a fencing
number refuses late writers. Nothing is locked while a provider is called.
"""

import asyncio
import contextlib
import sqlite3
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import ClassVar, TypeVar

import msgspec

from cllm.core.conversation import LOCAL_OWNER, Conversation, Summary, Turn
from cllm.core.errors import ConversationBusyError, SettingsError, StoreError, UsageError
from cllm.core.message import Message
from cllm.core.ports import (
    Clock,
    Lease,
    NewConversation,
    Opening,
    Outline,
    Tail,
    TurnPart,
    TurnStart,
)
from cllm.stores import edits
from cllm.stores.edits import Change, Reads
from cllm.stores.locks import wait_until
from cllm.stores.sql.checks import check_start
from cllm.stores.sql.recent import RecentTurns
from cllm.stores.sql.store import SqlStore
from cllm.stores.sqlite import edits as changing
from cllm.stores.sqlite import reading
from cllm.stores.sqlite import turns as turning
from cllm.stores.sqlite.connection import BUSY_SECONDS, SqliteFile, Synchronous
from cllm.stores.sqlite.lists import SqliteLists
from cllm.stores.sqlite.requests import SqliteRequests

T = TypeVar("T")

LEASE_SECONDS = 60.0
PATIENCE = 5.0
_SYNCHRONOUS: dict[str, Synchronous] = {
    "": "FULL",
    "synchronous=full": "FULL",
    "synchronous=normal": "NORMAL",
}


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
    ) -> None:
        self._recent = RecentTurns()
        self._file = SqliteFile(
            Path(path),
            synchronous=synchronous,
            busy_seconds=busy_seconds,
            gathers=True,
            on_begin=self._recent.look,
            on_loss=self._recent.forget,
        )
        self._reader = SqliteFile(Path(path), synchronous=synchronous, busy_seconds=busy_seconds)
        self._clock = clock
        self._lease = timedelta(seconds=lease_seconds)
        self._patience = patience

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
            return turning.begin(
                db,
                ref,
                start,
                owner=owner,
                create=create,
                tail=tail,
                now=self._clock(),
                lasting=self._lease,
                recent=self._recent,
            )

        try:
            return await self._until(attempt, ref, wait=wait, undo=self._undo_begin)
        except ConversationBusyError as error:
            holder = await self._file.read(lambda db: turning.holder(db, ref, owner, create))
            raise ConversationBusyError(ref, turn_id=holder) from error

    def _undo_begin(self, lease: Lease | None) -> Callable[[sqlite3.Connection], object]:
        def undo(db: sqlite3.Connection) -> None:
            if lease is not None:
                turning.drop(db, lease, now=self._clock(), recent=self._recent)

        return undo

    async def renew_lease(self, lease: Lease) -> Lease:
        def renew(db: sqlite3.Connection) -> datetime:
            now = self._clock()
            until = now + self._lease
            turning.renew(db, lease, now=now, until=until)
            return until

        return msgspec.structs.replace(lease, expires_at=await self._file.write(renew))

    async def finish_turn(
        self, lease: Lease, turn: Turn, *, opening: Opening | None = None
    ) -> None:
        def finish(db: sqlite3.Connection) -> None:
            turning.finish(db, lease, turn, opening=opening, now=self._clock(), recent=self._recent)

        if turn.id != lease.turn.id:
            raise edits.not_its_turn(lease.turn.id, turn.id)
        try:
            await self._file.write(finish)
        except UsageError:
            await self._file.write(lambda db: turning.release(db, lease))
            raise
        except asyncio.CancelledError:
            # The result is unknown here: release the lease in case the turn was refused.
            with contextlib.suppress(StoreError):
                await self._file.write(lambda db: turning.release(db, lease))
            raise

    async def drop_turn(self, lease: Lease) -> None:
        await self._file.write(
            lambda db: turning.drop(db, lease, now=self._clock(), recent=self._recent)
        )

    async def load(self, ref: str, *, owner: str = LOCAL_OWNER, tail: Tail = None) -> Conversation:
        return await self._reader.read(
            lambda db: reading.load(db, reading.find(db, ref, owner), tail)
        )

    async def outline(self, ref: str, *, owner: str = LOCAL_OWNER) -> Outline:
        return await self._reader.read(lambda db: reading.outline(db, ref, owner))

    async def messages_from(
        self, ref: str, parts: Sequence[TurnPart], *, most: int, owner: str = LOCAL_OWNER
    ) -> tuple[tuple[Message, ...], ...]:
        return await self._reader.read(
            lambda db: reading.messages_from(db, ref, parts, most=most, owner=owner)
        )

    async def summary(self, ref: str, *, owner: str = LOCAL_OWNER) -> Summary:
        return await self._reader.read(lambda db: reading.summary(db, ref, owner))

    async def delete(self, ref: str, *, owner: str = LOCAL_OWNER) -> None:
        await self._change(lambda db: changing.delete(db, ref, owner, self._clock()), ref)

    async def close(self) -> None:
        await self._reader.close()
        await self._file.close()

    async def _insert(
        self, new: Conversation, *, source: str | None = None, change: Change = lambda new: new
    ) -> Conversation:
        return await self._file.write(
            lambda db: changing.insert(db, new, source=source, change=change, now=self._clock())
        )

    async def _edit(self, ref: str, owner: str, change: Change, *, reads: Reads) -> Conversation:
        return await self._change(
            lambda db: changing.edit(db, ref, owner, change, reads=reads, now=self._clock()), ref
        )

    async def _change(self, attempt: Callable[[sqlite3.Connection], T | None], ref: str) -> T:

        def forget_and_attempt(db: sqlite3.Connection) -> T | None:
            self._recent.forget()
            return attempt(db)

        return await self._until(forget_and_attempt, ref, wait=self._patience)

    async def _until(
        self,
        attempt: Callable[[sqlite3.Connection], T | None],
        ref: str,
        *,
        wait: float | None,
        undo: Callable[[T | None], Callable[[sqlite3.Connection], object]] | None = None,
    ) -> T:
        found = await wait_until(lambda: self._file.write(attempt, undo=undo), wait=wait)
        if found is None:
            raise ConversationBusyError(ref)
        return found


def parse_location(location: str) -> tuple[Path, Synchronous]:
    """The file and the mode of a store URL: `PATH` or `PATH?synchronous=normal`."""
    path, _, query = location.partition("?")
    if not path or path == ":memory:":
        raise SettingsError("the store 'sqlite:' needs the path of a file, as sqlite:PATH.")
    chosen = _SYNCHRONOUS.get(query.lower())
    if chosen is None:
        raise SettingsError(
            f"the store URL ends in '?{query}'; of what can stand there only synchronous=full "
            "and synchronous=normal are known."
        )
    return Path(path).expanduser(), chosen
