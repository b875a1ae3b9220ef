"""The SQL of lists, searches and usage sums in PostgreSQL; `$1` is the owner."""

# ruff: noqa: S608 - only column names are inserted into the text

from cllm.core.conversation import ITEMS_SOURCE
from cllm.core.ports import MAX_MATCHES
from cllm.stores.overviews import MAX_PREVIEWED
from cllm.stores.postgres.statements import OF_TURN, columns
from cllm.stores.sql.rows import (
    MAX_FILTERED,
    NOT_COPIED,
    ORIGIN,
    SUMMARY_COLUMNS,
    USAGE_COLUMNS,
    overview_sums,
)
from cllm.wire.path_digest import MEANING_END

ARCHIVED = {
    "active": "AND c.archived_at IS NULL",
    "archived": "AND c.archived_at IS NOT NULL",
    "all": "",
}
SELECTED = f"""AND ($3::text IS NULL OR c.source = $3)
    AND ($4::text IS NULL OR strpos(lower(c.model), lower($4)) > 0)
    AND ($5::timestamptz IS NULL OR c.updated_at >= $5)
    AND ($6::text IS NULL OR {ORIGIN} = $6)
    AND ($7::text IS NULL OR strpos(lower(c.title), lower($7)) > 0)"""
LIST = """
SELECT {columns} FROM conversations c
WHERE c.owner = $1 AND c.side <= $2 {selected} {archived} {after}
ORDER BY c.updated_at DESC, c.id LIMIT {limit} OFFSET {offset}
"""
LIST_AFTER = "AND c.updated_at <= $10 AND (c.updated_at < $10 OR c.id > $11)"
COUNT = """
SELECT count(*) FROM conversations c
WHERE c.owner = $1 AND c.side <= $2 {selected} {archived}
"""
COUNT_ALL = """SELECT count(*), count(archived_at) FROM conversations
WHERE owner = $1 AND side = 0"""
OVERVIEWS = f"""
SELECT c.id, last.raw, newest.state, {
    overview_sums("count(*) FILTER (WHERE t.input_tokens IS NOT NULL AND t.cost IS NULL)")
}
FROM conversations c
LEFT JOIN turns t ON t.owner = c.owner AND t.conversation = c.number
LEFT JOIN LATERAL (
    SELECT left(m.raw, {MAX_PREVIEWED}) AS raw FROM turns p CROSS JOIN LATERAL (
        SELECT raw FROM messages m WHERE {OF_TURN.format("p")} ORDER BY ordinal DESC LIMIT 1) AS m
    WHERE p.owner = $1 AND p.conversation = c.number AND p.position IS NOT NULL
    ORDER BY p.position DESC LIMIT 1) AS last ON true
LEFT JOIN LATERAL (
    SELECT state FROM turns n WHERE n.owner = $1 AND n.conversation = c.number
    ORDER BY n.number DESC LIMIT 1) AS newest ON true
WHERE c.owner = $1 AND c.id = ANY($2::text[])
GROUP BY c.id, last.raw, newest.state
"""
RUNNING = """SELECT conversation_id FROM leases
WHERE owner = $1 AND creates = 0 AND expires_at > clock_timestamp()"""
OWNERS = "SELECT DISTINCT owner FROM conversations ORDER BY owner"
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
            SELECT t.conversation, t.id AS turn_id, t.first_sequence, t.state FROM turns t
            WHERE t.owner = $1 AND t.message_group = m.message_group OFFSET 0) AS t
        CROSS JOIN LATERAL (
            SELECT c.id, c.message_count, c.updated_at FROM conversations c
            WHERE c.owner = $1 AND c.number = t.conversation AND c.archived_at IS NULL
                AND c.side = $3 AND (c.family = $4 OR (
                    $4::text IS NULL AND c.source IS DISTINCT FROM '%s')) OFFSET 0) AS c
        WHERE m.owner = $1 AND """
    searched = searched % ITEMS_SOURCE + condition
    return f"""
WITH best AS MATERIALIZED (
    SELECT d.digest, d.position
    FROM unnest($2::bytea[]) WITH ORDINALITY AS d(digest, position)
    CROSS JOIN LATERAL (SELECT 1 {searched.format("d.digest")} LIMIT 1) AS found
    LIMIT 1)
SELECT c.id, t.turn_id, m.ordinal, (SELECT position - 1 FROM best) AS position,
    t.first_sequence, c.message_count, t.state, c.updated_at
{searched.format("(SELECT digest FROM best)")}
ORDER BY m.number DESC, t.conversation DESC LIMIT {MAX_MATCHES}
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
SEARCHED = f"""AND ($5::text IS NULL OR strpos(lower(c.model), lower($5)) > 0)
    AND ($6::timestamptz IS NULL OR c.updated_at >= $6)
    AND ($7::text IS NULL OR {ORIGIN} = $7)"""
_MATCHES = """
SELECT found.* FROM generate_series($4::bigint >> {block_bits}, 0, -1) AS block
CROSS JOIN LATERAL (
    SELECT number, message_group, ordinal FROM messages
    WHERE owner = $1 AND message_terms(owner, number, raw, terms)
        @@ replace($2, '@', to_hex(block) || '.')::tsquery
    ORDER BY number DESC OFFSET 0) AS found
"""
SEARCH = f"""
WITH newest AS MATERIALIZED (
    SELECT m.*, c.id, c.title, t.first_sequence, t.started_at, t.id AS turn_id
    FROM ({_MATCHES} LIMIT {MAX_FILTERED}) AS m
    CROSS JOIN LATERAL (
        SELECT conversation, id, first_sequence, started_at FROM turns
        WHERE owner = $1 AND message_group = m.message_group AND first_sequence IS NOT NULL
            AND state IN ('complete', 'incomplete') OFFSET 0) AS t
    CROSS JOIN LATERAL (
        SELECT c.id, c.title FROM conversations c
        WHERE c.owner = $1 AND c.number = t.conversation {{archived}} {{selected}} OFFSET 0) AS c
    LIMIT $3)
SELECT newest.id, newest.title, newest.first_sequence + newest.ordinal, m.role, m.raw,
    newest.started_at, newest.turn_id, newest.ordinal
FROM newest CROSS JOIN LATERAL (
    SELECT role, raw FROM messages
    WHERE owner = $1 AND message_group = newest.message_group
        AND ordinal = newest.ordinal OFFSET 0) AS m
ORDER BY newest.number DESC
"""
HAS_MORE_MATCHES = f"{_MATCHES} LIMIT 1 OFFSET $3"
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
        AND {NOT_COPIED}
    UNION ALL
    SELECT model, {columns(USAGE_COLUMNS)}, cost, ended_at FROM calls WHERE owner = $1
) AS used
WHERE ($2::timestamptz IS NULL OR ended_at >= $2) AND ($3::timestamptz IS NULL OR ended_at < $3)
GROUP BY 1
"""
_DAY = "to_char(ended_at AT TIME ZONE 'UTC', 'YYYY-MM-DD')"
USAGE_KEYS = {"day": _DAY, "model": "model", "day_model": f"{_DAY} || ' ' || model"}
