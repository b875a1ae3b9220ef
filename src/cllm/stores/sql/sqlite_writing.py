"""Writing rows into an open SQLite database: conversations, turns, messages, and the search index.

Runs in the file's thread, inside a transaction that somebody else began and ends.
"""

import sqlite3
from collections.abc import Sequence
from datetime import datetime

from cllm.core.conversation import HISTORY_STATES, Conversation, Turn
from cllm.core.message import Message
from cllm.stores.edits import INTERRUPTION
from cllm.stores.sql import statements as sql
from cllm.stores.sql.rows import Row, decode_number, encode_json, encode_message
from cllm.stores.sql.search import indexed_terms
from cllm.stores.sql.sqlite_reading import ROWS

_INTERRUPTION = encode_json(INTERRUPTION)


def add_conversation(db: sqlite3.Connection, conversation: Conversation) -> None:
    """Keep a whole conversation that is not there yet, with its turns and variants."""
    db.execute(sql.ADD_CONVERSATION, ROWS.encode_conversation(conversation))
    key = (conversation.owner, conversation.id)
    sequence = 1
    for number, turn in enumerate(conversation.turns, 1):
        add_turn(db, key, turn, number=number, position=number, sequence=sequence)
        sequence += len(turn.messages)
    first = len(conversation.turns) + 1
    for number, turn in enumerate(conversation.variants, first):
        add_turn(db, key, turn, number=number, position=None, sequence=None)


def change_conversation(db: sqlite3.Connection, conversation: Conversation) -> None:
    """Write everything that a conversation says about itself."""
    owner, own_id, *rest = ROWS.encode_conversation(conversation)
    db.execute(sql.CHANGE_CONVERSATION, (*rest, owner, own_id))


def add_turn(
    db: sqlite3.Connection,
    key: Row,
    turn: Turn,
    *,
    number: int,
    position: int | None,
    sequence: int | None,
) -> list[int]:
    """Add a turn with its messages, from that sequence number on if it is on the path.

    What comes back are the numbers of the messages' rows.
    """
    db.execute(sql.ADD_TURN, (*key, number, position, *ROWS.encode_turn(turn)))
    rows = add_messages(db, key, turn.messages, number=number, sequence=sequence)
    if turn.is_history:
        index(db, key, rows, turn.messages)
    return rows


def add_messages(
    db: sqlite3.Connection,
    key: Row,
    messages: Sequence[Message],
    *,
    number: int,
    sequence: int | None,
    first: int = 0,
) -> list[int]:
    """Add the messages of a turn from its `first` one on; the numbers of their rows.

    The turn's own first message has that sequence number.
    """
    rows: list[int] = []
    for ordinal, message in enumerate(messages[first:], first):
        at = None if sequence is None else sequence + ordinal
        added = db.execute(sql.ADD_MESSAGE, (*key, number, ordinal, at, *encode_message(message)))
        rows.append(added.lastrowid or 0)
    return rows


def index(
    db: sqlite3.Connection, key: Row, rows: Sequence[int], messages: Sequence[Message]
) -> None:
    """Make messages findable, which count as history now."""
    texts = [(row, indexed_terms(one, key[0])) for row, one in zip(rows, messages, strict=True)]
    db.executemany(sql.INDEX, [text for text in texts if text[1]])


def delete_turn(db: sqlite3.Connection, key: Row, number: int, state: str) -> None:
    """Delete a turn, its messages, and what the search index has of them."""
    delete_messages(db, key, number, state)
    db.execute(sql.DELETE_TURN, (*key, number))


def delete_messages(
    db: sqlite3.Connection, key: Row, number: int, state: str, *, first: int = 0
) -> None:
    """Delete the messages of a turn from its `first` one on, readable or not."""
    if state in HISTORY_STATES:
        for row, raw in db.execute(sql.RAW_BYTES, (*key, number, first)).fetchall():
            terms = indexed_terms(Message(role="user", raw=raw), key[0])
            if terms:
                db.execute(sql.UNINDEX, (row, terms))
    db.execute(sql.DELETE_MESSAGES, (*key, number, first))


def put_in_place(db: sqlite3.Connection, key: Row, *, chosen: int, instead_of: Row) -> int:
    """Put a turn on the path in place of another; how many messages the path has then.

    `instead_of` is the number and the position of the one that leaves. Its messages lose their
    numbers, and later ones are numbered anew, as the two need not be of one length.
    """
    number, position = instead_of[:2]
    sequence = decode_number(db.execute(sql.FIRST_SEQUENCE, (*key, number)).fetchone()[0])
    db.execute(sql.CHANGE_POSITION, (None, *key, number))
    db.execute(sql.CHANGE_POSITION, (position, *key, chosen))
    db.execute(sql.UNNUMBER_TURN, (*key, number))
    for (turn,) in db.execute(sql.NUMBERS_FROM, (*key, position)).fetchall():
        numbered = db.execute(sql.NUMBER_TURN, (sequence, *key, turn))
        sequence += numbered.rowcount
    return sequence - 1


def settle(db: sqlite3.Connection, key: Row, newest: Row | None, now: datetime) -> None:
    """Nobody runs a turn: one that still says so, which is the newest, was interrupted."""
    if newest is not None and newest[1] == "running":
        ended = (ROWS.write_time(now), _INTERRUPTION)
        db.execute(sql.SETTLE_TURN, (*ended, *key, newest[0]))
