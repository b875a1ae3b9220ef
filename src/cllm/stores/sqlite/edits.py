"""Writes conversations to SQLite: new rows, edits and deletion while no turn is running.

Runs in the file's thread, inside the caller's transaction.
"""

import sqlite3
from collections.abc import Sequence
from datetime import datetime

from cllm.core.conversation import (
    HISTORY_STATES,
    StoredConversation,
    Turn,
)
from cllm.core.errors import (
    ConversationBusyError,
    ConversationExistsError,
    SequenceNotFoundError,
)
from cllm.core.message import Message
from cllm.stores.editing_store import Change, ReadScope
from cllm.stores.edits import choose_failure
from cllm.stores.leases import ProcessLock, is_lease_valid
from cllm.stores.search import build_index_terms
from cllm.stores.sql.rows import Row, decode_number, encode_json, encode_message, require_row
from cllm.stores.sql.shared_turns import count_messages, find_shared_turns
from cllm.stores.sql.store import StoredTurn, TurnMove, diff_conversations, number_turns
from cllm.stores.sqlite import statements as sql
from cllm.stores.sqlite.reader import (
    MESSAGE_COUNT_AT,
    SQLITE_CODEC,
    find_conversation,
    find_key,
    load,
    load_outline_from,
)
from cllm.stores.sqlite.turn_cache import TurnRows
from cllm.wire.path_digest import digest_turns


def add_conversation(
    db: sqlite3.Connection,
    conversation: StoredConversation,
    *,
    source: StoredConversation | None = None,
) -> None:
    """Insert a conversation; a branch shares the messages of its source."""
    db.execute(sql.ADD_CONVERSATION, SQLITE_CODEC.encode_conversation(conversation))
    key = (conversation.owner, conversation.id)
    groups = {} if source is None else _find_shared_groups(db, source, conversation)
    counts = {} if source is None else count_messages(source)
    moves = number_turns(conversation)
    has_own = any(turn.id not in groups for turn, _ in moves)
    digests = digest_turns(conversation) if has_own else {}
    for turn, at in moves:
        if turn.id not in groups:
            add_turn(db, key, turn, digests.get(turn.id, []), at=at)
            continue
        group = groups[turn.id]
        _add_turn_row(db, key, turn, at=at, group=group)
        if len(turn.messages) < counts[turn.id]:
            _copy_messages(db, key, at.number, group, turn.state, count=len(turn.messages))


def _find_shared_groups(
    db: sqlite3.Connection, source: StoredConversation, branch: StoredConversation
) -> dict[str, int]:
    """Return the message groups of the turns that the branch shares, by their ids."""
    shared = find_shared_turns(source, branch)
    rows = db.execute(sql.ALL_NUMBERS, (source.owner, source.id)).fetchall()
    return {row[0]: decode_number(row[3]) for row in rows if row[0] in shared}


def add_turn(
    db: sqlite3.Connection,
    key: Row,
    turn: Turn,
    digests: Sequence[bytes | None],
    *,
    at: TurnMove,
) -> TurnRows:
    """Insert a turn with its messages."""
    group = _next_group(db, key[0])
    _add_turn_row(db, key, turn, at=at, group=group)
    rows = add_messages(db, key[0], group, turn.messages, digests)
    if turn.is_history:
        index_messages(db, key[0], rows, turn.messages)
    return TurnRows(at.number, group, rows)


def _add_turn_row(
    db: sqlite3.Connection, key: Row, turn: Turn, *, at: TurnMove, group: int
) -> None:
    place = (at.number, at.position, at.first_sequence, group)
    db.execute(sql.ADD_TURN, (*key, *place, *SQLITE_CODEC.encode_turn(turn)))


def _next_group(db: sqlite3.Connection, owner: str) -> int:
    return decode_number(db.execute(sql.NEXT_GROUP, (owner,)).fetchone()[0])


def add_messages(
    db: sqlite3.Connection,
    owner: str,
    group: int,
    messages: Sequence[Message],
    digests: Sequence[bytes | None],
    *,
    first: int = 0,
) -> list[int]:
    """Insert the messages from index `first` on; return their row numbers.

    `digests`: of all messages, or empty if they are not known.
    """
    rows: list[int] = []
    for ordinal, message in enumerate(messages[first:], first):
        digest = digests[ordinal] if digests else None
        values = (owner, group, ordinal, digest, *encode_message(message))
        rows.append(db.execute(sql.ADD_MESSAGE, values).lastrowid or 0)
    return rows


def index_messages(
    db: sqlite3.Connection, owner: str, rows: Sequence[int], messages: Sequence[Message]
) -> None:
    texts = [(row, build_index_terms(one, owner)) for row, one in zip(rows, messages, strict=True)]
    db.executemany(sql.INDEX, [text for text in texts if text[1]])


def delete_turn(db: sqlite3.Connection, key: Row, number: int, group: int, state: str) -> None:
    """Delete a turn, and its messages unless another conversation has them."""
    if not _is_shared(db, key, group):
        delete_messages(db, key[0], group, state)
    db.execute(sql.DELETE_TURN, (*key, number))


def _is_shared(db: sqlite3.Connection, key: Row, group: int) -> bool:
    """Whether another conversation has the messages."""
    return db.execute(sql.IS_SHARED, (*key, group)).fetchone() is not None


def delete_messages(
    db: sqlite3.Connection, owner: str, group: int, state: str, *, first: int = 0
) -> None:
    """Delete the messages of a group from index `first` on, damaged ones included."""
    if state in HISTORY_STATES:
        db.executemany(sql.UNINDEX, _list_terms(db, owner, group, first))
    db.execute(sql.DELETE_MESSAGES, (owner, group, first))


def _list_terms(
    db: sqlite3.Connection, owner: str, group: int, first: int = 0
) -> list[tuple[int, str]]:
    """Return the row numbers and the search terms of the messages that have terms."""
    rows = db.execute(sql.RAW_BYTES, (owner, group, first)).fetchall()
    terms = [(row, build_index_terms(Message(role="user", raw=raw), owner)) for row, raw in rows]
    return [each for each in terms if each[1]]


def _copy_messages(
    db: sqlite3.Connection, key: Row, number: int, group: int, state: str, *, count: int
) -> int:
    """Give a turn copies of its first messages, which others have too; return their group."""
    own = _next_group(db, key[0])
    db.execute(sql.COPY_MESSAGES, (key[0], group, own, count))
    db.execute(sql.UPDATE_GROUP, (own, *key, number))
    if state in HISTORY_STATES:
        db.executemany(sql.INDEX, _list_terms(db, key[0], own))
    return own


def mark_interrupted(
    db: sqlite3.Connection, key: Row, number: int, cancelled_at: datetime | None = None
) -> None:
    """Mark a turn that cannot be read as failed."""
    ended_at = None if cancelled_at is None else SQLITE_CODEC.encode_time(cancelled_at)
    failure = encode_json(choose_failure(cancelled_at))
    db.execute(sql.MARK_INTERRUPTED, (ended_at, failure, *key, number))


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
    add_conversation(db, inserted, source=stored)
    return inserted


def delete_conversation(db: sqlite3.Connection, ref: str, owner: str) -> None:
    """Delete a conversation, damaged or not."""
    key = find_key(db, ref, owner)
    for number, group, state in db.execute(sql.ALL_TURNS, key).fetchall():
        delete_turn(db, key, number, group, state)
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
        old = load_outline_from(db, row, decode_number(at[0]))
    new = change(old)
    if new != old:
        save_changes(db, old, new)
    if reads == "whole" and new.turns != old.turns:
        _save_digests(db, new)
    return new


def _save_digests(db: sqlite3.Connection, conversation: StoredConversation) -> None:
    """Save the digests that differ: another variant changes the path of later turns."""
    key = (conversation.owner, conversation.id)
    digests = digest_turns(conversation)
    for turn_id, number, _, group, state in db.execute(sql.ALL_NUMBERS, key).fetchall():
        own = digests[turn_id]
        if [row[0] for row in db.execute(sql.DIGESTS, (key[0], group)).fetchall()] == own:
            continue
        if _is_shared(db, key, group):
            group = _copy_messages(db, key, number, group, state, count=len(own))  # noqa: PLW2901
        values = [(digest, key[0], group, ordinal) for ordinal, digest in enumerate(own)]
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
    stored = {number: (number, group, state) for _, number, _, group, state in rows}
    diff = diff_conversations(old, new, {row[0]: StoredTurn(row[1], row[2]) for row in rows})
    for number in diff.deleted_turns:
        delete_turn(db, key, *stored[number])
    for number, count in diff.truncated_turns:
        _truncate_turn(db, key, *stored[number], count=count)
    for number, turn in diff.changed_turns:
        db.execute(sql.UPDATE_TURN, (*SQLITE_CODEC.encode_turn(turn)[1:], *key, number))
    # Clear all positions first: the index on positions is unique after every statement.
    for move in diff.moved_turns:
        db.execute(sql.UPDATE_POSITION, (None, None, *key, move.number))
    for move in diff.moved_turns:
        db.execute(sql.UPDATE_POSITION, (move.position, move.first_sequence, *key, move.number))


def _truncate_turn(
    db: sqlite3.Connection, key: Row, number: int, group: int, state: str, *, count: int
) -> None:
    if _is_shared(db, key, group):
        _copy_messages(db, key, number, group, state, count=count)
    else:
        delete_messages(db, key[0], group, state, first=count)
