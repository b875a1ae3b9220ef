"""Writes conversations to SQLite: new rows, edits and deletion while no turn is running.

Runs in the file's thread, inside the caller's transaction.
"""

import sqlite3
from collections.abc import Sequence
from datetime import datetime

from cllm.core.conversation import HISTORY_STATES, INTERRUPTION, StoredConversation, Turn
from cllm.core.errors import (
    ConversationBusyError,
    ConversationExistsError,
    SequenceNotFoundError,
)
from cllm.core.message import Message
from cllm.stores.edits import Change, ReadScope
from cllm.stores.leases import ProcessLock, is_lease_valid
from cllm.stores.search import build_index_terms
from cllm.stores.sql.rows import Row, decode_number, encode_json, encode_message, require_row
from cllm.stores.sql.store import StoredTurn, diff_conversations
from cllm.stores.sqlite import statements as sql
from cllm.stores.sqlite.reader import (
    MESSAGE_COUNT_AT,
    SQLITE_CODEC,
    find_conversation,
    find_key,
    load,
    load_outline_from,
)
from cllm.wire.path_digest import digest_turns

INTERRUPTION_JSON = encode_json(INTERRUPTION)


def add_conversation(db: sqlite3.Connection, conversation: StoredConversation) -> None:
    db.execute(sql.ADD_CONVERSATION, SQLITE_CODEC.encode_conversation(conversation))
    key = (conversation.owner, conversation.id)
    digests = digest_turns(conversation)
    sequence = 1
    for number, turn in enumerate(conversation.turns, 1):
        own = digests[turn.id]
        add_turn(db, key, turn, own, number=number, position=number, sequence=sequence)
        sequence += len(turn.messages)
    first = len(conversation.turns) + 1
    for number, turn in enumerate(conversation.variants, first):
        own = digests.get(turn.id, [])
        add_turn(db, key, turn, own, number=number, position=None, sequence=None)


def add_turn(
    db: sqlite3.Connection,
    key: Row,
    turn: Turn,
    digests: Sequence[bytes | None],
    *,
    number: int,
    position: int | None,
    sequence: int | None,
) -> list[int]:
    """Insert a turn with its messages; return their row numbers. `sequence`: None off the path."""
    db.execute(sql.ADD_TURN, (*key, number, position, *SQLITE_CODEC.encode_turn(turn)))
    rows = add_messages(db, key, turn.messages, digests, number=number, sequence=sequence)
    if turn.is_history:
        index_messages(db, key, rows, turn.messages)
    return rows


def add_messages(
    db: sqlite3.Connection,
    key: Row,
    messages: Sequence[Message],
    digests: Sequence[bytes | None],
    *,
    number: int,
    sequence: int | None,
    first: int = 0,
) -> list[int]:
    """Insert the messages from index `first` on; return their row numbers.

    `digests`: of all messages, or empty if they are not known.
    """
    rows: list[int] = []
    for ordinal, message in enumerate(messages[first:], first):
        at = None if sequence is None else sequence + ordinal
        digest = digests[ordinal] if digests else None
        values = (*key, number, ordinal, at, digest, *encode_message(message))
        rows.append(db.execute(sql.ADD_MESSAGE, values).lastrowid or 0)
    return rows


def index_messages(
    db: sqlite3.Connection, key: Row, rows: Sequence[int], messages: Sequence[Message]
) -> None:
    texts = [(row, build_index_terms(one, key[0])) for row, one in zip(rows, messages, strict=True)]
    db.executemany(sql.INDEX, [text for text in texts if text[1]])


def delete_turn(db: sqlite3.Connection, key: Row, number: int, state: str) -> None:
    delete_messages(db, key, number, state)
    db.execute(sql.DELETE_TURN, (*key, number))


def delete_messages(
    db: sqlite3.Connection, key: Row, number: int, state: str, *, first: int = 0
) -> None:
    """Delete the messages of a turn from index `first` on, damaged ones included."""
    if state in HISTORY_STATES:
        for row, raw in db.execute(sql.RAW_BYTES, (*key, number, first)).fetchall():
            terms = build_index_terms(Message(role="user", raw=raw), key[0])
            if terms:
                db.execute(sql.UNINDEX, (row, terms))
    db.execute(sql.DELETE_MESSAGES, (*key, number, first))


def mark_interrupted(db: sqlite3.Connection, key: Row, number: int) -> None:
    """Mark a turn that cannot be read as failed."""
    db.execute(sql.MARK_INTERRUPTED, (INTERRUPTION_JSON, *key, number))


def is_held(lease: Row, now: datetime, process: ProcessLock) -> bool:
    """Whether the lease has not expired and its process is not known to be dead."""
    is_valid = is_lease_valid(SQLITE_CODEC.decode_time(lease[2]), now)
    return is_valid and lease[0] not in process.lost_turns and not process.is_dead(lease[3])


def check_name_free(db: sqlite3.Connection, conversation: StoredConversation) -> None:
    for ref in _list_refs(conversation):
        if db.execute(sql.NAME_EXISTS, (conversation.owner, ref)).fetchone() is not None:
            raise ConversationExistsError(ref)


def _list_refs(conversation: StoredConversation) -> set[str]:
    return {conversation.id, conversation.name or conversation.id}


def insert_conversation(
    db: sqlite3.Connection,
    new: StoredConversation,
    *,
    source: str | None,
    change: Change,
    now: datetime,
    process: ProcessLock,
) -> StoredConversation:
    stored = None if source is None else load(db, find_conversation(db, source, new.owner))
    check_name_free(db, new)
    inserted = new if stored is None else change(stored)
    for ref in _list_refs(new):
        lease = db.execute(sql.LEASE_CREATING, (new.owner, ref)).fetchone()
        if lease is not None and is_held(lease, now, process):
            raise ConversationBusyError(ref, turn_id=lease[0])
    add_conversation(db, inserted)
    return inserted


def delete_conversation(db: sqlite3.Connection, ref: str, owner: str) -> None:
    """Delete a conversation, damaged or not."""
    key = find_key(db, ref, owner)
    for number, state in db.execute(sql.ALL_TURNS, key).fetchall():
        delete_turn(db, key, number, state)
    db.execute(sql.DELETE_EVENTS, key)
    db.execute(sql.DELETE_CONVERSATION, key)


def edit_conversation(
    db: sqlite3.Connection, ref: str, owner: str, change: Change, *, reads: ReadScope
) -> StoredConversation:
    """Apply a change and save the difference."""
    row = find_conversation(db, ref, owner)
    if reads == "head":
        old = SQLITE_CODEC.decode_conversation(row)
    elif reads == "whole":
        old = load(db, row)
    elif not 1 <= reads <= row[MESSAGE_COUNT_AT]:
        raise SequenceNotFoundError(row[1], reads)
    else:
        at = require_row(db.execute(sql.AT_SEQUENCE, (*row[:2], reads)).fetchone())
        old = load_outline_from(db, row, decode_number(at[2]))
    new = change(old)
    if new != old:
        save_changes(db, old, new)
    if reads == "whole" and new.turns != old.turns:
        _save_digests(db, new)
    return new


def _save_digests(db: sqlite3.Connection, conversation: StoredConversation) -> None:
    """Save the digests of all messages: another variant changes the path of later turns."""
    key = (conversation.owner, conversation.id)
    numbers = {row[0]: row[1] for row in db.execute(sql.ALL_NUMBERS, key).fetchall()}
    for turn_id, digests in digest_turns(conversation).items():
        at = numbers[turn_id]
        values = [(digest, *key, at, ordinal) for ordinal, digest in enumerate(digests)]
        db.executemany(sql.UPDATE_DIGEST, values)


def edit_from(
    db: sqlite3.Connection, conversation: StoredConversation, position: int, change: Change
) -> StoredConversation:
    old = load_outline_from(
        db, find_conversation(db, conversation.id, conversation.owner), position
    )
    new = change(old)
    save_changes(db, old, new)
    return new


def save_changes(db: sqlite3.Connection, old: StoredConversation, new: StoredConversation) -> None:
    """Update the stored conversation from `old`, which may be loaded in part, to `new`."""
    key = (new.owner, new.id)
    owner, own_id, *rest = SQLITE_CODEC.encode_conversation(new)
    db.execute(sql.UPDATE_CONVERSATION, (*rest, owner, own_id))
    if not old.turns and not old.variants:
        return
    rows = db.execute(sql.ALL_NUMBERS, key).fetchall()
    states = {number: state for _, number, _, state in rows}
    diff = diff_conversations(old, new, {row[0]: StoredTurn(row[1], row[2]) for row in rows})
    for number in diff.deleted_turns:
        delete_turn(db, key, number, states[number])
    for number, first in diff.truncated_turns:
        delete_messages(db, key, number, states[number], first=first)
    for number, turn in diff.changed_turns:
        db.execute(sql.UPDATE_TURN, (*SQLITE_CODEC.encode_turn(turn)[1:], *key, number))
    # Clear all positions first: the index on positions is unique after every statement.
    for move in diff.moved_turns:
        db.execute(sql.UPDATE_POSITION, (None, *key, move.number))
    for move in diff.moved_turns:
        first_sequence = None if move.before is None else move.before + 1
        db.execute(sql.UPDATE_POSITION, (move.position, *key, move.number))
        db.execute(sql.NUMBER_MESSAGES, (first_sequence, *key, move.number))
