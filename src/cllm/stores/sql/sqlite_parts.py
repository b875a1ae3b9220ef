"""A conversation in an open SQLite database in parts: its turns at once, what was said when wanted.

Runs in the file's thread, inside a transaction that somebody else began. Never writes.
"""

import sqlite3
from collections.abc import Sequence

from cllm.core.conversation import Turn
from cllm.core.errors import ConversationNotFoundError
from cllm.core.message import Message
from cllm.core.ports import Outline, TurnPart
from cllm.stores.sql import statements as sql
from cllm.stores.sql.rows import Row, decode_message
from cllm.stores.sql.sqlite_damaged import text_checked
from cllm.stores.sql.sqlite_reading import FIRST_POSITION, NUMBER_AT, ROWS, find, find_key


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
    left = most
    for part in parts:
        if left <= 0:
            break
        said: list[Message] = []
        with text_checked():
            for row in db.execute(sql.MESSAGES_FROM, (*key, part.turn, part.start)):
                message = decode_message(*row)
                said.append(message)
                left -= len(message.raw)
                if left <= 0:
                    break
        found.append(tuple(said))
    return tuple(found)
