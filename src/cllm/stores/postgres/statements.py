"""The SQL of the PostgreSQL store; `$1` is the owner.

Starting a turn takes two statements: the lease is committed before the conversation is read, so
that the previous turn's end is visible. Leases expire by the database's clock, which all machines
share.

Turns and messages refer to their conversation by its number, which statements find by the id. A
turn's `place` (its slot) is NULL if it equals the turn's id.
"""

# ruff: noqa: S608 - only column names are inserted into the text

from cllm.core.conversation import MAX_TITLE_MESSAGES
from cllm.core.ports import MAX_MATCHES, Tail
from cllm.stores.sql.rows import (
    CALL_COLUMNS,
    CONVERSATION_COLUMNS,
    SUMMARY_COLUMNS,
    TURN_COLUMNS,
    USAGE_COLUMNS,
)
from cllm.wire.path_digest import MEANING_END

# Only the first row of LOAD has these columns.
_LARGE_COLUMNS = ("system", "context_record", "metadata", "summary")

MAX_BIGINT = 2**62
"""More rows than a table can have, within a bigint."""
TURN_AT = len(CONVERSATION_COLUMNS) + 1
MESSAGES_AT = TURN_AT + len(TURN_COLUMNS)
"""Where a turn and its messages start in a row of LOAD; the position comes before."""


def tail_parameter(tail: Tail) -> int | None:
    """The parameter for a tail: a number of messages, or NULL for the window."""
    return max(min(tail, MAX_BIGINT), 0) if isinstance(tail, int) else None


def columns(columns: tuple[str, ...], table: str = "") -> str:
    return ", ".join(f'{table}"{column}"' for column in columns)


def parameters(first: int, count: int) -> str:
    """`$first, …`: `count` parameters."""
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
        SELECT f.position FROM turns f CROSS JOIN LATERAL (
            SELECT m.sequence_number FROM messages m
            WHERE m.owner = $1 AND m.conversation = wanted.number AND m.turn = f.number
                AND m.ordinal = 0 OFFSET 0) AS m
        WHERE f.owner = $1 AND f.conversation = wanted.number AND f.position IS NOT NULL
            AND m.sequence_number <= wanted.sequence
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
    INSERT INTO turns (owner, conversation, number, position, id, state, model, started_at)
    SELECT $1, c.number, next.number, next.number, $3, 'running', $4, $5
    FROM c, LATERAL (SELECT COALESCE(max(number), 0) + 1 AS number FROM turns
        WHERE owner = $1 AND conversation = c.number) AS next
    RETURNING number),
added AS (
    INSERT INTO messages (owner, conversation, turn, ordinal, sequence_number,
        role, dialect, raw, digest, terms)
    SELECT $1, c.number, started.number, s.index - 1, c.message_count + s.index,
        s.role, s.dialect, s.raw, s.digest, {STORED_TERMS}
    FROM c, started, unnest($7::text[], $8::text[], $9::text[], $10::text[], $11::bytea[])
        WITH ORDINALITY AS s(role, dialect, raw, terms, digest, index)),
counted AS (
    UPDATE conversations SET message_count = c.message_count + cardinality($7::text[])
    FROM c WHERE conversations.owner = $1 AND conversations.id = c.id)"""

_AGGREGATED = """SELECT {turn} array_agg(m.role ORDER BY m.ordinal) AS roles,
        array_agg(m.dialect ORDER BY m.ordinal) AS dialects,
        array_agg(m.raw ORDER BY m.ordinal) AS raws
    FROM messages m WHERE m.owner = $1 AND"""

# For a tail, read turn by turn: otherwise the planner would read the whole table.
_ALL_MESSAGES = f"""LEFT JOIN (
    {_AGGREGATED.format(turn="m.turn,")} m.conversation = (SELECT number FROM c) GROUP BY m.turn
) AS of_turn ON of_turn.turn = loaded.number"""
_MESSAGES_BY_TURN = f"""LEFT JOIN LATERAL (
    {_AGGREGATED.format(turn="")} m.conversation = loaded.conversation AND m.turn = loaded.number
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
FROM c LEFT JOIN loaded ON true {{messages}}
WINDOW ordered AS (ORDER BY loaded.position NULLS LAST, loaded.number)
ORDER BY loaded.position NULLS LAST, loaded.number
"""
_ALL_ROWS = _ROWS.format(messages=_ALL_MESSAGES)
_TAIL_ROWS = _ROWS.format(messages=_MESSAGES_BY_TURN)

LOAD = _CONVERSATION + _WHOLE + _ALL_ROWS
"""A whole conversation, by id or name."""
LOAD_TAIL = _CONVERSATION + _TAIL.format(tail="$3") + _TAIL_ROWS
"""The newest `$3` messages; NULL loads the messages that the window can use."""
BEGIN = _CONVERSATION + _WHOLE + _START + _ALL_ROWS
"""Load, and insert a running turn: id, model, now, failure of an interrupted turn."""
BEGIN_TAIL = _CONVERSATION + _TAIL.format(tail="$12") + _START + _TAIL_ROWS

MARK_INTERRUPTED = f"""
UPDATE turns SET state = 'failed', ended_at = started_at, failure = $3
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
    RETURNING conversation, number),
added AS (
    INSERT INTO messages (owner, conversation, turn, ordinal, sequence_number,
        role, dialect, raw, digest, terms)
    SELECT $1, ended.conversation, ended.number,
        ${_NEXT + 6}::bigint + s.index, ${_NEXT + 7}::bigint + s.index,
        s.role, s.dialect, s.raw, s.digest, {STORED_TERMS}
    FROM ended, unnest(${_NEXT + 8}::text[], ${_NEXT + 9}::text[], ${_NEXT + 10}::text[],
        ${_NEXT + 11}::text[], ${_NEXT + 12}::bytea[])
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
    RETURNING conversation, number, position),
updated AS (
    UPDATE conversations SET message_count = message_count - (
        SELECT count(*) FROM messages m
        JOIN deleted ON m.conversation = deleted.conversation AND m.turn = deleted.number
        WHERE m.owner = $1 AND deleted.position IS NOT NULL)
    WHERE owner = $1 AND id = $2 AND EXISTS (SELECT FROM deleted))
SELECT fence FROM mine
"""
DROP = _DROP.format(is_valid="AND expires_at > clock_timestamp()")
"""Release the lease and delete the turn."""
DROP_UNCONFIRMED = _DROP.format(is_valid="")
"""The same after a lost connection: the lease may have expired."""

DROP_CREATED = """
WITH mine AS (
    DELETE FROM leases
    WHERE owner = $1 AND conversation_id = $2 AND fence = $3 AND expires_at > clock_timestamp()
    RETURNING fence),
deleted AS (DELETE FROM conversations USING mine WHERE owner = $1 AND id = $2)
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
"""Release the lease of a turn, if it has one."""

IMPORTED = f"""
SELECT t.id, m.ordinal, m.imported FROM messages m
JOIN turns t ON t.owner = m.owner AND t.conversation = m.conversation AND t.number = m.turn
WHERE m.owner = $1 AND m.conversation = (
        SELECT number FROM conversations WHERE owner = $1 AND id = {RESOLVED})
    AND m.imported IS NOT NULL AND (m.sequence_number IS NULL OR m.sequence_number > $3::bigint)
"""
TITLE_MESSAGES = f"""
SELECT m.role, m.dialect, m.raw FROM messages m
JOIN turns t ON t.owner = m.owner AND t.conversation = m.conversation AND t.number = m.turn
WHERE m.owner = $1 AND m.conversation = {NUMBER} AND t.position IS NOT NULL
    AND m.role = 'user' AND t.state IN ('complete', 'incomplete')
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
    (SELECT count(*) FROM messages m
        WHERE m.owner = $1 AND m.conversation = t.conversation AND m.turn = t.number)
FROM turns t WHERE t.owner = $1 AND t.conversation = {NUMBER} AND (t.position >= $3
    OR t.position IS NULL AND COALESCE(t.place, t.id) NOT IN (
        SELECT COALESCE(place, id) FROM turns WHERE {OF_CONVERSATION} AND position < $3))
ORDER BY t.position NULLS LAST, t.number
"""
"""The path from a position on, and variants, except of earlier turns."""
AT_SEQUENCE = f"""
SELECT t.position FROM messages m
JOIN turns t ON t.owner = m.owner AND t.conversation = m.conversation AND t.number = m.turn
WHERE m.owner = $1 AND m.conversation = {NUMBER} AND m.sequence_number = $3
ORDER BY m.turn DESC LIMIT 1
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
        JOIN messages m ON m.owner = $1 AND m.conversation = c.number AND m.turn = t.number
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

# Edits.
DELETE_LEASE = "DELETE FROM leases WHERE owner = $1 AND conversation_id = $2"
DELETE_CONVERSATION = """
WITH deleted AS (DELETE FROM events WHERE owner = $1 AND conversation_id = $2)
DELETE FROM conversations WHERE owner = $1 AND id = $2
"""
LEASE_CREATING = """
SELECT 1 FROM leases WHERE owner = $1 AND creates = 1 AND expires_at > clock_timestamp()
    AND (conversation_id = ANY($2::text[]) OR name = ANY($2::text[]))
"""
NAME_EXISTS = """
SELECT ref FROM unnest($2::text[]) AS ref
WHERE EXISTS (SELECT FROM conversations WHERE owner = $1 AND (id = ref OR name = ref)) LIMIT 1
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
INSERT INTO turns (owner, conversation, number, position, {columns(TURN_COLUMNS)})
SELECT $1, {NUMBER}, {parameters(3, 2 + len(TURN_COLUMNS))}
"""
ADD_MESSAGES = f"""
INSERT INTO messages (owner, conversation, turn, ordinal, sequence_number,
    role, dialect, raw, digest, terms)
SELECT $1, {NUMBER}, $3, s.index - 1, $4::bigint + s.index, s.role, s.dialect, s.raw, s.digest,
    {STORED_TERMS}
FROM unnest($5::text[], $6::text[], $7::text[], $8::text[], $9::bytea[])
    WITH ORDINALITY AS s(role, dialect, raw, terms, digest, index)
"""
UPDATE_DIGESTS = f"""
UPDATE messages SET digest = s.digest FROM unnest($4::bytea[]) WITH ORDINALITY AS s(digest, index)
WHERE {OF_CONVERSATION} AND turn = (
    SELECT number FROM turns WHERE {OF_CONVERSATION} AND {turn_has_id("$3")})
    AND ordinal = s.index - 1 AND messages.digest IS DISTINCT FROM s.digest
"""
DIGEST_BEFORE = """
SELECT c.path_start, t.number, (
    SELECT m.digest FROM messages m
    WHERE m.owner = $1 AND m.conversation = c.number AND m.turn = t.number
    ORDER BY m.ordinal DESC LIMIT 1) AS digest
FROM conversations c LEFT JOIN LATERAL (
    SELECT number FROM turns
    WHERE owner = $1 AND conversation = c.number AND position IS NOT NULL
        AND state IN ('complete', 'incomplete')
        AND ($3::text IS NULL OR position < (
            SELECT position FROM turns WHERE owner = $1 AND conversation = c.number
                AND position IS NOT NULL AND COALESCE(place, id) = $3))
        AND EXISTS (SELECT FROM messages m
            WHERE m.owner = $1 AND m.conversation = c.number AND m.turn = turns.number)
    ORDER BY position DESC LIMIT 1) AS t ON true
WHERE c.owner = $1 AND c.id = $2
"""
"""The digest of the last message with a history: on the whole path, or before the slot `$3`."""
ALL_NUMBERS = f"SELECT id, number, position FROM turns WHERE {OF_CONVERSATION}"
NEXT_NUMBER = f"""
SELECT COALESCE(max(number), 0) + 1 FROM turns WHERE {OF_CONVERSATION}
"""
DELETE_TURNS = f"""
DELETE FROM turns WHERE {OF_CONVERSATION} AND number = ANY($3::bigint[])
"""
UPDATE_TURN = f"""
UPDATE turns SET ({columns(TURN_COLUMNS)}) = ROW({parameters(4, len(TURN_COLUMNS))})
WHERE {OF_CONVERSATION} AND number = $3
"""
DELETE_MESSAGES = f"""
DELETE FROM messages WHERE {OF_CONVERSATION} AND turn = $3 AND ordinal >= $4
"""
CLEAR_POSITIONS = f"""
UPDATE turns SET position = NULL
WHERE {OF_CONVERSATION} AND number = ANY($3::bigint[])
"""
UPDATE_POSITIONS = f"""
UPDATE turns SET position = p.position
FROM unnest($3::bigint[], $4::bigint[]) AS p(number, position)
WHERE {OF_CONVERSATION} AND turns.number = p.number
"""
NUMBER_MESSAGES = f"""
UPDATE messages SET sequence_number = p.before + ordinal + 1
FROM unnest($3::bigint[], $4::bigint[]) AS p(number, before)
WHERE {OF_CONVERSATION} AND turn = p.number
"""

HAS_TURN = f"SELECT 1 FROM turns WHERE {OF_CONVERSATION} AND {turn_has_id('$3')}"
CLEAR_CREATES = "UPDATE leases SET creates = 0 WHERE owner = $1 AND conversation_id = $2"
DELETE_TURN = f"DELETE FROM turns WHERE {OF_CONVERSATION} AND {turn_has_id('$3')}"

# Lists, search and usage.
ARCHIVED = {
    "active": "AND c.archived_at IS NULL",
    "archived": "AND c.archived_at IS NOT NULL",
    "all": "",
}
LIST = """
SELECT {columns} FROM conversations c
WHERE c.owner = $1 AND c.side <= $2 AND ($3::text IS NULL OR c.source = $3) {archived} {after}
ORDER BY c.updated_at DESC, c.id LIMIT {limit} OFFSET {offset}
"""
LIST_AFTER = "AND c.updated_at <= $6 AND (c.updated_at < $6 OR c.id > $7)"
COUNT = """
SELECT count(*) FROM conversations c
WHERE c.owner = $1 AND c.side <= $2 AND ($3::text IS NULL OR c.source = $3) {archived}
"""
LIST_FAMILY = f"""
SELECT {columns(SUMMARY_COLUMNS)} FROM conversations
WHERE owner = $1 AND family = $2 AND archived_at IS NULL ORDER BY updated_at DESC, id LIMIT $3
"""


def _find_paths(condition: str) -> str:
    """Find messages by the digests `$2`: first the first one that a message has.

    OFFSET 0 fixes the order of execution, as in SEARCH.
    """
    searched = """
        FROM messages m CROSS JOIN LATERAL (
            SELECT c.id, c.message_count, c.updated_at FROM conversations c
            WHERE c.owner = $1 AND c.number = m.conversation AND c.archived_at IS NULL
                AND c.side = $3 AND ($4::text IS NULL OR c.family = $4) OFFSET 0) AS c
        WHERE m.owner = $1 AND """
    searched += condition
    return f"""
WITH best AS MATERIALIZED (
    SELECT d.digest, d.position
    FROM unnest($2::bytea[]) WITH ORDINALITY AS d(digest, position)
    CROSS JOIN LATERAL (SELECT 1 {searched.format("d.digest")} LIMIT 1) AS found
    LIMIT 1)
SELECT m.id, t.id AS turn_id, m.ordinal, (SELECT position - 1 FROM best) AS position,
    m.sequence_number, m.message_count, t.state, m.updated_at
FROM (
    SELECT c.*, m.number, m.conversation, m.turn, m.ordinal, m.sequence_number
    {searched.format("(SELECT digest FROM best)")} ORDER BY m.number DESC LIMIT {MAX_MATCHES}) AS m
CROSS JOIN LATERAL (
    SELECT id, state FROM turns
    WHERE owner = $1 AND conversation = m.conversation AND number = m.turn OFFSET 0) AS t
ORDER BY m.number DESC
"""


FIND_PATHS = {
    False: _find_paths("m.digest = {0}"),
    True: _find_paths(f"m.digest BETWEEN substr({{0}}, 1, {MEANING_END}) AND {{0}}"),
}
"""By whether the IDs of tool calls may differ; then each digest ends with the highest IDs."""
# Revision 0005 prefixes indexed terms with the number of their block of 2 ** BLOCK_BITS messages.
# The search reads the newest block first; `@` is replaced by its number. OFFSET 0 fixes the order
# of execution: with its estimates the planner would read whole tables.
BLOCK_BITS = 15
LAST_NUMBER = "SELECT last_value FROM messages_number_seq"
SEARCH = """
WITH newest AS MATERIALIZED (
    SELECT matches.*
    FROM generate_series($4::bigint >> {block_bits}, 0, -1) AS block
    CROSS JOIN LATERAL (
        SELECT m.*, c.id, c.title, t.started_at, t.id AS turn_id
        FROM (
            SELECT number, conversation, turn, ordinal FROM messages
            WHERE owner = $1 AND sequence_number IS NOT NULL
                AND message_terms(owner, number, raw, terms)
                    @@ replace($2, '@', to_hex(block) || '.')::tsquery
            ORDER BY number DESC OFFSET 0) AS m
        CROSS JOIN LATERAL (
            SELECT c.id, c.title FROM conversations c
            WHERE c.owner = $1 AND c.number = m.conversation {archived} OFFSET 0) AS c
        CROSS JOIN LATERAL (
            SELECT id, started_at FROM turns
            WHERE owner = $1 AND conversation = m.conversation AND number = m.turn
                AND state IN ('complete', 'incomplete') OFFSET 0) AS t
        ORDER BY m.number DESC LIMIT $3) AS matches
    LIMIT $3)
SELECT newest.id, newest.title, m.sequence_number, m.role, m.raw, newest.started_at,
    newest.turn_id, newest.ordinal
FROM newest CROSS JOIN LATERAL (
    SELECT sequence_number, role, raw FROM messages
    WHERE owner = $1 AND conversation = newest.conversation AND turn = newest.turn
        AND ordinal = newest.ordinal OFFSET 0) AS m
ORDER BY newest.number DESC
"""
USAGE = f"""
SELECT {{key}} AS key, count(*), {
    ", ".join(f"COALESCE(sum({column}), 0)" for column in USAGE_COLUMNS[:-1])
}, COALESCE(max(estimated), 0), sum(cost), count(*) FILTER (WHERE cost IS NULL)
FROM (
    SELECT COALESCE(t.model, c.model, $4) AS model, {
    columns(USAGE_COLUMNS, "t.")
}, t.cost, t.ended_at
    FROM turns t JOIN conversations c ON c.owner = t.owner AND c.number = t.conversation
    WHERE t.owner = $1 AND t.input_tokens IS NOT NULL AND t.ended_at IS NOT NULL
    UNION ALL
    SELECT model, {columns(USAGE_COLUMNS)}, cost, ended_at FROM calls WHERE owner = $1
) AS used
WHERE ($2::timestamptz IS NULL OR ended_at >= $2) AND ($3::timestamptz IS NULL OR ended_at < $3)
GROUP BY 1
"""
USAGE_KEYS = {"day": "to_char(ended_at AT TIME ZONE 'UTC', 'YYYY-MM-DD')", "model": "model"}

# Idempotent requests, stream events and calls.
# A claim that replaces an expired one of the same request keeps its partial response.
CLAIM_REQUEST = """
INSERT INTO requests (owner, key, body, expires_at)
VALUES ($1, $2, $3, clock_timestamp() + make_interval(secs => $4))
ON CONFLICT (owner, key) DO UPDATE SET body = excluded.body, expires_at = excluded.expires_at,
    status = NULL,
    headers = CASE WHEN requests.status IS NULL AND requests.body = excluded.body
        THEN requests.headers END,
    response = CASE WHEN requests.status IS NULL AND requests.body = excluded.body
        THEN requests.response END
WHERE requests.expires_at <= clock_timestamp()
RETURNING expires_at, headers, response
"""
REQUEST = "SELECT body, status, headers, response FROM requests WHERE owner = $1 AND key = $2"
EXTEND_CLAIM = """
UPDATE requests SET expires_at = clock_timestamp() + make_interval(secs => $4), status = $5,
    headers = $6, response = $7
WHERE owner = $1 AND key = $2 AND expires_at = $3 AND status IS NULL
RETURNING expires_at
"""
FORGET_RESPONSES = "DELETE FROM requests WHERE owner = $1 AND headers::json ->> $2 = $3"
DROP_OLD_REQUESTS = """
DELETE FROM requests WHERE expires_at <= clock_timestamp()
    AND (status IS NOT NULL OR expires_at <= clock_timestamp() - $1::interval)
"""
ADD_EVENTS = """
WITH mine AS (
    SELECT fence FROM leases
    WHERE owner = $1 AND conversation_id = $2 AND fence = $4 AND expires_at > clock_timestamp()),
added AS (
    INSERT INTO events (owner, conversation_id, turn_id, number, data)
    SELECT $1, $2, $3, e.number, e.data
    FROM mine, unnest($5::bigint[], $6::bytea[]) AS e(number, data)
    ON CONFLICT DO NOTHING)
SELECT fence FROM mine
"""
EVENTS_AFTER = f"""
WITH resolved AS (SELECT {RESOLVED} AS id),
c AS (
    SELECT resolved.id, conversations.number FROM resolved
    LEFT JOIN conversations ON conversations.owner = $1 AND conversations.id = resolved.id)
SELECT c.id, EXISTS (SELECT FROM turns t
    WHERE t.owner = $1 AND t.conversation = c.number AND {turn_has_id("$3", "t.")}) AS turn_exists,
    e.number, e.data
FROM c LEFT JOIN events e
    ON e.owner = $1 AND e.conversation_id = c.id AND e.turn_id = $3 AND e.number > $4
ORDER BY e.number
"""
# Reads each turn once. Without OFFSET 0 the planner would scan whole conversations.
DROP_OLD_EVENTS = f"""
WITH stored AS MATERIALIZED (SELECT DISTINCT owner, conversation_id, turn_id FROM events),
old AS (
    SELECT s.owner, s.conversation_id, s.turn_id FROM stored s WHERE NOT EXISTS (
        SELECT FROM conversations c JOIN turns t ON t.owner = c.owner AND t.conversation = c.number
        WHERE c.owner = s.owner AND c.id = s.conversation_id AND {turn_has_id("s.turn_id", "t.")}
            AND (t.ended_at IS NULL OR t.ended_at >= $1) OFFSET 0))
DELETE FROM events e USING old
WHERE e.owner = old.owner AND e.conversation_id = old.conversation_id AND e.turn_id = old.turn_id
"""
# Nothing else deletes the lease of a conversation that was never created.
DROP_OLD_LEASES = """
DELETE FROM leases l WHERE creates = 1 AND expires_at <= clock_timestamp() - $1::interval
    AND NOT EXISTS (
        SELECT FROM conversations c WHERE c.owner = l.owner AND c.id = l.conversation_id)
"""
ADD_CALL = f"""
INSERT INTO calls (owner, {columns(CALL_COLUMNS)}) VALUES ({parameters(1, 1 + len(CALL_COLUMNS))})
"""
