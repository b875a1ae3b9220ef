"""One connection to an SQLite file, and the thread that uses it.

Each operation is one hop to the thread and one transaction. The thread runs all queued jobs as one
batch: they share a wake-up, and writes share a transaction and its flush to disk. No caller gets a
result before the commit. An executor of the standard library costs twice as much per hop.
"""

import asyncio
import contextlib
import errno
import os
import sqlite3
import stat
import threading
import time
import weakref
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from cllm.core.errors import CllmError, StoreError, StoreUnavailableError, UsageError
from cllm.core.ports import Clock
from cllm.stores.sql import HEAD, VERSION_TABLE
from cllm.stores.sql.rows import UnreadableRowError
from cllm.stores.sql.validation import invalid_text_error
from cllm.stores.write_ahead_log import PRIMARY_CODE, enable_write_ahead_log

if TYPE_CHECKING:
    import sqlalchemy as sa


Job = TypeVar("Job")
Outcome = tuple[Any, BaseException | None]
"""A result, or an exception."""
_RunBatch = Callable[[Sequence[Any]], Sequence[Outcome]]
_QueuedJob = tuple["asyncio.Future[Any]", Any, _RunBatch]
_Queue = SimpleQueue[_QueuedJob | None]

MAX_BATCH = 64
_MESSAGES = {
    sqlite3.SQLITE_FULL: "{path} cannot grow because the disk is full; free some space and "
    "try again.",
    sqlite3.SQLITE_IOERR: "{path} cannot be read or written; check the disk and its free space.",
    sqlite3.SQLITE_READONLY: "{path} cannot be written; check the permissions of the file and "
    "its folder.",
    sqlite3.SQLITE_PERM: "{path} cannot be used; check the permissions of the file and its folder.",
    sqlite3.SQLITE_CANTOPEN: "{path} cannot be opened; check that its folder exists and belongs "
    "to you.",
    sqlite3.SQLITE_BUSY: "{path} is locked by another program; wait for it, then try again.",
    sqlite3.SQLITE_LOCKED: "{path} is locked by another program; wait for it, then try again.",
    sqlite3.SQLITE_NOTADB: "{path} is not an SQLite database; name another file in the store URL.",
    sqlite3.SQLITE_CORRUPT: "{path} is damaged; restore it from a backup.",
    sqlite3.SQLITE_TOOBIG: "The text is too large for one row of {path}; send it in parts.",
}
_READ_ONLY_FOLDER = (
    "{path} cannot be opened in a read-only folder, because SQLite writes files next to it; copy "
    "the file to another folder."
)
_DEFAULT_MESSAGE = "{path} cannot be used ({reason}); check that it is a cllm database."
T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]
Synchronous = Literal["FULL", "NORMAL"]
_Begin = Literal["BEGIN", "BEGIN IMMEDIATE"]
BUSY_SECONDS = 30.0
BATCH_DELAY_SECONDS = 0.002
STEPS_BETWEEN_CHECKS = 10_000
"""SQLite instructions between two checks for a cancelled read: about 100 µs."""
CACHE_KILOBYTES = 8 * 1024
# Few checkpoints, so that a page that many turns change is copied once.
CHECKPOINT_PAGES = 4000
FILE_MODE = 0o600
FOLDER_MODE = 0o700
MIGRATION_LOCK_SECONDS = 60.0


class UncancellableFuture(asyncio.Future[Any]):
    """A future that ignores cancel(). The waiter is cancelled after the work completes."""

    def cancel(self, msg: Any = None) -> bool:  # noqa: ARG002
        return False


class WorkerThread(Generic[Job]):
    """A thread, from the first job until `end` or garbage collection.

    `run_batch` gets the queued jobs and returns the outcome of each, in order; it never raises. If
    fewer jobs are queued than the last batch had, `pause` waits a moment for more.
    """

    def __init__(
        self,
        name: str,
        run_batch: Callable[[Sequence[Job]], Sequence[Outcome]],
        *,
        pause: Callable[[], object] | None = None,
    ) -> None:
        self._name = name
        self._run_batch = run_batch
        self._pause = pause
        self._queue: _Queue | None = None

    def run(self, job: Job, *, can_cancel: bool = False) -> "asyncio.Future[Any]":
        """Queue the job; the future belongs to the running loop.

        With `can_cancel`, cancelling skips a queued job and does not wait for a running one.
        """
        if self._queue is None:
            self._queue = self._start()
        loop = asyncio.get_running_loop()
        future = asyncio.Future[Any](loop=loop) if can_cancel else UncancellableFuture(loop=loop)
        self._queue.put((future, job, self._run_batch))
        return future

    def end(self) -> None:
        queue, self._queue = self._queue, None
        if queue is not None:
            queue.put(None)

    def _start(self) -> _Queue:
        queue: _Queue = SimpleQueue()
        args = (queue, self._pause)
        threading.Thread(target=_run_worker, args=args, name=self._name, daemon=True).start()
        weakref.finalize(self, queue.put, None).atexit = False
        return queue


def _run_worker(queue: _Queue, pause: Callable[[], object] | None) -> None:
    """Run jobs until None. Keeps no reference to a finished job."""
    last_size = 1
    while (first := queue.get()) is not None:
        batch = [first]
        is_last = _drain_queue(queue, batch)
        if pause is not None and len(batch) < last_size and not is_last:
            pause()
            is_last = _drain_queue(queue, batch)
        last_size = len(batch)
        _run_jobs(batch)
        del first, batch
        if is_last:
            return


def _drain_queue(queue: _Queue, batch: list[_QueuedJob]) -> bool:
    """Move queued jobs into the batch; return whether None came after them."""
    with contextlib.suppress(Empty):
        while len(batch) < MAX_BATCH:
            job = queue.get_nowait()
            if job is None:
                return True
            batch.append(job)
    return False


def _run_jobs(batch: Sequence[_QueuedJob]) -> None:
    """Run the batch and set its futures, with one call per event loop."""
    run_batch = batch[0][2]
    batch = [queued for queued in batch if not queued[0].cancelled()]
    outcomes = run_batch([job for _, job, _ in batch])
    by_loop: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Outcome]]] = {}
    for (future, _, _), outcome in zip(batch, outcomes, strict=True):
        by_loop.setdefault(future.get_loop(), []).append((future, outcome))
    for loop, results in by_loop.items():
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(_set_futures, results)


def _set_futures(results: Sequence[tuple["asyncio.Future[Any]", Outcome]]) -> None:
    for future, (result, error) in results:
        if future.cancelled():
            continue
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)


def sqlite_error(path: Path, error: sqlite3.Error) -> StoreError:
    code = (getattr(error, "sqlite_errorcode", None) or 0) & PRIMARY_CODE
    message = _MESSAGES.get(code, _DEFAULT_MESSAGE)
    if code == sqlite3.SQLITE_CANTOPEN and not os.access(path.parent, os.W_OK):
        message = _READ_ONLY_FOLDER
    return StoreUnavailableError(message.format(path=path, reason=error), path=str(path))


class _Transaction:
    __slots__ = ("begin", "is_cancelled", "work")

    def __init__(self, begin: _Begin, work: Work[Any]) -> None:
        self.begin = begin
        self.work = work
        self.is_cancelled = False


_create_lock = threading.Lock()
"""Held while a file is created: closing it would release SQLite's locks of this process."""


class SqliteFile:
    def __init__(
        self,
        path: Path,
        *,
        synchronous: Synchronous = "FULL",
        busy_seconds: float = BUSY_SECONDS,
        batches_writes: bool = False,
        on_begin: Callable[[sqlite3.Connection], None] = lambda _: None,
        on_reset: Callable[[], None] = lambda: None,
    ) -> None:
        """`batches_writes`: wait a moment for more writes if the last batch was larger.

        `on_begin` runs in each transaction before its work, `on_reset` after a rollback or a close;
        both in the file's thread.
        """
        self.path = path
        self._on_begin = on_begin
        self._on_reset = on_reset
        self._synchronous = synchronous
        self._busy_seconds = busy_seconds
        pause = partial(time.sleep, BATCH_DELAY_SECONDS) if batches_writes else None
        self._worker: WorkerThread[_Transaction | None] = WorkerThread(
            "cllm-sqlite", self._run_batch, pause=pause
        )
        self._connection: sqlite3.Connection | None = None
        self._running: _Transaction | None = None

    async def read(self, work: Work[T]) -> T:
        """Run the work on one snapshot. Cancelling interrupts it and frees the thread."""
        job = _Transaction("BEGIN", work)
        future: asyncio.Future[T] = self._worker.run(job, can_cancel=True)
        try:
            return await future
        except asyncio.CancelledError:
            job.is_cancelled = True
            raise

    async def write(self, work: Work[T], *, undo: Callable[[T], Work[object]] | None = None) -> T:
        """Run the work in one transaction; `undo` reverts it if the caller is cancelled.

        Without `undo` the work is committed even then.
        """
        future: asyncio.Future[T] = self._worker.run(_Transaction("BEGIN IMMEDIATE", work))
        try:
            return await future
        except asyncio.CancelledError:
            if future.exception() is None and undo is not None:
                await self._worker.run(_Transaction("BEGIN IMMEDIATE", undo(future.result())))
            raise

    async def check_writable(self) -> None:
        """Raise StoreUnavailableError if it cannot be written, or is not of this version.

        Cancelling does not wait for the lock of another process.
        """
        job = _Transaction("BEGIN IMMEDIATE", self._check_revision)
        await self._worker.run(job, can_cancel=True)

    def _check_revision(self, connection: sqlite3.Connection) -> None:
        revision = _read_revision(connection)
        if revision != HEAD:
            from cllm.stores.sql.migrate import describe_mismatch  # noqa: PLC0415 - rarely needed

            raise StoreUnavailableError(describe_mismatch(revision), path=str(self.path))

    async def close(self) -> None:
        await self._worker.run(None)
        self._worker.end()

    def _run_batch(self, jobs: Sequence[_Transaction | None]) -> list[Outcome]:
        writes = [job.work for job in jobs if job is not None and job.begin == "BEGIN IMMEDIATE"]
        if len(jobs) > 1 and len(writes) == len(jobs):
            return self._write_batch(writes)
        return [self._run_job(job) for job in jobs]

    def _write_batch(self, writes: Sequence[Work[Any]]) -> list[Outcome]:
        """Run all writes in one transaction; if one fails, run each in a separate transaction.

        A write that raises before it changed anything does not affect the others.
        """
        has_started = False

        def write(connection: sqlite3.Connection) -> list[Outcome]:
            nonlocal has_started
            has_started = True
            return [_run_or_refuse(work, connection) for work in writes]

        outcomes, error = self._run_job(_Transaction("BEGIN IMMEDIATE", write))
        if error is None:
            return list(outcomes)
        if not has_started:
            return [(None, error)] * len(writes)
        return [self._run_job(_Transaction("BEGIN IMMEDIATE", work)) for work in writes]

    def _run_job(self, job: _Transaction | None) -> Outcome:
        try:
            if job is not None:
                return self._run(job), None
            self._close()
        except BaseException as error:  # noqa: BLE001 - raised in the waiter
            return None, error
        return None, None

    def _run(self, job: _Transaction) -> Any:
        try:
            return self._run_transaction(job)
        except sqlite3.ProgrammingError:
            # A bug in cllm, not a fault of the file.
            raise
        except sqlite3.Error as error:
            raise sqlite_error(self.path, error) from error
        except OverflowError as error:
            raise UsageError("A number is too large to store; use a smaller one.") from error
        except UnicodeError as error:
            raise invalid_text_error() from error
        except UnreadableRowError as error:
            raise UnreadableRowError(error.reason, path=str(self.path)) from error

    def _run_transaction(self, job: _Transaction) -> Any:
        connection = self._connect()
        connection.execute(job.begin)
        try:
            self._on_begin(connection)
            self._running = job
            try:
                result = job.work(connection)
            finally:
                self._running = None
            connection.execute("COMMIT")
        except BaseException:
            self._on_reset()
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return result

    def _connect(self) -> sqlite3.Connection:
        if self._connection is None:
            self._connection = self._open()
        return self._connection

    def _open(self) -> sqlite3.Connection:
        create_private_file(self.path)
        connection = sqlite3.connect(
            self.path,
            timeout=self._busy_seconds,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        try:
            enable_write_ahead_log(connection, self._busy_seconds)
            connection.execute(f"PRAGMA synchronous = {self._synchronous}")
            connection.execute(f"PRAGMA cache_size = -{CACHE_KILOBYTES}")
            connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA secure_delete = ON")
            connection.set_progress_handler(self._is_cancelled, STEPS_BETWEEN_CHECKS)
            if _read_revision(connection) != HEAD:
                self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _is_cancelled(self) -> bool:
        """Whether to interrupt the running read.

        SQLite polls this: `interrupt()` between two statements has no effect.
        """
        return self._running is not None and self._running.is_cancelled

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Create the tables in an empty file, unless another process did.

        Takes the lock first, since importing the migrations is slow.
        """
        connection.execute("BEGIN IMMEDIATE")
        if _read_revision(connection) == HEAD:
            connection.execute("ROLLBACK")
            return
        from sqlalchemy.exc import DBAPIError  # noqa: PLC0415

        from cllm.stores.sql.migrate import prepare  # noqa: PLC0415

        try:
            run_on_connection(connection, prepare)
        except DBAPIError as error:
            if isinstance(error.orig, sqlite3.Error):
                raise error.orig from error
            raise

    def _close(self) -> None:
        self._on_reset()
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class SqliteBase(ABC):
    """A clock, and the file with a thread for writes and one for reads, which delay no turn."""

    _clock: Clock
    _file: SqliteFile
    _reader: SqliteFile

    @abstractmethod
    async def _read_settled(self, owner: str, ref: str | None, work: Work[T]) -> T:
        """Read a conversation, or all of the owner, after turns of dead processes are settled."""


def _run_or_refuse(work: Work[Any], connection: sqlite3.Connection) -> Outcome:
    before = connection.total_changes
    try:
        return work(connection), None
    except CllmError as error:
        if connection.total_changes != before:
            raise
        return None, error


def create_private_file(path: Path) -> None:
    try:
        path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        with _create_lock:
            if not path.exists():
                os.close(os.open(path, os.O_CREAT | os.O_RDONLY | os.O_NONBLOCK, FILE_MODE))
    except (OSError, ValueError) as error:
        raise _open_error(path, _describe_error(error)) from error
    check_regular_file(path)


def check_regular_file(path: Path) -> None:
    """Raise StoreUnavailableError if it is not a regular file: opening a pipe would block.

    Does not open the file: closing it would release SQLite's locks of this process.
    """
    try:
        is_regular, is_readable = stat.S_ISREG(path.stat().st_mode), os.access(path, os.R_OK)
    except (OSError, ValueError) as error:
        raise _open_error(path, _describe_error(error)) from error
    if not is_readable:
        raise _open_error(path, os.strerror(errno.EACCES))
    if not is_regular:
        raise _open_error(path, "not a regular file")


def _describe_error(error: OSError | ValueError) -> str:
    return os.strerror(getattr(error, "errno", None) or errno.EINVAL)


def _open_error(path: Path, reason: str) -> StoreError:
    return StoreUnavailableError(
        f"{path} cannot be opened ({reason}); name another file in the store URL.", path=str(path)
    )


def _read_revision(connection: sqlite3.Connection) -> str | None:
    exists = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
    if connection.execute(exists, (VERSION_TABLE,)).fetchone() is None:
        return None
    rows = connection.execute("SELECT version_num FROM cllm_revision").fetchall()
    return str(rows[0][0]) if len(rows) == 1 else None


def run_in_sqlite(path: Path, work: "Callable[[sa.Connection], T]") -> T:
    connection = sqlite3.connect(path, timeout=MIGRATION_LOCK_SECONDS, isolation_level=None)
    try:
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA secure_delete = ON")
        return run_on_connection(connection, work)
    finally:
        connection.close()


def run_on_connection(connection: sqlite3.Connection, work: "Callable[[sa.Connection], T]") -> T:
    """Run the work on an open connection, in its transaction if it has one."""
    import sqlalchemy as sa  # noqa: PLC0415 - only migrations need it

    def begin(bind: "sa.Connection") -> None:
        if not connection.in_transaction:
            bind.exec_driver_sql("BEGIN IMMEDIATE")

    engine = sa.create_engine("sqlite://", creator=lambda: connection, poolclass=sa.pool.StaticPool)
    sa.event.listen(engine, "begin", begin)
    with engine.begin() as bind:
        return work(bind)


def erase_deleted_rows(path: Path) -> None:
    connection = sqlite3.connect(path, timeout=MIGRATION_LOCK_SECONDS, isolation_level=None)
    try:
        connection.execute("PRAGMA trusted_schema = OFF")
        connection.execute("PRAGMA secure_delete = ON")
        connection.execute("VACUUM")
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        connection.close()
