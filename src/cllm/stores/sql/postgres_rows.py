"""What PostgreSQL gives and takes, as values: rows of a load, and messages as parallel arrays."""

from collections.abc import Sequence
from typing import Any

import asyncpg

from cllm.core.conversation import Conversation, Summary, Turn
from cllm.core.message import Message
from cllm.core.reply import Usage
from cllm.stores.sql.postgres_statements import MESSAGES_AT, TURN_AT
from cllm.stores.sql.rows import (
    CONVERSATION_COLUMNS,
    Row,
    RowCodec,
    Usable,
    decode_message,
    decode_usage,
    encode_message,
    encode_usage,
    in_utc,
)
from cllm.stores.sql.search import said_terms


class _PostgresCodec(RowCodec):
    """Rows without what goes without saying, for which PostgreSQL has no smaller form than NULL."""

    def encode_place(self, turn: Turn) -> str | None:
        """NULL: the turn is in its own place."""
        return None if turn.place == turn.id else turn.place

    def decode_place(self, own_id: str, stored: Any) -> str:
        return own_id if stored is None else super().decode_place(own_id, stored)

    def encode_tokens(self, usage: Usage | None) -> Row:
        """Nothing is NULL beside the input, which is NULL only if nobody counted."""
        counted, *others = encode_usage(usage)
        return (counted, *(each or None for each in others))

    def decode_tokens(self, row: Usable) -> Usage:
        return decode_usage([each or 0 for each in row])


CODEC = _PostgresCodec(write_time=in_utc, read_time=in_utc)


def conversation_of(rows: Sequence[asyncpg.Record]) -> Conversation | None:
    """The conversation of a load, which has a row for each turn, or one row if there is none."""
    if not rows:
        return None
    turns: list[Turn] = []
    variants: list[Turn] = []
    for row in rows:
        if row[TURN_AT] is not None:
            on_path = row[TURN_AT - 1] is not None
            (turns if on_path else variants).append(_turn_of(row))
    head = rows[0][: len(CONVERSATION_COLUMNS)]
    return CODEC.decode_conversation(head, turns=tuple(turns), variants=tuple(variants))


def summaries_of(rows: Sequence[asyncpg.Record]) -> tuple[Summary, ...]:
    """The list entries of rows of SUMMARY_COLUMNS."""
    return tuple(CODEC.decode_summary(tuple(row)) for row in rows)


def _turn_of(row: asyncpg.Record) -> Turn:
    roles, dialects, raws = row[MESSAGES_AT:]
    messages = () if roles is None else tuple(map(decode_message, roles, dialects, raws))
    return CODEC.decode_turn(row[TURN_AT:MESSAGES_AT], messages)


def message_arrays(messages: Sequence[Message]) -> tuple[list[Any], ...]:
    """Roles, dialects, texts and terms, each as an array."""
    columns: tuple[list[Any], ...] = ([], [], [], [])
    for message in messages:
        row = (*encode_message(message), said_terms(message))
        for column, value in zip(columns, row, strict=True):
            column.append(value)
    return columns
