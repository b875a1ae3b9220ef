"""Reading from an open SQLite database: conversations, as much of them as is wanted, lists, sums.

Runs in the file's thread, inside a transaction that somebody else began. Never writes.
"""

import sqlite3
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from cllm.core.conversation import Conversation, Summary, Turn
from cllm.core.errors import ConversationNotFoundError, TurnNotFoundError
from cllm.core.identity import check_id
from cllm.core.message import Message
from cllm.core.ports import ArchiveFilter, Hits, Page, StreamEvent, Tail, UsageBy, UsageSum
from cllm.stores.finding import Term, query_terms
from cllm.stores.pages import check_page, decode_cursor, encode_cursor
from cllm.stores.sql import statements as sql
from cllm.stores.sql.rows import (
    TURN_COLUMNS,
    Row,
    RowCodec,
    decode_message,
    decode_sum,
    decode_window,
    in_utc,
)
from cllm.stores.sql.search import Found, owner_term, page_of_found

COUNT_AT = 16
PINS_AT = 12
NUMBER_AT = len(TURN_COLUMNS)
FIRST_POSITION = 1
MOST = 2**62
_UTC = "+00:00"


def _write_time(moment: datetime) -> str:
    return in_utc(moment).isoformat(sep=" ", timespec="microseconds").removesuffix(_UTC)


def _read_time(stored: str) -> datetime:
    return datetime.fromisoformat(stored + _UTC)


ROWS = RowCodec(write_time=_write_time, read_time=_read_time)


def find(db: sqlite3.Connection, ref: str, owner: str) -> Row:
    """The row of the conversation with that id, or else that name."""
    row = look_up(db, check_id(ref), owner)
    if row is None:
        raise ConversationNotFoundError(ref)
    return row


def find_key(db: sqlite3.Connection, ref: str, owner: str) -> Row:
    """The owner and id of the conversation, whatever else its row says."""
    row: Row | None = db.execute(sql.KEY_BY_ID, (owner, check_id(ref))).fetchone()
    if row is None:
        row = db.execute(sql.KEY_BY_NAME, (owner, ref)).fetchone()
    if row is None:
        raise ConversationNotFoundError(ref)
    return row


def look_up(db: sqlite3.Connection, ref: str, owner: str) -> Row | None:
    row: Row | None = db.execute(sql.BY_ID, (owner, ref)).fetchone()
    if row is None:
        row = db.execute(sql.BY_NAME, (owner, ref)).fetchone()
    return row


def load(db: sqlite3.Connection, row: Row, tail: Tail = None) -> Conversation:
    """The conversation of a row with the turns that `tail` asks for, and their variants."""
    key = row[:2]
    start = _start_of(db, row, tail)
    if start is None:
        return ROWS.decode_conversation(row)
    position, sequence = start
    path = db.execute(sql.PATH, (*key, position)).fetchall()
    said = _by_turn(db.execute(sql.PATH_MESSAGES, (*key, sequence)))
    turns = tuple(_turn(each, said) for each in path)
    return ROWS.decode_conversation(row, turns=turns, variants=_variants(db, key, position, turns))


def _start_of(db: sqlite3.Connection, row: Row, tail: Tail) -> tuple[int, int] | None:
    """Where on the path loading starts: a turn's position, and its first message's number.

    None if nothing is to be loaded.
    """
    if tail is None:
        return FIRST_POSITION, 1
    key, total = row[:2], row[COUNT_AT]
    count = _window_length(db, row) if tail == "window" else tail
    if count <= 0:
        return None
    if count >= total:
        return FIRST_POSITION, 1
    first = total - count + 1
    _, ordinal, position, _ = db.execute(sql.AT_SEQUENCE, (*key, first)).fetchone()
    return position, first - ordinal


def _window_length(db: sqlite3.Connection, row: Row) -> int:
    """How many of the newest messages the next window can use."""
    last = db.execute(sql.LAST_WINDOW, row[:2]).fetchone()
    window = None if last is None else decode_window(last[0])
    cut = 1 if window is None else window.first_sequence
    length: int = row[COUNT_AT] + 1 - min((cut, *pins_of(row)))
    return length


def pins_of(row: Row) -> tuple[int, ...]:
    """The sequence numbers of the messages that stay in every window."""
    return () if row[PINS_AT] is None else ROWS.decode_conversation(row).pins


def _variants(
    db: sqlite3.Connection, key: Row, position: int, turns: Sequence[Turn]
) -> tuple[Turn, ...]:
    rows = db.execute(sql.VARIANTS, (*key, position)).fetchall()
    if not rows:
        return ()
    places = {turn.place for turn in turns}
    said = _by_turn(db.execute(sql.VARIANT_MESSAGES, (*key, position)))
    found = (_turn(each, said) for each in rows)
    whole = position == FIRST_POSITION
    return tuple(turn for turn in found if whole or turn.place in places)


def _turn(row: Row, said: dict[int, list[Message]]) -> Turn:
    return ROWS.decode_turn(row, tuple(said.get(row[NUMBER_AT], ())))


def _by_turn(rows: Iterable[Row]) -> dict[int, list[Message]]:
    said: dict[int, list[Message]] = {}
    for turn, role, dialect, raw in rows:
        said.setdefault(turn, []).append(decode_message(role, dialect, raw))
    return said


def summary(db: sqlite3.Connection, ref: str, owner: str) -> Summary:
    key = (owner, check_id(ref))
    row = db.execute(sql.SUMMARY_BY_ID, key).fetchone()
    if row is None:
        row = db.execute(sql.SUMMARY_BY_NAME, key).fetchone()
    if row is None:
        raise ConversationNotFoundError(ref)
    return ROWS.decode_summary(row)


def page(
    db: sqlite3.Connection,
    owner: str,
    *,
    archive_filter: ArchiveFilter,
    limit: int,
    cursor: str | None,
    offset: int,
) -> Page:
    """One page of summaries; one row more is read, to know whether there is another."""
    check_page(limit, "conversations")
    span = (min(limit, MOST) + 1, min(max(offset, 0), MOST))
    if cursor is None:
        rows = db.execute(sql.LIST[archive_filter], (owner, *span)).fetchall()
    else:
        updated_at, last_id = decode_cursor(cursor)
        after = (owner, _write_time(updated_at), last_id, *span)
        rows = db.execute(sql.LIST_AFTER[archive_filter], after).fetchall()
    items = tuple(ROWS.decode_summary(row) for row in rows[:limit])
    return Page(items=items, next_cursor=encode_cursor(items[-1]) if len(rows) > limit else None)


def count(db: sqlite3.Connection, owner: str, archive_filter: ArchiveFilter) -> int:
    found: int = db.execute(sql.COUNT[archive_filter], (owner,)).fetchone()[0]
    return found


def search(
    db: sqlite3.Connection,
    query: str,
    owner: str,
    *,
    archive_filter: ArchiveFilter,
    limit: int,
    offset: int,
) -> Hits:
    words = query_terms(query)
    rows = db.execute(sql.SEARCH[archive_filter], (_match(words, owner), owner))
    found = [
        Found(
            conversation=row[0],
            title=row[1],
            sequence=row[2],
            role=row[3],
            raw=row[4].decode(errors="replace"),
            created_at=_read_time(row[5]),
        )
        for row in rows
    ]
    return page_of_found(found, words, limit=limit, offset=offset)


def _match(words: Sequence[Term], owner: str) -> str:
    """The query in FTS5's words. Terms have no quotation marks in them."""
    terms = (f'"{word.text}"{"*" if word.prefix else ""}' for word in words)
    return " AND ".join((*terms, f'"{owner_term(owner)}"'))


def usage(
    db: sqlite3.Connection,
    owner: str,
    *,
    since: datetime | None,
    until: datetime | None,
    by: UsageBy,
) -> tuple[UsageSum, ...]:
    times = (ROWS.write_optional(since), ROWS.write_optional(until))
    return tuple(decode_sum(row) for row in db.execute(sql.USAGE[by], (owner, *times)))


def events_after(
    db: sqlite3.Connection, ref: str, owner: str, turn_id: str, number: int
) -> tuple[StreamEvent, ...]:
    key: tuple[Any, ...] = find(db, ref, owner)[:2]
    if db.execute(sql.TURN_BY_ID, (*key, turn_id)).fetchone() is None:
        raise TurnNotFoundError(key[1], turn_id)
    rows = db.execute(sql.EVENTS_AFTER, (*key, turn_id, number))
    return tuple(StreamEvent(number=row[0], data=row[1]) for row in rows)
