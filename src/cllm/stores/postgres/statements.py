"""The SQL of a turn on PostgreSQL, one statement for each step; `$1` is the owner.

Starting a turn takes two statements: the lease is committed before the conversation is read, so
that the end of the turn before is visible. Leases expire by the database's clock, which all
machines share.

Turns and messages name their conversation by its number, which statements look up by the id. A
turn's place is NULL if it is its own.
"""

# ruff: noqa: S608 - only column names are put into the text

from cllm.core.ports import Tail
from cllm.stores.sql.rows import CONVERSATION_COLUMNS, TURN_COLUMNS

# Large columns are in the first row of a load only.
_LARGE_COLUMNS = ("system", "context_record", "metadata", "summary")

MAX_BIGINT = 2**62
"""More rows than there can be, within a bigint."""
TURN_AT = len(CONVERSATION_COLUMNS) + 1
MESSAGES_AT = TURN_AT + len(TURN_COLUMNS)
"""The columns of a load where a turn and its messages start; before the turn: position."""


def tail_parameter(tail: Tail) -> int | None:
    """The parameter for a tail: a number of messages, or NULL for the window."""
    return max(min(tail, MAX_BIGINT), 0) if isinstance(tail, int) else None


def columns(columns: tuple[str, ...], table: str = "") -> str:
    return ", ".join(f'{table}"{column}"' for column in columns)


def parameters(first: int, count: int) -> str:
    """Parameters from that number on."""
    return ", ".join(f"${number}" for number in range(first, first + count))


STORED_TERMS = """CASE WHEN message_terms($1, 0, s.raw, s.terms)
    IS DISTINCT FROM message_terms($1, 0, s.raw, NULL) THEN s.terms END"""
"""The terms of a message `s`, or NULL if the database computes them from the text."""

RESOLVED = """COALESCE(
    (SELECT id FROM conversations WHERE owner = $1 AND id = $2),
    (SELECT id FROM conversations WHERE owner = $1 AND name = $2))"""

NUMBER = "(SELECT number FROM conversations WHERE owner = $1 AND id = $2)"
"""The number of the conversation with the id `$2`."""

OF_CONVERSATION = f"owner = $1 AND conversation = {NUMBER}"


def turn_has_id(given: str, table: str = "") -> str:
    """Whether it is the turn with that id, by the index on the id's hash."""
    return f"hashtextextended({table}id, 0) = hashtextextended({given}, 0) AND {table}id = {given}"


TAKE_LEASE = f"""
WITH found AS MATERIALIZED (SELECT {RESOLVED} AS id),
begun AS (
    SELECT conversation_id AS id FROM leases
    WHERE owner = $1 AND creates = 1 AND (conversation_id = $2 OR name IN ($2, $6))
        AND expires_at > clock_timestamp() LIMIT 1),
target AS MATERIALIZED (
    SELECT id, 0::smallint AS creates, NULL::text AS name FROM found WHERE id IS NOT NULL
    UNION ALL
    SELECT COALESCE((SELECT id FROM begun), $5), 1::smallint, $6 FROM found
    WHERE id IS NULL AND $5::text IS NOT NULL),
taken AS (
    INSERT INTO leases (owner, conversation_id, name, turn_id, fence, creates, expires_at)
    SELECT $1, id, name, $3, nextval('fences'), creates,
        clock_timestamp() + make_interval(secs => $4)
    FROM target
    ON CONFLICT (owner, conversation_id) DO UPDATE SET
        name = excluded.name, turn_id = excluded.turn_id, fence = excluded.fence,
        creates = excluded.creates, expires_at = excluded.expires_at
    WHERE leases.expires_at <= clock_timestamp()
    RETURNING fence)
SELECT target.id, target.creates, taken.fence,
    (SELECT turn_id FROM leases WHERE owner = $1 AND conversation_id = target.id) AS holder
FROM target LEFT JOIN taken ON true
"""
"""Take a lease: ref, turn id, seconds, id and name to create. No row: not found."""

RENEW_LEASE = """
UPDATE leases SET expires_at = clock_timestamp() + make_interval(secs => $4)
WHERE owner = $1 AND conversation_id = $2 AND fence = $3 AND expires_at > clock_timestamp()
RETURNING fence
"""

RELEASE_VALID_LEASE = """
DELETE FROM leases
WHERE owner = $1 AND conversation_id = $2 AND fence = $3 AND expires_at > clock_timestamp()
RETURNING fence
"""

_CONVERSATION = f"""
WITH c AS MATERIALIZED (
    SELECT {columns(CONVERSATION_COLUMNS)}, number FROM conversations
    WHERE owner = $1 AND id = {RESOLVED})"""

_WHOLE = """,
kept AS MATERIALIZED (
    SELECT t.* FROM c JOIN turns t ON t.owner = $1 AND t.conversation = c.number)"""

# The first turn of a tail is searched from the newest back.
_TAIL = """,
wanted AS (
    SELECT c.number, GREATEST(1, CASE WHEN {tail}::bigint IS NOT NULL
        THEN c.message_count - {tail} + 1
        ELSE LEAST((c.pins::json ->> 0)::bigint, COALESCE((
            SELECT (t."window"::json ->> 'first_sequence')::bigint FROM turns t
            WHERE t.owner = $1 AND t.conversation = c.number AND t.position IS NOT NULL
                AND t.state IN ('complete', 'incomplete')
            ORDER BY t.position DESC LIMIT 1), 1)) END) AS sequence
    FROM c),
path AS MATERIALIZED (
    SELECT t.* FROM wanted
    JOIN turns t ON t.owner = $1 AND t.conversation = wanted.number AND t.position >= (
        SELECT f.position FROM turns f CROSS JOIN LATERAL (
            SELECT m.sequence_number FROM messages m
            WHERE m.owner = $1 AND m.conversation = wanted.number AND m.turn = f.number
                AND m.ordinal = 0 OFFSET 0) AS m
        WHERE f.owner = $1 AND f.conversation = wanted.number AND f.position IS NOT NULL
            AND m.sequence_number <= wanted.sequence
        ORDER BY f.position DESC LIMIT 1)
    WHERE wanted.sequence <= (SELECT message_count FROM c)),
kept AS MATERIALIZED (
    SELECT * FROM path
    UNION ALL
    SELECT v.* FROM c JOIN turns v
        ON v.owner = $1 AND v.conversation = c.number AND v.position IS NULL
    WHERE COALESCE(v.place, v.id) IN (SELECT COALESCE(place, id) FROM path))"""

_START = f""",
settled AS (
    UPDATE turns SET state = 'failed', ended_at = $5, failure = $6 FROM c
    WHERE turns.owner = $1 AND turns.conversation = c.number AND turns.state = 'running'
        AND turns.number = (SELECT max(number) FROM turns
            WHERE owner = $1 AND conversation = (SELECT number FROM c))),
begun AS (
    INSERT INTO turns (owner, conversation, number, position, id, state, model, started_at)
    SELECT $1, c.number, next.number, next.number, $3, 'running', $4, $5
    FROM c, LATERAL (SELECT COALESCE(max(number), 0) + 1 AS number FROM turns
        WHERE owner = $1 AND conversation = c.number) AS next
    RETURNING number),
said AS (
    INSERT INTO messages (owner, conversation, turn, ordinal, sequence_number,
        role, dialect, raw, terms)
    SELECT $1, c.number, begun.number, s.place - 1, c.message_count + s.place,
        s.role, s.dialect, s.raw, {STORED_TERMS}
    FROM c, begun, unnest($7::text[], $8::text[], $9::text[], $10::text[])
        WITH ORDINALITY AS s(role, dialect, raw, terms, place)),
counted AS (
    UPDATE conversations SET message_count = c.message_count + cardinality($7::text[])
    FROM c WHERE conversations.owner = $1 AND conversations.id = c.id)"""

_AGGREGATED = """SELECT {turn} array_agg(m.role ORDER BY m.ordinal) AS roles,
        array_agg(m.dialect ORDER BY m.ordinal) AS dialects,
        array_agg(m.raw ORDER BY m.ordinal) AS raws
    FROM messages m WHERE m.owner = $1 AND"""

# For a tail, turn by turn: otherwise the planner would read the whole table.
_ALL_MESSAGES = f"""LEFT JOIN (
    {_AGGREGATED.format(turn="m.turn,")} m.conversation = (SELECT number FROM c) GROUP BY m.turn
) AS said_in ON said_in.turn = kept.number"""
_MESSAGES_BY_TURN = f"""LEFT JOIN LATERAL (
    {_AGGREGATED.format(turn="")} m.conversation = kept.conversation AND m.turn = kept.number
) AS said_in ON true"""

_COLUMNS = ", ".join(
    f'CASE WHEN row_number() OVER ordered = 1 THEN c."{column}" END AS "{column}"'
    if column in _LARGE_COLUMNS
    else f'c."{column}"'
    for column in CONVERSATION_COLUMNS
)
_ROWS = f"""
SELECT {_COLUMNS},
    kept.position, {columns(TURN_COLUMNS, "kept.")}, said_in.roles, said_in.dialects, said_in.raws
FROM c LEFT JOIN kept ON true {{said}}
WINDOW ordered AS (ORDER BY kept.position NULLS LAST, kept.number)
ORDER BY kept.position NULLS LAST, kept.number
"""
_ALL_ROWS = _ROWS.format(said=_ALL_MESSAGES)
_TAIL_ROWS = _ROWS.format(said=_MESSAGES_BY_TURN)

LOAD = _CONVERSATION + _WHOLE + _ALL_ROWS
"""A whole conversation, by id or name."""
LOAD_TAIL = _CONVERSATION + _TAIL.format(tail="$3") + _TAIL_ROWS
"""The newest messages of that number, or what the window can use if it is NULL."""
BEGIN = _CONVERSATION + _WHOLE + _START + _ALL_ROWS
"""Load, and insert a running turn: id, model, now, failure of an interrupted turn."""
BEGIN_TAIL = _CONVERSATION + _TAIL.format(tail="$11") + _START + _TAIL_ROWS

MARK_INTERRUPTED = f"""
UPDATE turns SET state = 'failed', ended_at = $3, failure = $4
WHERE {OF_CONVERSATION} AND state = 'running' AND id <> $5
"""

_ENDING = tuple(column for column in TURN_COLUMNS if column not in {"id", "place"})
_NEXT = 5 + len(_ENDING)

FINISH = f"""
WITH mine AS (
    DELETE FROM leases
    WHERE owner = $1 AND conversation_id = $2 AND fence = $3 AND expires_at > clock_timestamp()
    RETURNING fence),
ended AS (
    UPDATE turns SET ({columns(_ENDING)}) = ROW({parameters(5, len(_ENDING))}) FROM mine
    WHERE {OF_CONVERSATION} AND {turn_has_id("$4")}
    RETURNING conversation, number),
said AS (
    INSERT INTO messages (owner, conversation, turn, ordinal, sequence_number,
        role, dialect, raw, terms)
    SELECT $1, ended.conversation, ended.number,
        ${_NEXT + 6}::bigint + s.place, ${_NEXT + 7}::bigint + s.place,
        s.role, s.dialect, s.raw, {STORED_TERMS}
    FROM ended, unnest(${_NEXT + 8}::text[], ${_NEXT + 9}::text[], ${_NEXT + 10}::text[],
        ${_NEXT + 11}::text[]) WITH ORDINALITY AS s(role, dialect, raw, terms, place)),
kept AS (
    UPDATE conversations SET title = ${_NEXT}, updated_at = ${_NEXT + 1},
        message_count = ${_NEXT + 2}, system = ${_NEXT + 3}, system_record = ${_NEXT + 4},
        context_record = ${_NEXT + 5}
    FROM mine WHERE owner = $1 AND id = $2)
SELECT fence FROM mine
"""
"""End a turn at the end of the path, with its new messages. No row: the lease is lost."""

IS_FINISHED = f"""
SELECT 1 FROM turns WHERE {OF_CONVERSATION} AND {turn_has_id("$3")} AND state = $4
    AND NOT EXISTS (SELECT FROM leases WHERE owner = $1 AND conversation_id = $2 AND fence = $5)
"""

_DROP = f"""
WITH mine AS (
    DELETE FROM leases WHERE owner = $1 AND conversation_id = $2 AND fence = $3 {{lasting}}
    RETURNING fence),
gone AS (
    DELETE FROM turns USING mine WHERE {OF_CONVERSATION} AND {turn_has_id("$4")}
        AND state = 'running'
    RETURNING conversation, number, position),
fewer AS (
    UPDATE conversations SET message_count = message_count - (
        SELECT count(*) FROM messages m
        JOIN gone ON m.conversation = gone.conversation AND m.turn = gone.number
        WHERE m.owner = $1 AND gone.position IS NOT NULL)
    WHERE owner = $1 AND id = $2 AND EXISTS (SELECT FROM gone))
SELECT fence FROM mine
"""
DROP = _DROP.format(lasting="AND expires_at > clock_timestamp()")
"""Release the lease and delete the turn."""
DROP_UNCONFIRMED = _DROP.format(lasting="")
"""The same after a lost connection: the lease may have expired."""

DROP_CREATED = """
WITH mine AS (
    DELETE FROM leases
    WHERE owner = $1 AND conversation_id = $2 AND fence = $3 AND expires_at > clock_timestamp()
    RETURNING fence),
gone AS (DELETE FROM conversations USING mine WHERE owner = $1 AND id = $2)
SELECT fence FROM mine
"""
"""The same for a turn that created its conversation."""

DROP_UNCONFIRMED_CREATED = f"""
WITH mine AS (
    DELETE FROM leases WHERE owner = $1 AND conversation_id = $2 AND fence = $3
    RETURNING fence)
DELETE FROM conversations USING mine WHERE owner = $1 AND id = $2
    AND EXISTS (SELECT FROM turns t WHERE t.owner = $1 AND t.conversation = conversations.number
        AND {turn_has_id("$4", "t.")} AND t.state = 'running')
"""
"""The same if it is unknown whether the conversation was created."""

RELEASE_LEASE_OF_TURN = (
    "DELETE FROM leases WHERE owner = $1 AND turn_id = $2 AND expires_at > clock_timestamp()"
)
"""Release the lease of a turn if it was taken."""

TITLE_MESSAGE = f"""
SELECT m.role, m.dialect, m.raw FROM messages m
JOIN turns t ON t.owner = m.owner AND t.conversation = m.conversation AND t.number = m.turn
WHERE m.owner = $1 AND m.conversation = {NUMBER} AND t.position IS NOT NULL
    AND m.role = 'user' AND t.state IN ('complete', 'incomplete')
ORDER BY t.position, m.ordinal LIMIT 1
"""
"""The message for a title."""
