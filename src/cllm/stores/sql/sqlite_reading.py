"""Reading from an open SQLite database: conversations, as much of them as is wanted, lists, sums.

Runs in the file's thread, inside a transaction that somebody else began. Never writes. A text that
is not UTF-8 keeps nobody from the other rows: in a name, a title or a model it is shown with marks.
No cursor is left open, whatever is raised: the file would be read as it was then, for as long as
somebody has the error.
"""

import sqlite3
from collections.abc import Sequence
from contextlib import closing, suppress
from datetime import datetime
from typing import Any

import msgspec

from cllm.core.conversation import Conversation, Summary, Turn
from cllm.core.errors import ConversationNotFoundError, TurnNotFoundError
from cllm.core.identity import check_id
from cllm.core.message import Message
from cllm.core.notice import Notice
from cllm.core.ports import ArchiveFilter, Hits, Page, StreamEvent, Tail, UsageBy, UsageSum
from cllm.stores.finding import Term, query_terms
from cllm.stores.pages import check_page, decode_cursor, encode_cursor
from cllm.stores.sql import statements as sql
from cllm.stores.sql.rows import (
    CONVERSATION_COLUMNS,
    SUMMARY_COLUMNS,
    TURN_COLUMNS,
    Row,
    RowCodec,
    UnreadableRowError,
    decode_found,
    decode_number,
    decode_role,
    decode_said,
    decode_sum,
    decode_window,
    in_utc,
)
from cllm.stores.sql.search import Found, owner_term, page_of_found
from cllm.stores.sql.sqlite_damaged import (
    are_listed,
    check_listed,
    damaged,
    fetched,
    listed_ref,
    message_skipped,
    not_text,
    skipped,
    text_checked,
    text_of,
    with_marks,
)

COUNT_AT = 16
PINS_AT = 12
NUMBER_AT = len(TURN_COLUMNS)
FIRST_POSITION = 1
MOST = 2**62
MANY = 1000
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
    rows = fetched(db, sql.BY_ID, (owner, ref)) or fetched(db, sql.BY_NAME, (owner, ref))
    if not rows:
        return None
    row = with_marks(rows[0], CONVERSATION_COLUMNS)
    if bytes in map(type, row):
        raise not_text()
    decode_number(row[COUNT_AT])
    return row


def load(db: sqlite3.Connection, row: Row, tail: Tail = None) -> Conversation:
    """The conversation of a row with the turns that `tail` asks for, and their variants."""
    with text_checked():
        return _load(db, row, tail)


def _load(db: sqlite3.Connection, row: Row, tail: Tail) -> Conversation:
    key = row[:2]
    position = _start_of(db, row, tail)
    if position is None:
        return ROWS.decode_conversation(row)
    path = db.execute(sql.PATH, (*key, position)).fetchall()
    beside = db.execute(sql.VARIANTS, (*key, position)).fetchall()
    said = _by_turn(db.execute(sql.MESSAGES_SINCE, (*key, position)))
    turns = tuple(_turn(each, said) for each in path)
    variants = tuple(_turn(each, said) for each in beside)
    if position != FIRST_POSITION and variants:
        places = {turn.place for turn in turns}
        variants = tuple(turn for turn in variants if turn.place in places)
    return ROWS.decode_conversation(row, turns=turns, variants=variants)


def _start_of(db: sqlite3.Connection, row: Row, tail: Tail) -> int | None:
    """The position on the path where loading starts; None if nothing is to be loaded."""
    if tail is None:
        return FIRST_POSITION
    key, total = row[:2], row[COUNT_AT]
    count = _window_length(db, row) if tail == "window" else tail
    if count <= 0:
        return None
    if count >= total:
        return FIRST_POSITION
    at = decode_found(db.execute(sql.AT_SEQUENCE, (*key, total - count + 1)).fetchone())
    return decode_number(at[2])


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


def _turn(row: Row, said: dict[int, list[Message]]) -> Turn:
    return ROWS.decode_turn(row, tuple(said.get(row[NUMBER_AT], ())))


def _by_turn(rows: sqlite3.Cursor) -> dict[int, list[Message]]:
    said: dict[int, list[Message]] = {}
    with closing(rows):
        for turn, role, dialect, raw in rows:
            said.setdefault(turn, []).append(decode_said(role, dialect, raw))
    return said


def summary(db: sqlite3.Connection, ref: str, owner: str) -> Summary:
    key = (owner, check_id(ref))
    rows = fetched(db, sql.SUMMARY_BY_ID, key) or fetched(db, sql.SUMMARY_BY_NAME, key)
    if not rows:
        raise ConversationNotFoundError(ref)
    return ROWS.decode_summary(with_marks(rows[0], SUMMARY_COLUMNS))


def page(
    db: sqlite3.Connection,
    owner: str,
    *,
    archive_filter: ArchiveFilter,
    limit: int,
    cursor: str | None,
    offset: int,
) -> Page:
    """One page of summaries; one row more is read, to know whether there is another.

    A row that cannot be read has a notice in its place. Where a page has nothing but such rows,
    nobody could go on from it, so that it is as long as it takes.
    """
    check_page(limit, "conversations")
    most, left_out = min(limit, MOST), min(max(offset, 0), MOST)
    size = most
    items: list[Summary] = []
    notices: list[Notice] = []
    while True:
        rows = _rows_of_page(db, owner, archive_filter, cursor, (size + 1, left_out))
        used = _take(rows[:size], most, items, notices)
        more = len(rows) > used
        if items or not more:
            break
        left_out += used
        size = max(size, MANY)
    return Page(
        items=tuple(items),
        notices=tuple(notices),
        next_cursor=encode_cursor(items[-1]) if more else None,
    )


def _rows_of_page(
    db: sqlite3.Connection,
    owner: str,
    archive_filter: ArchiveFilter,
    cursor: str | None,
    span: tuple[int, int],
) -> list[Row]:
    if cursor is None:
        return fetched(db, sql.LIST[archive_filter], (owner, *span))
    updated_at, last_id = decode_cursor(cursor)
    after = (owner, _write_time(updated_at), last_id, *span)
    return fetched(db, sql.LIST_AFTER[archive_filter], after)


def _take(rows: Sequence[Row], most: int, items: list[Summary], notices: list[Notice]) -> int:
    """Put entries of the rows on the list until it has so many; how many rows were used."""
    if len(rows) <= most - len(items) and are_listed(rows):
        with suppress(UnreadableRowError):
            items += ROWS.decode_summaries(rows)
            return len(rows)
    for used, row in enumerate(rows):
        if len(items) == most:
            return used
        _add_listed(row, items, notices)
    return len(rows)


def _add_listed(row: Row, items: list[Summary], notices: list[Notice]) -> None:
    """Put the row's entry on the list, and what is wrong with it among the notices."""
    shown = with_marks(row, SUMMARY_COLUMNS)
    try:
        check_listed(shown)
        items.append(ROWS.decode_summary(shown))
    except UnreadableRowError:
        notices.append(skipped(listed_ref(row)))
    else:
        if shown is not row:
            notices.append(damaged(listed_ref(row)))


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
    rows = fetched(db, sql.SEARCH[archive_filter], (_match(words, owner), owner))
    found: list[Found] = []
    notices: list[Notice] = []
    rows.reverse()
    while rows:
        # Taken off, so that nothing long is held twice.
        _add_found(rows.pop(), found, notices)
    hits = page_of_found(found, words, limit=limit, offset=offset)
    return msgspec.structs.replace(hits, notices=tuple(dict.fromkeys(notices)))


def _add_found(row: Row, found: list[Found], notices: list[Notice]) -> None:
    """Put what the row says among what was found, and what is wrong with it among the notices."""
    conversation, title, sequence, role, raw, started_at = row
    try:
        each = Found(
            conversation=text_of(conversation),
            title=None if title is None else text_of(title),
            sequence=decode_number(sequence),
            role=decode_role(role),
            raw=text_of(raw),
            created_at=ROWS.read_time(started_at),
        )
    except UnreadableRowError:
        notices.append(message_skipped(text_of(conversation)))
        return
    found.append(each)
    if isinstance(conversation, bytes) or isinstance(title, bytes):
        notices.append(damaged(each.conversation))


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
    rows = fetched(db, sql.USAGE[by], (owner, *times))
    return tuple(decode_sum((text_of(row[0]), *row[1:])) for row in rows)


def events_after(
    db: sqlite3.Connection, ref: str, owner: str, turn_id: str, number: int
) -> tuple[StreamEvent, ...]:
    key: tuple[Any, ...] = find(db, ref, owner)[:2]
    if db.execute(sql.TURN_BY_ID, (*key, turn_id)).fetchone() is None:
        raise TurnNotFoundError(key[1], turn_id)
    rows = db.execute(sql.EVENTS_AFTER, (*key, turn_id, number)).fetchall()
    return tuple(StreamEvent(number=row[0], data=row[1]) for row in rows)
