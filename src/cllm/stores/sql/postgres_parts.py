"""A conversation in PostgreSQL in parts: its turns at once, what was said when it is wanted."""

# ruff: noqa: S608 - names of columns are put into the text; every value is bound

from collections.abc import Sequence

import asyncpg

from cllm.core.conversation import Turn
from cllm.core.errors import ConversationNotFoundError
from cllm.core.identity import check_id
from cllm.core.message import Message
from cllm.core.ports import Outline, TurnPart
from cllm.stores.sql.keepable import check_text
from cllm.stores.sql.postgres_pool import Connection, PostgresPool
from cllm.stores.sql.postgres_rows import CODEC
from cllm.stores.sql.postgres_statements import NUMBER, RESOLVED, has_id, names
from cllm.stores.sql.rows import CONVERSATION_COLUMNS, TURN_COLUMNS, decode_said

_CONVERSATION = f"""
SELECT {names(CONVERSATION_COLUMNS)} FROM conversations WHERE owner = $1 AND id = {RESOLVED}
"""
_TURNS = f"""
SELECT {names(TURN_COLUMNS, "t.")}, t.position,
    (SELECT count(*) FROM messages m
        WHERE m.owner = $1 AND m.conversation = t.conversation AND m.turn = t.number)
FROM turns t WHERE t.owner = $1 AND t.conversation = {NUMBER}
ORDER BY t.position NULLS LAST, t.number
"""
_MESSAGES = f"""
SELECT place, role, dialect, raw FROM (
    SELECT place, ordinal, role, dialect, raw,
        sum(octet_length(raw)) OVER (ORDER BY place, ordinal) - octet_length(raw) AS before
    FROM (
        SELECT wanted.place, wanted.start, m.ordinal, m.role, m.dialect, m.raw,
            row_number() OVER (PARTITION BY wanted.place ORDER BY m.ordinal) AS at
        FROM unnest($3::text[], $4::bigint[]) WITH ORDINALITY AS wanted(id, start, place)
        JOIN conversations c ON c.owner = $1 AND c.id = {RESOLVED}
        JOIN turns t ON t.owner = $1 AND t.conversation = c.number
            AND {has_id("wanted.id", "t.")}
        JOIN messages m ON m.owner = $1 AND m.conversation = c.number AND m.turn = t.number
    ) AS numbered WHERE at > start
) AS said WHERE before < $5 ORDER BY place, ordinal
"""
_POSITION_AT = len(TURN_COLUMNS)
_COUNT_AT = _POSITION_AT + 1


async def outline(pool: PostgresPool, ref: str, *, owner: str) -> Outline:
    """The conversation with its turns and variants, and how much was said in each."""
    check_id(ref)

    async def read(connection: Connection) -> tuple[asyncpg.Record, list[asyncpg.Record]]:
        row = await connection.fetchrow(_CONVERSATION, owner, ref)
        if row is None:
            raise ConversationNotFoundError(ref)
        return row, await connection.fetch(_TURNS, owner, row["id"])

    row, rows = await pool.transact(read, frozen=True)
    path = [each for each in rows if each[_POSITION_AT] is not None]
    beside = [each for each in rows if each[_POSITION_AT] is None]
    # The row's own count is of a path with its messages.
    bare = (*tuple(row)[:-1], 0)
    return Outline(
        conversation=CODEC.decode_conversation(bare, turns=_turns(path), variants=_turns(beside)),
        counts={each[0]: each[_COUNT_AT] for each in rows},
    )


def _turns(rows: Sequence[asyncpg.Record]) -> tuple[Turn, ...]:
    return tuple(CODEC.decode_turn(tuple(row), ()) for row in rows)


async def messages_from(
    pool: PostgresPool, ref: str, parts: Sequence[TurnPart], *, most: int, owner: str
) -> tuple[tuple[Message, ...], ...]:
    check_id(ref)
    check_text(*(part.turn for part in parts))
    wanted = ([part.turn for part in parts], [part.start for part in parts])
    rows = await pool.fetch(_MESSAGES, (owner, ref, *wanted, most), twice=True)
    last = rows[-1][0] if rows else 0
    found: list[list[Message]] = [[] for _ in range(last)]
    for place, role, dialect, raw in rows:
        found[place - 1].append(decode_said(role, dialect, raw))
    return tuple(map(tuple, found))
