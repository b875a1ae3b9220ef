"""Reads conversations from SQLite.

Runs in the file's thread, inside the caller's transaction. Text that is not UTF-8 does not hide
other rows: names, titles and models are shown with replacement characters. Every cursor is closed,
also after an error: an open one would keep its snapshot of the file.
"""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from datetime import datetime
from typing import Any

import msgspec

from cllm.core.conversation import StoredConversation, Summary, Turn, check_id
from cllm.core.errors import ConversationNotFoundError
from cllm.core.message import Message
from cllm.core.ports import (
    Outline,
    Tail,
    TurnPart,
)
from cllm.stores.sql.rows import (
    CONVERSATION_COLUMNS,
    SUMMARY_COLUMNS,
    TURN_COLUMNS,
    Row,
    RowCodec,
    UnreadableRowError,
    decode_message,
    decode_number,
    decode_window,
    require_row,
    to_utc,
)
from cllm.stores.sql.store import with_placeholders
from cllm.stores.sqlite import statements as sql

REPLACEABLE_COLUMNS = ("name", "title", "model", "source")
"""Columns in which replacement characters are harmless."""


def not_utf8_error() -> UnreadableRowError:
    return UnreadableRowError("not UTF-8")


def fetch_rows(db: sqlite3.Connection, statement: str, values: Sequence[Any]) -> list[Row]:
    """Return all rows; text that is not UTF-8 as bytes."""
    try:
        return db.execute(statement, values).fetchall()
    except sqlite3.OperationalError as error:
        if not _is_decoding_error(error):
            raise
    db.text_factory = _decode_or_bytes
    try:
        return db.execute(statement, values).fetchall()
    finally:
        db.text_factory = str


@contextmanager
def check_utf8() -> Iterator[None]:
    """Raise UnreadableRowError if a text is not UTF-8."""
    try:
        yield
    except sqlite3.OperationalError as error:
        if _is_decoding_error(error):
            raise not_utf8_error() from error
        raise


def _is_decoding_error(error: sqlite3.OperationalError) -> bool:
    """Whether Python failed to decode a text; errors of SQLite have a code."""
    return getattr(error, "sqlite_errorcode", None) is None


def _decode_or_bytes(stored: bytes) -> str | bytes:
    try:
        return stored.decode()
    except UnicodeDecodeError:
        return stored


def decode_lossy(stored: str | bytes) -> str:
    """Return the text, with replacement characters for bytes that are not UTF-8."""
    return stored.decode(errors="replace") if isinstance(stored, bytes) else stored


def with_replacements(row: Row, columns: Sequence[str]) -> Row:
    """Return the row with replacement characters in REPLACEABLE_COLUMNS, if it needs them.

    A name becomes None: with such a character it would be another name.
    """
    if bytes not in map(type, row):
        return row
    return tuple(
        _replace_bytes(stored, column)
        if column in REPLACEABLE_COLUMNS and isinstance(stored, bytes)
        else stored
        for stored, column in zip(row, columns, strict=True)
    )


def _replace_bytes(stored: bytes, column: str) -> str | None:
    return None if column == "name" else decode_lossy(stored)


MESSAGE_COUNT_AT = CONVERSATION_COLUMNS.index("message_count")
PINS_AT = CONVERSATION_COLUMNS.index("pins")
_PATH_START_AT = CONVERSATION_COLUMNS.index("path_start")
NUMBER_AT = len(TURN_COLUMNS)
FIRST_POSITION = 1
_UTC = "+00:00"


def _encode_time(moment: datetime) -> str:
    return to_utc(moment).isoformat(sep=" ", timespec="microseconds").removesuffix(_UTC)


def _decode_time(stored: str) -> datetime:
    return datetime.fromisoformat(stored + _UTC)


SQLITE_CODEC = RowCodec(encode_time=_encode_time, decode_time=_decode_time)


def find_conversation(db: sqlite3.Connection, ref: str, owner: str) -> Row:
    rows = fetch_rows(db, sql.FIND, (owner, check_id(ref)))
    if not rows:
        raise ConversationNotFoundError(ref)
    row = with_replacements(rows[0], CONVERSATION_COLUMNS)
    if bytes in map(type, (*row[:_PATH_START_AT], *row[_PATH_START_AT + 1 :])):
        raise not_utf8_error()
    decode_number(row[MESSAGE_COUNT_AT])
    return row


def find_key(db: sqlite3.Connection, ref: str, owner: str) -> Row:
    """Return the owner and id of the conversation, also if the rest of its row is damaged."""
    row: Row | None = db.execute(sql.FIND_KEY, (owner, check_id(ref))).fetchone()
    if row is None:
        raise ConversationNotFoundError(ref)
    return row


def load(db: sqlite3.Connection, row: Row, tail: Tail = None) -> StoredConversation:
    with check_utf8():
        return _load(db, row, tail)


def _load(db: sqlite3.Connection, row: Row, tail: Tail) -> StoredConversation:
    key = row[:2]
    position = _find_start(db, row, tail)
    if position is None:
        return SQLITE_CODEC.decode_conversation(row)
    path = db.execute(sql.PATH, (*key, position)).fetchall()
    off_path = db.execute(sql.VARIANTS, (*key, position)).fetchall()
    messages = _group_by_turn(db.execute(sql.MESSAGES_SINCE, (*key, position)))
    turns = tuple(_decode_turn(turn, messages) for turn in path)
    variants = tuple(_decode_turn(turn, messages) for turn in off_path)
    if position != FIRST_POSITION and variants:
        slots = {turn.place for turn in turns}
        variants = tuple(turn for turn in variants if turn.place in slots)
    return SQLITE_CODEC.decode_conversation(row, turns=turns, variants=variants)


def _find_start(db: sqlite3.Connection, row: Row, tail: Tail) -> int | None:
    """Return the position where loading starts; None: no turn."""
    if tail is None:
        return FIRST_POSITION
    key, total = row[:2], row[MESSAGE_COUNT_AT]
    count = _count_window_messages(db, row) if tail == "window" else tail
    if count <= 0:
        return None
    if count >= total:
        return FIRST_POSITION
    at = require_row(db.execute(sql.AT_SEQUENCE, (*key, total - count + 1)).fetchone())
    return decode_number(at[0])


def _count_window_messages(db: sqlite3.Connection, row: Row) -> int:
    last = db.execute(sql.LAST_WINDOW, row[:2]).fetchone()
    window = None if last is None else decode_window(last[0])
    cut = 1 if window is None else window.first_sequence
    length: int = row[MESSAGE_COUNT_AT] + 1 - min((cut, *decode_pins(row)))
    return length


def decode_pins(row: Row) -> tuple[int, ...]:
    return () if row[PINS_AT] is None else SQLITE_CODEC.decode_conversation(row).pins


def _decode_turn(row: Row, messages: dict[int, list[Message]]) -> Turn:
    return SQLITE_CODEC.decode_turn(row, tuple(messages.get(row[NUMBER_AT], ())))


def _group_by_turn(rows: sqlite3.Cursor) -> dict[int, list[Message]]:
    messages: dict[int, list[Message]] = {}
    with closing(rows):
        for turn, role, dialect, raw in rows:
            messages.setdefault(turn, []).append(decode_message(role, dialect, raw))
    return messages


def load_summary(db: sqlite3.Connection, ref: str, owner: str) -> Summary:
    rows = fetch_rows(db, sql.FIND_SUMMARY, (owner, check_id(ref)))
    if not rows:
        raise ConversationNotFoundError(ref)
    return SQLITE_CODEC.decode_summary(with_replacements(rows[0], SUMMARY_COLUMNS))


_NO_TURN = 0


class _Run(msgspec.Struct, kw_only=True):
    """Turns with increasing numbers; or one turn, from message `start` on."""

    numbers: list[int] = []
    start: int = 0


def load_outline(db: sqlite3.Connection, ref: str, owner: str) -> Outline:
    row = find_conversation(db, ref, owner)
    path, variants, counts = _load_outline(db, row[:2], FIRST_POSITION)
    # The stored message count applies to turns that have their messages.
    without_count = (*row[:-1], 0)
    return Outline(
        conversation=SQLITE_CODEC.decode_conversation(without_count, turns=path, variants=variants),
        counts=counts,
    )


def load_outline_from(db: sqlite3.Connection, row: Row, position: int) -> StoredConversation:
    path, variants, counts = _load_outline(db, row[:2], position)
    return SQLITE_CODEC.decode_conversation(
        row,
        turns=tuple(with_placeholders(turn, counts[turn.id]) for turn in path),
        variants=tuple(with_placeholders(turn, counts[turn.id]) for turn in variants),
    )


def _load_outline(
    db: sqlite3.Connection, key: Row, position: int
) -> tuple[tuple[Turn, ...], tuple[Turn, ...], dict[str, int]]:
    """Return the turns from `position` on, their variants, and the message count of each."""
    with check_utf8():
        path = db.execute(sql.PATH, (*key, position)).fetchall()
        variants = db.execute(sql.VARIANTS_FROM, (*key, position)).fetchall()
        by_number: dict[int, int] = dict(
            db.execute(sql.MESSAGE_COUNTS, (*key, position)).fetchall()
        )
    counts = {turn[0]: by_number.get(turn[NUMBER_AT], 0) for turn in (*path, *variants)}
    return _decode_turns(path), _decode_turns(variants), counts


def _decode_turns(rows: Sequence[Row]) -> tuple[Turn, ...]:
    return tuple(SQLITE_CODEC.decode_turn(row, ()) for row in rows)


def messages_from(
    db: sqlite3.Connection, ref: str, parts: Sequence[TurnPart], *, most: int, owner: str
) -> tuple[tuple[Message, ...], ...]:
    try:
        key = find_key(db, ref, owner)
    except ConversationNotFoundError:
        return ()
    messages: list[tuple[Message, ...]] = []
    with check_utf8():
        for run in _split_runs(db, key, parts):
            most = _read_run(db, key, run, most, messages)
            if most <= 0:
                break
    return tuple(messages)


def _split_runs(db: sqlite3.Connection, key: Row, parts: Sequence[TurnPart]) -> list[_Run]:
    """Split the parts into runs that one statement can read, in the order of turn numbers."""
    ids = msgspec.json.encode([part.turn for part in parts]).decode()
    numbers: dict[str, Any] = dict(db.execute(sql.NUMBERS_OF, (*key, ids)).fetchall())
    runs: list[_Run] = []
    last = None
    for part in parts:
        number = decode_number(numbers.get(part.turn, _NO_TURN))
        if last is None or number <= last or part.start:
            runs.append(_Run(start=part.start))
        runs[-1].numbers.append(number)
        last = None if part.start else number
    return runs


def _read_run(
    db: sqlite3.Connection, key: Row, run: _Run, most: int, messages: list[tuple[Message, ...]]
) -> int:
    """Add the messages of a run until they have `most` bytes; return the bytes left."""
    by_turn: dict[int, list[Message]] = {number: [] for number in run.numbers}
    with closing(_fetch_run(db, key, run)) as rows:
        for turn, role, dialect, raw in rows:
            message = decode_message(role, dialect, raw)
            by_turn[turn].append(message)
            most -= len(message.raw)
            if most <= 0:
                run.numbers[run.numbers.index(turn) + 1 :] = []
                break
    messages += [tuple(by_turn[number]) for number in run.numbers]
    return most


def _fetch_run(db: sqlite3.Connection, key: Row, run: _Run) -> sqlite3.Cursor:
    if run.start:
        return db.execute(sql.MESSAGES_FROM, (*key, run.numbers[0], run.start))
    return db.execute(sql.MESSAGES_OF, (*key, msgspec.json.encode(run.numbers).decode()))
