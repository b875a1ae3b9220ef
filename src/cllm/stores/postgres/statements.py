"""The SQL of the PostgreSQL store; `$1` is the owner.

Starting a turn takes two statements: the lease is committed before the conversation is read, so
that the previous turn's end is visible. Leases expire by the database's clock, which all machines
share.

Turns refer to their conversation by its number, which statements find by the id. A turn's `place`
(its slot) is NULL if it equals the turn's id. A turn and its copies in branches have the same
messages, those of its message group. Branches are created under a shared lock of their owner, and
messages of finished turns are deleted or copied under an exclusive one.
"""

# ruff: noqa: S608 - only column names are inserted into the text

from cllm.core.conversation import MAX_TITLE_MESSAGES
from cllm.core.ports import Tail
from cllm.stores.sql.rows import (
    CONVERSATION_COLUMNS,
    SUMMARY_COLUMNS,
    TURN_COLUMNS,
)

# Only the first row of LOAD has these columns.
_LARGE_COLUMNS = ("system", "context_record", "metadata", "summary")

MAX_BIGINT = 2**62
"""More rows than a table can have, within a bigint."""
TURN_AT = len(CONVERSATION_COLUMNS) + 1
MESSAGES_AT = TURN_AT + len(TURN_COLUMNS)
"""Where a turn and its messages start in a row of LOAD; the position comes before."""


def tail_parameter(tail: Tail) -> int | None:
    """Return the parameter for a tail: a number of messages, or NULL for the window."""
    return max(min(tail, MAX_BIGINT), 0) if isinstance(tail, int) else None


def columns(columns: tuple[str, ...], table: str = "") -> str:
    return ", ".join(f'{table}"{column}"' for column in columns)


def parameters(first: int, count: int) -> str:
    """`$first, …`: `count` parameters."""
    return ", ".join(f"${number}" for number in range(first, first + count))


_TABLE_ID = "to_regclass('conversations')::oid AS table_id"
HOLD_COMPARISON_LOCK = f"SELECT pg_advisory_xact_lock($1::bigint), {_TABLE_ID}"
TRY_COMPARISON_LOCK = f"SELECT pg_try_advisory_xact_lock($1::bigint) AS is_free, {_TABLE_ID}"
"""Finds that the lock is not free if HOLD_COMPARISON_LOCK holds it in the same database."""

NEXT_GROUP = "nextval('message_groups')"
STORED_TERMS = """CASE WHEN message_terms($1, 0, s.raw, s.terms)
    IS DISTINCT FROM message_terms($1, 0, s.raw, NULL) THEN s.terms END"""
"""The terms of a message `s`, or NULL if the database computes them from the text."""

RESOLVED = """COALESCE(
    (SELECT id FROM conversations WHERE owner = $1 AND id = $2),
    (SELECT id FROM conversations WHERE owner = $1 AND name = $2))"""

NUMBER = "(SELECT number FROM conversations WHERE owner = $1 AND id = $2)"
"""The number of the conversation with the id `$2`."""

OF_CONVERSATION = f"owner = $1 AND conversation = {NUMBER}"


OF_TURN = "m.owner = $1 AND m.message_group = {0}.message_group"
"""The messages `m` of a turn."""

LOCK_GROUPS = "SELECT pg_advisory_xact_lock(hashtextextended($1, 8))"
SHARE_GROUPS = "SELECT pg_advisory_xact_lock_shared(hashtextextended($1, 8))"


def turn_has_id(value: str, table: str = "") -> str:
    """Finds a turn by the index on the id's hash."""
    return f"hashtextextended({table}id, 0) = hashtextextended({value}, 0) AND {table}id = {value}"


TAKE_LEASE = f"""
WITH resolved AS MATERIALIZED (SELECT {RESOLVED} AS id),
pending AS (
    SELECT conversation_id AS id FROM leases
    WHERE owner = $1 AND creates = 1 AND (conversation_id = $2 OR name IN ($2, $6))
        AND expires_at > clock_timestamp() LIMIT 1),
target AS MATERIALIZED (
    SELECT id, 0::smallint AS creates, NULL::text AS name FROM resolved WHERE id IS NOT NULL
    UNION ALL
    SELECT COALESCE((SELECT id FROM pending), $5), 1::smallint, $6 FROM resolved
    WHERE id IS NULL AND $5::text IS NOT NULL),
new_lease AS (
    INSERT INTO leases (owner, conversation_id, name, turn_id, fence, creates, expires_at)
    SELECT $1, id, name, $3, nextval('fences'), creates,
        clock_timestamp() + make_interval(secs => $4)
    FROM target
    ON CONFLICT (owner, conversation_id) DO UPDATE SET
        name = excluded.name, turn_id = excluded.turn_id, fence = excluded.fence,
        creates = excluded.creates, expires_at = excluded.expires_at
    WHERE leases.expires_at <= clock_timestamp()
    RETURNING fence)
SELECT target.id, target.creates, new_lease.fence,
    (SELECT turn_id FROM leases WHERE owner = $1 AND conversation_id = target.id) AS holder
FROM target LEFT JOIN new_lease ON true
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
loaded AS MATERIALIZED (
    SELECT t.* FROM c JOIN turns t ON t.owner = $1 AND t.conversation = c.number)"""

# Searches for the first turn of a tail from the newest turn backwards.
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
        SELECT f.position FROM turns f
        WHERE f.owner = $1 AND f.conversation = wanted.number AND f.position IS NOT NULL
            AND f.first_sequence <= wanted.sequence
        ORDER BY f.position DESC LIMIT 1)
    WHERE wanted.sequence <= (SELECT message_count FROM c)),
loaded AS MATERIALIZED (
    SELECT * FROM path
    UNION ALL
    SELECT v.* FROM c JOIN turns v
        ON v.owner = $1 AND v.conversation = c.number AND v.position IS NULL
    WHERE COALESCE(v.place, v.id) IN (SELECT COALESCE(place, id) FROM path))"""

_START = f""",
interrupted AS (
    UPDATE turns SET state = 'failed', ended_at = turns.started_at, failure = $6 FROM c
    WHERE turns.owner = $1 AND turns.conversation = c.number AND turns.state = 'running'
        AND turns.number = (SELECT max(number) FROM turns
            WHERE owner = $1 AND conversation = (SELECT number FROM c))),
started AS (
    INSERT INTO turns (owner, conversation, number, position, first_sequence, message_group,
        id, state, model, started_at, "window")
    SELECT $1, c.number, next.number, next.number, c.message_count + 1, {NEXT_GROUP},
        $3, 'running', $4, $5, $12
    FROM c, LATERAL (SELECT COALESCE(max(number), 0) + 1 AS number FROM turns
        WHERE owner = $1 AND conversation = c.number) AS next
    RETURNING message_group),
added AS (
    INSERT INTO messages (owner, message_group, ordinal, role, dialect, raw, digest, terms)
    SELECT $1, started.message_group, s.index - 1,
        s.role, s.dialect, s.raw, s.digest, {STORED_TERMS}
    FROM started, unnest($7::text[], $8::text[], $9::text[], $10::text[], $11::bytea[])
        WITH ORDINALITY AS s(role, dialect, raw, terms, digest, index)),
counted AS (
    UPDATE conversations SET message_count = c.message_count + cardinality($7::text[])
    FROM c WHERE conversations.owner = $1 AND conversations.id = c.id)"""

# Read turn by turn: otherwise the planner would read the whole table.
_MESSAGES = f"""LEFT JOIN LATERAL (
    SELECT array_agg(m.role ORDER BY m.ordinal) AS roles,
        array_agg(m.dialect ORDER BY m.ordinal) AS dialects,
        array_agg(m.raw ORDER BY m.ordinal) AS raws
    FROM messages m WHERE {OF_TURN.format("loaded")}
) AS of_turn ON true"""

_COLUMNS = ", ".join(
    f'CASE WHEN row_number() OVER ordered = 1 THEN c."{column}" END AS "{column}"'
    if column in _LARGE_COLUMNS
    else f'c."{column}"'
    for column in CONVERSATION_COLUMNS
)
_ROWS = f"""
SELECT {_COLUMNS},
    loaded.position, {columns(TURN_COLUMNS, "loaded.")},
    of_turn.roles, of_turn.dialects, of_turn.raws
FROM c LEFT JOIN loaded ON true {_MESSAGES}
WINDOW ordered AS (ORDER BY loaded.position NULLS LAST, loaded.number)
ORDER BY loaded.position NULLS LAST, loaded.number
"""

LOAD = _CONVERSATION + _WHOLE + _ROWS
"""A whole conversation, by id or name."""
LOAD_TAIL = _CONVERSATION + _TAIL.format(tail="$3") + _ROWS
"""The newest `$3` messages; NULL loads the messages that the window can use."""
BEGIN = _CONVERSATION + _WHOLE + _START + _ROWS
"""Load, and insert a running turn: id, model, now, failure of an interrupted turn; its window."""
BEGIN_TAIL = _CONVERSATION + _TAIL.format(tail="$13") + _START + _ROWS

MARK_INTERRUPTED = f"""
UPDATE turns SET state = 'failed', ended_at = coalesce($5::timestamptz, started_at), failure = $3
WHERE {OF_CONVERSATION} AND state = 'running' AND id <> $4
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
    RETURNING message_group),
added AS (
    INSERT INTO messages (owner, message_group, ordinal, role, dialect, raw, digest, terms)
    SELECT $1, ended.message_group, ${_NEXT + 6}::bigint + s.index,
        s.role, s.dialect, s.raw, s.digest, {STORED_TERMS}
    FROM ended, unnest(${_NEXT + 7}::text[], ${_NEXT + 8}::text[], ${_NEXT + 9}::text[],
        ${_NEXT + 10}::text[], ${_NEXT + 11}::bytea[])
        WITH ORDINALITY AS s(role, dialect, raw, terms, digest, index)),
updated AS (
    UPDATE conversations SET title = ${_NEXT}, updated_at = ${_NEXT + 1},
        message_count = ${_NEXT + 2}, system = ${_NEXT + 3}, system_record = ${_NEXT + 4},
        context_record = ${_NEXT + 5}
    FROM mine WHERE owner = $1 AND id = $2)
SELECT fence FROM mine
"""
"""Finish a turn at the end of the path, with its new messages. No row: the lease is lost."""

SAVE_OPENING = """
UPDATE conversations SET system = $4, system_record = $5, context_record = $6
FROM leases l
WHERE conversations.owner = $1 AND conversations.id = $2 AND l.owner = $1
    AND l.conversation_id = $2 AND l.fence = $3 AND l.expires_at > clock_timestamp()
RETURNING l.fence
"""
"""Save an opening. No row: the lease is lost."""

IS_FINISHED = f"""
SELECT 1 FROM turns WHERE {OF_CONVERSATION} AND {turn_has_id("$3")} AND state = $4
    AND NOT EXISTS (SELECT FROM leases WHERE owner = $1 AND conversation_id = $2 AND fence = $5)
"""

_DROP = f"""
WITH mine AS (
    DELETE FROM leases WHERE owner = $1 AND conversation_id = $2 AND fence = $3 {{is_valid}}
    RETURNING fence),
deleted AS (
    DELETE FROM turns USING mine WHERE {OF_CONVERSATION} AND {turn_has_id("$4")}
        AND state = 'running'
    RETURNING message_group, position),
emptied AS (
    DELETE FROM messages m USING deleted WHERE {OF_TURN.format("deleted")}
    RETURNING deleted.position),
updated AS (
    UPDATE conversations SET message_count = message_count - (
        SELECT count(*) FROM emptied WHERE position IS NOT NULL)
    WHERE owner = $1 AND id = $2 AND EXISTS (SELECT FROM deleted))
SELECT fence FROM mine
"""
DROP = _DROP.format(is_valid="AND expires_at > clock_timestamp()")
"""Release the lease and delete the turn."""
DROP_UNCONFIRMED = _DROP.format(is_valid="")
"""The same after a lost connection: the lease may have expired."""

DROP_CREATED = f"""
WITH mine AS (
    DELETE FROM leases
    WHERE owner = $1 AND conversation_id = $2 AND fence = $3 AND expires_at > clock_timestamp()
    RETURNING fence),
deleted AS (DELETE FROM conversations USING mine WHERE owner = $1 AND id = $2 RETURNING number),
emptied AS (
    DELETE FROM messages m USING deleted, turns t
    WHERE t.owner = $1 AND t.conversation = deleted.number AND {OF_TURN.format("t")})
SELECT fence FROM mine
"""
"""The same for a turn that created its conversation. No other conversation has its messages."""

DROP_UNCONFIRMED_CREATED = f"""
WITH mine AS (
    DELETE FROM leases WHERE owner = $1 AND conversation_id = $2 AND fence = $3
    RETURNING fence),
deleted AS (
    DELETE FROM conversations USING mine WHERE owner = $1 AND id = $2
        AND EXISTS (SELECT FROM turns t WHERE t.owner = $1 AND t.conversation = conversations.number
            AND {turn_has_id("$4", "t.")} AND t.state = 'running')
    RETURNING number)
DELETE FROM messages m USING deleted, turns t
WHERE t.owner = $1 AND t.conversation = deleted.number AND {OF_TURN.format("t")}
"""
"""The same if it is unknown whether the conversation was created."""

TAKE_FROM_TURN = """
DELETE FROM leases WHERE owner = $1 AND conversation_id = $2 AND turn_id = $3 AND creates = 0
RETURNING 1
"""
"""Take away the lease of a running turn. No row: it does not run."""

RELEASE_LEASE_OF_TURN = (
    "DELETE FROM leases WHERE owner = $1 AND turn_id = $2 AND expires_at > clock_timestamp()"
)
"""Release the lease of a turn, if it has one."""

IMPORTED = f"""
SELECT t.id, m.ordinal, m.imported FROM turns t JOIN messages m ON {OF_TURN.format("t")}
WHERE t.owner = $1 AND t.conversation = (
        SELECT number FROM conversations WHERE owner = $1 AND id = {RESOLVED})
    AND m.imported IS NOT NULL
    AND (t.first_sequence IS NULL OR t.first_sequence + m.ordinal > $3::bigint)
"""
TITLE_MESSAGES = f"""
SELECT m.role, m.dialect, m.raw FROM (
    SELECT position, message_group FROM turns
    WHERE {OF_CONVERSATION} AND position IS NOT NULL AND state IN ('complete', 'incomplete')
    ORDER BY position OFFSET 0) AS t
CROSS JOIN LATERAL (
    SELECT m.ordinal, m.role, m.dialect, m.raw FROM messages m
    WHERE {OF_TURN.format("t")} AND m.role = 'user' ORDER BY m.ordinal OFFSET 0) AS m
ORDER BY t.position, m.ordinal LIMIT {MAX_TITLE_MESSAGES}
"""
"""The messages of which one becomes the title."""

# Conversations without messages, and messages in parts.
FIND = f"""
SELECT {columns(CONVERSATION_COLUMNS)} FROM conversations WHERE owner = $1 AND id = {RESOLVED}
"""
FIND_SUMMARY = f"""
SELECT {columns(SUMMARY_COLUMNS)} FROM conversations WHERE owner = $1 AND id = {RESOLVED}
"""
OUTLINE_TURNS = f"""
SELECT {columns(TURN_COLUMNS, "t.")}, t.position,
    (SELECT count(*) FROM messages m WHERE {OF_TURN.format("t")})
FROM turns t WHERE t.owner = $1 AND t.conversation = {NUMBER} AND (t.position >= $3
    OR t.position IS NULL AND COALESCE(t.place, t.id) NOT IN (
        SELECT COALESCE(place, id) FROM turns WHERE {OF_CONVERSATION} AND position < $3))
ORDER BY t.position NULLS LAST, t.number
"""
"""The path from a position on, and variants, except of earlier turns."""
AT_SEQUENCE = f"""
SELECT t.position FROM turns t
WHERE t.owner = $1 AND t.conversation = {NUMBER} AND t.position IS NOT NULL
    AND t.first_sequence <= $3::bigint AND EXISTS (
        SELECT FROM messages m WHERE {OF_TURN.format("t")} AND m.ordinal = $3 - t.first_sequence)
ORDER BY t.position DESC LIMIT 1
"""
MESSAGES_FROM = f"""
SELECT part, role, dialect, raw FROM (
    SELECT part, ordinal, role, dialect, raw,
        sum(octet_length(raw)) OVER (ORDER BY part, ordinal) - octet_length(raw) AS before
    FROM (
        SELECT parts.part, parts.start, m.ordinal, m.role, m.dialect, m.raw,
            row_number() OVER (PARTITION BY parts.part ORDER BY m.ordinal) AS at
        FROM unnest($3::text[], $4::bigint[]) WITH ORDINALITY AS parts(id, start, part)
        JOIN conversations c ON c.owner = $1 AND c.id = {RESOLVED}
        JOIN turns t ON t.owner = $1 AND t.conversation = c.number
            AND {turn_has_id("parts.id", "t.")}
        JOIN messages m ON {OF_TURN.format("t")}
    ) AS numbered WHERE at > start
) AS sized WHERE before < $5 ORDER BY part, ordinal
"""

# Turns of dead processes.
HAS_LEASE = f"""
SELECT 1 FROM leases WHERE owner = $1 AND conversation_id = {RESOLVED}
    AND expires_at > clock_timestamp()
"""
DEAD_LEASES = """
SELECT conversation_id FROM leases
WHERE owner = $1 AND creates = 0 AND expires_at <= clock_timestamp()
"""
EVENTS_OF = """
SELECT data FROM events WHERE owner = $1 AND conversation_id = $2 AND turn_id = $3 ORDER BY number
"""

NAME_EXISTS = """
SELECT ref FROM unnest($2::text[]) AS ref
WHERE EXISTS (SELECT FROM conversations WHERE owner = $1 AND (id = ref OR name = ref)) LIMIT 1
"""
DIGEST_BEFORE = f"""
SELECT c.path_start, t.number, (
    SELECT m.digest FROM messages m WHERE {OF_TURN.format("t")}
    ORDER BY m.ordinal DESC LIMIT 1) AS digest
FROM conversations c LEFT JOIN LATERAL (
    SELECT number, message_group FROM turns
    WHERE owner = $1 AND conversation = c.number AND position IS NOT NULL
        AND state IN ('complete', 'incomplete')
        AND ($3::text IS NULL OR position < (
            SELECT position FROM turns WHERE owner = $1 AND conversation = c.number
                AND position IS NOT NULL AND COALESCE(place, id) = $3))
        AND EXISTS (SELECT FROM messages m WHERE {OF_TURN.format("turns")})
    ORDER BY position DESC LIMIT 1) AS t ON true
WHERE c.owner = $1 AND c.id = $2
"""
"""The digest of the last message with a history: on the whole path, or before the slot `$3`."""
HAS_TURN = f"SELECT 1 FROM turns WHERE {OF_CONVERSATION} AND {turn_has_id('$3')}"
CLEAR_CREATES = "UPDATE leases SET creates = 0 WHERE owner = $1 AND conversation_id = $2"
DELETE_TURN = f"""
WITH deleted AS (
    DELETE FROM turns WHERE {OF_CONVERSATION} AND {turn_has_id("$3")} RETURNING message_group)
DELETE FROM messages m USING deleted WHERE {OF_TURN.format("deleted")}
"""
"""Delete a running turn, whose messages no other conversation has."""
