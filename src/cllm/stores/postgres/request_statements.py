"""The SQL of idempotent requests, stream events and calls in PostgreSQL; `$1` is the owner."""

# ruff: noqa: S608 - only column names are inserted into the text

from cllm.stores.postgres.statements import RESOLVED, columns, parameters, turn_has_id
from cllm.stores.sql.rows import CALL_COLUMNS

IS_READ_ONLY = "SELECT current_setting('transaction_read_only') = 'on'"
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
