"""The SQL of the SQLite store. All values are bound parameters.

Every condition on conversations starts with the owner. A test prepares every statement.
"""

# ruff: noqa: S608 - only column names are inserted into the text

from cllm.core.conversation import ITEMS_SOURCE, MAX_TITLE_MESSAGES
from cllm.core.ports import MAX_MATCHES, ArchiveFilter, UsageBy
from cllm.stores.overviews import MAX_PREVIEWED
from cllm.stores.search import MAX_RANKED
from cllm.stores.sql.rows import (
    CALL_COLUMNS,
    CONVERSATION_COLUMNS,
    MAX_FILTERED,
    NOT_COPIED,
    ORIGIN,
    SUMMARY_COLUMNS,
    TURN_COLUMNS,
    USAGE_COLUMNS,
    overview_sums,
)
from cllm.wire.path_digest import MEANING_END, ROOT


def _marks(count: int) -> str:
    return ", ".join("?" * count)


def _names(*columns: str, table: str = "") -> str:
    return ", ".join(f'{table}"{column}"' for column in columns)


def _set(*columns: str) -> str:
    return ", ".join(f'"{column}" = ?' for column in columns)


_OF_CONVERSATION = "WHERE owner = ? AND conversation_id = ?"
_OF_THIS = "WHERE owner = ?1 AND conversation_id = ?2"
_HISTORY = "state IN ('complete', 'incomplete')"
_RESOLVED = """coalesce((SELECT id FROM conversations WHERE owner = ?1 AND id = ?2),
    (SELECT id FROM conversations WHERE owner = ?1 AND name = ?2))"""
"""The id of the conversation with that id, or else that name."""
_TURN = _names(*TURN_COLUMNS, "number")
_CONTENT = "role, dialect, raw, imported, digest"
_OF_GROUP = "WHERE owner = ? AND message_group = ?"
_JOINED = "t.owner = m.owner AND t.message_group = m.message_group"
"""Joins messages with the turns that have them: one, or also those of branches."""

FIND = f"""SELECT {_names(*CONVERSATION_COLUMNS)} FROM conversations
    WHERE owner = ?1 AND id = {_RESOLVED}"""
FIND_KEY = f"SELECT owner, id FROM conversations WHERE owner = ?1 AND id = {_RESOLVED}"
FIND_SUMMARY = f"""SELECT {_names(*SUMMARY_COLUMNS)} FROM conversations
    WHERE owner = ?1 AND id = {_RESOLVED}"""
FIND_WITH_LEASE = f"""SELECT {_names(*CONVERSATION_COLUMNS, table="c.")},
    l.turn_id, l.fence, l.expires_at, l.holder, t.number, t.state FROM conversations c
    LEFT JOIN leases l ON l.owner = c.owner AND l.conversation_id = c.id
    LEFT JOIN turns t ON t.owner = c.owner AND t.conversation_id = c.id AND t.number =
        (SELECT max(number) FROM turns WHERE owner = c.owner AND conversation_id = c.id)
    WHERE c.owner = ?1 AND c.id = {_RESOLVED}"""
NAME_EXISTS = "SELECT 1 FROM conversations WHERE owner = ?1 AND (id = ?2 OR name = ?2)"
ADD_CONVERSATION = f"""INSERT INTO conversations ({_names(*CONVERSATION_COLUMNS)})
    VALUES ({_marks(len(CONVERSATION_COLUMNS))})"""
UPDATE_CONVERSATION = f"""UPDATE conversations SET {_set(*CONVERSATION_COLUMNS[2:])}
    WHERE owner = ? AND id = ?"""
UPDATE_MESSAGE_COUNT = "UPDATE conversations SET message_count = ? WHERE owner = ? AND id = ?"
UPDATE_AFTER_TURN = f"""UPDATE conversations SET {_set("title", "updated_at", "message_count")}
    WHERE owner = ? AND id = ?"""
UPDATE_OPENING = f"""UPDATE conversations SET {_set("system", "system_record", "context_record")}
    WHERE owner = ? AND id = ?"""
DELETE_CONVERSATION = "DELETE FROM conversations WHERE owner = ? AND id = ?"

NEWEST_TURN = f"SELECT number, state FROM turns {_OF_CONVERSATION} ORDER BY number DESC LIMIT 1"
MARK_INTERRUPTED = f"""UPDATE turns SET state = 'failed', ended_at = coalesce(?, started_at),
        failure = ?
    {_OF_CONVERSATION} AND number = ?"""
TURN_BY_ID = f"""SELECT number, position, message_group, state
    FROM turns {_OF_CONVERSATION} AND id = ?"""
TURN_AT = f"SELECT {_TURN}, position FROM turns {_OF_CONVERSATION} AND number = ?"
TURN_IN_SLOT = f"""SELECT number, position, state FROM turns
    {_OF_CONVERSATION} AND position IS NOT NULL AND place = ?"""
HISTORY_AFTER = f"SELECT 1 FROM turns {_OF_CONVERSATION} AND position > ? AND {_HISTORY} LIMIT 1"
USER_MESSAGES_AFTER = f"""SELECT m.role, m.dialect, m.raw
    FROM turns t CROSS JOIN messages m ON {_JOINED}
    WHERE t.owner = ? AND t.conversation_id = ? AND t.position > ?
    AND t.{_HISTORY} AND m.role = 'user'"""
LAST_WINDOW = f"""SELECT "window" FROM turns {_OF_CONVERSATION} AND position IS NOT NULL
    AND {_HISTORY} ORDER BY position DESC LIMIT 1"""
PATH = f"SELECT {_TURN} FROM turns {_OF_CONVERSATION} AND position >= ? ORDER BY position"
VARIANTS = f"""SELECT {_TURN} FROM turns {_OF_CONVERSATION}
    AND position IS NULL AND number >= ? ORDER BY number"""
# Turns off the path, without the variants of earlier turns on the path.
VARIANTS_FROM = f"""SELECT {_TURN} FROM turns {_OF_THIS} AND position IS NULL
    AND place NOT IN (SELECT place FROM turns {_OF_THIS} AND position < ?3) ORDER BY number"""
NEXT_GROUP = "SELECT coalesce(max(message_group), 0) + 1 FROM turns WHERE owner = ?"
ADD_TURN = f"""INSERT INTO turns (owner, conversation_id, number, position, first_sequence,
    message_group, {_names(*TURN_COLUMNS)}) VALUES ({_marks(6 + len(TURN_COLUMNS))})"""
IS_SHARED = """SELECT 1 FROM turns
    WHERE owner = ?1 AND message_group = ?3 AND conversation_id <> ?2 LIMIT 1"""
UPDATE_TURN = f"UPDATE turns SET {_set(*TURN_COLUMNS[1:])} {_OF_CONVERSATION} AND number = ?"
UPDATE_POSITION = (
    f"UPDATE turns SET {_set('position', 'first_sequence')} {_OF_CONVERSATION} AND number = ?"
)
UPDATE_GROUP = f"UPDATE turns SET message_group = ? {_OF_CONVERSATION} AND number = ?"
COPY_MESSAGES = f"""INSERT INTO messages (owner, message_group, ordinal, {_CONTENT})
    SELECT owner, ?3, ordinal, {_CONTENT} FROM messages
    WHERE owner = ?1 AND message_group = ?2 AND ordinal < ?4"""
DELETE_TURN = f"DELETE FROM turns {_OF_CONVERSATION} AND number = ?"
HAS_TURNS = f"SELECT 1 FROM turns {_OF_CONVERSATION} AND position IS NOT NULL LIMIT 1"
ALL_TURNS = f"SELECT number, message_group, state FROM turns {_OF_CONVERSATION}"
ALL_NUMBERS = f"SELECT id, number, position, message_group, state FROM turns {_OF_CONVERSATION}"
NUMBERS_OF = f"""SELECT id, number FROM turns {_OF_CONVERSATION}
    AND id IN (SELECT value FROM json_each(?))"""

AT_SEQUENCE = f"""SELECT position FROM turns t {_OF_THIS} AND position IS NOT NULL
    AND first_sequence <= ?3
    AND EXISTS (SELECT 1 FROM messages m WHERE {_JOINED} AND m.ordinal = ?3 - t.first_sequence)
    ORDER BY position DESC LIMIT 1"""
_MESSAGES = f"""t.number, m.role, m.dialect, m.raw
    FROM turns t CROSS JOIN messages m ON {_JOINED}
    WHERE t.owner = ? AND t.conversation_id = ?"""
# A turn's number is at least its position, so this selects all messages from the position on.
MESSAGES_SINCE = f"SELECT {_MESSAGES} AND t.number >= ? ORDER BY t.number, m.ordinal"
MESSAGES_OF = f"""SELECT {_MESSAGES} AND t.number IN (SELECT value FROM json_each(?))
    ORDER BY t.number, m.ordinal"""
MESSAGES_FROM = f"SELECT {_MESSAGES} AND t.number = ? ORDER BY m.ordinal LIMIT -1 OFFSET ?"
MESSAGE_COUNTS = f"""SELECT t.number, count(*) FROM turns t CROSS JOIN messages m ON {_JOINED}
    WHERE t.owner = ? AND t.conversation_id = ? AND t.number >= ? GROUP BY t.number"""
RAW_BYTES = f"SELECT number, CAST(raw AS BLOB) FROM messages {_OF_GROUP} AND ordinal >= ?"
NEWEST_MESSAGES = f"""SELECT t.number, t.message_group, m.number
    FROM turns t LEFT JOIN messages m ON {_JOINED}
    WHERE t.owner = ?1 AND t.conversation_id = ?2
    AND t.number = (SELECT max(number) FROM turns {_OF_THIS}) ORDER BY m.ordinal"""
ADD_MESSAGE = f"""INSERT INTO messages
    (owner, message_group, ordinal, digest, role, dialect, raw) VALUES ({_marks(7)})"""
DIGESTS = f"SELECT digest FROM messages {_OF_GROUP} ORDER BY ordinal"
UPDATE_DIGEST = f"UPDATE messages SET digest = ? {_OF_GROUP} AND ordinal = ?"
# The last message of the last turn with a history before a position.
DIGEST_BEFORE = f"""SELECT (SELECT CAST(digest AS BLOB) FROM messages m WHERE {_JOINED}
        ORDER BY m.ordinal DESC LIMIT 1)
    FROM turns t {_OF_CONVERSATION} AND position < ? AND {_HISTORY}
    AND EXISTS (SELECT 1 FROM messages m WHERE {_JOINED}) ORDER BY position DESC LIMIT 1"""
DELETE_MESSAGES = f"DELETE FROM messages {_OF_GROUP} AND ordinal >= ?"
IMPORTED = f"""SELECT t.id, m.ordinal, m.imported FROM turns t CROSS JOIN messages m ON {_JOINED}
    WHERE t.owner = ?1 AND t.conversation_id = {_RESOLVED} AND m.imported IS NOT NULL
    AND (t.first_sequence IS NULL OR t.first_sequence + m.ordinal > ?3)"""
TITLE_MESSAGES = f"""SELECT m.role, m.dialect, m.raw FROM turns t CROSS JOIN messages m ON {_JOINED}
    WHERE t.owner = ? AND t.conversation_id = ? AND t.position IS NOT NULL
    AND m.role = 'user' AND t.{_HISTORY} ORDER BY t.position, m.ordinal
    LIMIT {MAX_TITLE_MESSAGES}"""

INDEX = "INSERT INTO message_search (rowid, terms) VALUES (?, ?)"
UNINDEX = "INSERT INTO message_search (message_search, rowid, terms) VALUES ('delete', ?, ?)"

_LEASE = "turn_id, fence, expires_at, holder"
LEASE_OF = f"SELECT {_LEASE} FROM leases {_OF_CONVERSATION}"
LEASES = f"""SELECT {_LEASE}, conversation_id FROM leases WHERE owner = ?1 AND creates = 0
    AND (?2 IS NULL OR conversation_id = {_RESOLVED})"""
RUNNING = "SELECT conversation_id FROM leases WHERE owner = ? AND creates = 0"
DATA_VERSION = "PRAGMA data_version"
LEASE_CREATING = f"""SELECT {_LEASE} FROM leases
    WHERE owner = ?1 AND creates = 1 AND (conversation_id = ?2 OR name = ?2)"""
PUT_LEASE = f"""INSERT OR REPLACE INTO leases
    (owner, conversation_id, name, turn_id, fence, creates, expires_at, holder)
    VALUES ({_marks(8)})"""
_VALID_LEASE = f"{_OF_CONVERSATION} AND fence = ? AND expires_at > ?"
RENEW_LEASE = f"UPDATE leases SET expires_at = ? {_VALID_LEASE}"
HAS_VALID_LEASE = f"SELECT 1 FROM leases {_VALID_LEASE}"
RELEASE_VALID_LEASE = f"DELETE FROM leases {_VALID_LEASE}"
RELEASE_LEASE = f"DELETE FROM leases {_OF_CONVERSATION} AND fence = ?"
DELETE_LEASE = f"DELETE FROM leases {_OF_CONVERSATION}"

_ARCHIVED: dict[ArchiveFilter, str] = {
    "active": "AND archived_at IS NULL",
    "archived": "AND archived_at IS NOT NULL",
    "all": "",
}
_LISTED = f"""FROM conversations WHERE owner = ?1 AND (?2 OR side IS NOT 1)
    AND (?3 IS NULL OR source = ?3) AND (?4 IS NULL OR instr(lower(model), lower(?4)) > 0)
    AND (?5 IS NULL OR updated_at >= ?5) AND (?6 IS NULL OR {ORIGIN} = ?6)
    AND (?7 IS NULL OR instr(lower(title), lower(?7)) > 0)"""
_LIST = f"SELECT {_names(*SUMMARY_COLUMNS)} {_LISTED}"
LIST = {
    archived: f"{_LIST} {condition} ORDER BY updated_at DESC, id LIMIT ?8 OFFSET ?9"
    for archived, condition in _ARCHIVED.items()
}
LIST_AFTER = {
    archived: f"""{_LIST} {condition} AND updated_at <= ?8 AND (updated_at < ?8 OR id > ?9)
    ORDER BY updated_at DESC, id LIMIT ?10 OFFSET ?11"""
    for archived, condition in _ARCHIVED.items()
}
COUNT = {
    archived: f"SELECT count(*) {_LISTED} {condition}" for archived, condition in _ARCHIVED.items()
}
COUNT_ALL = """SELECT count(*), count(archived_at) FROM conversations
    WHERE owner = ? AND side IS NOT 1"""
OVERVIEWS = f"""SELECT c.id, (
        SELECT substr(m.raw, 1, {MAX_PREVIEWED}) FROM turns t CROSS JOIN messages m ON {_JOINED}
        WHERE t.owner = c.owner AND t.conversation_id = c.id AND t.position IS NOT NULL
        ORDER BY t.position DESC, m.ordinal DESC LIMIT 1),
    (SELECT state FROM turns t WHERE t.owner = c.owner AND t.conversation_id = c.id
        ORDER BY t.number DESC LIMIT 1),
    {overview_sums("sum(t.input_tokens IS NOT NULL AND t.cost IS NULL)")}
    FROM conversations c LEFT JOIN turns t ON t.owner = c.owner AND t.conversation_id = c.id
    WHERE c.owner = ?1 AND c.id IN (SELECT value FROM json_each(?2)) GROUP BY c.id"""
OWNERS = "SELECT DISTINCT owner FROM conversations ORDER BY owner"
LIST_FAMILY = f"""SELECT {_names(*SUMMARY_COLUMNS)} FROM conversations
    WHERE owner = ? AND family = ? AND archived_at IS NULL ORDER BY updated_at DESC, id LIMIT ?"""


def _find_paths(condition: str) -> str:
    """Find messages by `?3` digests, which are one after another in `?2`.

    The first query finds the first digest that a message has. The digest is a constant in the
    second one, so that the index has its messages in order, and no more than the limit are read.
    """
    searched = f"""FROM messages m CROSS JOIN turns t ON {_JOINED}
        CROSS JOIN conversations c ON c.owner = t.owner AND c.id = t.conversation_id
        WHERE m.owner = ?1 AND {{condition}} AND c.archived_at IS NULL AND c.side = ?4
        AND (c.family = ?5 OR (?5 IS NULL AND c.source IS NOT '{ITEMS_SOURCE}'))"""
    exists = searched.format(condition=condition.format("d.digest"))
    matches = searched.format(condition=condition.format("(SELECT digest FROM best)"))
    return f"""WITH RECURSIVE numbers(position) AS (
        SELECT 0 WHERE ?3 > 0
        UNION ALL SELECT position + 1 FROM numbers WHERE position + 1 < ?3 ORDER BY 1),
    best AS MATERIALIZED (
        SELECT position, digest FROM (
            SELECT position, substr(?2, position * {len(ROOT)} + 1, {len(ROOT)}) AS digest
            FROM numbers) AS d
        WHERE EXISTS (SELECT 1 {exists}) LIMIT 1)
    SELECT c.id, t.id, m.ordinal, (SELECT position FROM best), t.first_sequence,
        c.message_count, t.state, c.updated_at {matches}
    ORDER BY m.number DESC, t.rowid DESC LIMIT {MAX_MATCHES}"""


FIND_PATHS = {
    False: _find_paths("m.digest = {0}"),
    True: _find_paths(f"m.digest BETWEEN substr({{0}}, 1, {MEANING_END}) AND {{0}}"),
}
"""By whether the IDs of tool calls may differ; then each digest ends with the highest IDs."""
# The query has the owner's term.
_MATCHES = """SELECT rowid FROM message_search WHERE message_search MATCH ?1
    ORDER BY rowid DESC"""
# The result has the order of the matches, since CROSS JOIN fixes the order of execution. Sorting it
# would read all matches first.
SEARCH = {
    archived: f"""SELECT c.id, c.title, t.first_sequence, m.role, CAST(m.raw AS BLOB),
    t.started_at, t.id, m.ordinal FROM ({_MATCHES} LIMIT {MAX_FILTERED}) s
    CROSS JOIN messages m ON m.number = s.rowid CROSS JOIN turns t ON {_JOINED}
    CROSS JOIN conversations c ON c.owner = t.owner AND c.id = t.conversation_id
    WHERE m.owner = ?2 AND t.first_sequence IS NOT NULL
    AND (?3 IS NULL OR instr(lower(c.model), lower(?3)) > 0)
    AND (?4 IS NULL OR c.updated_at >= ?4) AND (?5 IS NULL OR {ORIGIN} = ?5)
    {condition} LIMIT {MAX_RANKED + 1}"""
    for archived, condition in _ARCHIVED.items()
}
HAS_MORE_MATCHES = f"{_MATCHES} LIMIT 1 OFFSET {MAX_FILTERED}"

_PERIOD = "{0}ended_at >= coalesce(?2, '') AND {0}ended_at < coalesce(?3, '9999-12-31')"
_DAY = "substr({0}ended_at, 1, 10)"
_MODEL = "coalesce(t.model, c.model, 'unknown')"
_GROUPS: dict[UsageBy, tuple[str, str]] = {
    "day": (_DAY.format("t."), _DAY.format("")),
    "model": (_MODEL, "model"),
    "day_model": (f"{_DAY.format('t.')} || ' ' || {_MODEL}", f"{_DAY.format('')} || ' ' || model"),
}


def _usage(by: UsageBy) -> str:
    columns = _names(*USAGE_COLUMNS, "cost")
    turn_group, call_group = _GROUPS[by]
    return f"""SELECT key, count(*), {", ".join(f"sum({column})" for column in USAGE_COLUMNS[:-1])},
    max(estimated), total(cost), sum(cost IS NULL)
    FROM (SELECT {turn_group} AS key, {columns} FROM turns t
        CROSS JOIN conversations c ON c.owner = t.owner AND c.id = t.conversation_id
        WHERE t.owner = ?1 AND t.input_tokens IS NOT NULL AND {_PERIOD.format("t.")}
            AND {NOT_COPIED}
        UNION ALL
        SELECT {call_group} AS key, {columns} FROM calls WHERE owner = ?1 AND {_PERIOD.format("")})
    GROUP BY key ORDER BY key"""


USAGE: dict[UsageBy, str] = {by: _usage(by) for by in _GROUPS}

REQUEST = """SELECT expires_at, holder, body, status, headers, response FROM requests
    WHERE owner = ? AND key = ?"""
CLAIM_REQUEST = f"""INSERT OR REPLACE INTO requests
    (owner, key, body, expires_at, headers, response, holder) VALUES ({_marks(7)})"""
EXTEND_CLAIM = f"""UPDATE requests SET {_set("expires_at", "status", "headers", "response")}
    WHERE owner = ? AND key = ? AND expires_at = ? AND status IS NULL"""
FORGET_RESPONSES = """DELETE FROM requests WHERE owner = ? AND headers IS NOT NULL
    AND EXISTS (SELECT 1 FROM json_each(headers) WHERE key = ? AND value = ?)"""
DROP_OLD_REQUESTS = """DELETE FROM requests
    WHERE expires_at <= ?1 AND (status IS NOT NULL OR expires_at <= ?2)"""
DROP_OLD_LEASES = """DELETE FROM leases WHERE creates = 1 AND expires_at <= ?
    AND NOT EXISTS (SELECT 1 FROM conversations c
        WHERE c.owner = leases.owner AND c.id = leases.conversation_id)"""
ADD_EVENT = f"""INSERT INTO events (owner, conversation_id, turn_id, number, data)
    VALUES ({_marks(5)})"""
EVENTS_AFTER = f"""SELECT number, data FROM events {_OF_CONVERSATION}
    AND turn_id = ? AND number > ? ORDER BY number"""
DELETE_EVENTS = f"DELETE FROM events {_OF_CONVERSATION}"
DROP_OLD_EVENTS = """DELETE FROM events WHERE NOT EXISTS (SELECT 1 FROM turns t
    WHERE t.owner = events.owner AND t.conversation_id = events.conversation_id
    AND t.id = events.turn_id AND (t.ended_at IS NULL OR t.ended_at >= ?))"""
ADD_CALL = f"""INSERT INTO calls (owner, {_names(*CALL_COLUMNS)})
    VALUES ({_marks(1 + len(CALL_COLUMNS))})"""
