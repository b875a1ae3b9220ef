"""Reads what a version stored in SQLite: its schema, and the rows that are new since the last look.

Tables of the search index are left out: they are SQLite's own, and searches are compared.
"""

import contextlib
import json
import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
                for table in _tables(connection) if connection else ():
                    found = (
                        connection.execute(f'PRAGMA table_info("{table}")') if connection else ()
                    )
                    self._schema[table] = [row[1] for row in found]
        return self._schema

    def new_rows(self, *, everything: bool = False) -> tuple[Rows, dict[str, int]]:
        """The rows of each table since the last look, or all; and where the next look begins."""
        rows: Rows = {}
        seen: dict[str, int] = {}
        with self._connected() as connection:
            for table in _tables(connection) if connection else ():
                after = -1 if everything else self._seen.get(table, -1)
                # The table's name comes from the file itself.
                query = f'SELECT rowid, * FROM "{table}" WHERE rowid > ? ORDER BY rowid'  # noqa: S608
                found = connection.execute(query, (after,)) if connection else ()
                names = [column[0] for column in found.description][1:]  # type: ignore[union-attr]
                seen[table] = after
                rows[table] = []
                for number, *values in found:
                    seen[table] = max(seen[table], number)
                    rows[table].append(dict(zip(names, map(_plain, values), strict=True)))
        return {table: found for table, found in rows.items() if found}, seen

    def advance(self, seen: dict[str, int]) -> None:
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
