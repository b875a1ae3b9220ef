"""Writes conversations to PostgreSQL: new rows, edits and deletion while no turn is running."""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime
from typing import Any, TypeVar

import asyncpg
import msgspec

from cllm.core.conversation import (
    INTERRUPTION,
    StoredConversation,
    Turn,
    check_id,
    find_running,
)
from cllm.core.errors import (
    ConversationBusyError,
    ConversationExistsError,
    ConversationNotFoundError,
)
from cllm.stores import edits
from cllm.stores.editing_store import Change, ReadScope
from cllm.stores.leases import LEASE_SECONDS, poll
from cllm.stores.postgres import edit_statements as edit_sql
from cllm.stores.postgres import statements as sql
from cllm.stores.postgres.connection import MAX_PAUSE, Connection, PostgresPool
from cllm.stores.postgres.reader import (
    POSTGRES_CODEC,
    decode_conversation,
    encode_messages,
    load_outline_from,
)
from cllm.stores.sql.rows import UnreadableRowError, encode_json
from cllm.stores.sql.shared_turns import count_messages, find_shared_turns
from cllm.stores.sql.store import StoredTurn, TurnMove, diff_conversations, number_turns
from cllm.wire.path_digest import ROOT, digest_turn, digest_turns

T = TypeVar("T")

INTERRUPTION_JSON = encode_json(INTERRUPTION)

_EDIT_TURN_ID = "-"
"""The turn id in the lease of an edit."""


async def add_conversation(
    connection: Connection,
    conversation: StoredConversation,
    *,
    source: StoredConversation | None = None,
) -> None:
    """Insert a conversation; a branch shares the messages of its source."""
    await add_row(connection, conversation)
    groups: dict[str, int] = {}
    if source is not None:
        groups = await _find_shared_groups(connection, source, conversation)
    key = (conversation.owner, conversation.id)
    moves = number_turns(conversation)
    turns = [
        (*key, *_encode_place(at, groups.get(turn.id)), *POSTGRES_CODEC.encode_turn(turn))
        for turn, at in moves
    ]
    await connection.executemany(edit_sql.ADD_TURN, turns)
    own = [(turn, at) for turn, at in moves if turn.id not in groups]
    digests = digest_turns(conversation) if own else {}
    messages = [(*key, at.number, *_encode_turn_messages(turn, digests)) for turn, at in own]
    await connection.executemany(edit_sql.ADD_MESSAGES, messages)
    counts = {} if source is None else count_messages(source)
    for turn, at in moves:
        if turn.id in groups and len(turn.messages) < counts[turn.id]:
            await connection.execute(edit_sql.COPY_MESSAGES, *key, at.number, len(turn.messages))


async def _find_shared_groups(
    connection: Connection, source: StoredConversation, branch: StoredConversation
) -> dict[str, int]:
    """Return the message groups of the turns that the branch shares, by their ids."""
    shared = find_shared_turns(source, branch)
    rows = await connection.fetch(edit_sql.ALL_NUMBERS, source.owner, source.id)
    return {row["id"]: row["message_group"] for row in rows if row["id"] in shared}


def _encode_place(at: TurnMove, group: int | None = None) -> tuple[int | None, ...]:
    """Return the columns of ADD_TURN before those of the turn."""
    return at.number, at.position, at.first_sequence, group


def _encode_turn_messages(
    turn: Turn, digests: Mapping[str, Sequence[bytes]]
) -> tuple[list[Any], ...]:
    return encode_messages(turn.messages, digests.get(turn.id) or [None] * len(turn.messages))


async def add_row(connection: Connection, conversation: StoredConversation) -> None:
    await connection.execute(
        edit_sql.ADD_CONVERSATION, *POSTGRES_CODEC.encode_conversation(conversation)
    )


async def update_row(connection: Connection, conversation: StoredConversation) -> None:
    await connection.execute(
        edit_sql.UPDATE_CONVERSATION, *POSTGRES_CODEC.encode_conversation(conversation)
    )


async def append_turn(
    connection: Connection, conversation: StoredConversation, turn: Turn, before: bytes | None
) -> None:
    """Add a turn at the end of the path, whose digest is `before`."""
    number = await connection.fetchval(edit_sql.NEXT_NUMBER, conversation.owner, conversation.id)
    move = TurnMove(number, number, conversation.message_count + 1)
    await add_turn(connection, conversation, turn, move, before)


async def add_variant(
    connection: Connection, conversation: StoredConversation, turn: Turn, before: bytes | None
) -> None:
    number = await connection.fetchval(edit_sql.NEXT_NUMBER, conversation.owner, conversation.id)
    await add_turn(connection, conversation, turn, TurnMove(number, None, None), before)


async def add_turn(
    connection: Connection,
    conversation: StoredConversation,
    turn: Turn,
    at: TurnMove,
    before: bytes | None,
) -> None:
    key = (conversation.owner, conversation.id)
    await connection.execute(
        edit_sql.ADD_TURN, *key, *_encode_place(at), *POSTGRES_CODEC.encode_turn(turn)
    )
    messages = encode_messages(turn.messages, digest_turn(turn.messages, before))
    await connection.execute(edit_sql.ADD_MESSAGES, *key, at.number, *messages)


def decode_digest_before(rows: Sequence[asyncpg.Record]) -> bytes | None:
    """Return the digest of a row of DIGEST_BEFORE; None if a message before it cannot be read."""
    path_start, number, digest = rows[0] if rows else (None, None, None)
    stored: bytes | None = (path_start or ROOT) if number is None else digest
    return stored


async def save_changes(
    connection: Connection, old: StoredConversation, new: StoredConversation
) -> None:
    """Update the stored conversation from `old`, which may be loaded in part, to `new`."""
    key = (new.owner, new.id)
    await update_row(connection, new)
    if not old.turns and not old.variants:
        return
    rows = await connection.fetch(edit_sql.ALL_NUMBERS, *key)
    diff = diff_conversations(old, new, {row[0]: StoredTurn(row[1], row[2]) for row in rows})
    if diff.deleted_turns:
        await connection.execute(edit_sql.DELETE_TURNS, *key, list(diff.deleted_turns))
    shared = await _find_shared_turns(connection, key, [row[0] for row in diff.truncated_turns])
    for number, count in diff.truncated_turns:
        statement = edit_sql.COPY_MESSAGES if number in shared else edit_sql.DELETE_MESSAGES
        await connection.execute(statement, *key, number, count)
    for number, turn in diff.changed_turns:
        await connection.execute(
            edit_sql.UPDATE_TURN, *key, number, *POSTGRES_CODEC.encode_turn(turn)
        )
    if diff.moved_turns:
        numbers, positions, sequences = map(list, zip(*diff.moved_turns, strict=True))
        # Clear all positions first: the index on positions is unique after every statement.
        await connection.execute(edit_sql.CLEAR_POSITIONS, *key, numbers)
        await connection.execute(edit_sql.UPDATE_POSITIONS, *key, numbers, positions, sequences)


async def _find_shared_turns(
    connection: Connection, key: tuple[str, str], numbers: list[int]
) -> set[int]:
    """Those of the turns whose messages another conversation has."""
    if not numbers:
        return set()
    return {row[0] for row in await connection.fetch(edit_sql.SHARED_TURNS, *key, numbers)}


async def _save_digests(connection: Connection, conversation: StoredConversation) -> None:
    """Save the digests that differ: another variant changes the path of later turns."""
    key = (conversation.owner, conversation.id)
    digests = digest_turns(conversation)
    rows = await connection.fetch(edit_sql.DIGESTS, *key)
    changed = {number: digests[own_id] for own_id, number, old in rows if old != digests[own_id]}
    shared = await _find_shared_turns(connection, key, list(changed))
    for number in sorted(shared):
        await connection.execute(edit_sql.COPY_MESSAGES, *key, number, len(changed[number]))
    rows_to_update = [(*key, *item) for item in changed.items()]
    await connection.executemany(edit_sql.UPDATE_DIGESTS, rows_to_update)


async def rewrite_turn(
    connection: Connection,
    before: StoredConversation,
    turn: Turn,
    after: StoredConversation,
    digest: bytes | None,
) -> None:
    """Write a finished turn to its slot; `before` is without it, `digest` before the slot."""
    if any(each.place == turn.place for each in before.turns):
        await add_variant(connection, before, turn, digest)
        old = msgspec.structs.replace(before, variants=(*before.variants, turn))
        await save_changes(connection, old, after)
        return
    await update_row(connection, after)
    await append_turn(connection, before, turn, digest)


async def settle_running_turn(
    connection: Connection, owner: str, key: str, *, cancelled_at: datetime | None = None
) -> None:
    """End a running turn that was cancelled, or whose process died. The caller has the lease."""
    with suppress(UnreadableRowError):
        stored = _decode_or_raise(await connection.fetch(sql.LOAD, owner, key), key)
        for turn in find_running(stored):
            rows = await connection.fetch(sql.EVENTS_OF, owner, key, turn.id)
            events = [row[0] for row in rows]
            settled = edits.settle_turn(turn, events, cancelled_at=cancelled_at)
            if not settled.is_history:
                continue
            after = edits.mark_interrupted(
                stored, events_of={turn.id: events}.__getitem__, cancelled_at=cancelled_at
            )
            before = edits.without_turn(stored, turn.id)
            await connection.execute(sql.DELETE_TURN, owner, key, turn.id)
            slot = None if turn.place == turn.id else turn.place
            rows = await connection.fetch(sql.DIGEST_BEFORE, owner, key, slot)
            digest = decode_digest_before(rows)
            await rewrite_turn(connection, before, settled, after, digest)
            return
    failure = encode_json(edits.choose_failure(cancelled_at))
    values = (owner, key, failure, _EDIT_TURN_ID, cancelled_at)
    await connection.execute(sql.MARK_INTERRUPTED, *values)


async def insert_conversation(
    connection: Connection, new: StoredConversation, *, source: str | None, change: Change
) -> StoredConversation:
    """Store `new`, or the result of `change` for the conversation `source`."""
    stored = None
    if source is not None:
        await connection.execute(sql.SHARE_GROUPS, new.owner)
        stored = _decode_or_raise(await connection.fetch(sql.LOAD, new.owner, source), source)
    refs = [new.id, new.name or new.id]
    existing = await connection.fetchval(sql.NAME_EXISTS, new.owner, refs)
    if existing is not None:
        raise ConversationExistsError(existing)
    inserted = new if stored is None else change(stored)
    if await connection.fetchval(edit_sql.LEASE_CREATING, new.owner, refs) is not None:
        raise ConversationBusyError(new.id)
    await add_conversation(connection, inserted, source=stored)
    return inserted


async def delete_conversation(connection: Connection, owner: str, key: str) -> None:
    await connection.execute(sql.LOCK_GROUPS, owner)
    await connection.execute(edit_sql.DELETE_CONVERSATION, owner, key)


async def edit_conversation(
    connection: Connection,
    owner: str,
    key: str,
    change: Change,
    *,
    reads: ReadScope,
) -> StoredConversation:
    if reads != "head":
        await connection.execute(sql.LOCK_GROUPS, owner)
    await settle_running_turn(connection, owner, key)
    if reads == "whole":
        old = _decode_or_raise(await connection.fetch(sql.LOAD, owner, key), key)
    elif reads == "head":
        old = _decode_or_raise(await connection.fetch(sql.LOAD_TAIL, owner, key, 0), key)
    else:
        old = await load_outline_from(connection, owner, key, reads)
    new = change(old)
    if new != old:
        await save_changes(connection, old, new)
    if reads == "whole" and new.turns != old.turns:
        await _save_digests(connection, new)
    return new


async def run_while_free(
    pool: PostgresPool,
    ref: str,
    owner: str,
    work: Callable[[Connection, str], Awaitable[T]],
    *,
    patience: float,
) -> T:
    """Run the work, which gets the conversation's id, while no turn is running.

    The transaction has the lease: a turn that starts meanwhile waits for its end.
    """
    check_id(ref)

    async def run(connection: Connection) -> tuple[T] | None:
        values: tuple[Any, ...] = (owner, ref, _EDIT_TURN_ID, LEASE_SECONDS, None, None)
        lease = await connection.fetchrow(sql.TAKE_LEASE, *values)
        if lease is None:
            raise ConversationNotFoundError(ref)
        if lease["fence"] is None:
            return None
        result = await work(connection, lease["id"])
        await connection.execute(edit_sql.DELETE_LEASE, owner, lease["id"])
        return (result,)

    result = await poll(lambda: pool.transact(run), wait=patience, max_pause=MAX_PAUSE)
    if result is None:
        raise ConversationBusyError(ref)
    return result[0]


def _decode_or_raise(rows: list[asyncpg.Record], ref: str) -> StoredConversation:
    conversation = decode_conversation(rows)
    if conversation is None:
        raise ConversationNotFoundError(ref)
    return conversation
