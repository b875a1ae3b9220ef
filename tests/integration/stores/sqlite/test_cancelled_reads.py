"""A read that its caller abandons keeps neither the thread nor the file occupied."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from cllm.stores.sqlite.connection import SqliteFile

ENDLESS = """
WITH RECURSIVE numbers(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM numbers)
SELECT count(*) FROM numbers
"""


@pytest.fixture
async def file(database: Path) -> AsyncIterator[SqliteFile]:
    opened = SqliteFile(database)
    yield opened
    await opened.close()


def one(db: sqlite3.Connection) -> int:
    found: int = db.execute("SELECT 1").fetchone()[0]
    return found


async def test_a_cancelled_read_is_interrupted_and_the_next_one_runs(file: SqliteFile):
    begun = threading.Event()

    def endless(db: sqlite3.Connection) -> None:
        begun.set()
        db.execute(ENDLESS).fetchone()

    reading = asyncio.create_task(file.read(endless))
    await asyncio.to_thread(begun.wait, 10)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    async with asyncio.timeout(10):
        assert await file.read(one) == 1
        assert await file.write(one) == 1


async def test_a_read_cancelled_between_statements_is_interrupted_at_the_next(
    file: SqliteFile,
):
    between, cancelled = threading.Event(), threading.Event()

    def two_statements(db: sqlite3.Connection) -> None:
        one(db)
        between.set()
        cancelled.wait(10)
        db.execute(ENDLESS).fetchone()

    reading = asyncio.create_task(file.read(two_statements))
    await asyncio.to_thread(between.wait, 10)
    reading.cancel()
    with pytest.raises(asyncio.CancelledError):
        await reading
    cancelled.set()
    async with asyncio.timeout(10):
        assert await file.read(one) == 1


async def test_a_read_cancelled_in_the_queue_is_skipped(file: SqliteFile):
    begun, go_on = threading.Event(), threading.Event()
    ran: list[str] = []

    def hold(db: sqlite3.Connection) -> None:
        begun.set()
        go_on.wait(10)
        one(db)

    def note(_: sqlite3.Connection) -> None:
        ran.append("read")

    holding = asyncio.create_task(file.read(hold))
    await asyncio.to_thread(begun.wait, 10)
    waiting = asyncio.create_task(file.read(note))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    go_on.set()
    await holding
    assert await file.read(one) == 1
    assert ran == []


async def test_a_write_completes_if_its_caller_is_cancelled(file: SqliteFile):
    begun, go_on = threading.Event(), threading.Event()

    def write(db: sqlite3.Connection) -> None:
        begun.set()
        go_on.wait(10)
        db.execute("CREATE TABLE written (n INTEGER)")

    writing = asyncio.create_task(file.write(write))
    await asyncio.to_thread(begun.wait, 10)
    writing.cancel()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await writing
    found = await file.read(
        lambda db: db.execute(
            "SELECT count(*) FROM sqlite_master WHERE name = 'written'"
        ).fetchone()
    )
    assert found == (1,)
