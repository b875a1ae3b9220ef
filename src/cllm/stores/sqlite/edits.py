"""Changes to conversations in an open SQLite database in which no turn runs.

Runs in the file's thread; each function is one transaction. None means that a turn runs.
"""

import sqlite3
from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from cllm.core.conversation import HISTORY_STATES, Conversation, Summary, Turn
from cllm.core.errors import (
    ConversationBusyError,
    ConversationExistsError,
    SequenceNotFoundError,
    TurnNotFoundError,
)
from cllm.core.identity import check_id
from cllm.core.message import Message
from cllm.core.ports import Changes, NewConversation, Opening
from cllm.stores import edits
from cllm.stores.edits import INTERRUPTION, with_changes
from cllm.stores.pages import summary_of
from cllm.stores.sql.rows import Row, decode_found, decode_number, encode_json, encode_message
from cllm.stores.sql.search import indexed_terms
from cllm.stores.sqlite import statements as sql
from cllm.stores.sqlite.reading import COUNT_AT, ROWS, find, find_key, load

_INTERRUPTION = encode_json(INTERRUPTION)

LONGEST = timedelta(hours=1)


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


replace = msgspec.structs.replace


def is_held(lease: Row, now: datetime) -> bool:
    """Whether somebody has it still.

    One that lasts longer than any does was given by a clock that has been put back since.
    """
    return now < ROWS.read_time(lease[2]) <= now + LONGEST


def new_conversation(
    db: sqlite3.Connection, new: NewConversation, owner: str, now: datetime
) -> Conversation:
    """A conversation that is not kept yet, if its id and its name are free."""
    check_free(db, new.id, new.name, owner)
    return edits.new_conversation(new, key=new.id, owner=owner, now=now)


def check_free(db: sqlite3.Connection, conversation_id: str, name: str | None, owner: str) -> None:
    """ConversationExistsError if the owner has a conversation of that id or name."""
    for ref in {conversation_id, name or conversation_id}:
        check_id(ref)
        if db.execute(sql.IS_TAKEN, (owner, ref)).fetchone() is not None:
            raise ConversationExistsError(ref)


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
