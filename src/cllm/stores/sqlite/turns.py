"""A turn in SQLite: started with a lease, renewed, finished or dropped.

Runs in the file's thread; each function is one transaction.
"""

import sqlite3
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from cllm.core.conversation import StoredConversation, Turn, check_id, make_title
from cllm.core.errors import (
    ConversationNotFoundError,
    StaleLeaseError,
    TurnNotFoundError,
)
from cllm.core.ports import Lease, NewConversation, Opening, Tail, TurnStart
from cllm.stores import edits
from cllm.stores.sql.rows import (
    CONVERSATION_COLUMNS,
    Row,
    decode_message,
    decode_number,
    decode_text,
    encode_json,
    encode_system,
    require_row,
)
from cllm.stores.sqlite import statements as sql
from cllm.stores.sqlite.edits import (
    add_conversation,
    add_messages,
    add_turn,
    check_name_free,
    delete_messages,
    delete_turn,
    edit_from,
    index_messages,
    is_lease_valid,
    mark_interrupted,
)
from cllm.stores.sqlite.reader import MESSAGE_COUNT_AT, SQLITE_CODEC, decode_pins, load
from cllm.stores.sqlite.turn_cache import TurnCache, TurnRows, select_cached_tail

_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
_MICROSECOND = timedelta(microseconds=1)
LEASE_AT = len(CONVERSATION_COLUMNS)
NEWEST_AT = LEASE_AT + 3


class _FoundConversation(msgspec.Struct, frozen=True):
    """A conversation's row, its lease and its newest turn, or None."""

    row: Row
    lease: Row | None
    newest: Row | None


def begin_turn(
    db: sqlite3.Connection,
    ref: str,
    start: TurnStart,
    *,
    owner: str,
    create: NewConversation | None,
    tail: Tail,
    now: datetime,
    lasting: timedelta,
    recent: TurnCache,
) -> Lease | None:
    """The lease, or None while another one is valid."""
    found = _find_with_lease(db, check_id(ref), owner)
    row = None if found is None else found.row
    held = _find_creating_lease(db, ref, owner, create) if found is None else found.lease
    if held is not None and is_lease_valid(held, now):
        return None
    if found is not None:
        number = _next_number(db, found, start, now)
        conversation = _load_cached(db, found.row, tail, recent)
        if not start.visible:
            conversation = edits.mark_interrupted(conversation, now=now)
    elif create is None:
        raise ConversationNotFoundError(ref)
    else:
        conversation = edits.build_conversation(create, key=create.id, owner=owner, now=now)
        check_name_free(db, conversation)
        number = 1
        if start.visible:
            add_conversation(db, conversation)
    turn = edits.running_turn(start, now=now)
    key = (owner, conversation.id)
    if start.visible:
        recent.put_running(
            key, turn.id, (number, _insert_running_turn(db, conversation, turn, number))
        )
    lease = Lease(
        conversation=conversation,
        turn=turn,
        fence=_next_fence(held, now),
        created=row is None,
        visible=start.visible,
        expires_at=now + lasting,
    )
    _write_lease(db, key, lease, creates=row is None and not start.visible)
    return lease


def find_lease_holder(
    db: sqlite3.Connection, ref: str, owner: str, create: NewConversation | None
) -> str | None:
    found = _find_with_lease(db, ref, owner)
    held = _find_creating_lease(db, ref, owner, create) if found is None else found.lease
    return None if held is None else held[0]


def _find_with_lease(db: sqlite3.Connection, ref: str, owner: str) -> _FoundConversation | None:
    found = db.execute(sql.FIND_WITH_LEASE, (owner, ref)).fetchone()
    if found is None:
        return None
    row, lease, newest = found[:LEASE_AT], found[LEASE_AT:NEWEST_AT], found[NEWEST_AT:]
    decode_number(row[MESSAGE_COUNT_AT])
    return _FoundConversation(
        row=row,
        lease=None if lease[0] is None else lease,
        newest=None if newest[0] is None else newest,
    )


def _find_creating_lease(
    db: sqlite3.Connection, ref: str, owner: str, create: NewConversation | None
) -> Row | None:
    """The lease on a conversation that a hidden first turn will create."""
    if create is None:
        return None
    for name in dict.fromkeys((ref, create.id, create.name or create.id)):
        found: Row | None = db.execute(sql.LEASE_CREATING, (owner, name)).fetchone()
        if found is not None:
            return found
    return None


def _next_number(
    db: sqlite3.Connection, found: _FoundConversation, start: TurnStart, now: datetime
) -> int:
    key, newest = found.row[:2], found.newest
    if start.visible:
        mark_interrupted(db, key, newest, now)
    # For a visible turn the database checks this.
    if not start.visible and db.execute(sql.TURN_BY_ID, (*key, start.id)).fetchone() is not None:
        raise edits.duplicate_turn_error(key[1], start.id)
    if start.place is not None:
        there = db.execute(sql.TURN_IN_SLOT, (*key, start.place)).fetchone()
        if there is None:
            raise TurnNotFoundError(key[1], start.place)
        after = db.execute(sql.USER_MESSAGES_AFTER, (*key, there[1])).fetchall()
        if edits.has_user_input(decode_message(*said) for said in after):
            raise edits.not_last_turn_error(key[1], start.place)
    return 1 if newest is None else decode_number(newest[0]) + 1


def _load_cached(
    db: sqlite3.Connection, row: Row, tail: Tail, recent: TurnCache
) -> StoredConversation:
    known = recent.pop(row[:2])
    if known is None or known.message_count != row[MESSAGE_COUNT_AT]:
        return load(db, row, tail)
    wanted = select_cached_tail(known, decode_pins(row), tail)
    if wanted is None:
        return load(db, row, tail)
    return SQLITE_CODEC.decode_conversation(row, turns=wanted.turns, variants=wanted.variants)


def _insert_running_turn(
    db: sqlite3.Connection, conversation: StoredConversation, turn: Turn, number: int
) -> Sequence[int]:
    key = (conversation.owner, conversation.id)
    total, is_last = conversation.message_count, turn.place == turn.id
    position, sequence = (number, total + 1) if is_last else (None, None)
    try:
        rows = add_turn(db, key, turn, number=number, position=position, sequence=sequence)
    except sqlite3.IntegrityError as error:
        raise edits.duplicate_turn_error(key[1], turn.id) from error
    if is_last:
        db.execute(sql.UPDATE_MESSAGE_COUNT, (total + len(turn.messages), *key))
    return rows


def _next_fence(held: Row | None, now: datetime) -> int:
    """A number that grows with time, also if the clock is set back."""
    moment = (now - _EPOCH) // _MICROSECOND
    return moment if held is None else max(moment, decode_number(held[1]) + 1)


def _write_lease(db: sqlite3.Connection, key: Row, lease: Lease, *, creates: bool) -> None:
    name = lease.conversation.name if creates else None
    expires = SQLITE_CODEC.encode_optional_time(lease.expires_at)
    held = (name, lease.turn.id, lease.fence, int(creates), expires)
    db.execute(sql.PUT_LEASE, (*key, *held))


def renew_lease(db: sqlite3.Connection, lease: Lease, *, now: datetime, until: datetime) -> None:
    times = (SQLITE_CODEC.encode_time(until), *_lease_key(lease), SQLITE_CODEC.encode_time(now))
    if db.execute(sql.RENEW_LEASE, times).rowcount == 0:
        raise StaleLeaseError(lease.conversation.id)


def check_lease(db: sqlite3.Connection, lease: Lease, *, now: datetime) -> None:
    """StaleLeaseError if the lease is lost."""
    found = db.execute(
        sql.HAS_VALID_LEASE, (*_lease_key(lease), SQLITE_CODEC.encode_time(now))
    ).fetchone()
    if found is None:
        raise StaleLeaseError(lease.conversation.id)


def release_lease(db: sqlite3.Connection, lease: Lease) -> None:
    """Release the lease and leave the turn, which counts as interrupted."""
    db.execute(sql.RELEASE_LEASE, _lease_key(lease))


def _release_valid_lease(db: sqlite3.Connection, lease: Lease, now: datetime) -> None:
    if (
        db.execute(
            sql.RELEASE_VALID_LEASE, (*_lease_key(lease), SQLITE_CODEC.encode_time(now))
        ).rowcount
        == 0
    ):
        raise StaleLeaseError(lease.conversation.id)


def _lease_key(lease: Lease) -> Row:
    return lease.conversation.owner, lease.conversation.id, lease.fence


def finish_turn(
    db: sqlite3.Connection,
    lease: Lease,
    turn: Turn,
    *,
    opening: Opening | None,
    now: datetime,
    recent: TurnCache,
) -> None:
    """Save the turn as it ended and release the lease.

    Nobody else changed the conversation while the lease was valid.
    """
    _release_valid_lease(db, lease, now)
    conversation = lease.conversation
    key = (conversation.owner, conversation.id)
    if lease.created and not lease.visible:
        add_conversation(db, conversation)
    if opening is not None:
        _write_opening(db, conversation, opening)
    shown = recent.pop_running(key, turn.id) if lease.visible else None
    count = _save_turn(db, key, lease, turn, now=now, shown=shown)
    title = _build_title(db, key) if conversation.title is None else conversation.title
    db.execute(sql.UPDATE_AFTER_TURN, (title, SQLITE_CODEC.encode_time(now), count, *key))
    # A hidden turn may have settled an interrupted turn that is not in its conversation.
    if turn.place == turn.id and lease.visible:
        recent.put(conversation, turn, message_count=count)


def _write_opening(
    db: sqlite3.Connection, conversation: StoredConversation, opening: Opening
) -> None:
    key = (conversation.owner, conversation.id)
    if conversation.system is not None:
        return
    if db.execute(sql.HISTORY_AFTER, (*key, 0)).fetchone() is None:
        said = (
            encode_system(opening.system),
            encode_json(opening.system_record),
            encode_json(opening.context_record),
        )
        db.execute(sql.UPDATE_OPENING, (*said, *key))


def _save_turn(
    db: sqlite3.Connection,
    key: Row,
    lease: Lease,
    turn: Turn,
    *,
    now: datetime,
    shown: TurnRows | None,
) -> int:
    """Write the turn to its place; return the number of messages on the path."""
    before = lease.conversation.message_count
    there = None
    if turn.place != turn.id:
        there = db.execute(sql.TURN_IN_SLOT, (*key, turn.place)).fetchone()
    number, said = _find_turn_rows(db, key, lease, now) if shown is None else shown
    if there is not None:
        _write_turn(db, key, lease, turn, said, number=number, position=None, sequence=None)
        if not turn.is_history:
            return before
        answered = edit_from(
            db,
            lease.conversation,
            there[1],
            lambda found: edits.with_finished_variant(found, turn.id),
        )
        return answered.message_count
    _write_turn(db, key, lease, turn, said, number=number, position=number, sequence=before + 1)
    return before + len(turn.messages)


def _find_turn_rows(db: sqlite3.Connection, key: Row, lease: Lease, now: datetime) -> TurnRows:
    if lease.visible and lease.turn.messages:
        rows = db.execute(sql.NEWEST_MESSAGES, key).fetchall()
        return rows[0][0], [row for _, row in rows]
    newest = db.execute(sql.NEWEST_TURN, key).fetchone()
    if newest is None:
        return 1, []
    if lease.visible:
        return newest[0], []
    mark_interrupted(db, key, newest, now)
    return decode_number(newest[0]) + 1, []


def _write_turn(
    db: sqlite3.Connection,
    key: Row,
    lease: Lease,
    turn: Turn,
    shown: Sequence[int],
    *,
    number: int,
    position: int | None,
    sequence: int | None,
) -> None:
    if not lease.visible:
        add_turn(db, key, turn, number=number, position=position, sequence=sequence)
        return
    db.execute(sql.UPDATE_TURN, (*SQLITE_CODEC.encode_turn(turn)[1:], *key, number))
    said = lease.turn.messages
    kept = len(said) if turn.messages[: len(said)] == said else 0
    if not kept:
        delete_messages(db, key, number, "running")
    added = add_messages(db, key, turn.messages, number=number, sequence=sequence, first=kept)
    if turn.is_history:
        index_messages(db, key, [*shown[:kept], *added], turn.messages)


def _build_title(db: sqlite3.Connection, key: Row) -> str | None:
    row = db.execute(sql.TITLE_MESSAGE, key).fetchone()
    return None if row is None else make_title(decode_text(*row))


def drop_turn(db: sqlite3.Connection, lease: Lease, *, now: datetime, recent: TurnCache) -> None:
    _release_valid_lease(db, lease, now)
    if not lease.visible:
        return
    key = (lease.conversation.owner, lease.conversation.id)
    recent.pop_running(key, lease.turn.id)
    shown = require_row(db.execute(sql.TURN_BY_ID, (*key, lease.turn.id)).fetchone())
    number, position, _, state = shown
    delete_turn(db, key, number, state)
    row = require_row(db.execute(sql.FIND, key).fetchone())
    is_bare = row[5] is None and db.execute(sql.HAS_TURNS, key).fetchone() is None
    if lease.created and is_bare:
        db.execute(sql.DELETE_CONVERSATION, key)
    elif position is not None:
        count = decode_number(row[MESSAGE_COUNT_AT]) - len(lease.turn.messages)
        db.execute(sql.UPDATE_MESSAGE_COUNT, (count, *key))
