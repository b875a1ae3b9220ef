"""The SQL of edits in PostgreSQL; `$1` is the owner, and often `$2` the conversation."""

# ruff: noqa: S608 - only column names are inserted into the text

from cllm.stores.postgres.statements import (
    NEXT_GROUP,
    NUMBER,
    OF_CONVERSATION,
    OF_TURN,
    STORED_TERMS,
    columns,
    parameters,
)
from cllm.stores.sql.rows import CONVERSATION_COLUMNS, TURN_COLUMNS

DELETE_LEASE = "DELETE FROM leases WHERE owner = $1 AND conversation_id = $2"
_UNSHARED = """NOT EXISTS (
    SELECT FROM turns o WHERE o.owner = $1 AND o.message_group = m.message_group
        AND o.conversation <> deleted.conversation)"""
DELETE_CONVERSATION = f"""
WITH events AS (DELETE FROM events WHERE owner = $1 AND conversation_id = $2),
deleted AS MATERIALIZED (
    SELECT conversation, message_group FROM turns WHERE {OF_CONVERSATION}),
emptied AS (
    DELETE FROM messages m USING deleted WHERE {OF_TURN.format("deleted")} AND {_UNSHARED})
DELETE FROM conversations WHERE owner = $1 AND id = $2
"""
LEASE_CREATING = """
SELECT 1 FROM leases WHERE owner = $1 AND creates = 1 AND expires_at > clock_timestamp()
    AND (conversation_id = ANY($2::text[]) OR name = ANY($2::text[]))
"""
ADD_CONVERSATION = f"""
INSERT INTO conversations ({columns(CONVERSATION_COLUMNS)})
VALUES ({parameters(1, len(CONVERSATION_COLUMNS))})
"""
UPDATE_CONVERSATION = f"""
UPDATE conversations SET ({columns(CONVERSATION_COLUMNS[2:])})
    = ROW({parameters(3, len(CONVERSATION_COLUMNS) - 2)})
WHERE owner = $1 AND id = $2
"""
ADD_TURN = f"""
INSERT INTO turns (owner, conversation, number, position, first_sequence, message_group,
    {columns(TURN_COLUMNS)})
SELECT $1, {NUMBER}, {parameters(3, 3)}, COALESCE($6::bigint, {NEXT_GROUP}),
    {parameters(7, len(TURN_COLUMNS))}
"""
"""Without a message group the turn gets a new one."""
ADD_MESSAGES = f"""
INSERT INTO messages (owner, message_group, ordinal, role, dialect, raw, digest, terms)
SELECT $1, t.message_group, s.index - 1, s.role, s.dialect, s.raw, s.digest, {STORED_TERMS}
FROM turns t, unnest($4::text[], $5::text[], $6::text[], $7::text[], $8::bytea[])
    WITH ORDINALITY AS s(role, dialect, raw, terms, digest, index)
WHERE t.owner = $1 AND t.conversation = {NUMBER} AND t.number = $3
"""
SHARED_TURNS = f"""
SELECT t.number FROM turns t
WHERE t.owner = $1 AND t.conversation = {NUMBER} AND t.number = ANY($3::bigint[])
    AND EXISTS (SELECT FROM turns o WHERE o.owner = $1 AND o.message_group = t.message_group
        AND o.conversation <> t.conversation OFFSET 0)
"""
"""The turns whose messages another conversation has."""
COPY_MESSAGES = f"""
WITH old AS MATERIALIZED (
    SELECT conversation, number, message_group, {NEXT_GROUP} AS own FROM turns
    WHERE {OF_CONVERSATION} AND number = $3),
copied AS (
    INSERT INTO messages
        (owner, message_group, ordinal, role, dialect, raw, imported, digest, terms)
    SELECT $1, old.own, m.ordinal, m.role, m.dialect, m.raw, m.imported, m.digest, m.terms
    FROM old JOIN messages m ON {OF_TURN.format("old")} AND m.ordinal < $4)
UPDATE turns SET message_group = old.own FROM old
WHERE turns.owner = $1 AND turns.conversation = old.conversation AND turns.number = old.number
"""
"""Give a turn copies of its first `$4` messages, which another conversation has too."""
DIGESTS = f"""
SELECT t.id, t.number, array_agg(m.digest ORDER BY m.ordinal)
FROM turns t JOIN messages m ON {OF_TURN.format("t")}
WHERE t.owner = $1 AND t.conversation = {NUMBER} GROUP BY t.id, t.number
"""
UPDATE_DIGESTS = f"""
UPDATE messages m SET digest = s.digest
FROM unnest($4::bytea[]) WITH ORDINALITY AS s(digest, index), turns t
WHERE t.owner = $1 AND t.conversation = {NUMBER} AND t.number = $3 AND {OF_TURN.format("t")}
    AND m.ordinal = s.index - 1 AND m.digest IS DISTINCT FROM s.digest
"""
ALL_NUMBERS = f"SELECT id, number, position, message_group FROM turns WHERE {OF_CONVERSATION}"
NEXT_NUMBER = f"""
SELECT COALESCE(max(number), 0) + 1 FROM turns WHERE {OF_CONVERSATION}
"""
DELETE_TURNS = f"""
WITH deleted AS (
    DELETE FROM turns WHERE {OF_CONVERSATION} AND number = ANY($3::bigint[])
    RETURNING conversation, message_group)
DELETE FROM messages m USING deleted WHERE {OF_TURN.format("deleted")} AND {_UNSHARED}
"""
"""Delete turns, and their messages unless another conversation has them."""
UPDATE_TURN = f"""
UPDATE turns SET ({columns(TURN_COLUMNS)}) = ROW({parameters(4, len(TURN_COLUMNS))})
WHERE {OF_CONVERSATION} AND number = $3
"""
DELETE_MESSAGES = f"""
DELETE FROM messages m USING turns t
WHERE t.owner = $1 AND t.conversation = {NUMBER} AND t.number = $3 AND {OF_TURN.format("t")}
    AND m.ordinal >= $4
"""
CLEAR_POSITIONS = f"""
UPDATE turns SET position = NULL
WHERE {OF_CONVERSATION} AND number = ANY($3::bigint[])
"""
UPDATE_POSITIONS = f"""
UPDATE turns SET position = p.position, first_sequence = p.first_sequence
FROM unnest($3::bigint[], $4::bigint[], $5::bigint[]) AS p(number, position, first_sequence)
WHERE {OF_CONVERSATION} AND turns.number = p.number
"""
