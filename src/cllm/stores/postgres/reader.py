"""Reads conversations from PostgreSQL: whole, in part, or without messages."""

from collections.abc import Sequence
from typing import Any

import asyncpg

from cllm.core.conversation import LOCAL_OWNER, StoredConversation, Summary, Turn, check_id
from cllm.core.errors import ConversationNotFoundError, SequenceNotFoundError
from cllm.core.message import Message
from cllm.core.ports import ImportedFields, Outline, Tail, TurnPart
from cllm.core.reply import Usage
from cllm.stores.postgres import statements as sql
from cllm.stores.postgres.connection import Connection, PostgresBase
from cllm.stores.search import message_terms
from cllm.stores.sql.rows import (
    CONVERSATION_COLUMNS,
    TURN_COLUMNS,
    Row,
    RowCodec,
    RowValues,
    decode_imported,
    decode_message,
    decode_unchecked_message,
    decode_usage,
    encode_message,
    encode_usage,
    require_row,
    to_utc,
)
from cllm.stores.sql.store import with_placeholders
from cllm.stores.sql.validation import check_text


class _PostgresCodec(RowCodec):
    def encode_place(self, turn: Turn) -> str | None:
        """NULL for a turn in its own slot."""
        return None if turn.place == turn.id else turn.place

    def decode_place(self, own_id: str, stored: Any) -> str:
        return own_id if stored is None else super().decode_place(own_id, stored)

    def encode_tokens(self, usage: Usage | None) -> Row:
        """Store 0 as NULL, except for the input, which is NULL only without a count."""
        input_tokens, *others = encode_usage(usage)
        return (input_tokens, *(count or None for count in others))

    def decode_tokens(self, row: RowValues) -> Usage:
        return decode_usage([each or 0 for each in row])


POSTGRES_CODEC = _PostgresCodec(encode_time=to_utc, decode_time=to_utc)


def decode_conversation(rows: Sequence[asyncpg.Record]) -> StoredConversation | None:
    """Return the conversation of LOAD: a row per turn, or one without turns."""
    if not rows:
        return None
    turns: list[Turn] = []
    variants: list[Turn] = []
    for row in rows:
        if row[sql.TURN_AT] is not None:
            on_path = row[sql.TURN_AT - 1] is not None
            (turns if on_path else variants).append(_decode_turn(row))
    head = rows[0][: len(CONVERSATION_COLUMNS)]
    return POSTGRES_CODEC.decode_conversation(head, turns=tuple(turns), variants=tuple(variants))


def decode_summaries(rows: Sequence[asyncpg.Record]) -> tuple[Summary, ...]:
    return tuple(POSTGRES_CODEC.decode_summaries(map(tuple, rows)))


def _decode_turn(row: asyncpg.Record) -> Turn:
    roles, dialects, raws = row[sql.MESSAGES_AT :]
    messages = () if roles is None else tuple(map(decode_unchecked_message, roles, dialects, raws))
    return POSTGRES_CODEC.decode_turn(row[sql.TURN_AT : sql.MESSAGES_AT], messages)


def encode_messages(
    messages: Sequence[Message], digests: Sequence[bytes | None]
) -> tuple[list[Any], ...]:
    """Roles, dialects, raw JSON, search terms and path digests as arrays."""
    columns: tuple[list[Any], ...] = ([], [], [], [], [])
    for message, digest in zip(messages, digests, strict=True):
        row = (*encode_message(message), message_terms(message), digest)
        for column, value in zip(columns, row, strict=True):
            column.append(value)
    return columns


_POSITION_AT = len(TURN_COLUMNS)
_COUNT_AT = _POSITION_AT + 1


async def load_outline_from(
    connection: Connection, owner: str, key: str, sequence: int
) -> StoredConversation:
    """Return the path from the turn with that message on, with placeholders for messages."""
    row = await connection.fetchrow(sql.FIND, owner, key)
    if row is None:
        raise ConversationNotFoundError(key)
    if not 1 <= sequence <= row["message_count"]:
        raise SequenceNotFoundError(row["id"], sequence)
    position = require_row(await connection.fetchval(sql.AT_SEQUENCE, owner, key, sequence))
    rows = await connection.fetch(sql.OUTLINE_TURNS, owner, key, position)
    return _decode_outline(tuple(row), rows, {each[0]: each[_COUNT_AT] for each in rows})


def _decode_outline(
    row: Row, rows: Sequence[asyncpg.Record], counts: dict[str, int]
) -> StoredConversation:
    turns: list[Turn] = []
    variants: list[Turn] = []
    for each in rows:
        turn = with_placeholders(POSTGRES_CODEC.decode_turn(tuple(each), ()), counts[each[0]])
        (variants if each[_POSITION_AT] is None else turns).append(turn)
    return POSTGRES_CODEC.decode_conversation(row, turns=tuple(turns), variants=tuple(variants))


class PostgresReader(PostgresBase):
    async def load(
        self, ref: str, *, owner: str = LOCAL_OWNER, tail: Tail = None
    ) -> StoredConversation:
        key = (owner, check_id(ref))
        pool = await self._ready()
        if tail is None:
            rows = await pool.fetch(sql.LOAD, key, idempotent=True)
        else:
            rows = await pool.fetch(
                sql.LOAD_TAIL, (*key, sql.tail_parameter(tail)), idempotent=True
            )
        conversation = decode_conversation(rows)
        if conversation is None:
            raise ConversationNotFoundError(ref)
        return conversation

    async def summary(self, ref: str, *, owner: str = LOCAL_OWNER) -> Summary:
        key = (owner, check_id(ref))
        rows = await (await self._settle_dead_turns(owner)).fetch(
            sql.FIND_SUMMARY, key, idempotent=True
        )
        if not rows:
            raise ConversationNotFoundError(ref)
        return decode_summaries(rows)[0]

    async def imported_fields(
        self, ref: str, *, owner: str = LOCAL_OWNER, after: int = 0
    ) -> dict[str, ImportedFields]:
        values = (owner, check_id(ref), min(after, sql.MAX_BIGINT))
        pool = await self._ready()
        return decode_imported(await pool.fetch(sql.IMPORTED, values, idempotent=True))

    async def outline(self, ref: str, *, owner: str = LOCAL_OWNER) -> Outline:
        check_id(ref)

        async def read(connection: Connection) -> tuple[asyncpg.Record, list[asyncpg.Record]]:
            row = await connection.fetchrow(sql.FIND, owner, ref)
            if row is None:
                raise ConversationNotFoundError(ref)
            return row, await connection.fetch(sql.OUTLINE_TURNS, owner, row["id"], 1)

        row, rows = await (await self._ready()).transact(read, snapshot=True)
        counts = {each[0]: each[_COUNT_AT] for each in rows}
        # The stored message count applies to turns that have their messages.
        without_count = (*tuple(row)[:-1], 0)
        return Outline(
            conversation=_decode_outline(without_count, rows, dict.fromkeys(counts, 0)),
            counts=counts,
        )

    async def messages_from(
        self, ref: str, parts: Sequence[TurnPart], *, most: int, owner: str = LOCAL_OWNER
    ) -> tuple[tuple[Message, ...], ...]:
        check_id(ref)
        check_text(*(part.turn for part in parts))
        arrays = ([part.turn for part in parts], [part.start for part in parts])
        rows = await (await self._ready()).fetch(
            sql.MESSAGES_FROM, (owner, ref, *arrays, most), idempotent=True
        )
        last = rows[-1][0] if rows else 0
        messages: list[list[Message]] = [[] for _ in range(last)]
        for part, role, dialect, raw in rows:
            messages[part - 1].append(decode_message(role, dialect, raw))
        return tuple(map(tuple, messages))
