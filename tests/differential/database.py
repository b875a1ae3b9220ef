"""Reads what a version stored in SQLite: its schema, and the rows that are new since the last look.

Tables of the search index are left out: they are SQLite's own, and searches are compared. Rows of
`LATE` tables are written some time after the response and in batches: they have no order, and are
complete only when the server has stopped.
"""

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LATE = frozenset({"calls"})
REVISION = ["version_num"]
"""The columns of a table in which Alembic notes the revision, which is part of the schema."""
Rows = dict[str, list[dict[str, Any]]]
NAMES = "SELECT name, sql FROM sqlite_master WHERE type = 'table' ORDER BY name"


@dataclass
class Database:
    """One SQLite file, which need not exist."""

    path: Path
    _seen: dict[str, int] = field(default_factory=dict)
    _schema: dict[str, list[str]] = field(default_factory=dict)

    @property
    def schema(self) -> dict[str, list[str]]:
        """The columns of each table; nothing as long as there are no tables."""
        if not self._schema:
            with self._connected() as connection:
                if connection is not None:
                    self._schema = {
                        table: [name for name, _ in _columns(connection, table)]
                        for table in _tables(connection)
                    }
        return self._schema

    def revision(self) -> Rows:
        """The rows that name the revision of the schema."""
        tables = [table for table, columns in self.schema.items() if columns == REVISION]
        with self._connected() as connection:
            if connection is None:
                return {}
            return _read(connection, dict.fromkeys(tables, -1))[0]

    def new_rows(self) -> tuple[Rows, dict[str, int]]:
        """The rows since the last look, but for those that come late; and where they end."""
        with self._connected() as connection:
            if connection is None:
                return {}, {}
            tables = [table for table in self._stored() if table not in LATE]
            return _read(connection, {table: self._seen.get(table, -1) for table in tables})

    def all_rows(self, *, late: bool = True) -> Rows:
        """Every row; those that come late in an order of their own, and without their numbers."""
        with self._connected() as connection:
            if connection is None:
                return {}
            tables = [table for table in self._stored() if late or table not in LATE]
            rows, _ = _read(connection, dict.fromkeys(tables, -1))
            for table in LATE & rows.keys():
                numbers = [name for name, is_number in _columns(connection, table) if is_number]
                plain = [{n: v for n, v in row.items() if n not in numbers} for row in rows[table]]
                rows[table] = sorted(plain, key=json.dumps)
        return rows

    def _stored(self) -> list[str]:
        """The tables of what was stored."""
        return [table for table, columns in self.schema.items() if columns != REVISION]

    def advance(self, seen: dict[str, int]) -> None:
        """Let the next look begin where this one ended."""
        self._seen |= seen

    @contextlib.contextmanager
    def _connected(self) -> Iterator[sqlite3.Connection | None]:
        if not self.path.exists():
            yield None
            return
        connection = sqlite3.connect(f"file:{self.path}?mode=ro", uri=True, timeout=10)
        connection.text_factory = lambda data: data.decode("utf-8", "surrogateescape")
        try:
            yield connection
        finally:
            connection.close()


def _tables(connection: sqlite3.Connection) -> list[str]:
    found = connection.execute(NAMES).fetchall()
    virtual = [name for name, sql in found if sql and sql.upper().startswith("CREATE VIRTUAL")]
    return [
        name
        for name, _ in found
        if not name.startswith("sqlite_")
        and not any(name == each or name.startswith(f"{each}_") for each in virtual)
    ]


def _columns(connection: sqlite3.Connection, table: str) -> list[tuple[str, bool]]:
    """The columns, each with whether it is just the number of the row."""
    found = connection.execute(f'PRAGMA table_info("{table}")').fetchall()
    keys = sum(bool(row[5]) for row in found)
    return [(row[1], keys == 1 and bool(row[5]) and row[2].upper() == "INTEGER") for row in found]


def _read(connection: sqlite3.Connection, after: dict[str, int]) -> tuple[Rows, dict[str, int]]:
    """The rows of these tables after these numbers, and the numbers of the last ones."""
    rows: Rows = {}
    seen = dict(after)
    for table, number in after.items():
        # The table's name comes from the file itself.
        query = f'SELECT rowid, * FROM "{table}" WHERE rowid > ? ORDER BY rowid'  # noqa: S608
        found = connection.execute(query, (number,))
        names = [column[0] for column in found.description][1:]
        for rowid, *values in found:
            seen[table] = rowid
            row = dict(zip(names, map(_plain, values), strict=True))
            rows.setdefault(table, []).append(row)
    return rows, seen


def _plain(value: Any) -> Any:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value


def as_text(rows: Rows) -> str:
    """The rows, one on a line."""
    lines = [
        f"{table} {json.dumps(row, ensure_ascii=False, sort_keys=True)}"
        for table, found in sorted(rows.items())
        for row in found
    ]
    return "\n".join(lines)


def shared(rows: Rows, schema: dict[str, list[str]]) -> Rows:
    """Only the tables and columns that the other version has as well, if it has any."""
    if not schema:
        return rows
    return {
        table: [{name: row[name] for name in row if name in schema[table]} for row in found]
        for table, found in rows.items()
        if table in schema
    }
