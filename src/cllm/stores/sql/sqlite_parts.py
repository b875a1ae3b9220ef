"""A conversation in an open SQLite database in parts: its turns at once, what was said when wanted.

Runs in the file's thread, inside a transaction that somebody else began. Never writes.
"""

import sqlite3
from collections.abc import Sequence
from contextlib import closing
from typing import Any

import msgspec

from cllm.core.conversation import Turn
from cllm.core.errors import ConversationNotFoundError
from cllm.core.message import Message
from cllm.core.ports import Outline, TurnPart
from cllm.stores.sql import statements as sql
from cllm.stores.sql.rows import Row, decode_number, decode_said
from cllm.stores.sql.sqlite_damaged import text_checked
from cllm.stores.sql.sqlite_reading import FIRST_POSITION, NUMBER_AT, ROWS, find, find_key

_NO_TURN = 0


class _Run(msgspec.Struct, kw_only=True):
    """Turns by their numbers, which grow; of one alone, the messages after its first ones."""

    numbers: list[int] = []
    start: int = 0


def outline(db: sqlite3.Connection, ref: str, owner: str) -> Outline:
    """The conversation with its turns and variants, and how much was said in each."""
    row = find(db, ref, owner)
    key = row[:2]
    with text_checked():
        path = db.execute(sql.PATH, (*key, FIRST_POSITION)).fetchall()
        beside = db.execute(sql.VARIANTS, (*key, FIRST_POSITION)).fetchall()
        counted: dict[int, int] = dict(db.execute(sql.MESSAGE_COUNTS, key).fetchall())
    # The row's own count is of a path with its messages.
    bare = (*row[:-1], 0)
    return Outline(
        conversation=ROWS.decode_conversation(bare, turns=_turns(path), variants=_turns(beside)),
        counts={each[0]: counted.get(each[NUMBER_AT], 0) for each in (*path, *beside)},
    )


def _turns(rows: Sequence[Row]) -> tuple[Turn, ...]:
    return tuple(ROWS.decode_turn(row, ()) for row in rows)


def messages_from(
    db: sqlite3.Connection, ref: str, parts: Sequence[TurnPart], *, most: int, owner: str
) -> tuple[tuple[Message, ...], ...]:
    try:
        key = find_key(db, ref, owner)
    except ConversationNotFoundError:
        return ()
    found: list[tuple[Message, ...]] = []
    with text_checked():
        for run in _runs(db, key, parts):
            most = _read_run(db, key, run, most, found)
            if most <= 0:
                break
    return tuple(found)


def _runs(db: sqlite3.Connection, key: Row, parts: Sequence[TurnPart]) -> list[_Run]:
    """The parts by their turns' numbers, in runs of which each is read by one statement.

    Such a statement reads by number; most turns follow one another as they began.
    """
    wanted = msgspec.json.encode([part.turn for part in parts]).decode()
    numbers: dict[str, Any] = dict(db.execute(sql.NUMBERS_OF, (*key, wanted)).fetchall())
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
    db: sqlite3.Connection, key: Row, run: _Run, most: int, found: list[tuple[Message, ...]]
) -> int:
    """Add what was said in the turns of the run, until there are so many bytes; how many are left.

    Each row is decoded before the next one is read, so that no more of a long turn is held.
    """
    said: dict[int, list[Message]] = {number: [] for number in run.numbers}
    with closing(_rows_of(db, key, run)) as rows:
        for turn, role, dialect, raw in rows:
            message = decode_said(role, dialect, raw)
            said[turn].append(message)
            most -= len(message.raw)
            if most <= 0:
                run.numbers[run.numbers.index(turn) + 1 :] = []
                break
    found += [tuple(said[number]) for number in run.numbers]
    return most


def _rows_of(db: sqlite3.Connection, key: Row, run: _Run) -> sqlite3.Cursor:
    if run.start:
        return db.execute(sql.MESSAGES_FROM, (*key, run.numbers[0], run.start))
    return db.execute(sql.MESSAGES_OF, (*key, msgspec.json.encode(run.numbers).decode()))
