"""An SQLite file at one moment, for backups and checks: all reads are in one transaction."""

# ruff: noqa: S608 - only column names are inserted into the text

import sqlite3
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, NoReturn, TypeVar

from cllm.core.errors import StoreError, StoreUnavailableError, UsageError
from cllm.core.ports import Clock
from cllm.core.ports.snapshot import ServerRow, Snapshot, TurnRow
from cllm.stores.sql.rows import CALL_COLUMNS, Row
from cllm.stores.sql.server_rows import (
    READ_SERVER_ROWS,
    TABLES,
    Table,
    build_turn_rows,
    decode_server_row,
    encode_server_row,
)
from cllm.stores.sqlite.connection import SqliteFile
from cllm.stores.sqlite.reader import SQLITE_CODEC, check_utf8, decode_lossy, fetch_rows
from cllm.stores.sqlite.store import SqliteStore

T = TypeVar("T")
MAX_FAULTS = 20
ROWS_PER_READ = 500
_CALLS = ", ".join(CALL_COLUMNS)

KEYS = "SELECT owner, id FROM conversations ORDER BY created_at, owner, id"
TURN_ROWS = """SELECT t.id, t.number, t.position, t.first_sequence, m.ordinal, m.digest
    FROM turns t LEFT JOIN messages m ON t.owner = m.owner AND t.message_group = m.message_group
    WHERE t.owner = ? AND t.conversation_id = ? ORDER BY t.number, m.ordinal"""
LOST_TURNS = f"""SELECT owner, conversation_id, count(*) FROM turns t WHERE NOT EXISTS (
        SELECT 1 FROM conversations c WHERE c.owner = t.owner AND c.id = t.conversation_id)
    GROUP BY owner, conversation_id LIMIT {MAX_FAULTS}"""
LOST_MESSAGES = f"""SELECT owner, message_group, count(*) FROM messages m WHERE NOT EXISTS (
        SELECT 1 FROM turns t WHERE t.owner = m.owner AND t.message_group = m.message_group)
    GROUP BY owner, message_group LIMIT {MAX_FAULTS}"""
READ: dict[Table, str] = {
    **READ_SERVER_ROWS,
    "imported": """SELECT t.owner, t.conversation_id, t.id, m.ordinal, m.imported
        FROM turns t JOIN messages m ON t.owner = m.owner AND t.message_group = m.message_group
        WHERE m.imported IS NOT NULL ORDER BY t.owner, t.conversation_id, t.number, m.ordinal""",
}
_MARKS = ", ".join(f"?{number}" for number in range(1, 2 + len(CALL_COLUMNS)))
_SAME_CALL = " AND ".join(f"{name} IS ?{number}" for number, name in enumerate(CALL_COLUMNS, 2))
ADD: dict[Table, str] = {
    "calls": f"""INSERT INTO calls (owner, {_CALLS}) SELECT {_MARKS} WHERE ?{2 + len(CALL_COLUMNS)}
        > (SELECT count(*) FROM calls WHERE owner = ?1 AND {_SAME_CALL})""",
    "requests": """INSERT OR IGNORE INTO requests
        (owner, key, body, expires_at, status, headers, response) VALUES (?, ?, ?, ?, ?, ?, ?)""",
    "events": """INSERT OR IGNORE INTO events (owner, conversation_id, turn_id, number, data)
        SELECT ?1, ?2, ?3, ?4, ?5 WHERE EXISTS (
            SELECT 1 FROM turns WHERE owner = ?1 AND conversation_id = ?2 AND id = ?3)""",
    "imported": """UPDATE messages SET imported = ?5 WHERE owner = ?1 AND ordinal = ?4
        AND imported IS NULL AND message_group = (SELECT message_group FROM turns
            WHERE owner = ?1 AND conversation_id = ?2 AND id = ?3)""",
}


class _SnapshotFile(SqliteFile):
    """Starts a transaction with its first read and never ends it. Writes nothing."""

    _has_started = False

    def _run_transaction(self, job: Any) -> Any:
        connection = self._connect()
        if not connection.in_transaction:
            if self._has_started:
                raise StoreUnavailableError(f"{self.path} cannot be read to its end; try again.")
            connection.execute("BEGIN")
            self._has_started = True
        return job.work(connection)

    async def write(self, *_: Any, **__: Any) -> NoReturn:
        raise UsageError("A snapshot of a database cannot be changed.")


class SqliteSnapshot(SqliteStore):
    def __init__(self, path: Path, *, clock: Clock) -> None:
        super().__init__(path, clock=clock)
        self._file = self._reader = _SnapshotFile(path)

    async def _read_settled(
        self,
        owner: str,  # noqa: ARG002 - a snapshot settles nothing
        ref: str | None,  # noqa: ARG002
        work: Callable[[sqlite3.Connection], T],
    ) -> T:
        return await self._reader.read(work)

    async def list_keys(self) -> tuple[tuple[str, str], ...]:
        rows = await self._reader.read(lambda db: fetch_rows(db, KEYS, ()))
        return tuple((decode_lossy(owner), decode_lossy(key)) for owner, key in rows)

    async def list_turn_rows(self, ref: str, *, owner: str) -> tuple[TurnRow, ...]:
        def read(db: sqlite3.Connection) -> tuple[TurnRow, ...]:
            with check_utf8():
                return build_turn_rows(db.execute(TURN_ROWS, (owner, ref)).fetchall())

        return await self._reader.read(read)

    async def find_faults(self) -> tuple[str, ...]:
        def read(db: sqlite3.Connection) -> tuple[str, ...]:
            checked = db.execute(f"PRAGMA integrity_check({MAX_FAULTS})").fetchall()
            faults = [f"The database file is damaged: {line}" for (line,) in checked]
            if checked == [("ok",)]:
                faults = []
            for owner, key, count in fetch_rows(db, LOST_TURNS, ()):
                where = f"conversation '{decode_lossy(key)}' of the owner '{decode_lossy(owner)}'"
                faults.append(f"{count} turns belong to the missing {where}.")
            for owner, group, count in fetch_rows(db, LOST_MESSAGES, ()):
                where = f"group {group} of the owner '{decode_lossy(owner)}'"
                faults.append(f"{count} messages belong to no turn ({where}).")
            return tuple(faults)

        return await self._reader.read(read)

    async def read_server_rows(self) -> AsyncIterator[ServerRow | StoreError]:
        for table in TABLES:
            cursor = await self._reader.read(partial(_select, table))
            while rows := await self._reader.read(partial(_fetch, cursor)):
                for row in rows:
                    yield decode_server_row(table, row, SQLITE_CODEC)


def _select(table: Table, db: sqlite3.Connection) -> sqlite3.Cursor:
    return db.execute(READ[table])


def _fetch(cursor: sqlite3.Cursor, _db: sqlite3.Connection) -> list[Row]:
    return cursor.fetchmany(ROWS_PER_READ)


@asynccontextmanager
async def open_snapshot(path: Path, *, clock: Clock) -> AsyncIterator[Snapshot]:
    snapshot = SqliteSnapshot(path, clock=clock)
    try:
        yield snapshot
    finally:
        await snapshot.close()


def add_server_rows(db: sqlite3.Connection, rows: Sequence[ServerRow]) -> None:
    for row in rows:
        table, values = encode_server_row(row, SQLITE_CODEC)
        db.execute(ADD[table], values)
