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
from cllm.stores.sql.recent_turns import Place, RecentTurns, tail_of
from cllm.stores.sql.rows import (
    CONVERSATION_COLUMNS,
    Row,
    decode_found,
    decode_number,
    decode_said,
    decode_text,
    encode_json,
    encode_system,
)
from cllm.stores.sqlite import statements as sql
from cllm.stores.sqlite.edits import (
    add_conversation,
    add_messages,
    add_turn,
    check_free,
    delete_messages,
    delete_turn,
    edit_from,
    index,
    is_held,
    settle,
)
from cllm.stores.sqlite.reader import COUNT_AT, ROWS, load, pins_of

_EPOCH = datetime.fromisoformat("1970-01-01T00:00:00+00:00")
_MICROSECOND = timedelta(microseconds=1)
LEASE_AT = len(CONVERSATION_COLUMNS)
NEWEST_AT = LEASE_AT + 3


class _Standing(msgspec.Struct, frozen=True):
    """A conversation's row, its lease and its newest turn, or None."""

    row: Row
    lease: Row | None
    newest: Row | None


def begin(
    db: sqlite3.Connection,
    ref: str,
    start: TurnStart,
    *,
    owner: str,
    create: NewConversation | None,
    tail: Tail,
    now: datetime,
    lasting: timedelta,
    recent: RecentTurns,
) -> Lease | None:
    """The lease, or None while another one is valid."""
    found = _standing(db, check_id(ref), owner)
    row = None if found is None else found.row
    held = _lease_creating(db, ref, owner, create) if found is None else found.lease
    if held is not None and is_held(held, now):
        return None
    if found is not None:
        number = _next_number(db, found, start, now)
        conversation = _with_recent(db, found.row, tail, recent)
        if not start.visible:
            conversation = edits.settled(conversation, now=now)
    elif create is None:
        raise ConversationNotFoundError(ref)
    else:
        conversation = edits.new_conversation(create, key=create.id, owner=owner, now=now)
        check_free(db, conversation)
        number = 1
        if start.visible:
            add_conversation(db, conversation)
    turn = edits.running_turn(start, now=now)
    key = (owner, conversation.id)
    if start.visible:
        recent.note(key, turn.id, (number, _show(db, conversation, turn, number)))
    lease = Lease(
        conversation=conversation,
        turn=turn,
        fence=_next_fence(held, now),
        created=row is None,
        visible=start.visible,
        expires_at=now + lasting,
    )
    _grant(db, key, lease, creates=row is None and not start.visible)
    return lease


def holder(
    db: sqlite3.Connection, ref: str, owner: str, create: NewConversation | None
) -> str | None:
    found = _standing(db, ref, owner)
    held = _lease_creating(db, ref, owner, create) if found is None else found.lease
    return None if held is None else held[0]


def _standing(db: sqlite3.Connection, ref: str, owner: str) -> _Standing | None:
    found = db.execute(sql.STANDING, (owner, ref)).fetchone()
    if found is None:
        return None
    row, lease, newest = found[:LEASE_AT], found[LEASE_AT:NEWEST_AT], found[NEWEST_AT:]
    decode_number(row[COUNT_AT])
    return _Standing(
        row=row,
        lease=None if lease[0] is None else lease,
        newest=None if newest[0] is None else newest,
    )


def _lease_creating(
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


def _next_number(db: sqlite3.Connection, found: _Standing, start: TurnStart, now: datetime) -> int:
    key, newest = found.row[:2], found.newest
    if start.visible:
        settle(db, key, newest, now)
    # For a visible turn the database checks this.
    if not start.visible and db.execute(sql.TURN_BY_ID, (*key, start.id)).fetchone() is not None:
        raise edits.taken_turn(key[1], start.id)
    if start.place is not None:
        there = db.execute(sql.TURN_IN_PLACE, (*key, start.place)).fetchone()
        if there is None:
            raise TurnNotFoundError(key[1], start.place)
        after = db.execute(sql.SAID_AFTER, (*key, there[1])).fetchall()
        if edits.asks_anew(decode_said(*said) for said in after):
            raise edits.not_the_last(key[1], start.place)
    return 1 if newest is None else decode_number(newest[0]) + 1


def _with_recent(
    db: sqlite3.Connection, row: Row, tail: Tail, recent: RecentTurns
) -> StoredConversation:
    known = recent.take(row[:2])
    if known is None or known.message_count != row[COUNT_AT]:
        return load(db, row, tail)
    wanted = tail_of(known, pins_of(row), tail)
    if wanted is None:
        return load(db, row, tail)
    return ROWS.decode_conversation(row, turns=wanted.turns, variants=wanted.variants)


def _show(
    db: sqlite3.Connection, conversation: StoredConversation, turn: Turn, number: int
) -> Sequence[int]:
    key = (conversation.owner, conversation.id)
    total, is_last = conversation.message_count, turn.place == turn.id
    position, sequence = (number, total + 1) if is_last else (None, None)
    try:
        rows = add_turn(db, key, turn, number=number, position=position, sequence=sequence)
    except sqlite3.IntegrityError as error:
        raise edits.taken_turn(key[1], turn.id) from error
    if is_last:
        db.execute(sql.CHANGE_COUNT, (total + len(turn.messages), *key))
    return rows


def _next_fence(held: Row | None, now: datetime) -> int:
    """A number that grows with time, also if the clock is set back."""
    moment = (now - _EPOCH) // _MICROSECOND
    return moment if held is None else max(moment, decode_number(held[1]) + 1)


def _grant(db: sqlite3.Connection, key: Row, lease: Lease, *, creates: bool) -> None:
    name = lease.conversation.name if creates else None
    expires = ROWS.write_optional(lease.expires_at)
    held = (name, lease.turn.id, lease.fence, int(creates), expires)
    db.execute(sql.PUT_LEASE, (*key, *held))


def renew(db: sqlite3.Connection, lease: Lease, *, now: datetime, until: datetime) -> None:
    times = (ROWS.write_time(until), *_held(lease), ROWS.write_time(now))
    if db.execute(sql.RENEW_LEASE, times).rowcount == 0:
        raise StaleLeaseError(lease.conversation.id)


def check_held(db: sqlite3.Connection, lease: Lease, *, now: datetime) -> None:
    """StaleLeaseError if the lease is lost."""
    found = db.execute(sql.HOLDS_LEASE, (*_held(lease), ROWS.write_time(now))).fetchone()
    if found is None:
        raise StaleLeaseError(lease.conversation.id)


def release(db: sqlite3.Connection, lease: Lease) -> None:
    """Release the lease and leave the turn, which counts as interrupted."""
    db.execute(sql.RELEASE, _held(lease))


def _give_back(db: sqlite3.Connection, lease: Lease, now: datetime) -> None:
    if db.execute(sql.GIVE_BACK, (*_held(lease), ROWS.write_time(now))).rowcount == 0:
        raise StaleLeaseError(lease.conversation.id)


def _held(lease: Lease) -> Row:
    return lease.conversation.owner, lease.conversation.id, lease.fence


def finish(
    db: sqlite3.Connection,
    lease: Lease,
    turn: Turn,
    *,
    opening: Opening | None,
    now: datetime,
    recent: RecentTurns,
) -> None:
    """Save the turn as it ended and release the lease.

    Nobody else changed the conversation while the lease was valid.
    """
    _give_back(db, lease, now)
    conversation = lease.conversation
    key = (conversation.owner, conversation.id)
    if lease.created and not lease.visible:
        add_conversation(db, conversation)
    if opening is not None:
        _open(db, conversation, opening)
    shown = recent.take_place(key, turn.id) if lease.visible else None
    count = _keep(db, key, lease, turn, now=now, shown=shown)
    title = _title(db, key) if conversation.title is None else conversation.title
    db.execute(sql.END_TURN, (title, ROWS.write_time(now), count, *key))
    # A hidden turn may have settled an interrupted turn that is not in its conversation.
    if turn.place == turn.id and lease.visible:
        recent.bring(conversation, turn, message_count=count)


def _open(db: sqlite3.Connection, conversation: StoredConversation, opening: Opening) -> None:
    key = (conversation.owner, conversation.id)
    if conversation.system is not None:
        return
    if db.execute(sql.HISTORY_AFTER, (*key, 0)).fetchone() is None:
        said = (
            encode_system(opening.system),
            encode_json(opening.system_record),
            encode_json(opening.context_record),
        )
        db.execute(sql.OPEN, (*said, *key))


def _keep(
    db: sqlite3.Connection,
    key: Row,
    lease: Lease,
    turn: Turn,
    *,
    now: datetime,
    shown: Place | None,
) -> int:
    """Write the turn to its place; return the number of messages on the path."""
    before = lease.conversation.message_count
    there = None
    if turn.place != turn.id:
        there = db.execute(sql.TURN_IN_PLACE, (*key, turn.place)).fetchone()
    number, said = _numbered(db, key, lease, now) if shown is None else shown
    if there is not None:
        _write(db, key, lease, turn, said, number=number, position=None, sequence=None)
        if not turn.is_history:
            return before
        answered = edit_from(
            db, lease.conversation, there[1], lambda found: edits.with_answer(found, turn.id)
        )
        return answered.message_count
    _write(db, key, lease, turn, said, number=number, position=number, sequence=before + 1)
    return before + len(turn.messages)


def _numbered(db: sqlite3.Connection, key: Row, lease: Lease, now: datetime) -> Place:
    if lease.visible and lease.turn.messages:
        rows = db.execute(sql.NEWEST_MESSAGES, key).fetchall()
        return rows[0][0], [row for _, row in rows]
    newest = db.execute(sql.NEWEST_TURN, key).fetchone()
    if newest is None:
        return 1, []
    if lease.visible:
        return newest[0], []
    settle(db, key, newest, now)
    return decode_number(newest[0]) + 1, []


def _write(
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
    db.execute(sql.CHANGE_TURN, (*ROWS.encode_turn(turn)[1:], *key, number))
    said = lease.turn.messages
    kept = len(said) if turn.messages[: len(said)] == said else 0
    if not kept:
        delete_messages(db, key, number, "running")
    added = add_messages(db, key, turn.messages, number=number, sequence=sequence, first=kept)
    if turn.is_history:
        index(db, key, [*shown[:kept], *added], turn.messages)


def _title(db: sqlite3.Connection, key: Row) -> str | None:
    row = db.execute(sql.FIRST_SAID, key).fetchone()
    return None if row is None else make_title(decode_text(*row))


def drop(db: sqlite3.Connection, lease: Lease, *, now: datetime, recent: RecentTurns) -> None:
    _give_back(db, lease, now)
    if not lease.visible:
        return
    key = (lease.conversation.owner, lease.conversation.id)
    recent.take_place(key, lease.turn.id)
    shown = decode_found(db.execute(sql.TURN_BY_ID, (*key, lease.turn.id)).fetchone())
    number, position, _, state = shown
    delete_turn(db, key, number, state)
    row = decode_found(db.execute(sql.FIND, key).fetchone())
    is_bare = row[5] is None and db.execute(sql.HAS_TURNS, key).fetchone() is None
    if lease.created and is_bare:
        db.execute(sql.DELETE_CONVERSATION, key)
    elif position is not None:
        count = decode_number(row[COUNT_AT]) - len(lease.turn.messages)
        db.execute(sql.CHANGE_COUNT, (count, *key))
