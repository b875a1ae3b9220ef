"""An SQLite file with the path digests of the conversation files in a folder.

It finds candidates only: the caller reads a file before it uses a match. Everything in it is
computed from the conversation files, so it can be deleted at any time.
"""

import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from itertools import islice
from pathlib import Path

import msgspec

from cllm.core.conversation import StoredConversation
from cllm.core.errors import StoreUnavailableError
from cllm.wire.path_digest import IDS_SIZE, MEANING_END, VERSION, digest_turns

# Increase it if the tables change, or if the digests of a file can be others than before.
INDEX_VERSION = (1 << 8) + VERSION[0]
BUSY_SECONDS = 5.0
FILES_PER_TRANSACTION = 200
IN_MEMORY = ":memory:"
PREFIX_SIZE = 8
TABLES = """
CREATE TABLE files (
    number INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    state TEXT NOT NULL,
    family TEXT,
    is_side INTEGER NOT NULL,
    updated_at TEXT
);
CREATE INDEX files_by_family ON files (family);
CREATE TABLE digests (
    meaning INTEGER NOT NULL,
    ids INTEGER NOT NULL,
    file INTEGER NOT NULL,
    PRIMARY KEY (meaning, ids, file)
) WITHOUT ROWID;
CREATE INDEX digests_by_file ON digests (file);
"""
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

Digest = tuple[int, int]
ReadFile = Callable[[str], StoredConversation | None]
"""Reads a conversation; None: the file has none. StoreUnavailableError: try again later."""


class IndexedFile(msgspec.Struct, frozen=True):
    """A file and its state before it was read; no conversation if it is unreadable."""

    key: str
    state: str
    conversation: StoredConversation | None


class PathIndex:
    """Raises sqlite3.Error, or OSError if the file cannot be created."""

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

    def refresh(self, states: Mapping[str, str], read: ReadFile) -> None:
        """Read the files that are new or changed; forget those without a state."""
        known = dict(self._connection.execute("SELECT key, state FROM files"))
        gone = [key for key in known if key not in states]
        changed = (key for key, state in states.items() if known.get(key) != state)
        while keys := list(islice(changed, FILES_PER_TRANSACTION)):
            files = list(_read_files(keys, states, read))
            with self._transaction():
                for file in files:
                    self._save(file)
        if gone:
            with self._transaction():
                for key in gone:
                    self._forget(key)

    def find_digest(
        self, digest: bytes, *, family: str | None, side: bool, any_ids: bool
    ) -> Iterator[str]:
        """Yield the keys of files that have the digest, newest first."""
        meaning, ids = _split(digest)
        rows = self._connection.execute(
            """
            SELECT DISTINCT key, updated_at FROM digests JOIN files ON number = file
            WHERE meaning = ? AND (? OR ids = ?) AND is_side = ? AND (? IS NULL OR family = ?)
            ORDER BY updated_at DESC, key
            """,
            (meaning, any_ids, ids, side, family, family),
        )
        return (key for key, _ in rows.fetchall())

    def find_family(self, family: str) -> Iterator[str]:
        """Yield the keys of the files of a family, newest first."""
        rows = self._connection.execute(
            "SELECT key FROM files WHERE family = ? ORDER BY updated_at DESC, key", (family,)
        )
        return (key for (key,) in rows.fetchall())

    def _prepare(self) -> None:
        # With a write-ahead log a commit needs no fsync, and readers do not wait.
        self._connection.execute("PRAGMA journal_mode = WAL")
        self._connection.execute("PRAGMA synchronous = NORMAL")
        if self._read_version() == INDEX_VERSION:
            return
        with self._transaction():
            version = self._read_version()
            if version not in (0, INDEX_VERSION):
                raise sqlite3.DatabaseError(f"the index has version {version}")
            if version == 0:
                for statement in TABLES.split(";"):
                    self._connection.execute(statement)
                self._connection.execute(f"PRAGMA user_version = {INDEX_VERSION}")

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

    def _save(self, file: IndexedFile) -> None:
        conversation = file.conversation
        if conversation is None or conversation.archived_at is not None:
            # Not searched. Changing that changes the file.
            number = self._save_file(file, family=None, side=False, updated_at=None)
            self._save_digests(number, set())
            return
        number = self._save_file(
            file,
            family=conversation.family_key,
            side=conversation.is_side,
            updated_at=_sortable(conversation.updated_at),
        )
        turns = digest_turns(conversation).values()
        self._save_digests(number, {_split(digest) for turn in turns for digest in turn})

    def _save_file(
        self, file: IndexedFile, *, family: str | None, side: bool, updated_at: str | None
    ) -> int:
        (number,) = self._connection.execute(
            """
            INSERT INTO files (key, state, family, is_side, updated_at) VALUES (?, ?, ?, ?, ?)
            ON CONFLICT (key) DO UPDATE SET (state, family, is_side, updated_at) =
                (excluded.state, excluded.family, excluded.is_side, excluded.updated_at)
            RETURNING number
            """,
            (file.key, file.state, family, side, updated_at),
        ).fetchone()
        return int(number)

    def _save_digests(self, number: int, digests: set[Digest]) -> None:
        """Write only the difference: a turn adds few messages to a long conversation."""
        rows = self._connection.execute(
            "SELECT meaning, ids FROM digests WHERE file = ?", (number,)
        )
        stored: set[Digest] = set(rows.fetchall())
        self._connection.executemany(
            "DELETE FROM digests WHERE meaning = ? AND ids = ? AND file = ?",
            _with_number(stored - digests, number),
        )
        self._connection.executemany(
            "INSERT INTO digests (meaning, ids, file) VALUES (?, ?, ?)",
            _with_number(digests - stored, number),
        )

    def _forget(self, key: str) -> None:
        self._connection.execute(
            "DELETE FROM digests WHERE file = (SELECT number FROM files WHERE key = ?)", (key,)
        )
        self._connection.execute("DELETE FROM files WHERE key = ?", (key,))


def _read_files(
    keys: Iterable[str], states: Mapping[str, str], read: ReadFile
) -> Iterator[IndexedFile]:
    for key in keys:
        with suppress(StoreUnavailableError):
            yield IndexedFile(key, states[key], read(key))


def remove_index(path: Path) -> None:
    """Delete an index that is damaged or has another version."""
    for suffix in ("", "-wal", "-shm", "-journal"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)


def is_damage(error: sqlite3.Error) -> bool:
    """Whether a new file can help."""
    code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_ERROR)
    return code & 0xFF not in USABLE_CODES


def _create_file(path: Path) -> str:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
    return str(path)


def _connect(name: str) -> sqlite3.Connection:
    # The caller's lock allows one thread at a time.
    return sqlite3.connect(
        name, timeout=BUSY_SECONDS, isolation_level=None, check_same_thread=False
    )


def _split(digest: bytes) -> Digest:
    """Return parts of the digest as integers: enough to find candidates, and half the size."""
    meaning = digest[len(VERSION) : len(VERSION) + PREFIX_SIZE]
    ids = digest[MEANING_END : MEANING_END + IDS_SIZE]
    return int.from_bytes(meaning, signed=True), int.from_bytes(ids, signed=True)


def _with_number(digests: Iterable[Digest], number: int) -> Iterator[tuple[int, int, int]]:
    return ((meaning, ids, number) for meaning, ids in sorted(digests))


def _sortable(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="microseconds")
