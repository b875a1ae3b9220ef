"""Changes to conversations in an open SQLite database in which no turn runs.

Runs in the file's thread; each function is one transaction. None means that a turn runs.
"""

import sqlite3
from datetime import datetime

import msgspec

from cllm.core.conversation import HISTORY_STATES, Conversation, Summary
from cllm.core.errors import ConversationBusyError, SequenceNotFoundError, TurnNotFoundError
from cllm.core.ports import Changes, NewConversation, Opening
from cllm.stores import edits
from cllm.stores.changes import with_changes
from cllm.stores.sql import statements as sql
from cllm.stores.sql.rows import Row, decode_found, decode_number
from cllm.stores.sql.sqlite_reading import COUNT_AT, ROWS, find, find_key, load
from cllm.stores.sql.sqlite_turns import check_free, is_held, new_conversation
from cllm.stores.sql.sqlite_writing import (
    add_conversation,
    change_conversation,
    delete_messages,
    delete_turn,
    put_in_place,
    settle,
)
from cllm.stores.views import summary_of

replace = msgspec.structs.replace


def free(db: sqlite3.Connection, ref: str, owner: str, now: datetime) -> Row | None:
    """The row of a conversation in which no turn runs, and none says so."""
    row = find(db, ref, owner)
    return row if _free_up(db, row[:2], now) else None


def _free_up(db: sqlite3.Connection, key: Row, now: datetime) -> bool:
    """Whether no turn runs in it; a lease that ran out goes, and its turn was interrupted."""
    held = db.execute(sql.LEASE_OF, key).fetchone()
    if held is not None:
        if is_held(held, now):
            return False
        db.execute(sql.DELETE_LEASE, key)
    settle(db, key, db.execute(sql.NEWEST_TURN, key).fetchone(), now)
    return True


def create(
    db: sqlite3.Connection,
    new: NewConversation,
    owner: str,
    *,
    opening: Opening | None,
    now: datetime,
) -> Conversation:
    conversation = edits.with_opening(new_conversation(db, new, owner, now), opening)
    return _add(db, conversation, now)


def add(db: sqlite3.Connection, conversation: Conversation, *, now: datetime) -> None:
    """Keep a whole conversation, if its id and its name are free."""
    check_free(db, conversation.id, conversation.name, conversation.owner)
    _add(db, conversation, now)


def branch(
    db: sqlite3.Connection,
    ref: str,
    new: NewConversation,
    owner: str,
    *,
    at: int | None,
    opening: Opening | None,
    now: datetime,
) -> Conversation:
    source = load(db, find(db, ref, owner))
    fresh = new_conversation(db, new, owner, now)
    return _add(db, edits.branch_of(source, fresh, at=at, opening=opening), now)


def _add(db: sqlite3.Connection, conversation: Conversation, now: datetime) -> Conversation:
    """Keep a new conversation, unless a first turn is about to make it."""
    owner = conversation.owner
    for ref in {conversation.id, conversation.name or conversation.id}:
        begun = db.execute(sql.LEASE_CREATING, (owner, ref)).fetchone()
        if begun is not None and is_held(begun, now):
            raise ConversationBusyError(ref, turn_id=begun[0])
    add_conversation(db, conversation)
    return conversation


def update(
    db: sqlite3.Connection, ref: str, changes: Changes, owner: str, now: datetime
) -> Summary | None:
    row = free(db, ref, owner, now)
    if row is None:
        return None
    changed = with_changes(ROWS.decode_conversation(row), changes, now=now)
    change_conversation(db, changed)
    return summary_of(changed)


def capture(
    db: sqlite3.Connection, ref: str, opening: Opening, owner: str, now: datetime
) -> Conversation | None:
    row = free(db, ref, owner, now)
    if row is None:
        return None
    captured = edits.with_captured(load(db, row), opening)
    change_conversation(db, captured)
    return captured


def delete(db: sqlite3.Connection, ref: str, owner: str, now: datetime) -> bool | None:
    """Also of a conversation with rows that cannot be read."""
    key = find_key(db, ref, owner)
    if not _free_up(db, key, now):
        return None
    for number, _, _, state in db.execute(sql.ALL_TURNS, key).fetchall():
        delete_turn(db, key, number, state)
    db.execute(sql.DELETE_EVENTS, key)
    db.execute(sql.DELETE_CONVERSATION, key)
    return True


def delete_from(
    db: sqlite3.Connection, ref: str, sequence: int, owner: str, now: datetime
) -> bool | None:
    row = free(db, ref, owner, now)
    if row is None:
        return None
    key = row[:2]
    if not 1 <= sequence <= row[COUNT_AT]:
        raise SequenceNotFoundError(key[1], sequence)
    there = decode_found(db.execute(sql.AT_SEQUENCE, (*key, sequence)).fetchone())
    number, ordinal, position, state = there
    places = {place for (place,) in db.execute(sql.PLACES_FROM, (*key, position)).fetchall()}
    _delete_places(db, key, places, spared=number if ordinal > 0 else None)
    if ordinal > 0:
        delete_messages(db, key, number, state, first=ordinal)
        if state in HISTORY_STATES:
            db.execute(sql.CHANGE_STATE, ("incomplete", *key, number))
    change_conversation(db, _shortened(row, sequence - 1, now))
    return True


def _delete_places(
    db: sqlite3.Connection, key: Row, places: set[str], *, spared: int | None
) -> None:
    """Delete all turns in these places, but not the one that loses only its end."""
    for number, _, place, state in db.execute(sql.ALL_TURNS, key).fetchall():
        if place in places and number != spared:
            delete_turn(db, key, number, state)


def _shortened(row: Row, count: int, now: datetime) -> Conversation:
    """What a conversation says about itself when its messages end there."""
    stored = ROWS.decode_conversation(row)
    summary = stored.summary
    return replace(
        stored,
        first_sequence=count + 1,
        updated_at=now,
        pins=tuple(pin for pin in stored.pins if pin <= count),
        summary=None if summary is None else summary.up_to(count),
    )


def choose_variant(
    db: sqlite3.Connection, ref: str, turn_id: str, owner: str, now: datetime
) -> Conversation | None:
    row = free(db, ref, owner, now)
    if row is None:
        return None
    key = row[:2]
    chosen: Row | None = db.execute(sql.TURN_BY_ID, (*key, turn_id)).fetchone()
    if chosen is None:
        raise TurnNotFoundError(key[1], turn_id)
    number, position, place, state = chosen
    if position is None:
        there = db.execute(sql.TURN_IN_PLACE, (*key, place)).fetchone()
        if there is None:
            raise TurnNotFoundError(key[1], turn_id)
        if state not in HISTORY_STATES:
            raise edits.no_answer(key[1], turn_id)
        first = decode_number(db.execute(sql.FIRST_SEQUENCE, (*key, there[0])).fetchone()[0])
        count = put_in_place(db, key, chosen=number, instead_of=there)
        stored = replace(ROWS.decode_conversation(row), first_sequence=count + 1, updated_at=now)
        if stored.summary is not None:
            stored = replace(stored, summary=stored.summary.up_to(first - 1))
        change_conversation(db, stored)
    return load(db, find(db, key[1], owner))
