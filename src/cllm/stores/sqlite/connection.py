"""One connection to an SQLite file, and the thread that uses it.

An operation is one hop to the thread and one transaction. The thread takes all waiting work
together: it shares one wake-up, and writes share a transaction and its fsync. No caller gets a
result before the commit. An executor of the standard library costs twice as much per hop. SQLite's
errors become ours.
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
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar

from cllm.core.errors import CllmError, StoreError, StoreUnavailableError, UsageError
from cllm.core.ports import Clock
from cllm.stores.sql import HEAD, VERSION_TABLE
from cllm.stores.sql.rows import UnreadableRowError, invalid_text_error

if TYPE_CHECKING:
    import sqlalchemy as sa


Piece = TypeVar("Piece")
Outcome = tuple[Any, BaseException | None]
"""A result, or a failure."""
_Do = Callable[[Sequence[Any]], Sequence[Outcome]]
_Waiting = tuple["asyncio.Future[Any]", Any, _Do]
_Jobs = SimpleQueue[_Waiting | None]

MAX_BATCH = 64
PRIMARY_CODE = 0xFF
_MESSAGES = {
    sqlite3.SQLITE_FULL: "{path} cannot grow, the disk is full; free some space and ask again.",
    sqlite3.SQLITE_IOERR: "{path} cannot be read or written; check the disk and its free space.",
    sqlite3.SQLITE_READONLY: "{path} cannot be written; check its permissions and its folder's.",
    sqlite3.SQLITE_PERM: "{path} cannot be used; check its permissions and its folder's.",
    sqlite3.SQLITE_CANTOPEN: "{path} cannot be opened; check that its folder is there and yours.",
    sqlite3.SQLITE_BUSY: "{path} is locked by another program; wait for it, then ask again.",
    sqlite3.SQLITE_LOCKED: "{path} is locked by another program; wait for it, then ask again.",
    sqlite3.SQLITE_NOTADB: "{path} is not an SQLite database; name another file in the store URL.",
    sqlite3.SQLITE_CORRUPT: "{path} is damaged; bring back a copy of it.",
    sqlite3.SQLITE_TOOBIG: "This is more than {path} can hold in one piece; say it in parts.",
}
_DEFAULT_MESSAGE = "{path} cannot be used ({reason}); check that it is a database of cllm."
T = TypeVar("T")
Work = Callable[[sqlite3.Connection], T]
Synchronous = Literal["FULL", "NORMAL"]
_Begin = Literal["BEGIN", "BEGIN IMMEDIATE"]
BUSY_SECONDS = 30.0
BATCH_DELAY_SECONDS = 0.002
STEPS_BETWEEN_CHECKS = 10_000
"""SQLite's instructions between two checks for an abandoned read: about 100 µs."""
CACHE_KILOBYTES = 8 * 1024
# Few checkpoints: a page that many turns change is copied once.
CHECKPOINT_PAGES = 4000
FILE_MODE = 0o600
FOLDER_MODE = 0o700
_PAUSE = 0.02
MIGRATION_LOCK_SECONDS = 60.0


class UncancellableFuture(asyncio.Future[Any]):
    """A future that ignores cancel(): the waiter is cancelled after the work is done."""

    def cancel(self, msg: Any = None) -> bool:  # noqa: ARG002
        return False


class WorkerThread(Generic[Piece]):
    """The thread; it starts with the first work and ends with `end` or with the Worker.

    `do` gets the waiting pieces and returns the outcome of each, in order; it never raises. If
    fewer wait than were done together last, `pause` waits a moment for the others.
    """

    def __init__(
        self,
        name: str,
        do: Callable[[Sequence[Piece]], Sequence[Outcome]],
        *,
        pause: Callable[[], object] | None = None,
    ) -> None:
        self._name = name
        self._do = do
        self._pause = pause
        self._jobs: _Jobs | None = None

    def run(self, piece: Piece, *, can_cancel: bool = False) -> "asyncio.Future[Any]":
        """Queue the work; the future belongs to the running loop.

        Work that `can_cancel` is skipped if its future is cancelled first, and its end is not
        waited for.
        """
        if self._jobs is None:
            self._jobs = self._start()
        loop = asyncio.get_running_loop()
        future = asyncio.Future[Any](loop=loop) if can_cancel else UncancellableFuture(loop=loop)
        self._jobs.put((future, piece, self._do))
        return future

    def end(self) -> None:
        jobs, self._jobs = self._jobs, None
        if jobs is not None:
            jobs.put(None)

    def _start(self) -> _Jobs:
        jobs: _Jobs = SimpleQueue()
        given = (jobs, self._pause)
        threading.Thread(target=_run_worker, args=given, name=self._name, daemon=True).start()
        weakref.finalize(self, jobs.put, None).atexit = False
        return jobs


def _run_worker(jobs: _Jobs, pause: Callable[[], object] | None) -> None:
    """Work until None comes. Holds nothing of a job after it."""
    before = 1
    while (first := jobs.get()) is not None:
        together = [first]
        is_last = _drain_queue(jobs, together)
        if pause is not None and len(together) < before and not is_last:
            pause()
            is_last = _drain_queue(jobs, together)
        before = len(together)
        _run_jobs(together)
        del first, together
        if is_last:
            return


def _drain_queue(jobs: _Jobs, together: list[_Waiting]) -> bool:
    """Add what is waiting; return whether None was behind it."""
    with contextlib.suppress(Empty):
        while len(together) < MAX_BATCH:
            job = jobs.get_nowait()
            if job is None:
                return True
            together.append(job)
    return False


def _run_jobs(jobs: Sequence[_Waiting]) -> None:
    """Do the jobs and set their futures, with one call per event loop."""
    do = jobs[0][2]
    jobs = [job for job in jobs if not job[0].cancelled()]
    outcomes = do([piece for _, piece, _ in jobs])
    told: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Outcome]]] = {}
    for (future, _, _), outcome in zip(jobs, outcomes, strict=True):
        told.setdefault(future.get_loop(), []).append((future, outcome))
    for loop, settled in told.items():
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(_set_futures, settled)


def _set_futures(settled: Sequence[tuple["asyncio.Future[Any]", Outcome]]) -> None:
    for future, (result, failure) in settled:
        if future.cancelled():
            continue
        if failure is None:
            future.set_result(result)
        else:
            future.set_exception(failure)


def sqlite_error(path: Path, error: sqlite3.Error) -> StoreError:
    code = getattr(error, "sqlite_errorcode", None)
    sentence = (
        _DEFAULT_MESSAGE if code is None else _MESSAGES.get(code & PRIMARY_CODE, _DEFAULT_MESSAGE)
    )
    return StoreUnavailableError(sentence.format(path=path, reason=error), path=str(path))


class _Job:
    __slots__ = ("abandoned", "begin", "work")

    def __init__(self, begin: _Begin, work: Work[Any]) -> None:
        self.begin = begin
        self.work = work
        self.abandoned = False


_create_lock = threading.Lock()
"""Held while a file is created, so that nobody in this process opens it before it is closed."""


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
        """`batches_writes`: wait a moment for writes if more came together before.

        `on_begin` runs in each transaction before its work, `on_reset` when work is rolled back or
        the file is closed; both in the file's thread.
        """
        self.path = path
        self._on_begin = on_begin
        self._on_loss = on_reset
        self._synchronous = synchronous
        self._busy_seconds = busy_seconds
        pause = partial(time.sleep, BATCH_DELAY_SECONDS) if batches_writes else None
        self._worker: WorkerThread[_Job | None] = WorkerThread(
            "cllm-sqlite", self._run_all, pause=pause
        )
        self._connection: sqlite3.Connection | None = None
        self._running: _Job | None = None

    async def read(self, work: Work[T]) -> T:
        """Do the work on one snapshot. Cancelling interrupts it and frees the thread at once."""
        job = _Job("BEGIN", work)
        done: asyncio.Future[T] = self._worker.run(job, can_cancel=True)
        try:
            return await done
        except asyncio.CancelledError:
            job.abandoned = True
            raise

    async def write(self, work: Work[T], *, undo: Callable[[T], Work[object]] | None = None) -> T:
        """Do the work in one transaction; `undo` reverts it if the caller is cancelled.

        Without `undo` the work is committed even then: a turn that was handed over is saved.
        """
        done: asyncio.Future[T] = self._worker.run(_Job("BEGIN IMMEDIATE", work))
        try:
            return await done
        except asyncio.CancelledError:
            if done.exception() is None and undo is not None:
                await self._worker.run(_Job("BEGIN IMMEDIATE", undo(done.result())))
            raise

    async def close(self) -> None:
        await self._worker.run(None)
        self._worker.end()

    def _run_all(self, jobs: Sequence[_Job | None]) -> list[Outcome]:
        writes = [job.work for job in jobs if job is not None and job.begin == "BEGIN IMMEDIATE"]
        if len(jobs) > 1 and len(writes) == len(jobs):
            return self._write_together(writes)
        return [self._outcome(job) for job in jobs]

    def _write_together(self, writes: Sequence[Work[Any]]) -> list[Outcome]:
        """All writes in one transaction; if one fails, each in its own.

        A write that is refused before it changed anything does not affect the others.
        """
        begun = False

        def write(connection: sqlite3.Connection) -> list[Outcome]:
            nonlocal begun
            begun = True
            return [_run_or_refuse(work, connection) for work in writes]

        outcomes, failure = self._outcome(_Job("BEGIN IMMEDIATE", write))
        if failure is None:
            return list(outcomes)
        if not begun:
            return [(None, failure)] * len(writes)
        return [self._outcome(_Job("BEGIN IMMEDIATE", work)) for work in writes]

    def _outcome(self, job: _Job | None) -> Outcome:
        try:
            if job is not None:
                return self._run(job), None
            self._close()
        except BaseException as error:  # noqa: BLE001 - raised in the waiter
            return None, error
        return None, None

    def _run(self, job: _Job) -> Any:
        try:
            return self._transaction(job)
        except sqlite3.ProgrammingError:
            # A bug of ours, not a fault of the file.
            raise
        except sqlite3.Error as error:
            raise sqlite_error(self.path, error) from error
        except OverflowError as error:
            raise UsageError("A number is too large to be kept; use a smaller one.") from error
        except UnicodeError as error:
            raise invalid_text_error() from error
        except UnreadableRowError as error:
            raise UnreadableRowError(error.reason, path=str(self.path)) from error

    def _transaction(self, job: _Job) -> Any:
        connection = self._opened()
        connection.execute(job.begin)
        try:
            self._on_begin(connection)
            self._running = job
            try:
                found = job.work(connection)
            finally:
                self._running = None
            connection.execute("COMMIT")
        except BaseException:
            self._on_loss()
            if connection.in_transaction:
                connection.execute("ROLLBACK")
            raise
        return found

    def _opened(self) -> sqlite3.Connection:
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
            self._settle_journal(connection)
            connection.execute(f"PRAGMA synchronous = {self._synchronous}")
            connection.execute(f"PRAGMA cache_size = -{CACHE_KILOBYTES}")
            connection.execute(f"PRAGMA wal_autocheckpoint = {CHECKPOINT_PAGES}")
            connection.execute("PRAGMA foreign_keys = ON")
            connection.execute("PRAGMA trusted_schema = OFF")
            connection.execute("PRAGMA secure_delete = ON")
            connection.set_progress_handler(self._is_abandoned, STEPS_BETWEEN_CHECKS)
            if _read_revision(connection) != HEAD:
                self._prepare(connection)
        except BaseException:
            connection.close()
            raise
        return connection

    def _is_abandoned(self) -> bool:
        """Whether to interrupt the running read.

        SQLite polls this: `interrupt()` between two statements has no effect.
        """
        return self._running is not None and self._running.abandoned

    def _settle_journal(self, connection: sqlite3.Connection) -> None:
        """Switch to write-ahead logging, as other processes may do at the same time."""
        deadline = time.monotonic() + self._busy_seconds
        while True:
            try:
                connection.execute("PRAGMA journal_mode = WAL")
            except sqlite3.OperationalError as error:
                busy = error.sqlite_errorcode & PRIMARY_CODE == sqlite3.SQLITE_BUSY
                if not busy or time.monotonic() > deadline:
                    raise
                time.sleep(_PAUSE)
            else:
                return

    def _prepare(self, connection: sqlite3.Connection) -> None:
        """Create the tables in an empty file, unless another process has.

        The lock is taken first, since importing the migrations takes long.
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
        self._on_loss()
        if self._connection is not None:
            self._connection.close()
            self._connection = None


class SqliteBase:
    """A clock, and the file with a thread for writes and one for reads, which delay no turn."""

    _clock: Clock
    _file: SqliteFile
    _reader: SqliteFile


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
    """StoreUnavailableError if it is not a regular file: opening a pipe would block.

    The file is not opened: closing it would release SQLite's locks of this process.
    """
    try:
        regular, readable = stat.S_ISREG(path.stat().st_mode), os.access(path, os.R_OK)
    except (OSError, ValueError) as error:
        raise _open_error(path, _describe_error(error)) from error
    if not readable:
        raise _open_error(path, os.strerror(errno.EACCES))
    if not regular:
        raise _open_error(path, "not a regular file")


def _describe_error(error: OSError | ValueError) -> str:
    return os.strerror(getattr(error, "errno", None) or errno.EINVAL)


def _open_error(path: Path, reason: str) -> StoreError:
    return StoreUnavailableError(
        f"{path} cannot be opened ({reason}); name another file in the store URL.", path=str(path)
    )


def _read_revision(connection: sqlite3.Connection) -> str | None:
    known = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?"
    if connection.execute(known, (VERSION_TABLE,)).fetchone() is None:
        return None
    rows = connection.execute("SELECT version_num FROM cllm_revision").fetchall()
    return str(rows[0][0]) if len(rows) == 1 else None


def with_sqlite(path: Path, work: "Callable[[sa.Connection], T]") -> T:
    own = sqlite3.connect(path, timeout=MIGRATION_LOCK_SECONDS, isolation_level=None)
    try:
        own.execute("PRAGMA secure_delete = ON")
        return run_on_connection(own, work)
    finally:
        own.close()


def run_on_connection(own: sqlite3.Connection, work: "Callable[[sa.Connection], T]") -> T:
    """Do the work on an open connection, in its transaction if it has one."""
    import sqlalchemy as sa  # noqa: PLC0415 - only migrations need it

    def begin(bind: "sa.Connection") -> None:
        if not own.in_transaction:
            bind.exec_driver_sql("BEGIN IMMEDIATE")

    engine = sa.create_engine("sqlite://", creator=lambda: own, poolclass=sa.pool.StaticPool)
    sa.event.listen(engine, "begin", begin)
    with engine.begin() as bind:
        return work(bind)


def erase_deleted_rows(path: Path) -> None:
    own = sqlite3.connect(path, timeout=MIGRATION_LOCK_SECONDS, isolation_level=None)
    try:
        own.execute("PRAGMA secure_delete = ON")
        own.execute("VACUUM")
        own.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    finally:
        own.close()
