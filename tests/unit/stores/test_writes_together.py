"""Writes that share a transaction: each caller gets the outcome of its own write."""

import asyncio
import sqlite3
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from cllm.core.errors import StoreUnavailableError, UsageError
from cllm.stores.sqlite.connection import SqliteFile

TABLES = """
    CREATE TABLE parents (id INTEGER PRIMARY KEY);
    CREATE TABLE children (parent INTEGER REFERENCES parents DEFERRABLE INITIALLY DEFERRED);
"""


def insert(statement: str) -> Callable[[sqlite3.Connection], int]:
    return lambda connection: connection.execute(statement).rowcount


def insert_and_refuse(connection: sqlite3.Connection) -> int:
    connection.execute("INSERT INTO parents VALUES (2)")
    raise UsageError("Refused after a change.")


async def write_together(
    file: SqliteFile, *works: Callable[[sqlite3.Connection], int]
) -> list[int | BaseException]:
    """Let the works wait behind another write, so that they share a transaction."""
    may_end = threading.Event()
    first = asyncio.create_task(file.write(lambda _: may_end.wait(10)))
    others = [asyncio.create_task(file.write(work)) for work in works]
    await asyncio.sleep(0)
    may_end.set()
    await first
    return await asyncio.gather(*others, return_exceptions=True)


@pytest.fixture
async def file(tmp_path: Path) -> SqliteFile:
    file = SqliteFile(tmp_path / "cllm.db")
    await file.write(lambda connection: [connection.execute(one) for one in TABLES.split(";")])
    return file


async def count(file: SqliteFile, table: str) -> int:
    query = f"SELECT count(*) FROM {table}"  # noqa: S608
    found = await file.read(lambda connection: int(connection.execute(query).fetchone()[0]))
    await file.close()
    return found


async def test_no_write_succeeds_whose_commit_fails(file: SqliteFile):
    """The deferred constraint fails at the commit."""
    good, bad = await write_together(
        file, insert("INSERT INTO parents VALUES (1)"), insert("INSERT INTO children VALUES (9)")
    )

    assert good == 1
    assert isinstance(bad, StoreUnavailableError)
    assert await count(file, "parents") == 1


async def test_a_write_that_is_refused_after_a_change_leaves_nothing(file: SqliteFile):
    good, refused = await write_together(
        file, insert("INSERT INTO parents VALUES (1)"), insert_and_refuse
    )

    assert good == 1
    assert isinstance(refused, UsageError)
    assert await count(file, "parents") == 1
