"""Rows of an SQLite file that were damaged, or that somebody else wrote, and what is said of them.

SQLite keeps any bytes as text. Those that are not UTF-8 are shown with marks where they stand for
nothing but themselves, and keep nobody from the other rows. Never writes.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import NoneType
from typing import Any

from cllm.core.notice import Notice
from cllm.stores.sql.rows import SUMMARY_COLUMNS, Row, UnreadableRowError

PLAIN = ("name", "title", "model")
"""Columns in which marks mislead nobody."""
_TYPES: dict[str, tuple[type, ...]] = {
    "id": (str,),
    "message_count": (int,),
    **dict.fromkeys(PLAIN, (str, NoneType)),
}
_NAME_AT = SUMMARY_COLUMNS.index("name")
_LISTED = tuple(
    (SUMMARY_COLUMNS.index(column), frozenset(kinds)) for column, kinds in _TYPES.items()
)


def not_text() -> UnreadableRowError:
    """The error for a text in the file that is not UTF-8."""
    return UnreadableRowError("not UTF-8")


def fetched(db: sqlite3.Connection, statement: str, given: Sequence[Any]) -> list[Row]:
    """All rows; a text that is not UTF-8 comes as its bytes."""
    try:
        return db.execute(statement, given).fetchall()
    except sqlite3.OperationalError as error:
        if not _is_about_text(error):
            raise
    db.text_factory = _text_or_bytes
    try:
        return db.execute(statement, given).fetchall()
    finally:
        db.text_factory = str


@contextmanager
def text_checked() -> Iterator[None]:
    """UnreadableRowError where a text is not UTF-8."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if _is_about_text(error):
            raise not_text() from error
        raise


def _is_about_text(error: sqlite3.OperationalError) -> bool:
    """Whether Python could not decode what SQLite gave; SQLite's own errors have a code."""
    return getattr(error, "sqlite_errorcode", None) is None


def _text_or_bytes(stored: bytes) -> str | bytes:
    try:
        return stored.decode()
    except UnicodeDecodeError:
        return stored


def text_of(stored: str | bytes) -> str:
    """A text, with a mark for each piece of it that is none."""
    return stored.decode(errors="replace") if isinstance(stored, bytes) else stored


def with_marks(row: Row, columns: Sequence[str]) -> Row:
    """The row with marks in its plain texts, or the very same row if it needs none.

    A name is whole or none: with a mark in it, it would be another one.
    """
    if bytes not in map(type, row):
        return row
    return tuple(
        _marked(stored, column) if column in PLAIN and isinstance(stored, bytes) else stored
        for stored, column in zip(row, columns, strict=True)
    )


def _marked(stored: bytes, column: str) -> str | None:
    return None if column == "name" else text_of(stored)


def check_listed(row: Row) -> None:
    """UnreadableRowError for a row of SUMMARY_COLUMNS that is none of ours."""
    for at, kinds in _LISTED:
        if type(row[at]) not in kinds:
            raise UnreadableRowError(SUMMARY_COLUMNS[at])


def are_listed(rows: Sequence[Row]) -> bool:
    """Whether `check_listed` has nothing against any of the rows; in one look at each column."""
    columns = tuple(zip(*rows, strict=True))
    for at, kinds in _LISTED:
        if columns and not kinds.issuperset(map(type, columns[at])):
            return False
    return True


def listed_ref(row: Row) -> str:
    """What a person knows the conversation of such a row by, as far as that can be read."""
    name = row[_NAME_AT]
    return name if isinstance(name, str) else str(text_of(row[0]))


def skipped(ref: str) -> Notice:
    """What is said of a conversation that cannot be listed."""
    return Notice(
        code="conversation_skipped",
        path=ref,
        message=f"Conversation {ref!r} has a row in the database that cannot be read, and is not "
        "in the list; mend the row, or delete the conversation.",
    )


def damaged(ref: str) -> Notice:
    """What is said of a conversation that is shown with marks."""
    return Notice(
        code="conversation_damaged",
        path=ref,
        message=f"Conversation {ref!r} has text in the database that is not UTF-8, and is shown "
        "without what cannot be read of it; give it another title, or delete it.",
    )


def message_skipped(ref: str) -> Notice:
    """What is said of a message that was found and cannot be shown."""
    return Notice(
        code="message_skipped",
        path=ref,
        message=f"A message of conversation {ref!r} was found that cannot be read, and is not "
        "shown; mend its row in the database, or delete the conversation.",
    )
