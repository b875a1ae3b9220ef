"""Reads the SQLite database of a version: its schema, and the rows since the last read.

The tables of the search index are excluded: SQLite manages them, and search results are compared.
Rows of `LATE_TABLES` are written after the response in batches. They have no order and are complete
only when the server has stopped.
"""

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

LATE_TABLES = frozenset({"calls"})
REVISION = ["version_num"]
"""The columns of Alembic's revision table, which is part of the schema."""
Rows = dict[str, list[dict[str, Any]]]
NAMES = "SELECT name, sql FROM sqlite_master WHERE type = 'table' ORDER BY name"


@dataclass
class Database:
    """A SQLite file, which may not exist."""

    path: Path
    _seen: dict[str, int] = field(default_factory=dict)
    _schema: dict[str, list[str]] = field(default_factory=dict)

    @property
    def schema(self) -> dict[str, list[str]]:
        """The columns of each table; empty if there are no tables."""
        if not self._schema:
            with self._connect() as connection:
                if connection is not None:
                    self._schema = {
                        table: [name for name, _ in _columns(connection, table)]
                        for table in _tables(connection)
                    }
        return self._schema

    def revision(self) -> Rows:
        """Return the rows with the revision of the schema."""
        tables = [table for table, columns in self.schema.items() if columns == REVISION]
        with self._connect() as connection:
            if connection is None:
                return {}
            return _read(connection, dict.fromkeys(tables, -1))[0]

    def new_rows(self) -> tuple[Rows, dict[str, int]]:
        """Return the rows since the last read, without late tables, and the last row numbers."""
        with self._connect() as connection:
            if connection is None:
                return {}, {}
            tables = [table for table in self._data_tables() if table not in LATE_TABLES]
            return _read(connection, {table: self._seen.get(table, -1) for table in tables})

    def all_rows(self, *, late: bool = True) -> Rows:
        """Return all rows; rows of late tables are sorted and have no row numbers."""
        with self._connect() as connection:
            if connection is None:
                return {}
            tables = [table for table in self._data_tables() if late or table not in LATE_TABLES]
            rows, _ = _read(connection, dict.fromkeys(tables, -1))
            for table in LATE_TABLES & rows.keys():
                numbers = [name for name, is_number in _columns(connection, table) if is_number]
                plain = [{n: v for n, v in row.items() if n not in numbers} for row in rows[table]]
                rows[table] = sorted(plain, key=json.dumps)
        return rows

    def _data_tables(self) -> list[str]:
        """Return the tables with data."""
        return [table for table, columns in self.schema.items() if columns != REVISION]

    def advance(self, seen: dict[str, int]) -> None:
        """Set the row numbers after which the next read starts."""
        self._seen |= seen

    @contextlib.contextmanager
    def _connect(self) -> Iterator[sqlite3.Connection | None]:
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
    tables = connection.execute(NAMES).fetchall()
    virtual = [name for name, sql in tables if sql and sql.upper().startswith("CREATE VIRTUAL")]
    return [
        name
        for name, _ in tables
        if not name.startswith("sqlite_")
        and not any(name == each or name.startswith(f"{each}_") for each in virtual)
    ]


def _columns(connection: sqlite3.Connection, table: str) -> list[tuple[str, bool]]:
    """Return the columns, each with whether it is only the row number."""
    columns = connection.execute(f'PRAGMA table_info("{table}")').fetchall()
    keys = sum(bool(row[5]) for row in columns)
    return [(row[1], keys == 1 and bool(row[5]) and row[2].upper() == "INTEGER") for row in columns]


def _read(connection: sqlite3.Connection, after: dict[str, int]) -> tuple[Rows, dict[str, int]]:
    """Return the rows of these tables after these numbers, and the last row numbers."""
    rows: Rows = {}
    seen = dict(after)
    for table, number in after.items():
        # The table name comes from the database.
        query = f'SELECT rowid, * FROM "{table}" WHERE rowid > ? ORDER BY rowid'  # noqa: S608
        cursor = connection.execute(query, (number,))
        names = [column[0] for column in cursor.description][1:]
        for rowid, *values in cursor:
            seen[table] = rowid
            row = dict(zip(names, map(_decode, values), strict=True))
            rows.setdefault(table, []).append(row)
    return rows, seen


def _decode(value: Any) -> Any:
    return value.decode("utf-8", "backslashreplace") if isinstance(value, bytes) else value


def format_rows(rows: Rows) -> str:
    """Return the rows as text, one per line."""
    lines = [
        f"{table} {json.dumps(row, ensure_ascii=False, sort_keys=True)}"
        for table, table_rows in sorted(rows.items())
        for row in table_rows
    ]
    return "\n".join(lines)


def select_shared_columns(rows: Rows, schema: dict[str, list[str]]) -> Rows:
    """Return the tables and columns that the other version has too, or all if it has none."""
    if not schema:
        return rows
    return {
        table: [{name: row[name] for name in row if name in schema[table]} for row in table_rows]
        for table, table_rows in rows.items()
        if table in schema
    }
