"""What the SQLite store says to its database: SQL text, written once, with bound parameters only.

Every statement about a conversation begins its condition with the owner. Column lists come from
`rows.py`; a test prepares every statement against the newest revision.
"""

from cllm.core.ports import ArchiveFilter, UsageBy
from cllm.stores.sql.rows import (
    CALL_COLUMNS,
    CONVERSATION_COLUMNS,
    SUMMARY_COLUMNS,
    TURN_COLUMNS,
    USAGE_COLUMNS,
)
from cllm.stores.sql.search import NEWEST


def _sql(*pieces: str) -> str:
    return " ".join(pieces)


def _marks(count: int) -> str:
    return ", ".join("?" * count)


def _listed(columns: tuple[str, ...]) -> str:
    return ", ".join(f'"{column}"' for column in columns)


_OF_CONVERSATION = "WHERE owner = ? AND conversation_id = ?"
_HISTORY = "state IN ('complete', 'incomplete')"

BY_ID = _sql(
    "SELECT", _listed(CONVERSATION_COLUMNS), "FROM conversations WHERE owner = ? AND id = ?"
)
BY_NAME = _sql(
    "SELECT", _listed(CONVERSATION_COLUMNS), "FROM conversations WHERE owner = ? AND name = ?"
)
_STANDING = _sql(
    "SELECT",
    ", ".join(f"c.{column}" for column in CONVERSATION_COLUMNS),
    ", l.turn_id, l.fence, l.expires_at, t.number, t.state FROM conversations c",
    "LEFT JOIN leases l ON l.owner = c.owner AND l.conversation_id = c.id",
    "LEFT JOIN turns t ON t.owner = c.owner AND t.conversation_id = c.id AND t.number =",
    "(SELECT max(number) FROM turns WHERE owner = c.owner AND conversation_id = c.id)",
)
STANDING_BY_ID = _sql(_STANDING, "WHERE c.owner = ? AND c.id = ?")
STANDING_BY_NAME = _sql(_STANDING, "WHERE c.owner = ? AND c.name = ?")
KEY_BY_ID = "SELECT owner, id FROM conversations WHERE owner = ? AND id = ?"
KEY_BY_NAME = "SELECT owner, id FROM conversations WHERE owner = ? AND name = ?"
SUMMARY_BY_ID = _sql(
    "SELECT", _listed(SUMMARY_COLUMNS), "FROM conversations WHERE owner = ? AND id = ?"
)
SUMMARY_BY_NAME = _sql(
    "SELECT", _listed(SUMMARY_COLUMNS), "FROM conversations WHERE owner = ? AND name = ?"
)
IS_TAKEN = "SELECT 1 FROM conversations WHERE owner = ?1 AND (id = ?2 OR name = ?2)"
ADD_CONVERSATION = _sql(
    "INSERT INTO conversations (",
    _listed(CONVERSATION_COLUMNS),
    ") VALUES (",
    _marks(len(CONVERSATION_COLUMNS)),
    ")",
)
CHANGE_CONVERSATION = _sql(
    "UPDATE conversations SET",
    ", ".join(f"{column} = ?" for column in CONVERSATION_COLUMNS[2:]),
    "WHERE owner = ? AND id = ?",
)
CHANGE_COUNT = "UPDATE conversations SET message_count = ? WHERE owner = ? AND id = ?"
END_TURN = (
    "UPDATE conversations SET title = ?, updated_at = ?, message_count = ? "
    "WHERE owner = ? AND id = ?"
)
OPEN = (
    "UPDATE conversations SET system = ?, system_record = ?, context_record = ? "
    "WHERE owner = ? AND id = ?"
)
DELETE_CONVERSATION = "DELETE FROM conversations WHERE owner = ? AND id = ?"

NEWEST_TURN = _sql(
    "SELECT number, state FROM turns", _OF_CONVERSATION, "ORDER BY number DESC LIMIT 1"
)
SETTLE_TURN = _sql(
    "UPDATE turns SET state = 'failed', ended_at = ?, failure = ?",
    _OF_CONVERSATION,
    "AND number = ?",
)
TURN_BY_ID = _sql(
    "SELECT number, position, place, state FROM turns", _OF_CONVERSATION, "AND id = ?"
)
TURN_IN_PLACE = _sql(
    "SELECT number, position, state FROM turns",
    _OF_CONVERSATION,
    "AND position IS NOT NULL AND place = ?",
)
HISTORY_AFTER = _sql(
    "SELECT 1 FROM turns", _OF_CONVERSATION, "AND position > ? AND", _HISTORY, "LIMIT 1"
)
SAID_AFTER = (
    "SELECT m.role, m.dialect, m.raw FROM messages m JOIN turns t ON t.owner = m.owner"
    " AND t.conversation_id = m.conversation_id AND t.number = m.turn"
    " WHERE t.owner = ? AND t.conversation_id = ? AND t.position > ?"
    " AND t.state IN ('complete', 'incomplete') AND m.role = 'user'"
)
LAST_WINDOW = _sql(
    'SELECT "window" FROM turns',
    _OF_CONVERSATION,
    "AND position IS NOT NULL AND",
    _HISTORY,
    "ORDER BY position DESC LIMIT 1",
)
PATH = _sql(
    "SELECT",
    _listed((*TURN_COLUMNS, "number")),
    "FROM turns",
    _OF_CONVERSATION,
    "AND position >= ? ORDER BY position",
)
VARIANTS = _sql(
    "SELECT",
    _listed((*TURN_COLUMNS, "number")),
    "FROM turns",
    _OF_CONVERSATION,
    "AND position IS NULL AND number >= ? ORDER BY number",
)
ADD_TURN = _sql(
    "INSERT INTO turns (owner, conversation_id, number, position,",
    _listed(TURN_COLUMNS),
    ") VALUES (",
    _marks(4 + len(TURN_COLUMNS)),
    ")",
)
CHANGE_TURN = _sql(
    "UPDATE turns SET",
    ", ".join(f'"{column}" = ?' for column in TURN_COLUMNS[1:]),
    _OF_CONVERSATION,
    "AND number = ?",
)
CHANGE_POSITION = _sql("UPDATE turns SET position = ?", _OF_CONVERSATION, "AND number = ?")
DELETE_TURN = _sql("DELETE FROM turns", _OF_CONVERSATION, "AND number = ?")
HAS_TURNS = _sql("SELECT 1 FROM turns", _OF_CONVERSATION, "AND position IS NOT NULL LIMIT 1")
ALL_TURNS = _sql("SELECT number, state FROM turns", _OF_CONVERSATION)
ALL_NUMBERS = _sql("SELECT id, number, position, state FROM turns", _OF_CONVERSATION)

# From the newest message back: whoever asks reads those, or deletes them.
AT_SEQUENCE = _sql(
    "SELECT m.turn, m.ordinal, t.position, t.state FROM messages m CROSS JOIN turns t"
    " ON t.owner = m.owner AND t.conversation_id = m.conversation_id AND t.number = m.turn"
    " WHERE m.owner = ? AND m.conversation_id = ? AND m.sequence_number = ?"
    " ORDER BY m.turn DESC LIMIT 1"
)
# A turn's number is at least its position: these are all messages from that position on.
MESSAGES_SINCE = _sql(
    "SELECT turn, role, dialect, raw FROM messages",
    _OF_CONVERSATION,
    "AND turn >= ? ORDER BY turn, ordinal",
)
# A turn off the path belongs to the edit unless its place is on the path before.
VARIANTS_FROM = _sql(
    "SELECT",
    _listed((*TURN_COLUMNS, "number")),
    "FROM turns WHERE owner = ?1 AND conversation_id = ?2 AND position IS NULL AND place NOT IN",
    "(SELECT place FROM turns WHERE owner = ?1 AND conversation_id = ?2 AND position < ?3)",
    "ORDER BY number",
)
MESSAGE_COUNTS = _sql(
    "SELECT turn, count(*) FROM messages", _OF_CONVERSATION, "AND turn >= ? GROUP BY turn"
)
NUMBERS_OF = _sql(
    "SELECT id, number FROM turns", _OF_CONVERSATION, "AND id IN (SELECT value FROM json_each(?))"
)
MESSAGES_OF = _sql(
    "SELECT turn, role, dialect, raw FROM messages",
    _OF_CONVERSATION,
    "AND turn IN (SELECT value FROM json_each(?)) ORDER BY turn, ordinal",
)
MESSAGES_FROM = _sql(
    "SELECT turn, role, dialect, raw FROM messages",
    _OF_CONVERSATION,
    "AND turn = ? ORDER BY ordinal LIMIT -1 OFFSET ?",
)
RAW_BYTES = _sql(
    "SELECT number, CAST(raw AS BLOB) FROM messages",
    _OF_CONVERSATION,
    "AND turn = ? AND ordinal >= ?",
)
NEWEST_MESSAGES = _sql(
    "SELECT turn, number FROM messages WHERE owner = ?1 AND conversation_id = ?2",
    "AND turn = (SELECT max(number) FROM turns WHERE owner = ?1 AND conversation_id = ?2)",
    "ORDER BY ordinal",
)
ADD_MESSAGE = (
    "INSERT INTO messages (owner, conversation_id, turn, ordinal, sequence_number, role, dialect,"
    " raw) VALUES (?, ?, ?, ?, ?, ?, ?, ?)"
)
DELETE_MESSAGES = _sql("DELETE FROM messages", _OF_CONVERSATION, "AND turn = ? AND ordinal >= ?")
NUMBER_TURN = _sql(
    "UPDATE messages SET sequence_number = ? + ordinal", _OF_CONVERSATION, "AND turn = ?"
)
FIRST_SAID = (
    "SELECT m.role, m.dialect, m.raw FROM turns t CROSS JOIN messages m ON m.owner = t.owner"
    " AND m.conversation_id = t.conversation_id AND m.turn = t.number"
    " WHERE t.owner = ? AND t.conversation_id = ? AND t.position IS NOT NULL"
    " AND m.role = 'user' AND t.state IN ('complete', 'incomplete')"
    " ORDER BY t.position, m.ordinal LIMIT 1"
)

INDEX = "INSERT INTO message_search (rowid, terms) VALUES (?, ?)"
UNINDEX = "INSERT INTO message_search (message_search, rowid, terms) VALUES ('delete', ?, ?)"

LEASE_OF = _sql("SELECT turn_id, fence, expires_at FROM leases", _OF_CONVERSATION)
LEASE_CREATING = (
    "SELECT turn_id, fence, expires_at, conversation_id FROM leases"
    " WHERE owner = ?1 AND creates = 1 AND (conversation_id = ?2 OR name = ?2)"
)
PUT_LEASE = (
    "INSERT OR REPLACE INTO leases (owner, conversation_id, name, turn_id, fence, creates,"
    " expires_at) VALUES (?, ?, ?, ?, ?, ?, ?)"
)
RENEW_LEASE = _sql(
    "UPDATE leases SET expires_at = ?", _OF_CONVERSATION, "AND fence = ? AND expires_at > ?"
)
HOLDS_LEASE = _sql("SELECT 1 FROM leases", _OF_CONVERSATION, "AND fence = ? AND expires_at > ?")
GIVE_BACK = _sql("DELETE FROM leases", _OF_CONVERSATION, "AND fence = ? AND expires_at > ?")
RELEASE = _sql("DELETE FROM leases", _OF_CONVERSATION, "AND fence = ?")
DELETE_LEASE = _sql("DELETE FROM leases", _OF_CONVERSATION)

_SHOWN: dict[ArchiveFilter, str] = {
    "active": "AND archived_at IS NULL",
    "archived": "AND archived_at IS NOT NULL",
    "all": "",
}
LIST = {
    shown: _sql(
        "SELECT",
        _listed(SUMMARY_COLUMNS),
        "FROM conversations WHERE owner = ?",
        condition,
        "ORDER BY updated_at DESC, id LIMIT ? OFFSET ?",
    )
    for shown, condition in _SHOWN.items()
}
LIST_AFTER = {
    shown: _sql(
        "SELECT",
        _listed(SUMMARY_COLUMNS),
        "FROM conversations WHERE owner = ?1",
        condition,
        "AND updated_at <= ?2 AND (updated_at < ?2 OR id > ?3)",
        "ORDER BY updated_at DESC, id LIMIT ?4 OFFSET ?5",
    )
    for shown, condition in _SHOWN.items()
}
COUNT = {
    shown: _sql("SELECT count(*) FROM conversations WHERE owner = ?", condition)
    for shown, condition in _SHOWN.items()
}
SEARCH = {
    shown: _sql(
        "SELECT m.conversation_id, c.title, m.sequence_number, m.role, CAST(m.raw AS BLOB),",
        "t.started_at",
        "FROM message_search s CROSS JOIN messages m ON m.number = s.rowid",
        "CROSS JOIN conversations c ON c.owner = m.owner AND c.id = m.conversation_id",
        "CROSS JOIN turns t ON t.owner = m.owner AND t.conversation_id = m.conversation_id",
        "AND t.number = m.turn",
        "WHERE message_search MATCH ? AND m.owner = ? AND m.sequence_number IS NOT NULL",
        condition,
        f"ORDER BY s.rowid DESC LIMIT {NEWEST + 1}",
    )
    for shown, condition in _SHOWN.items()
}

_SUMS = _sql(
    *(f"sum({column})," for column in USAGE_COLUMNS[:-1]),
    "max(estimated), total(cost), sum(cost IS NULL)",
)
_USED_IN_TURNS = {
    "day": "FROM turns t WHERE t.owner = ?1",
    "model": (
        "FROM turns t JOIN conversations c ON c.owner = t.owner AND c.id = t.conversation_id"
        " WHERE t.owner = ?1"
    ),
}
_KEY = {
    "day": ("substr(t.ended_at, 1, 10)", "substr(ended_at, 1, 10)"),
    "model": ("coalesce(t.model, c.model, 'unknown')", "model"),
}
_WHEN = "ended_at >= coalesce(?2, '') AND ended_at < coalesce(?3, '9999-12-31')"


def _usage(by: UsageBy) -> str:
    columns = _listed((*USAGE_COLUMNS, "cost"))
    of_turn, of_call = _KEY[by]
    return _sql(
        "SELECT key, count(*),",
        _SUMS,
        "FROM (SELECT",
        of_turn,
        "AS key,",
        columns,
        _USED_IN_TURNS[by],
        "AND t.input_tokens IS NOT NULL AND t." + _WHEN.replace(" AND ", " AND t."),
        "UNION ALL SELECT",
        of_call,
        "AS key,",
        columns,
        "FROM calls WHERE owner = ?1 AND",
        _WHEN,
        ") GROUP BY key ORDER BY key",
    )


USAGE: dict[UsageBy, str] = {"day": _usage("day"), "model": _usage("model")}

REQUEST = (
    "SELECT body, expires_at, status, headers, response FROM requests WHERE owner = ? AND key = ?"
)
CLAIM_REQUEST = (
    "INSERT OR REPLACE INTO requests (owner, key, body, expires_at, headers, response)"
    " VALUES (?, ?, ?, ?, ?, ?)"
)
HOLD_REQUEST = (
    "UPDATE requests SET expires_at = ?, status = ?, headers = ?, response = ?"
    " WHERE owner = ? AND key = ? AND expires_at = ? AND status IS NULL"
)
FORGET_RESPONSES = (
    "DELETE FROM requests WHERE owner = ? AND headers IS NOT NULL"
    " AND EXISTS (SELECT 1 FROM json_each(headers) WHERE key = ? AND value = ?)"
)
DROP_OLD_REQUESTS = (
    "DELETE FROM requests WHERE expires_at <= ?1 AND (status IS NOT NULL OR expires_at <= ?2)"
)
DROP_OLD_LEASES = (
    "DELETE FROM leases WHERE creates = 1 AND expires_at <= ? AND NOT EXISTS (SELECT 1"
    " FROM conversations c WHERE c.owner = leases.owner AND c.id = leases.conversation_id)"
)
ADD_EVENT = (
    "INSERT INTO events (owner, conversation_id, turn_id, number, data) VALUES (?, ?, ?, ?, ?)"
)
EVENTS_AFTER = _sql(
    "SELECT number, data FROM events",
    _OF_CONVERSATION,
    "AND turn_id = ? AND number > ? ORDER BY number",
)
DELETE_EVENTS = _sql("DELETE FROM events", _OF_CONVERSATION)
DROP_OLD_EVENTS = (
    "DELETE FROM events WHERE NOT EXISTS (SELECT 1 FROM turns t WHERE t.owner = events.owner"
    " AND t.conversation_id = events.conversation_id AND t.id = events.turn_id"
    " AND (t.ended_at IS NULL OR t.ended_at >= ?))"
)
ADD_CALL = _sql(
    "INSERT INTO calls (owner,",
    _listed(CALL_COLUMNS),
    ") VALUES (",
    _marks(1 + len(CALL_COLUMNS)),
    ")",
)
