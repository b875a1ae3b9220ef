"""Turns in SQLite: start one with a lease, renew the lease, finish or drop the turn.

Runs in the file's thread; each function is one transaction.
"""

import sqlite3
from datetime import datetime

import msgspec

from cllm.core.conversation import (
    StoredConversation,
    Turn,
    check_id,
    choose_title,
)
from cllm.core.errors import (
    ConversationNotFoundError,
    StaleLeaseError,
    TurnNotFoundError,
)
from cllm.core.ports import Lease, NewConversation, Opening, Tail, TurnStart
from cllm.stores import edits
from cllm.stores.leases import ProcessLock, lease_expiry, next_fence
from cllm.stores.sql.rows import (
    CONVERSATION_COLUMNS,
    Row,
    UnreadableRowError,
    decode_message,
    decode_number,
    decode_text,
    encode_json,
    encode_system,
    require_row,
)
from cllm.stores.sql.store import TurnMove
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
    is_held,
    mark_interrupted,
)
from cllm.stores.sqlite.reader import (
    MESSAGE_COUNT_AT,
    SQLITE_CODEC,
    check_utf8,
    decode_pins,
    load,
)
from cllm.stores.sqlite.turn_cache import TurnCache, TurnRows, select_cached_tail
from cllm.wire.convert import has_user_input
from cllm.wire.path_digest import ROOT, digest_turn

LEASE_AT = len(CONVERSATION_COLUMNS)
NEWEST_AT = LEASE_AT + 4


class _StoredState(msgspec.Struct, frozen=True):
    """A conversation's row, its lease and its newest turn."""

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
    lease_seconds: float,
    cache: TurnCache,
    process: ProcessLock,
) -> Lease | None:
    """Return the lease, or None while another one is valid."""
    stored = _find_with_lease(db, check_id(ref), owner)
    previous = _find_creating_lease(db, ref, owner, create) if stored is None else stored.lease
    if previous is not None and is_held(previous, now, process):
        return None
    if stored is not None and settle_running_turn(db, stored.row[:2], stored.newest, cache):
        stored = _find_with_lease(db, ref, owner)
    if stored is not None:
        number, slot = _find_slot(db, stored, start)
        conversation = _load_cached(db, stored.row, tail, cache)
        before = _digest_before(db, conversation, slot)
    elif create is None:
        raise ConversationNotFoundError(ref)
    else:
        conversation = edits.build_conversation(create, key=create.id, owner=owner, now=now)
        check_name_free(db, conversation)
        number = 1
        before = conversation.path_start or ROOT
        if start.visible:
            add_conversation(db, conversation)
    turn = edits.build_running_turn(start, now=now)
    key = (owner, conversation.id)
    if start.visible:
        rows = _insert_running_turn(db, conversation, turn, before, number)
        cache.put_running(key, turn.id, rows)
    lease = Lease(
        conversation=conversation,
        turn=turn,
        fence=next_fence(now, None if previous is None else decode_number(previous[1])),
        created=stored is None,
        visible=start.visible,
        expires_at=lease_expiry(now, lease_seconds),
        before=before,
    )
    creates = lease.created and not start.visible
    _write_lease(db, key, lease, creates=creates, holder=process.name())
    return lease


def find_lease_holder(
    db: sqlite3.Connection, ref: str, owner: str, create: NewConversation | None
) -> str | None:
    stored = _find_with_lease(db, ref, owner)
    lease = _find_creating_lease(db, ref, owner, create) if stored is None else stored.lease
    return None if lease is None else lease[0]


def _find_with_lease(db: sqlite3.Connection, ref: str, owner: str) -> _StoredState | None:
    joined = db.execute(sql.FIND_WITH_LEASE, (owner, ref)).fetchone()
    if joined is None:
        return None
    row, lease, newest = joined[:LEASE_AT], joined[LEASE_AT:NEWEST_AT], joined[NEWEST_AT:]
    decode_number(row[MESSAGE_COUNT_AT])
    return _StoredState(
        row=row,
        lease=None if lease[0] is None else lease,
        newest=None if newest[0] is None else newest,
    )


def _find_creating_lease(
    db: sqlite3.Connection, ref: str, owner: str, create: NewConversation | None
) -> Row | None:
    """Return the lease on a conversation that a hidden first turn will create."""
    if create is None:
        return None
    for name in dict.fromkeys((ref, create.id, create.name or create.id)):
        lease: Row | None = db.execute(sql.LEASE_CREATING, (owner, name)).fetchone()
        if lease is not None:
            return lease
    return None


def _find_slot(db: sqlite3.Connection, stored: _StoredState, start: TurnStart) -> tuple[int, int]:
    """Return the number of the new turn, and the position of its slot on the path."""
    key, newest = stored.row[:2], stored.newest
    number = 1 if newest is None else decode_number(newest[0]) + 1
    # A visible turn is inserted now, and the unique index rejects a duplicate.
    if not start.visible and db.execute(sql.TURN_BY_ID, (*key, start.id)).fetchone() is not None:
        raise edits.duplicate_turn_error(key[1], start.id)
    if start.place is None:
        return number, number
    original = db.execute(sql.TURN_IN_SLOT, (*key, start.place)).fetchone()
    if original is None:
        raise TurnNotFoundError(key[1], start.place)
    later = db.execute(sql.USER_MESSAGES_AFTER, (*key, original[1])).fetchall()
    if has_user_input(decode_message(*message) for message in later):
        raise edits.not_last_turn_error(key[1], start.place)
    return number, original[1]


def _digest_before(
    db: sqlite3.Connection, conversation: StoredConversation, position: int
) -> bytes | None:
    """Return the path digest before a position; None if a message before it cannot be read."""
    key = (conversation.owner, conversation.id)
    row = db.execute(sql.DIGEST_BEFORE, (*key, position)).fetchone()
    if row is None:
        return conversation.path_start or ROOT
    return row[0] if isinstance(row[0], bytes) else None


def _load_cached(
    db: sqlite3.Connection, row: Row, tail: Tail, cache: TurnCache
) -> StoredConversation:
    cached = cache.pop(row[:2])
    if cached is None or cached.message_count != row[MESSAGE_COUNT_AT]:
        return load(db, row, tail)
    selected = select_cached_tail(cached, decode_pins(row), tail)
    if selected is None:
        return load(db, row, tail)
    return SQLITE_CODEC.decode_conversation(row, turns=selected.turns, variants=selected.variants)


def _insert_running_turn(
    db: sqlite3.Connection,
    conversation: StoredConversation,
    turn: Turn,
    before: bytes | None,
    number: int,
) -> TurnRows:
    key = (conversation.owner, conversation.id)
    total, is_last = conversation.message_count, turn.place == turn.id
    at = TurnMove(number, *((number, total + 1) if is_last else (None, None)))
    try:
        rows = add_turn(db, key, turn, digest_turn(turn.messages, before), at=at)
    except sqlite3.IntegrityError as error:
        raise edits.duplicate_turn_error(key[1], turn.id) from error
    if is_last:
        db.execute(sql.UPDATE_MESSAGE_COUNT, (total + len(turn.messages), *key))
    return rows


def _write_lease(
    db: sqlite3.Connection, key: Row, lease: Lease, *, creates: bool, holder: str | None
) -> None:
    name = lease.conversation.name if creates else None
    expires_at = SQLITE_CODEC.encode_optional_time(lease.expires_at)
    values = (name, lease.turn.id, lease.fence, int(creates), expires_at, holder)
    db.execute(sql.PUT_LEASE, (*key, *values))


def renew_lease(
    db: sqlite3.Connection, lease: Lease, *, now: datetime, expires_at: datetime
) -> None:
    values = (SQLITE_CODEC.encode_time(expires_at), *_valid_lease_key(lease, now))
    if db.execute(sql.RENEW_LEASE, values).rowcount == 0:
        raise StaleLeaseError(lease.conversation.id)


def check_lease(db: sqlite3.Connection, lease: Lease, *, now: datetime) -> None:
    """Raise StaleLeaseError if the lease is lost."""
    if db.execute(sql.HAS_VALID_LEASE, _valid_lease_key(lease, now)).fetchone() is None:
        raise StaleLeaseError(lease.conversation.id)


def release_lease(db: sqlite3.Connection, lease: Lease, *, cache: TurnCache) -> None:
    """Release the lease of a turn that cannot be saved, and settle the turn."""
    if db.execute(sql.RELEASE_LEASE, _lease_key(lease)).rowcount:
        key = (lease.conversation.owner, lease.conversation.id)
        newest = db.execute(sql.NEWEST_TURN, key).fetchone()
        settle_running_turn(db, key, newest, cache)


def _release_valid_lease(db: sqlite3.Connection, lease: Lease, now: datetime) -> None:
    if db.execute(sql.RELEASE_VALID_LEASE, _valid_lease_key(lease, now)).rowcount == 0:
        raise StaleLeaseError(lease.conversation.id)


def _lease_key(lease: Lease) -> Row:
    return lease.conversation.owner, lease.conversation.id, lease.fence


def _valid_lease_key(lease: Lease, now: datetime) -> Row:
    return *_lease_key(lease), SQLITE_CODEC.encode_time(now)


def finish_turn(
    db: sqlite3.Connection,
    lease: Lease,
    turn: Turn,
    *,
    opening: Opening | None,
    now: datetime,
    cache: TurnCache,
) -> None:
    """Save the finished turn and release the lease.

    No other process changed the conversation while the lease was valid.
    """
    _release_valid_lease(db, lease, now)
    conversation = lease.conversation
    key = (conversation.owner, conversation.id)
    if lease.created and not lease.visible:
        add_conversation(db, conversation)
    if opening is not None:
        _write_opening(db, conversation, opening)
    rows = cache.pop_running(key, turn.id) if lease.visible else None
    count = _save_turn(db, key, lease, turn, updated_at=now, rows=rows)
    if turn.place == turn.id and lease.visible:
        cache.put(conversation, turn, message_count=count)


def save_opening(db: sqlite3.Connection, lease: Lease, opening: Opening, *, now: datetime) -> None:
    check_lease(db, lease, now=now)
    if lease.visible:
        _write_opening(db, lease.conversation, opening)


def _write_opening(
    db: sqlite3.Connection, conversation: StoredConversation, opening: Opening
) -> None:
    key = (conversation.owner, conversation.id)
    if conversation.system is not None:
        return
    if db.execute(sql.HISTORY_AFTER, (*key, 0)).fetchone() is None:
        values = (
            encode_system(opening.system),
            encode_json(opening.system_record),
            encode_json(opening.context_record),
        )
        db.execute(sql.UPDATE_OPENING, (*values, *key))


def _save_turn(
    db: sqlite3.Connection,
    key: Row,
    lease: Lease,
    turn: Turn,
    *,
    updated_at: datetime,
    rows: TurnRows | None,
) -> int:
    """Write the turn and its conversation; return the number of messages on the path."""
    count = _write_in_slot(db, key, lease, turn, rows)
    title = lease.conversation.title
    title = _build_title(db, key) if title is None else title
    db.execute(sql.UPDATE_AFTER_TURN, (title, SQLITE_CODEC.encode_time(updated_at), count, *key))
    return count


def _write_in_slot(
    db: sqlite3.Connection, key: Row, lease: Lease, turn: Turn, rows: TurnRows | None
) -> int:
    before = lease.conversation.message_count
    original = None
    if turn.place != turn.id:
        original = db.execute(sql.TURN_IN_SLOT, (*key, turn.place)).fetchone()
    rows = _find_turn_rows(db, key, lease) if rows is None else rows
    if original is not None:
        _write_turn(db, key, lease, turn, rows, at=TurnMove(rows.number, None, None))
        if not turn.is_history:
            return before
        edited = edit_from(
            db,
            lease.conversation,
            original[1],
            lambda conversation: edits.with_finished_variant(conversation, turn.id),
        )
        return edited.message_count
    _write_turn(db, key, lease, turn, rows, at=TurnMove(rows.number, rows.number, before + 1))
    return before + len(turn.messages)


def _find_turn_rows(db: sqlite3.Connection, key: Row, lease: Lease) -> TurnRows:
    """Return the rows of a running turn; for a hidden one, its number."""
    if lease.visible:
        rows = db.execute(sql.NEWEST_MESSAGES, key).fetchall()
        number, group, first = require_row(rows[0] if rows else None)
        return TurnRows(number, group, [] if first is None else [row for _, _, row in rows])
    newest = db.execute(sql.NEWEST_TURN, key).fetchone()
    return TurnRows(1 if newest is None else decode_number(newest[0]) + 1, 0, [])


def _write_turn(
    db: sqlite3.Connection, key: Row, lease: Lease, turn: Turn, rows: TurnRows, *, at: TurnMove
) -> None:
    digests = digest_turn(turn.messages, lease.before)
    if not lease.visible:
        add_turn(db, key, turn, digests, at=at)
        return
    owner, group = key[0], rows.group
    db.execute(sql.UPDATE_TURN, (*SQLITE_CODEC.encode_turn(turn)[1:], *key, rows.number))
    stored = lease.turn.messages
    first = len(stored) if turn.messages[: len(stored)] == stored else 0
    if not first:
        delete_messages(db, owner, group, "running")
    new_rows = add_messages(db, owner, group, turn.messages, digests, first=first)
    if turn.is_history:
        index_messages(db, owner, [*rows.messages[:first], *new_rows], turn.messages)


def _build_title(db: sqlite3.Connection, key: Row) -> str | None:
    rows = db.execute(sql.TITLE_MESSAGES, key).fetchall()
    return choose_title(decode_text(*row) for row in rows)


def free_conversation(
    db: sqlite3.Connection,
    key: Row,
    *,
    now: datetime,
    cache: TurnCache,
    process: ProcessLock,
) -> bool:
    """Delete the lease of a dead process and settle its turn; False while the lease is valid."""
    lease = db.execute(sql.LEASE_OF, key).fetchone()
    if lease is not None:
        if is_held(lease, now, process):
            return False
        db.execute(sql.DELETE_LEASE, key)
    settle_running_turn(db, key, db.execute(sql.NEWEST_TURN, key).fetchone(), cache)
    return True


def find_dead_leases(
    db: sqlite3.Connection, owner: str, ref: str | None, *, now: datetime, process: ProcessLock
) -> list[Row]:
    """Return the keys of the conversations whose process died: one, or all of the owner."""
    rows = db.execute(sql.LEASES, (owner, ref)).fetchall()
    return [(owner, row[4]) for row in rows if not is_held(row, now, process)]


def cancel_turn(
    db: sqlite3.Connection, key: Row, turn_id: str, *, now: datetime, cache: TurnCache
) -> bool:
    """Delete the lease of a running turn and settle it; False if the turn does not run."""
    lease = db.execute(sql.LEASE_OF, key).fetchone()
    newest = db.execute(sql.NEWEST_TURN, key).fetchone()
    if lease is None or lease[0] != turn_id or newest is None or newest[1] != "running":
        return False
    db.execute(sql.DELETE_LEASE, key)
    return settle_running_turn(db, key, newest, cache, cancelled_at=now)


def settle_running_turn(
    db: sqlite3.Connection,
    key: Row,
    newest: Row | None,
    cache: TurnCache,
    *,
    cancelled_at: datetime | None = None,
) -> bool:
    """End a running newest turn that was cancelled, or whose process died.

    No lease may be valid.
    """
    if newest is None or newest[1] != "running":
        return False
    cache.pop(key)
    try:
        with check_utf8():
            _settle_turn(db, key, newest[0], cancelled_at)
    except UnreadableRowError:
        mark_interrupted(db, key, newest[0], cancelled_at)
    return True


def _settle_turn(
    db: sqlite3.Connection, key: Row, number: int, cancelled_at: datetime | None
) -> None:
    *row, position = require_row(db.execute(sql.TURN_AT, (*key, number)).fetchone())
    stored = db.execute(sql.MESSAGES_FROM, (*key, number, 0)).fetchall()
    turn = SQLITE_CODEC.decode_turn(row, tuple(decode_message(*one[1:]) for one in stored))
    events = db.execute(sql.EVENTS_AFTER, (*key, turn.id, 0)).fetchall()
    settled = edits.settle_turn(turn, [data for _, data in events], cancelled_at=cancelled_at)
    head = SQLITE_CODEC.decode_conversation(require_row(db.execute(sql.FIND, key).fetchone()))
    before = head.message_count - (0 if position is None else len(turn.messages))
    slot = db.execute(sql.TURN_IN_SLOT, (*key, turn.place)).fetchone()
    lease = Lease(
        conversation=msgspec.structs.replace(head, first_sequence=before + 1),
        before=_digest_before(db, head, number if slot is None else slot[1]),
        turn=turn,
        fence=0,
        created=False,
        visible=True,
    )
    _save_turn(db, key, lease, settled, updated_at=head.updated_at, rows=None)


def drop_turn(db: sqlite3.Connection, lease: Lease, *, now: datetime, cache: TurnCache) -> None:
    _release_valid_lease(db, lease, now)
    if not lease.visible:
        return
    key = (lease.conversation.owner, lease.conversation.id)
    cache.pop_running(key, lease.turn.id)
    turn = require_row(db.execute(sql.TURN_BY_ID, (*key, lease.turn.id)).fetchone())
    number, position, group, state = turn
    delete_turn(db, key, number, group, state)
    row = require_row(db.execute(sql.FIND, key).fetchone())
    is_bare = row[5] == encode_system(lease.conversation.system)
    is_bare = is_bare and db.execute(sql.HAS_TURNS, key).fetchone() is None
    if lease.created and is_bare:
        db.execute(sql.DELETE_CONVERSATION, key)
    elif position is not None:
        count = decode_number(row[MESSAGE_COUNT_AT]) - len(lease.turn.messages)
        db.execute(sql.UPDATE_MESSAGE_COUNT, (count, *key))
