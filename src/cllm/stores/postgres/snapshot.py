"""A PostgreSQL database at one moment, for backups and checks: all reads are in one transaction."""

# ruff: noqa: S608 - only column names are inserted into the text

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from cllm.core.errors import StoreError
from cllm.core.ports import Clock
from cllm.core.ports.snapshot import ServerRow, Snapshot, TurnRow
from cllm.stores.postgres.connection import (
    DRIVER_ERRORS,
    Connection,
    PoolOptions,
    PostgresPool,
    Work,
    postgres_error,
)
from cllm.stores.postgres.reader import POSTGRES_CODEC
from cllm.stores.postgres.statements import columns, parameters, turn_has_id
from cllm.stores.postgres.store import PostgresStore
from cllm.stores.sql.rows import CALL_COLUMNS
from cllm.stores.sql.server_rows import (
    READ_SERVER_ROWS,
    TABLES,
    Table,
    build_turn_rows,
    decode_server_row,
    encode_server_row,
)

T = TypeVar("T")
MAX_FAULTS = 20
CHECK_SECONDS = 3600.0
ROWS_PER_READ = 500
_CALLS = columns(CALL_COLUMNS)

KEYS = "SELECT owner, id FROM conversations ORDER BY created_at, owner, id"
TURN_ROWS = """SELECT t.id, t.number, t.position, t.first_sequence, m.ordinal, m.digest
    FROM conversations c JOIN turns t ON t.owner = c.owner AND t.conversation = c.number
    LEFT JOIN messages m ON t.owner = m.owner AND t.message_group = m.message_group
    WHERE c.owner = $1 AND c.id = $2 ORDER BY t.number, m.ordinal"""
LOST_TURNS = f"""SELECT owner, conversation, count(*) FROM turns t WHERE NOT EXISTS (
        SELECT FROM conversations c WHERE c.owner = t.owner AND c.number = t.conversation)
    GROUP BY owner, conversation LIMIT {MAX_FAULTS}"""
LOST_MESSAGES = f"""SELECT owner, message_group, count(*) FROM messages m WHERE NOT EXISTS (
        SELECT FROM turns t WHERE t.owner = m.owner AND t.message_group = m.message_group)
    GROUP BY owner, message_group LIMIT {MAX_FAULTS}"""
READ: dict[Table, str] = {
    **READ_SERVER_ROWS,
    "imported": """SELECT c.owner, c.id, t.id, m.ordinal, m.imported
        FROM conversations c JOIN turns t ON t.owner = c.owner AND t.conversation = c.number
        JOIN messages m ON t.owner = m.owner AND t.message_group = m.message_group
        WHERE m.imported IS NOT NULL ORDER BY c.owner, c.id, t.number, m.ordinal""",
}
_SAME_CALL = " AND ".join(
    f"{name} IS NOT DISTINCT FROM ${number}" for number, name in enumerate(CALL_COLUMNS, 2)
)
_TURN = f"""FROM conversations c JOIN turns t ON t.owner = c.owner AND t.conversation = c.number
    WHERE c.owner = $1 AND c.id = $2 AND {turn_has_id("$3", "t.")}"""
ADD: dict[Table, str] = {
    "calls": f"""INSERT INTO calls (owner, {_CALLS}) SELECT {parameters(1, 1 + len(CALL_COLUMNS))}
        WHERE ${2 + len(CALL_COLUMNS)}
        > (SELECT count(*) FROM calls WHERE owner = $1 AND {_SAME_CALL})""",
    "requests": """INSERT INTO requests (owner, key, body, expires_at, status, headers, response)
        VALUES ($1, $2, $3, $4, $5, $6, $7) ON CONFLICT DO NOTHING""",
    "events": f"""INSERT INTO events (owner, conversation_id, turn_id, number, data)
        SELECT $1, $2, $3, $4, $5 WHERE EXISTS (SELECT {_TURN}) ON CONFLICT DO NOTHING""",
    "imported": f"""UPDATE messages SET imported = $5 WHERE owner = $1 AND ordinal = $4
        AND imported IS NULL AND message_group = (SELECT t.message_group {_TURN})""",
}


class _PinnedPool(PostgresPool):
    """One connection in a transaction; nothing is repeated."""

    def __init__(self, url: str, connection: Connection) -> None:
        super().__init__(url, PoolOptions())
        self.connection = connection

    async def run(self, work: Work[T], *, idempotent: bool = False) -> T:  # noqa: ARG002
        try:
            return await work(self.connection)
        except DRIVER_ERRORS as error:
            raise postgres_error(error) from error

    async def transact(self, work: Work[T], *, snapshot: bool = False) -> T:  # noqa: ARG002
        return await self.run(work)


class PostgresSnapshot(PostgresStore):
    def __init__(self, url: str, connection: Connection, *, clock: Clock) -> None:
        super().__init__(url, clock=clock)
        self._pool = self._connections = _PinnedPool(url, connection)
        self._is_ready = True

    async def _settle(self, key: str, owner: str) -> bool:  # noqa: ARG002 - settles nothing
        return False

    async def _settle_dead_turns(self, owner: str) -> PostgresPool:  # noqa: ARG002
        return self._pool

    async def list_keys(self) -> tuple[tuple[str, str], ...]:
        return tuple((row[0], row[1]) for row in await self._pool.fetch(KEYS, ()))

    async def list_turn_rows(self, ref: str, *, owner: str) -> tuple[TurnRow, ...]:
        return build_turn_rows(map(tuple, await self._pool.fetch(TURN_ROWS, (owner, ref))))

    async def find_faults(self) -> tuple[str, ...]:
        async def read(connection: Connection) -> tuple[str, ...]:
            turns = await connection.fetch(LOST_TURNS, timeout=CHECK_SECONDS)
            messages = await connection.fetch(LOST_MESSAGES, timeout=CHECK_SECONDS)
            return (
                *(
                    f"{count} turns belong to the missing conversation with the number {number} of "
                    f"the owner '{owner}'."
                    for owner, number, count in turns
                ),
                *(
                    f"{count} messages belong to no turn (group {group} of the owner '{owner}')."
                    for owner, group, count in messages
                ),
            )

        return await self._pool.run(read)

    async def read_server_rows(self) -> AsyncIterator[ServerRow | StoreError]:
        for table in TABLES:
            try:
                rows = self._pool.connection.cursor(
                    READ[table], prefetch=ROWS_PER_READ, timeout=CHECK_SECONDS
                )
                async for row in rows:
                    yield decode_server_row(table, tuple(row), POSTGRES_CODEC)
            except DRIVER_ERRORS as error:
                raise postgres_error(error) from error


@asynccontextmanager
async def open_snapshot(pool: PostgresPool, url: str, *, clock: Clock) -> AsyncIterator[Snapshot]:
    async with pool.hold_snapshot() as connection:
        yield PostgresSnapshot(url, connection, clock=clock)


async def add_server_rows(connection: Connection, rows: Sequence[ServerRow]) -> None:
    by_table: dict[Table, list[Any]] = {}
    for row in rows:
        table, values = encode_server_row(row, POSTGRES_CODEC)
        by_table.setdefault(table, []).append(values)
    for table, rows_of_table in by_table.items():
        await connection.executemany(ADD[table], rows_of_table)
