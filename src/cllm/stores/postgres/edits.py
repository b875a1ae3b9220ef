"""Changes to conversations in which no turn runs, on PostgreSQL.

A change has the conversation's lease for as long as its transaction lasts: a turn that begins
meanwhile waits for its end and then sees it, and a change waits for no turn longer than told.
"""

# ruff: noqa: S608 - names of columns are put into the text; every value is bound

from collections.abc import Awaitable, Callable, Iterable
from itertools import accumulate, islice
from typing import Any, NamedTuple, TypeVar

import asyncpg

from cllm.core.conversation import Conversation, Turn
from cllm.core.errors import (
    ConversationBusyError,
    ConversationExistsError,
    ConversationNotFoundError,
)
from cllm.core.identity import check_id
from cllm.core.ports import Clock
from cllm.stores import edits
from cllm.stores.postgres import statements as sql
from cllm.stores.postgres.connection import LONGEST_PAUSE, Connection, PostgresPool
from cllm.stores.postgres.reading import CODEC, conversation_of, message_arrays
from cllm.stores.postgres.statements import (
    KEPT_TERMS,
    NUMBER,
    OF_CONVERSATION,
    has_id,
    names,
    places,
)
from cllm.stores.sql.rows import CONVERSATION_COLUMNS, TURN_COLUMNS, encode_json
from cllm.stores.waiting import wait_until

INTERRUPTED = encode_json(edits.INTERRUPTION)
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
_COPY_MESSAGES = f"""
INSERT INTO messages (owner, conversation, turn, ordinal, sequence_number,
    role, dialect, raw, terms)
SELECT $1, {NUMBER}, p.number, m.ordinal, p.before + m.ordinal + 1, m.role, m.dialect, m.raw,
    m.terms
FROM unnest($4::text[], $5::bigint[], $6::bigint[], $7::bigint[]) AS p(id, number, before, length)
JOIN conversations c ON c.owner = $1 AND c.id = $3
JOIN turns t ON t.owner = $1 AND t.conversation = c.number AND {has_id("p.id", "t.")}
JOIN messages m ON m.owner = $1 AND m.conversation = c.number AND m.turn = t.number
    AND m.ordinal < p.length
ORDER BY p.number, m.ordinal
"""
_KNOWN = f"""
SELECT id, number, COALESCE(place, id) AS place, position FROM turns WHERE {OF_CONVERSATION}
ORDER BY number
"""
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
_TAKE_OFF_MESSAGES = f"""
UPDATE messages SET sequence_number = NULL
WHERE {OF_CONVERSATION} AND turn = ANY($3::bigint[])
"""
_PUT_ON_TURNS = f"""
UPDATE turns SET position = p.position
FROM unnest($3::bigint[], $4::bigint[]) AS p(number, position)
WHERE {OF_CONVERSATION} AND turns.number = p.number
"""
_PUT_ON_MESSAGES = f"""
UPDATE messages SET sequence_number = p.before + ordinal + 1
FROM unnest($3::bigint[], $4::bigint[]) AS p(number, before)
WHERE {OF_CONVERSATION} AND turn = p.number
"""


class _Spot(NamedTuple):
    """Where a turn is on the path: its position, and how many messages come before it."""

    position: int
    before: int


async def insert_copy(connection: Connection, branch: Conversation, source: str) -> None:
    """A new conversation with turns of another one, whose messages need not leave the database."""
    befores = await _insert_without_messages(connection, branch)
    turns = branch.turns + branch.variants
    await connection.execute(
        _COPY_MESSAGES,
        branch.owner,
        branch.id,
        source,
        [turn.id for turn in turns],
        list(range(1, len(turns) + 1)),
        befores,
        [len(turn.messages) for turn in turns],
    )


async def insert_whole(connection: Connection, conversation: Conversation) -> None:
    """A new conversation with all its turns, variants and messages."""
    befores = await _insert_without_messages(connection, conversation)
    turns = conversation.turns + conversation.variants
    key = (conversation.owner, conversation.id)
    rows = [
        (*key, number, before, *message_arrays(turn.messages))
        for number, (turn, before) in enumerate(zip(turns, befores, strict=True), 1)
    ]
    await connection.executemany(_MESSAGE_ROWS, rows)


async def _insert_without_messages(
    connection: Connection, conversation: Conversation
) -> list[int | None]:
    """The rows of a conversation and its turns; how many messages come before each on the path."""
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


async def insert_row(connection: Connection, conversation: Conversation) -> None:
    await connection.execute(_CONVERSATION_ROW, *CODEC.encode_conversation(conversation))


async def update_row(connection: Connection, conversation: Conversation) -> None:
    await connection.execute(_CHANGE_CONVERSATION, *CODEC.encode_conversation(conversation))


async def append_turn(connection: Connection, conversation: Conversation, turn: Turn) -> None:
    """A new turn at the end of the path, which has the conversation's messages so far."""
    number = await connection.fetchval(_NEXT_NUMBER, conversation.owner, conversation.id)
    spot = _Spot(number, conversation.message_count)
    await insert_turn(connection, conversation, turn, number, spot)


async def add_variant(connection: Connection, conversation: Conversation, turn: Turn) -> None:
    """A new turn off the path."""
    number = await connection.fetchval(_NEXT_NUMBER, conversation.owner, conversation.id)
    await insert_turn(connection, conversation, turn, number, None)


async def insert_turn(
    connection: Connection,
    conversation: Conversation,
    turn: Turn,
    number: int,
    spot: _Spot | None,
) -> None:
    key = (conversation.owner, conversation.id, number)
    position = None if spot is None else spot.position
    before = None if spot is None else spot.before
    await connection.execute(_TURN_ROW, *key, position, *CODEC.encode_turn(turn))
    arrays = message_arrays(turn.messages)
    await connection.execute(_MESSAGE_ROWS, *key, before, *arrays)


async def write_changes(connection: Connection, old: Conversation, new: Conversation) -> None:
    """Make the stored conversation, which is `old`, the `new` one."""
    key = (new.owner, new.id)
    await update_row(connection, new)
    known = {row["id"]: row for row in await connection.fetch(_KNOWN, *key)}
    kept = {turn.id for turn in new.turns + new.variants}
    gone = [row["number"] for row in known.values() if row["id"] not in kept]
    await connection.execute(_DELETE_TURNS, *key, gone)
    before = _spots(old, known)
    after = _spots(new, known)
    await _write_turns(connection, old, new, known)
    moved = [turn_id for turn_id in kept & set(known) if before.get(turn_id) != after.get(turn_id)]
    await _move(
        connection, key, {known[turn_id]["number"]: after.get(turn_id) for turn_id in moved}
    )
    await _insert_new(connection, new, known, after)


async def _write_turns(
    connection: Connection, old: Conversation, new: Conversation, known: dict[str, asyncpg.Record]
) -> None:
    """The turns that are another value than before; messages only ever leave at the end."""
    were = {turn.id: turn for turn in old.turns + old.variants}
    for turn in new.turns + new.variants:
        was = were.get(turn.id)
        if was is None or was == turn or turn.id not in known:
            continue
        key = (new.owner, new.id, known[turn.id]["number"])
        await connection.execute(_CHANGE_TURN, *key, *CODEC.encode_turn(turn))
        if len(turn.messages) < len(was.messages):
            await connection.execute(_CUT_MESSAGES, *key, len(turn.messages))


async def _move(
    connection: Connection, key: tuple[str, str], spots: dict[int, _Spot | None]
) -> None:
    """Turns to other spots: all off the path first, as no two may ever share one."""
    if not spots:
        return
    await connection.execute(_TAKE_OFF_TURNS, *key, list(spots))
    await connection.execute(_TAKE_OFF_MESSAGES, *key, list(spots))
    on = {number: spot for number, spot in spots.items() if spot is not None}
    positions = [spot.position for spot in on.values()]
    befores = [spot.before for spot in on.values()]
    await connection.execute(_PUT_ON_TURNS, *key, list(on), positions)
    await connection.execute(_PUT_ON_MESSAGES, *key, list(on), befores)


async def _insert_new(
    connection: Connection,
    new: Conversation,
    known: dict[str, asyncpg.Record],
    spots: dict[str, _Spot],
) -> None:
    number = max((row["number"] for row in known.values()), default=0)
    for turn in new.turns + new.variants:
        if turn.id not in known:
            number += 1
            spot = spots.get(turn.id)
            if spot is not None and spot.position == 0:
                spot = spot._replace(position=number)
            await insert_turn(connection, new, turn, number, spot)


def _spots(conversation: Conversation, known: dict[str, asyncpg.Record]) -> dict[str, _Spot]:
    """The spots of the path's turns; position 0 is that of a place that is new."""
    positions = _positions(known.values())
    before = conversation.first_sequence - 1
    spots = {}
    for turn in conversation.turns:
        spots[turn.id] = _Spot(positions.get(turn.place, 0), before)
        before += len(turn.messages)
    return spots


def _positions(rows: Iterable[asyncpg.Record]) -> dict[str, int]:
    return {row["place"]: row["position"] for row in rows if row["position"] is not None}


T = TypeVar("T")
Change = Callable[[Conversation], Conversation]

_SECONDS = 60.0
_A_CHANGE = "-"
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


class PostgresEdits:
    """Changes, each in one transaction."""

    def __init__(self, pool: PostgresPool, *, clock: Clock, patience: float) -> None:
        self._pool = pool
        self._clock = clock
        self._patience = patience

    async def change(self, ref: str, owner: str, change: Change) -> Conversation:
        """Apply a change to the whole conversation."""

        async def work(connection: Connection, key: str) -> Conversation:
            stored = _found(await connection.fetch(sql.LOAD, owner, key), key)
            changed = change(edits.settled(stored, now=self._clock()))
            if changed != stored:
                await write_changes(connection, stored, changed)
            return changed

        return await self._alone(ref, owner, work)

    async def change_row(self, ref: str, owner: str, change: Change) -> Conversation:
        """Apply a change to what a conversation says about itself; no turn is looked at."""

        async def work(connection: Connection, key: str) -> Conversation:
            await connection.execute(sql.SETTLE, owner, key, self._clock(), INTERRUPTED, _A_CHANGE)
            stored = _found(await connection.fetch(sql.LOAD_TAIL, owner, key, 0), key)
            changed = change(stored)
            await update_row(connection, changed)
            return changed

        return await self._alone(ref, owner, work)

    async def delete(self, ref: str, owner: str) -> None:
        async def work(connection: Connection, key: str) -> None:
            await connection.execute(_DELETE, owner, key)

        await self._alone(ref, owner, work)

    async def create(self, conversation: Conversation) -> Conversation:
        """Keep a new conversation and its turns, unless a first turn is about to make it."""

        async def work(connection: Connection) -> Conversation:
            await _check_free(connection, conversation)
            await _check_not_begun(connection, conversation)
            await insert_whole(connection, conversation)
            return conversation

        return await self._added(work, conversation)

    async def branch(
        self, ref: str, fresh: Conversation, branch_of: Callable[[Conversation], Conversation]
    ) -> Conversation:
        """Keep a new conversation that has turns of another one, as that is at this moment."""
        check_id(ref)

        async def work(connection: Connection) -> Conversation:
            source = _found(await connection.fetch(sql.LOAD, fresh.owner, ref), ref)
            await _check_free(connection, fresh)
            branch = branch_of(source)
            await _check_not_begun(connection, fresh)
            await insert_copy(connection, branch, source.id)
            return branch

        return await self._added(work, fresh)

    async def _added(
        self,
        work: Callable[[Connection], Awaitable[Conversation]],
        conversation: Conversation,
    ) -> Conversation:
        try:
            return await self._pool.transact(work, frozen=True)
        except asyncpg.UniqueViolationError as error:
            raise ConversationExistsError(conversation.id) from error

    async def _alone(
        self, ref: str, owner: str, work: Callable[[Connection, str], Awaitable[T]]
    ) -> T:
        """Do the work while nobody runs a turn in the conversation."""
        check_id(ref)

        async def within(connection: Connection) -> tuple[T] | None:
            given: tuple[Any, ...] = (owner, ref, _A_CHANGE, _SECONDS, None, None)
            taken = await connection.fetchrow(sql.TAKE, *given)
            if taken is None:
                raise ConversationNotFoundError(ref)
            if taken["fence"] is None:
                return None
            done = await work(connection, taken["id"])
            await connection.execute(_FREE, owner, taken["id"])
            return (done,)

        done = await wait_until(
            lambda: self._pool.transact(within), wait=self._patience, longest_pause=LONGEST_PAUSE
        )
        if done is None:
            raise ConversationBusyError(ref)
        return done[0]


def _found(rows: list[asyncpg.Record], ref: str) -> Conversation:
    found = conversation_of(rows)
    if found is None:
        raise ConversationNotFoundError(ref)
    return found


def _refs(conversation: Conversation) -> list[str]:
    return [conversation.id, conversation.name or conversation.id]


async def _check_free(connection: Connection, new: Conversation) -> None:
    taken = await connection.fetchval(_TAKEN, new.owner, _refs(new))
    if taken is not None:
        raise ConversationExistsError(taken)


async def _check_not_begun(connection: Connection, new: Conversation) -> None:
    if await connection.fetchval(_BEGUN, new.owner, _refs(new)) is not None:
        raise ConversationBusyError(new.id)
