"""An SQLite file with the path digests of the conversation files in a folder.

It finds candidates only: the caller reads a file before it uses a match.
"""

from collections.abc import Iterable, Iterator
from datetime import UTC, datetime

from cllm.core.conversation import StoredConversation
from cllm.stores.json.file_index import FileIndex
from cllm.wire.path_digest import IDS_SIZE, MEANING_END, VERSION, digest_turns

# Increase it if the tables change, or if the digests of a file can be others than before.
INDEX_VERSION = (1 << 8) + VERSION[0]
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
Digest = tuple[int, int]


class PathIndex(FileIndex[StoredConversation]):
    tables = TABLES
    version = INDEX_VERSION

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

    def _save(self, key: str, state: str, content: StoredConversation | None) -> None:
        if content is None or content.archived_at is not None:
            # Not searched. Changing that changes the file.
            number = self._save_file(key, state, family=None, side=False, updated_at=None)
            self._save_digests(number, set())
            return
        number = self._save_file(
            key,
            state,
            family=content.family_key,
            side=content.is_side,
            updated_at=_sortable(content.updated_at),
        )
        turns = digest_turns(content).values()
        self._save_digests(number, {_split(digest) for turn in turns for digest in turn})

    def _save_file(
        self, key: str, state: str, *, family: str | None, side: bool, updated_at: str | None
    ) -> int:
        (number,) = self._connection.execute(
            """
            INSERT INTO files (key, state, family, is_side, updated_at) VALUES (?, ?, ?, ?, ?)
            ON CONFLICT (key) DO UPDATE SET (state, family, is_side, updated_at) =
                (excluded.state, excluded.family, excluded.is_side, excluded.updated_at)
            RETURNING number
            """,
            (key, state, family, side, updated_at),
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


def _split(digest: bytes) -> Digest:
    """Return parts of the digest as integers: enough to find candidates, and half the size."""
    meaning = digest[len(VERSION) : len(VERSION) + PREFIX_SIZE]
    ids = digest[MEANING_END : MEANING_END + IDS_SIZE]
    return int.from_bytes(meaning, signed=True), int.from_bytes(ids, signed=True)


def _with_number(digests: Iterable[Digest], number: int) -> Iterator[tuple[int, int, int]]:
    return ((meaning, ids, number) for meaning, ids in sorted(digests))


def _sortable(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="microseconds")
