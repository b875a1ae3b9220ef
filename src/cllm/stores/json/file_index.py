"""An SQLite file in the cache folder with data that is computed from a folder of files.

It can be deleted at any time. Several processes may use it.
"""

import os
import sqlite3
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from threading import Lock
from typing import ClassVar, Generic, TypeVar

from cllm.core.errors import StoreUnavailableError
from cllm.stores.write_ahead_log import PRIMARY_CODE, enable_write_ahead_log

BUSY_SECONDS = 5.0
FILES_PER_TRANSACTION = 200
IN_MEMORY = ":memory:"
USABLE_CODES = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_PERM,
        sqlite3.SQLITE_READONLY,
    }
)
"""Errors of a file that another process uses or that cannot be written: it may be intact."""

C = TypeVar("C")
T = TypeVar("T")
ReadFile = Callable[[str], C | None]
"""Reads a file by its key; None: it has no content. StoreUnavailableError: try again later."""
Track = Callable[[Iterable[str], int], Iterable[str]]
"""Yields the keys and shows the progress; gets the keys and their number."""


class FileIndex(ABC, Generic[C]):
    """The index of a folder; `tables` has the table `files` with the columns `key` and `state`.

    Raises sqlite3.Error, or OSError if the file cannot be created.
    """

    tables: ClassVar[str]
    version: ClassVar[int]

    def __init__(self, path: Path | None) -> None:
        """Open the file; None: an index in memory."""
        self._connection = _connect(IN_MEMORY if path is None else _create_file(path))
        try:
            self._prepare()
        except BaseException:
            self._connection.close()
            raise

    def close(self) -> None:
        self._connection.close()

    @abstractmethod
    def _save(self, key: str, state: str, content: C | None) -> None:
        """Save a file and its state before it was read; no content if it is unreadable."""

    @abstractmethod
    def _forget(self, key: str) -> None: ...

    def refresh(
        self,
        states: Mapping[str, str],
        read: ReadFile[C],
        *,
        column: str = "state",
        track: Track | None = None,
    ) -> set[str]:
        """Read the files that are new or changed; forget those without a state.

        Return the keys of files that could not be read; the next call reads them again. `column`
        is that of the saved state.
        """
        known = self._read_states(column)
        gone = [key for key in known if key not in states]
        changed = [key for key, state in states.items() if known.get(key) != state]
        keys = iter(changed if track is None else track(changed, len(changed)))
        unavailable: set[str] = set()
        while batch := list(islice(keys, FILES_PER_TRANSACTION)):
            files: list[tuple[str, str, C | None]] = []
            for key in batch:
                try:
                    files.append((key, states[key], read(key)))
                except StoreUnavailableError:
                    unavailable.add(key)
            with self._transaction():
                for key, state, content in files:
                    self._save(key, state, content)
        if gone:
            self._remove(gone)
        return unavailable

    def _remove(self, keys: Iterable[str]) -> None:
        """Forget files, and erase their data from the index and its write-ahead log."""
        with self._transaction():
            for key in keys:
                self._forget(key)
            self._erase()
        self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _erase(self) -> None:
        """Erase what remains of forgotten files, besides their rows."""

    def _read_states(self, column: str) -> dict[str, str | None]:
        return dict(self._connection.execute(f"SELECT key, {column} FROM files"))  # noqa: S608

    def _prepare(self) -> None:
        # With a write-ahead log a commit needs no fsync, and readers do not wait.
        enable_write_ahead_log(self._connection, BUSY_SECONDS)
        self._connection.execute("PRAGMA synchronous = NORMAL")
        self._connection.execute("PRAGMA secure_delete = ON")
        if self._read_version() == self.version:
            return
        with self._transaction():
            version = self._read_version()
            if version not in (0, self.version):
                raise sqlite3.DatabaseError(f"the index has version {version}")
            if version == 0:
                for statement in self.tables.split(";"):
                    self._connection.execute(statement)
                self._connection.execute(f"PRAGMA user_version = {self.version}")

    def _read_version(self) -> int:
        (version,) = self._connection.execute("PRAGMA user_version").fetchone()
        return int(version)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            with suppress(sqlite3.Error):
                self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")


I = TypeVar("I", bound=FileIndex)  # type: ignore[type-arg]  # noqa: E741


class UnusableIndexError(Exception):
    """The index cannot be written, or another process uses it for too long."""


class IndexAccess(Generic[I]):
    """Opens the index on first use, and builds a damaged one again."""

    def __init__(self, path: Path, open_index: Callable[[Path], I]) -> None:
        self.path = path
        self._open_index = open_index
        self._index: I | None = None
        self._is_unusable = False
        self._guard = Lock()

    def use(self, work: Callable[[I], T]) -> T:
        """Do the work, one thread at a time. Raises UnusableIndexError, also on later calls."""
        with self._guard:
            can_repair = True
            while not self._is_unusable:
                try:
                    return work(self._open())
                except sqlite3.Error as error:
                    self._close()
                    if can_repair and is_damage(error):
                        can_repair = False
                        with suppress(OSError):
                            remove_index(self.path)
                    else:
                        self._is_unusable = True
                except OSError:
                    self._is_unusable = True
            raise UnusableIndexError

    def close(self) -> None:
        with self._guard:
            self._close()

    def _open(self) -> I:
        if self._index is None:
            self._index = self._open_index(self.path)
        return self._index

    def _close(self) -> None:
        index, self._index = self._index, None
        if index is not None:
            with suppress(sqlite3.Error):
                index.close()


def remove_index(path: Path) -> None:
    """Delete an index that is damaged or has another version."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)


def is_damage(error: sqlite3.Error) -> bool:
    """Whether a new file can help."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    return code & PRIMARY_CODE not in USABLE_CODES


def find_index_path(cache: Path, kind: str, folder: Path) -> Path:
    """Return the file of this kind of index for a folder, by its real path."""
    name = blake2b(os.fsencode(os.path.realpath(folder)), digest_size=16).hexdigest()
    return cache / kind / f"{name}.sqlite3"


def _create_file(path: Path) -> str:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    return str(path)


def _connect(name: str) -> sqlite3.Connection:
    # The caller's lock allows one thread at a time.
    return sqlite3.connect(
        name, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )
