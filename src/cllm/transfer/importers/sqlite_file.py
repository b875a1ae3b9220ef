"""SQLite files of other programs, opened read-only."""

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO
from urllib.parse import quote

from cllm.transfer.archive import Archive
from cllm.transfer.json_stream import DamagedFileError

MAGIC = b"SQLite format 3\0"
Row = dict[str, Any]


def is_sqlite_file(stream: BinaryIO) -> bool:
    return stream.read(len(MAGIC)) == MAGIC


def find_databases(archive: Archive) -> Iterator[Path]:
    """Yield the SQLite files of a folder, or the file itself; those inside a ZIP are left out."""
    for file in archive.files:
        path = archive.path if archive.path.is_file() else archive.path / file.name
        if path.is_file():
            with path.open("rb") as stream:
                if is_sqlite_file(stream):
                    yield path


@contextmanager
def open_read_only(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a database; its triggers and views cannot call unsafe functions.

    Several threads can use it one after the other.
    """
    uri = f"file:{quote(str(path))}?mode=ro"
    database = sqlite3.connect(uri, uri=True, check_same_thread=False)
    try:
        database.execute("PRAGMA query_only = ON")
        database.execute("PRAGMA trusted_schema = OFF")
        database.text_factory = lambda data: data.decode("utf-8", "replace")
        yield database
    finally:
        database.close()


def list_tables(database: sqlite3.Connection) -> set[str]:
    rows = database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
    return {name for (name,) in rows}


def select(database: sqlite3.Connection, statement: str, *values: Any) -> Iterator[Row]:
    """Yield rows as dictionaries. Raises DamagedFileError."""
    try:
        cursor = database.execute(statement, values)
        names = [column[0] for column in cursor.description]
        for row in cursor:
            yield dict(zip(names, row, strict=True))
    except sqlite3.Error as error:
        raise DamagedFileError(f"the database cannot be read ({error})") from error
