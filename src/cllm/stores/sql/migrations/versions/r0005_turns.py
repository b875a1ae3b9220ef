"""Conversations with owners and turns; messages with their JSON; leases, usage, events, search.

SQLite: turns and messages have the id of their conversation, and an FTS5 table is the search index.

PostgreSQL: they have its number. The function `message_terms` computes the terms of a message from
its text, as `cllm.stores.lists` does for the scripts that it knows; a message's terms are stored
only where the two differ. The index has the terms of 32,768 messages at a time, so that posting
lists stay short and the newest can be read first.
"""

import unicodedata
from typing import Any

import sqlalchemy as sa
from alembic import op

from cllm.stores.sql.migrations import legacy
from cllm.stores.sql.migrations.conversion import downgrade_rows, upgrade_rows
from cllm.stores.sql.migrations.versions import r0001_older_shape, r0002_no_system_message

revision = "0005"
down_revision = "0002"
branch_labels = None
depends_on = None

TEXT, TIME = sa.Text, sa.DateTime(timezone=True)
SHORT, LONG = sa.Integer, sa.BigInteger
TOKENS = ("input", "output", "cache_read", "cache_write", "reasoning", "cache_write_hour")
SEARCH = (
    "CREATE VIRTUAL TABLE message_search USING fts5("
    "terms, content='', detail=none, tokenize=\"ascii tokenchars '_'\")"
)
CASED = (
    *((0xC0, 0xDE), (0x100, 0x17E), (0x386, 0x3C2), (0x400, 0x42F), (0x460, 0x480)),
    *((0x48A, 0x52E), (0x1EA0, 0x1EFE)),
)
LETTERS = (
    "\u00df-\u00f6\u00f8-\u0131\u0134-\u013e\u0141-\u0148\u014a-\u017e\u03ac-\u03ce"
    "\u0430-\u0481\u048a-\u052f\u05d0-\u05ea\u0620-\u064a\u1ea0-\u1eff"
)
JOINED = (
    "\u3040-\u30ff\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\U00020000-\U0003ffff"
)


def _folded(letter: str) -> str | None:
    """Return the lower-case letter of a capital one if folding changes nothing else."""
    small = letter.casefold()
    is_plain = unicodedata.is_normalized("NFKC", letter + small)
    return small if is_plain and len(small) == 1 and small != letter else None


FOLDED = {
    chr(code): small
    for first, last in CASED
    for code in range(first, last + 1)
    if (small := _folded(chr(code))) is not None
}
CAPITAL, SMALL = "".join(FOLDED), "".join(FOLDED.values())

# It depends neither on the database's locale nor on its search path. It accepts any text, JSON or
# not, and never fails.
TERMS = rf"""
CREATE FUNCTION message_terms(owner text, number bigint, raw text, terms text) RETURNS tsvector
LANGUAGE plpgsql IMMUTABLE PARALLEL SAFE COST 5000 AS $function$
DECLARE
    words text COLLATE "C" := terms;
    bucket text COLLATE "C" := to_hex(number >> 15) || '.';
    escaped CONSTANT text COLLATE "C" := '\\[^u]|\\u20[0-6].';
BEGIN
    IF words IS NULL THEN
        IF length(raw) > 16000 THEN
            RETURN NULL;
        END IF;
        words := lower(
            substring(raw COLLATE "C" FROM '"(?:content|text)": ?"((?:[^"\\]|\\.)*)"'));
        IF octet_length(words) <> length(words) THEN
            words := translate(replace(words, 'ß', 'ss'), '{CAPITAL}', '{SMALL}');
            words := regexp_replace(
                words, '(?:' || escaped || '|[^a-z0-9{LETTERS}{JOINED}\\])+', ' ', 'g');
            IF words ~ '[{JOINED}]' THEN
                words := regexp_replace(words, '[{JOINED}]+', ' \& ', 'g');
                words := regexp_replace(words, '[{JOINED}]{{2}}', '\& ', 'g') || ' '
                    || regexp_replace(regexp_replace(words, '(?:^| )[{JOINED}]', ' ', 'g'),
                        '[{JOINED}]{{2}}', '\& ', 'g');
            END IF;
        ELSIF strpos(words, '\') > 0 THEN
            words := regexp_replace(words, '(?:' || escaped || '|[^a-z0-9\\])+', ' ', 'g');
        ELSE
            words := regexp_replace(words, '[^a-z0-9]+', ' ', 'g');
        END IF;
        IF words ~ '[^ ]{{65}}' THEN
            RETURN NULL;
        END IF;
    END IF;
    words := btrim(words);
    IF words = '' THEN
        RETURN NULL;
    END IF;
    RETURN array_to_tsvector((array_remove(string_to_array(
        bucket || '_' || left(encode(sha256(convert_to(owner, 'UTF8')), 'hex'), 16) || ' '
        || bucket || replace(words, ' ', ' ' || bucket), ' '), bucket))[1:60000]);
END $function$
"""
DROP_TERMS = "DROP FUNCTION message_terms(text, bigint, text, text)"
# Built with little memory, so that posting lists grow as they do in use: an index built in one go
# is a tenth larger. Statistics of its terms would have to be computed, and no plan uses them.
INDEX = (
    "SET LOCAL maintenance_work_mem = '16MB'",
    "SET LOCAL max_parallel_maintenance_workers = 0",
    """CREATE INDEX messages_by_terms ON messages
        USING gin (message_terms(owner, number, raw, terms)) WITH (gin_pending_list_limit = 256)""",
    "ALTER INDEX messages_by_terms ALTER COLUMN 1 SET STATISTICS 0",
)
POSTGRES_INDEXES = (
    "CREATE UNIQUE INDEX turns_by_id ON turns (owner, conversation, hashtextextended(id, 0))",
    *INDEX,
    # Without it the planner guesses, and scans long conversations, until the first autovacuum.
    "ANALYZE conversations, turns, messages",
)


def upgrade() -> None:
    bind = op.get_bind()
    for table in ("messages", "conversations"):
        op.rename_table(table, f"older_{table}")
    _create_conversations()
    _create_turns()
    _create_messages()
    _create_records()
    _execute(SEARCH if _is_sqlite() else TERMS)
    upgrade_rows(bind)
    if not _is_sqlite():
        _execute("CREATE SEQUENCE fences", *POSTGRES_INDEXES)
    for table in ("older_messages", "older_conversations"):
        op.drop_table(table)


def downgrade() -> None:
    if _is_sqlite():
        _execute("DROP TABLE message_search")
    else:
        _execute("DROP SEQUENCE fences", "DROP INDEX messages_by_terms", DROP_TERMS)
    for table in legacy.CURRENT_TABLES:
        op.rename_table(table, f"newer_{table}")
    r0001_older_shape.upgrade()
    r0002_no_system_message.upgrade()
    downgrade_rows(op.get_bind())
    for table in legacy.CURRENT_TABLES:
        op.drop_table(f"newer_{table}")


def _is_sqlite() -> bool:
    return op.get_bind().dialect.name == "sqlite"


def _execute(*statements: str) -> None:
    for statement in statements:
        op.get_bind().exec_driver_sql(statement)


def _required(name: str, kind: sa.types.TypeEngine[Any] | type = TEXT) -> "sa.Column[object]":
    return sa.Column(name, kind, nullable=False)


def _optional(kind: sa.types.TypeEngine[Any] | type, *names: str) -> "list[sa.Column[object]]":
    return [sa.Column(name, kind) for name in names]


def _tokens() -> "list[sa.Column[object]]":
    return _optional(LONG, *(f"{name}_tokens" for name in TOKENS))


def _growing() -> "sa.Column[object]":
    if _is_sqlite():
        return sa.Column("number", sa.Integer, primary_key=True)
    return sa.Column("number", LONG, sa.Identity(), nullable=False)


def _create_conversations() -> None:
    newest = ["owner", "updated_at"]
    numbers: list[sa.schema.SchemaItem] = []
    if _is_sqlite():
        newest = [*newest, "id"]
    else:
        unique = sa.UniqueConstraint("owner", "number", name="conversations_by_number")
        numbers = [_growing(), unique]
    op.create_table(
        "conversations",
        _required("owner"),
        _required("id"),
        *_optional(TEXT, "name", "title", "model", "system", "system_record", "context_record"),
        _required("created_at", TIME),
        _required("updated_at", TIME),
        sa.Column("archived_at", TIME),
        _required("metadata"),
        *_optional(TEXT, "pins", "summary", "parent_id"),
        sa.Column("parent_sequence", LONG),
        _required("message_count", LONG),
        *numbers,
        sa.PrimaryKeyConstraint("owner", "id", name="conversations_by_id"),
    )
    op.create_index("conversations_by_name", "conversations", ["owner", "name"], unique=True)
    op.create_index("conversations_by_time", "conversations", newest)


def _turn_columns() -> "list[sa.Column[object]]":
    if _is_sqlite():
        return [
            _required("conversation_id"),
            _required("number", LONG),
            _required("id"),
            _required("place"),
            sa.Column("position", LONG),
            _required("state"),
            *_optional(TEXT, "model", "provider"),
            *_tokens(),
            sa.Column("estimated", sa.SmallInteger),
            sa.Column("cost", sa.Double),
            *_optional(TEXT, "notices", "window", "failure"),
            _required("started_at", TIME),
            sa.Column("ended_at", TIME),
        ]
    # Columns of a fixed width come first, so that no room is lost to alignment.
    return [
        _required("conversation", LONG),
        _required("number", SHORT),
        sa.Column("position", SHORT),
        *_tokens(),
        sa.Column("cost", sa.Double),
        _required("started_at", TIME),
        sa.Column("ended_at", TIME),
        sa.Column("estimated", sa.SmallInteger),
        _required("id"),
        sa.Column("place", TEXT),
        _required("state"),
        *_optional(TEXT, "model", "provider", "notices", "window", "failure"),
    ]


def _create_turns() -> None:
    columns = _turn_columns()
    conversation = ["owner", columns[0].name]
    target = "id" if _is_sqlite() else "number"
    op.create_table(
        "turns",
        _required("owner"),
        *columns,
        sa.PrimaryKeyConstraint(*conversation, "number", name="turns_by_number"),
        sa.ForeignKeyConstraint(
            conversation,
            ["conversations.owner", f"conversations.{target}"],
            name="turns_of_a_conversation",
            ondelete="CASCADE",
        ),
    )
    if _is_sqlite():
        op.create_index("turns_by_id", "turns", [*conversation, "id"], unique=True)
    op.create_index("turns_by_position", "turns", [*conversation, "position"], unique=True)
    op.create_index("turns_by_end", "turns", ["owner", "ended_at"])


def _create_messages() -> None:
    count = LONG if _is_sqlite() else SHORT
    conversation = _required("conversation_id") if _is_sqlite() else _required("conversation", LONG)
    turn = ["owner", conversation.name, "turn"]
    by_turn = sa.PrimaryKeyConstraint(*turn, "ordinal", name="messages_by_turn")
    op.create_table(
        "messages",
        _growing(),
        _required("owner"),
        conversation,
        _required("turn", count),
        _required("ordinal", count),
        sa.Column("sequence_number", count),
        _required("role"),
        _required("dialect"),
        _required("raw"),
        sa.Column("imported", TEXT),
        *(() if _is_sqlite() else (sa.Column("terms", TEXT), by_turn)),
        sa.ForeignKeyConstraint(
            turn,
            ["turns.owner", f"turns.{conversation.name}", "turns.number"],
            name="messages_of_a_turn",
            ondelete="CASCADE",
        ),
    )
    if _is_sqlite():
        op.create_index("messages_by_turn", "messages", [*turn, "ordinal"], unique=True)


def _create_records() -> None:
    op.create_table(
        "leases",
        _required("owner"),
        _required("conversation_id"),
        sa.Column("name", TEXT),
        _required("turn_id"),
        _required("fence", LONG),
        _required("creates", sa.SmallInteger),
        _required("expires_at", TIME),
        sa.PrimaryKeyConstraint("owner", "conversation_id", name="leases_by_conversation"),
    )
    op.create_table(
        "requests",
        _required("owner"),
        _required("key"),
        _required("body"),
        _required("expires_at", TIME),
        sa.Column("status", SHORT),
        sa.Column("headers", TEXT),
        sa.Column("response", sa.LargeBinary),
        sa.PrimaryKeyConstraint("owner", "key", name="requests_by_key"),
    )
    op.create_index("requests_by_expiry", "requests", ["expires_at"])
    op.create_table(
        "events",
        _required("owner"),
        _required("conversation_id"),
        _required("turn_id"),
        _required("number", LONG),
        _required("data", sa.LargeBinary),
        sa.PrimaryKeyConstraint(
            "owner", "conversation_id", "turn_id", "number", name="events_by_number"
        ),
    )
    op.create_table(
        "calls",
        _growing(),
        _required("owner"),
        _required("model"),
        *_tokens(),
        sa.Column("estimated", sa.SmallInteger),
        sa.Column("cost", sa.Double),
        _required("ended_at", TIME),
        *(() if _is_sqlite() else (sa.PrimaryKeyConstraint("owner", "number", name="calls_all"),)),
    )
    op.create_index("calls_by_end", "calls", ["owner", "ended_at"])
