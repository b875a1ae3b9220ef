"""Writes conversations to PostgreSQL: rows, edits without a running turn, deletion."""

# ruff: noqa: S608 - only column names are put into the text

from collections.abc import Awaitable, Callable
from datetime import datetime
from itertools import accumulate, islice
from typing import Any, TypeVar

import asyncpg

from cllm.core.conversation import StoredConversation, Turn, check_id
from cllm.core.errors import (
    ConversationBusyError,
    ConversationExistsError,
    ConversationNotFoundError,
)
from cllm.stores.edits import INTERRUPTION, Change, Reads
from cllm.stores.locks import wait_until
from cllm.stores.postgres import statements as sql
from cllm.stores.postgres.connection import LONGEST_PAUSE, Connection, PostgresPool
from cllm.stores.postgres.reader import CODEC, conversation_of, message_arrays, outline_from
from cllm.stores.postgres.statements import (
    KEPT_TERMS,
    NUMBER,
    OF_CONVERSATION,
    names,
    places,
)
from cllm.stores.sql.rows import CONVERSATION_COLUMNS, TURN_COLUMNS, encode_json
from cllm.stores.sql.store import StoredTurn, TurnMove, difference

T = TypeVar("T")

INTERRUPTED = encode_json(INTERRUPTION)
_SECONDS = 60.0
_AN_EDIT = "-"
"""The turn id in the lease of an edit."""
_FREE = "DELETE FROM leases WHERE owner = $1 AND conversation_id = $2"
_DELETE = """
WITH gone AS (DELETE FROM events WHERE owner = $1 AND conversation_id = $2)
DELETE FROM conversations WHERE owner = $1 AND id = $2
"""
_BEGUN = """
SELECT 1 FROM leases WHERE owner = $1 AND creates = 1 AND expires_at > clock_timestamp()
    AND (conversation_id = ANY($2::text[]) OR name = ANY($2::text[]))
"""
_TAKEN = """
SELECT ref FROM unnest($2::text[]) AS ref
WHERE EXISTS (SELECT FROM conversations WHERE owner = $1 AND (id = ref OR name = ref)) LIMIT 1
"""
_CONVERSATION_ROW = f"""
INSERT INTO conversations ({names(CONVERSATION_COLUMNS)})
VALUES ({places(1, len(CONVERSATION_COLUMNS))})
"""
_CHANGE_CONVERSATION = f"""
UPDATE conversations SET ({names(CONVERSATION_COLUMNS[2:])})
    = ROW({places(3, len(CONVERSATION_COLUMNS) - 2)})
WHERE owner = $1 AND id = $2
"""
_TURN_ROW = f"""
INSERT INTO turns (owner, conversation, number, position, {names(TURN_COLUMNS)})
SELECT $1, {NUMBER}, {places(3, 2 + len(TURN_COLUMNS))}
"""
_MESSAGE_ROWS = f"""
INSERT INTO messages (owner, conversation, turn, ordinal, sequence_number,
    role, dialect, raw, terms)
SELECT $1, {NUMBER}, $3, s.place - 1, $4::bigint + s.place, s.role, s.dialect, s.raw,
    {KEPT_TERMS}
FROM unnest($5::text[], $6::text[], $7::text[], $8::text[])
    WITH ORDINALITY AS s(role, dialect, raw, terms, place)
"""
_STORED_TURNS = f"SELECT id, number, position FROM turns WHERE {OF_CONVERSATION}"
_NEXT_NUMBER = f"""
SELECT COALESCE(max(number), 0) + 1 FROM turns WHERE {OF_CONVERSATION}
"""
_DELETE_TURNS = f"""
DELETE FROM turns WHERE {OF_CONVERSATION} AND number = ANY($3::bigint[])
"""
_CHANGE_TURN = f"""
UPDATE turns SET ({names(TURN_COLUMNS)}) = ROW({places(4, len(TURN_COLUMNS))})
WHERE {OF_CONVERSATION} AND number = $3
"""
_CUT_MESSAGES = f"""
DELETE FROM messages WHERE {OF_CONVERSATION} AND turn = $3 AND ordinal >= $4
"""
_TAKE_OFF_TURNS = f"""
UPDATE turns SET position = NULL
WHERE {OF_CONVERSATION} AND number = ANY($3::bigint[])
"""
_MOVE_TURNS = f"""
UPDATE turns SET position = p.position
FROM unnest($3::bigint[], $4::bigint[]) AS p(number, position)
WHERE {OF_CONVERSATION} AND turns.number = p.number
"""
_NUMBER_MESSAGES = f"""
UPDATE messages SET sequence_number = p.before + ordinal + 1
FROM unnest($3::bigint[], $4::bigint[]) AS p(number, before)
WHERE {OF_CONVERSATION} AND turn = p.number
"""


async def insert_whole(connection: Connection, conversation: StoredConversation) -> None:
    befores = await _insert_without_messages(connection, conversation)
    turns = conversation.turns + conversation.variants
    key = (conversation.owner, conversation.id)
    rows = [
        (*key, number, before, *message_arrays(turn.messages))
        for number, (turn, before) in enumerate(zip(turns, befores, strict=True), 1)
    ]
    await connection.executemany(_MESSAGE_ROWS, rows)


async def _insert_without_messages(
    connection: Connection, conversation: StoredConversation
) -> list[int | None]:
    """Insert the rows; return how many messages come before each turn on the path."""
    await insert_row(connection, conversation)
    counts = accumulate((len(turn.messages) for turn in conversation.turns), initial=0)
    on_path = len(conversation.turns)
    befores: list[int | None] = [*islice(counts, on_path), *[None] * len(conversation.variants)]
    rows = [
        (
            conversation.owner,
            conversation.id,
            number,
            number if number <= on_path else None,
            *CODEC.encode_turn(turn),
        )
        for number, turn in enumerate(conversation.turns + conversation.variants, 1)
    ]
    await connection.executemany(_TURN_ROW, rows)
    return befores


async def insert_row(connection: Connection, conversation: StoredConversation) -> None:
    await connection.execute(_CONVERSATION_ROW, *CODEC.encode_conversation(conversation))


async def update_row(connection: Connection, conversation: StoredConversation) -> None:
    await connection.execute(_CHANGE_CONVERSATION, *CODEC.encode_conversation(conversation))


async def append_turn(connection: Connection, conversation: StoredConversation, turn: Turn) -> None:
    number = await connection.fetchval(_NEXT_NUMBER, conversation.owner, conversation.id)
    before = conversation.message_count
    await _insert_turn(connection, conversation, turn, TurnMove(number, number, before))


async def add_variant(connection: Connection, conversation: StoredConversation, turn: Turn) -> None:
    number = await connection.fetchval(_NEXT_NUMBER, conversation.owner, conversation.id)
    await _insert_turn(connection, conversation, turn, TurnMove(number, None, None))


async def _insert_turn(
    connection: Connection, conversation: StoredConversation, turn: Turn, at: TurnMove
) -> None:
    key = (conversation.owner, conversation.id, at.number)
    await connection.execute(_TURN_ROW, *key, at.position, *CODEC.encode_turn(turn))
    await connection.execute(_MESSAGE_ROWS, *key, at.before, *message_arrays(turn.messages))


async def save(connection: Connection, old: StoredConversation, new: StoredConversation) -> None:
    """Change the stored conversation from `old`, which may be loaded in part, to `new`."""
    key = (new.owner, new.id)
    await update_row(connection, new)
    if not old.turns and not old.variants:
        return
    rows = await connection.fetch(_STORED_TURNS, *key)
    found = difference(old, new, {row[0]: StoredTurn(row[1], row[2]) for row in rows})
    await connection.execute(_DELETE_TURNS, *key, list(found.deleted))
    for number, first in found.cut:
        await connection.execute(_CUT_MESSAGES, *key, number, first)
    for number, turn in found.changed:
        await connection.execute(_CHANGE_TURN, *key, number, *CODEC.encode_turn(turn))
    if found.moved:
        numbers, positions, befores = map(list, zip(*found.moved, strict=True))
        # All off the path first: positions are unique at any moment.
        await connection.execute(_TAKE_OFF_TURNS, *key, numbers)
        await connection.execute(_MOVE_TURNS, *key, numbers, positions)
        await connection.execute(_NUMBER_MESSAGES, *key, numbers, befores)


async def insert(
    connection: Connection, new: StoredConversation, *, source: str | None, change: Change
) -> StoredConversation:
    """Store `new`, or what `change` makes of the conversation `source`."""
    stored = None
    if source is not None:
        stored = _found(await connection.fetch(sql.LOAD, new.owner, source), source)
    refs = [new.id, new.name or new.id]
    taken = await connection.fetchval(_TAKEN, new.owner, refs)
    if taken is not None:
        raise ConversationExistsError(taken)
    inserted = new if stored is None else change(stored)
    if await connection.fetchval(_BEGUN, new.owner, refs) is not None:
        raise ConversationBusyError(new.id)
    await insert_whole(connection, inserted)
    return inserted


async def delete(connection: Connection, owner: str, key: str) -> None:
    await connection.execute(_DELETE, owner, key)


async def edit(
    connection: Connection,
    owner: str,
    key: str,
    change: Change,
    *,
    reads: Reads,
    now: datetime,
) -> StoredConversation:
    await connection.execute(sql.SETTLE, owner, key, now, INTERRUPTED, _AN_EDIT)
    if reads == "whole":
        old = _found(await connection.fetch(sql.LOAD, owner, key), key)
    elif reads == "head":
        old = _found(await connection.fetch(sql.LOAD_TAIL, owner, key, 0), key)
    else:
        old = await outline_from(connection, owner, key, reads)
    new = change(old)
    if new != old:
        await save(connection, old, new)
    return new


async def while_free(
    pool: PostgresPool,
    ref: str,
    owner: str,
    work: Callable[[Connection, str], Awaitable[T]],
    *,
    patience: float,
) -> T:
    """Do the work, which gets the conversation's id, while no turn is running.

    The transaction holds the lease: a turn that starts meanwhile waits for its end.
    """
    check_id(ref)

    async def within(connection: Connection) -> tuple[T] | None:
        lease: tuple[Any, ...] = (owner, ref, _AN_EDIT, _SECONDS, None, None)
        taken = await connection.fetchrow(sql.TAKE, *lease)
        if taken is None:
            raise ConversationNotFoundError(ref)
        if taken["fence"] is None:
            return None
        done = await work(connection, taken["id"])
        await connection.execute(_FREE, owner, taken["id"])
        return (done,)

    done = await wait_until(
        lambda: pool.transact(within), wait=patience, longest_pause=LONGEST_PAUSE
    )
    if done is None:
        raise ConversationBusyError(ref)
    return done[0]


def _found(rows: list[asyncpg.Record], ref: str) -> StoredConversation:
    found = conversation_of(rows)
    if found is None:
        raise ConversationNotFoundError(ref)
    return found
