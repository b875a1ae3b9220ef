"""An SQLite file with the summaries and the search terms of the conversation files in a folder.

It finds candidates only: the caller reads a file before it uses a match. It has no text, but the
distinct words of each message, which FTS5 needs to remove a message.
"""

import zlib
from collections.abc import Iterator, Sequence
from itertools import zip_longest

import msgspec

from cllm.core.conversation import StoredConversation, Summary
from cllm.stores.json.file_index import FileIndex
from cllm.stores.search import SearchTerm, build_match, extract_terms

# Increase it if the tables change, or if the terms or the summary of a file can be others.
INDEX_VERSION = 1
MESSAGE_BITS = 20
MAX_MESSAGES = 1 << MESSAGE_BITS
"""Of a file; later messages are not indexed."""
COMPRESSION = 1
SEPARATOR = "\n"
# A file has two states: a list needs its summary, which is fast to read, a search its terms.
TABLES = """
CREATE TABLE files (
    number INTEGER PRIMARY KEY,
    key TEXT NOT NULL UNIQUE,
    state TEXT NOT NULL,
    text_state TEXT,
    summary BLOB,
    updated_at INTEGER NOT NULL
);
CREATE TABLE terms (
    file INTEGER PRIMARY KEY,
    messages BLOB NOT NULL
);
CREATE VIRTUAL TABLE texts USING fts5(
    terms, content='', columnsize=0, detail=none, tokenize="ascii tokenchars '_'"
);
"""


class IndexedContent(msgspec.Struct, frozen=True):
    """The summary of a file, and its conversation if the terms are saved too."""

    summary: Summary
    conversation: StoredConversation | None = None


class MatchingFile(msgspec.Struct, frozen=True):
    """A file, its time in microseconds, and the numbers of its matching messages."""

    key: str
    updated_at: int
    sequences: frozenset[int]


class TextIndex(FileIndex[IndexedContent]):
    tables = TABLES
    version = INDEX_VERSION

    def list_summaries(self) -> Iterator[Summary]:
        decode = msgspec.json.Decoder(Summary).decode
        rows = self._connection.execute("SELECT summary FROM files WHERE summary IS NOT NULL")
        return (decode(encoded) for (encoded,) in rows)

    def find_words(self, words: Sequence[SearchTerm]) -> list[MatchingFile]:
        """Return the files with a matching message, newest first."""
        rows = self._connection.execute(
            "SELECT rowid FROM texts WHERE texts MATCH ?", (build_match(words),)
        )
        messages: dict[int, list[int]] = {}
        for (rowid,) in rows:
            sequence = (rowid & (MAX_MESSAGES - 1)) + 1
            messages.setdefault(rowid >> MESSAGE_BITS, []).append(sequence)
        files = self._connection.execute(
            "SELECT number, key, updated_at FROM files ORDER BY updated_at DESC, key"
        )
        return [
            MatchingFile(key, updated_at, frozenset(messages[number]))
            for number, key, updated_at in files
            if number in messages
        ]

    def list_unreadable(self) -> list[str]:
        rows = self._connection.execute("SELECT key FROM files WHERE summary IS NULL ORDER BY key")
        return [key for (key,) in rows]

    def forget(self, key: str) -> None:
        self._remove((key,))

    def _erase(self) -> None:
        # FTS5 has the words of deleted messages until it merges all parts of the index. Its option
        # `secure-delete` needs SQLite 3.42, and older versions cannot read an index with it.
        self._connection.execute("INSERT INTO texts (texts) VALUES ('optimize')")

    def _save(self, key: str, state: str, content: IndexedContent | None) -> None:
        conversation = None if content is None else content.conversation
        has_terms = content is None or conversation is not None
        (number,) = self._connection.execute(
            """
            INSERT INTO files (key, state, text_state, summary, updated_at) VALUES (?, ?, ?, ?, ?)
            ON CONFLICT (key) DO UPDATE SET (state, text_state, summary, updated_at) =
                (excluded.state, ifnull(excluded.text_state, text_state), excluded.summary,
                 excluded.updated_at)
            RETURNING number
            """,
            (
                key,
                state,
                state if has_terms else None,
                None if content is None else msgspec.json.encode(content.summary),
                0 if content is None else _microseconds(content.summary),
            ),
        ).fetchone()
        if has_terms:
            self._save_terms(number, [] if conversation is None else list_terms(conversation))

    def _save_terms(self, number: int, messages: Sequence[str]) -> None:
        """Write only the difference: a turn adds few messages to a long conversation."""
        stored = self._read_terms(number)
        if list(messages) == stored:
            return
        first = number << MESSAGE_BITS
        pairs = list(enumerate(zip_longest(stored, messages, fillvalue=""), first))
        self._connection.executemany(
            "INSERT INTO texts (texts, rowid, terms) VALUES ('delete', ?, ?)",
            ((rowid, old) for rowid, (old, new) in pairs if old and old != new),
        )
        self._connection.executemany(
            "INSERT INTO texts (rowid, terms) VALUES (?, ?)",
            ((rowid, new) for rowid, (old, new) in pairs if new and old != new),
        )
        encoded = SEPARATOR.join(messages).encode(errors="surrogatepass")
        self._connection.execute(
            "INSERT OR REPLACE INTO terms (file, messages) VALUES (?, ?)",
            (number, zlib.compress(encoded, COMPRESSION)),
        )

    def _read_terms(self, number: int) -> list[str]:
        row = self._connection.execute(
            "SELECT messages FROM terms WHERE file = ?", (number,)
        ).fetchone()
        if row is None:
            return []
        return zlib.decompress(row[0]).decode(errors="surrogatepass").split(SEPARATOR)

    def _forget(self, key: str) -> None:
        row = self._connection.execute("SELECT number FROM files WHERE key = ?", (key,)).fetchone()
        if row is None:
            return
        self._save_terms(row[0], [])
        self._connection.execute("DELETE FROM terms WHERE file = ?", row)
        self._connection.execute("DELETE FROM files WHERE number = ?", row)


def list_terms(conversation: StoredConversation) -> list[str]:
    """Return the terms of each message on the default path; "" if it is not searched."""
    return [
        " ".join(extract_terms(message.text)) if turn.is_history else ""
        for _, turn, message in conversation.numbered_messages()
    ][:MAX_MESSAGES]


def _microseconds(summary: Summary) -> int:
    return int(summary.updated_at.timestamp() * 1_000_000)
