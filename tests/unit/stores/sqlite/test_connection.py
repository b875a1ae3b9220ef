"""The worker thread of an SQLite file, and batches of writes that share a transaction."""

import asyncio
import gc
import sqlite3
import threading
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tests.waits import wait_until, wait_until_async

from cllm.core.errors import StoreUnavailableError, UsageError
from cllm.stores.sqlite.connection import (
    MAX_BATCH,
    Outcome,
    SqliteFile,
    WorkerThread,
    check_regular_file,
    create_private_file,
    sqlite_error,
)

TABLES = """
    CREATE TABLE parents (id INTEGER PRIMARY KEY);
    CREATE TABLE children (parent INTEGER REFERENCES parents DEFERRABLE INITIALLY DEFERRED);
"""


def one_by_one(pieces: Sequence[Callable[[], Any]]) -> list[Outcome]:
    outcomes: list[Outcome] = []
    for piece in pieces:
        try:
            outcomes.append((piece(), None))
        except ArithmeticError as error:
            outcomes.append((None, error))
    return outcomes


def threads(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == name]


def wait_for_end(name: str) -> None:
    assert wait_until(lambda: not threads(name))


async def test_jobs_run_in_one_thread_in_their_order():
    worker, done = WorkerThread("in-order", one_by_one), []

    def work(number: int) -> int:
        done.append((number, threading.current_thread().name))
        return number

    found = await asyncio.gather(*(worker.run(partial(work, n)) for n in range(20)))
    assert found == list(range(20))
    assert done == [(number, "in-order") for number in range(20)]
    worker.end()
    wait_for_end("in-order")


async def test_an_error_of_a_job_is_raised_in_its_waiter():
    worker = WorkerThread("raising", one_by_one)
    with pytest.raises(ZeroDivisionError):
        await worker.run(lambda: 1 // 0)
    assert await worker.run(lambda: 1) == 1
    worker.end()


async def test_an_ended_worker_starts_again_with_the_next_job():
    worker = WorkerThread("again", one_by_one)
    worker.end()
    await worker.run(lambda: None)
    worker.end()
    worker.end()
    assert await worker.run(lambda: 2) == 2
    worker.end()
    wait_for_end("again")


async def test_a_garbage_collected_worker_ends_its_thread():
    worker = WorkerThread("forgotten", one_by_one)
    await worker.run(lambda: None)
    assert threads("forgotten")
    del worker
    gc.collect()
    wait_for_end("forgotten")


def test_a_job_of_a_closed_loop_completes_and_the_next_one_runs():
    worker, done = WorkerThread("loops", one_by_one), threading.Event()
    loop_is_gone = threading.Event()

    def slowly() -> None:
        loop_is_gone.wait(5)
        done.set()

    async def leave() -> None:
        worker.run(slowly)

    asyncio.run(leave())
    loop_is_gone.set()
    assert done.wait(5)

    async def again() -> int:
        found: int = await worker.run(lambda: 3)
        return found

    assert asyncio.run(again()) == 3
    worker.end()


async def test_queued_jobs_run_in_batches_of_limited_size():
    begun, together = threading.Event(), []

    def note(pieces: Sequence[int]) -> list[Outcome]:
        together.append(list(pieces))
        begun.wait(5)
        return [(piece, None) for piece in pieces]

    worker = WorkerThread("together", note)
    first = worker.run(0)
    await wait_until_async(lambda: together)
    rest = [worker.run(n) for n in range(1, MAX_BATCH + 3)]
    begun.set()
    assert await asyncio.gather(first, *rest) == list(range(MAX_BATCH + 3))
    last = [MAX_BATCH + 1, MAX_BATCH + 2]
    assert together == [[0], list(range(1, MAX_BATCH + 1)), last]
    worker.end()
    wait_for_end("together")


async def test_the_worker_pauses_only_after_a_larger_batch():
    """Semaphores stop the worker in its pauses and in its work."""
    together: list[list[int]] = []
    pausing, go_on = threading.Semaphore(0), threading.Semaphore(0)
    at_work = threading.Semaphore(0)

    def note(pieces: Sequence[int]) -> list[Outcome]:
        together.append(list(pieces))
        at_work.acquire(timeout=5)
        return [(piece, None) for piece in pieces]

    def pause() -> None:
        pausing.release()
        go_on.acquire(timeout=5)

    worker = WorkerThread("gathering", note, pause=pause)
    alone = worker.run(0)
    await wait_until_async(lambda: together)
    several = [worker.run(1), worker.run(2)]
    at_work.release(2)
    await asyncio.gather(alone, *several)
    assert not pausing.acquire(blocking=False)

    waited_for = [worker.run(3)]
    await asyncio.to_thread(pausing.acquire, timeout=5)
    waited_for.append(worker.run(4))
    go_on.release()
    at_work.release()
    await asyncio.gather(*waited_for)

    in_vain = worker.run(5)
    await asyncio.to_thread(pausing.acquire, timeout=5)
    go_on.release()
    at_work.release(2)
    await in_vain
    await worker.run(6)

    assert together == [[0], [1, 2], [3, 4], [5], [6]]
    assert not pausing.acquire(blocking=False)
    worker.end()
    wait_for_end("gathering")


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


async def test_a_write_whose_commit_fails_is_an_error(file: SqliteFile):
    """The deferred constraint fails at the commit."""
    good, bad = await write_together(
        file, insert("INSERT INTO parents VALUES (1)"), insert("INSERT INTO children VALUES (9)")
    )

    assert good == 1
    assert isinstance(bad, StoreUnavailableError)
    assert await count(file, "parents") == 1


async def test_a_write_that_raises_after_a_change_is_rolled_back(file: SqliteFile):
    good, refused = await write_together(
        file, insert("INSERT INTO parents VALUES (1)"), insert_and_refuse
    )

    assert good == 1
    assert isinstance(refused, UsageError)
    assert await count(file, "parents") == 1


def test_a_new_file_is_private_and_an_existing_one_is_unchanged(tmp_path: Path):
    path = tmp_path / "folder" / "cllm.db"
    create_private_file(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    path.write_bytes(b"content")
    create_private_file(path)
    assert path.read_bytes() == b"content"


def test_a_folder_is_not_opened_as_a_database(tmp_path: Path):
    with pytest.raises(StoreUnavailableError, match="not a regular file"):
        check_regular_file(tmp_path)
    with pytest.raises(StoreUnavailableError, match="No such file"):
        check_regular_file(tmp_path / "missing.db")


@pytest.mark.parametrize(
    ("code", "message"),
    [
        (sqlite3.SQLITE_FULL, "the disk is full"),
        (sqlite3.SQLITE_IOERR | 1 << 8, "check the disk"),
        (sqlite3.SQLITE_MISMATCH, "cannot be used (datatype mismatch)"),
        (None, "cannot be used (datatype mismatch)"),
    ],
)
def test_an_error_of_sqlite_becomes_a_message_with_advice(code: int | None, message: str):
    error = sqlite3.OperationalError("datatype mismatch")
    if code is not None:
        error.sqlite_errorcode = code
    assert message in str(sqlite_error(Path("a.db"), error))
