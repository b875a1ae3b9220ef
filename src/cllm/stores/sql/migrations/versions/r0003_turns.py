"""Conversations with owners and turns; messages with their JSON; leases, usage, events, search."""

from typing import Any

import sqlalchemy as sa
from alembic import op

from cllm.stores.sql.migrations import bring_up, take_down
from cllm.stores.sql.migrations.versions import r0001_older_shape, r0002_no_system_message

revision = "0003"
down_revision = "0002"
branch_labels = None
depends_on = None

TEXT, NUMBER, TIME = sa.Text, sa.BigInteger, sa.DateTime(timezone=True)
TOKENS = ("input", "output", "cache_read", "cache_write", "reasoning", "cache_write_hour")
OURS = ("calls", "events", "requests", "leases", "messages", "turns", "conversations")


def upgrade() -> None:
    for table in ("messages", "conversations"):
        op.rename_table(table, f"older_{table}")
    _create_conversations()
    _create_turns()
    _create_messages()
    _create_records()
    _create_search()
    bring_up.bring_up(op.get_bind())
    for table in ("older_messages", "older_conversations"):
        op.drop_table(table)


def downgrade() -> None:
    _drop_search()
    for table in OURS:
        op.rename_table(table, f"newer_{table}")
    r0001_older_shape.upgrade()
    r0002_no_system_message.upgrade()
    take_down.take_down(op.get_bind())
    for table in OURS:
        op.drop_table(f"newer_{table}")


def _is_sqlite() -> bool:
    return op.get_bind().dialect.name == "sqlite"


def _given(name: str, kind: sa.types.TypeEngine[Any] | type = TEXT) -> "sa.Column[object]":
    return sa.Column(name, kind, nullable=False)


def _usage() -> "list[sa.Column[object]]":
    return [
        *(sa.Column(f"{name}_tokens", NUMBER) for name in TOKENS),
        sa.Column("estimated", sa.SmallInteger),
        sa.Column("cost", sa.Double),
    ]


def _growing() -> "sa.Column[object]":
    if _is_sqlite():
        return sa.Column("number", sa.Integer, primary_key=True)
    return sa.Column("number", NUMBER, sa.Identity(), nullable=False)


def _create_conversations() -> None:
    op.create_table(
        "conversations",
        _given("owner"),
        _given("id"),
        *(sa.Column(name, TEXT) for name in ("name", "title", "model")),
        *(sa.Column(name, TEXT) for name in ("system", "system_record", "context_record")),
        _given("created_at", TIME),
        _given("updated_at", TIME),
        sa.Column("archived_at", TIME),
        _given("metadata"),
        *(sa.Column(name, TEXT) for name in ("pins", "summary", "parent_id")),
        sa.Column("parent_sequence", NUMBER),
        _given("message_count", NUMBER),
        sa.PrimaryKeyConstraint("owner", "id", name="conversations_by_id"),
    )
    op.create_index("conversations_by_name", "conversations", ["owner", "name"], unique=True)
    op.create_index("conversations_by_time", "conversations", ["owner", "updated_at", "id"])


def _create_turns() -> None:
    conversation = ["owner", "conversation_id"]
    op.create_table(
        "turns",
        _given("owner"),
        _given("conversation_id"),
        _given("number", NUMBER),
        _given("id"),
        _given("place"),
        sa.Column("position", NUMBER),
        _given("state"),
        sa.Column("model", TEXT),
        sa.Column("provider", TEXT),
        *_usage(),
        *(sa.Column(name, TEXT) for name in ("notices", "window", "failure")),
        _given("started_at", TIME),
        sa.Column("ended_at", TIME),
        sa.PrimaryKeyConstraint(*conversation, "number", name="turns_by_number"),
        sa.ForeignKeyConstraint(
            conversation,
            ["conversations.owner", "conversations.id"],
            name="turns_of_a_conversation",
            ondelete="CASCADE",
        ),
    )
    op.create_index("turns_by_id", "turns", [*conversation, "id"], unique=True)
    op.create_index("turns_by_position", "turns", [*conversation, "position"], unique=True)
    op.create_index("turns_by_end", "turns", ["owner", "ended_at"])


def _create_messages() -> None:
    natural = ["owner", "conversation_id", "turn", "ordinal"]
    keys = () if _is_sqlite() else (sa.PrimaryKeyConstraint(*natural, name="messages_by_turn"),)
    op.create_table(
        "messages",
        _growing(),
        _given("owner"),
        _given("conversation_id"),
        _given("turn", NUMBER),
        _given("ordinal", NUMBER),
        sa.Column("sequence_number", NUMBER),
        _given("role"),
        _given("dialect"),
        _given("raw"),
        sa.Column("imported", TEXT),
        *keys,
        sa.ForeignKeyConstraint(
            ["owner", "conversation_id", "turn"],
            ["turns.owner", "turns.conversation_id", "turns.number"],
            name="messages_of_a_turn",
            ondelete="CASCADE",
        ),
    )
    if _is_sqlite():
        op.create_index("messages_by_turn", "messages", natural, unique=True)
    numbered = ["owner", "conversation_id", "sequence_number"]
    op.create_index("messages_by_sequence", "messages", numbered, unique=True)


def _create_records() -> None:
    op.create_table(
        "leases",
        _given("owner"),
        _given("conversation_id"),
        sa.Column("name", TEXT),
        _given("turn_id"),
        _given("fence", NUMBER),
        _given("creates", sa.SmallInteger),
        _given("expires_at", TIME),
        sa.PrimaryKeyConstraint("owner", "conversation_id", name="leases_by_conversation"),
    )
    op.create_table(
        "requests",
        _given("owner"),
        _given("key"),
        _given("body"),
        _given("expires_at", TIME),
        sa.Column("status", sa.Integer),
        sa.Column("headers", TEXT),
        sa.Column("response", sa.LargeBinary),
        sa.PrimaryKeyConstraint("owner", "key", name="requests_by_key"),
    )
    op.create_index("requests_by_expiry", "requests", ["expires_at"])
    _create_counted()


def _create_counted() -> None:
    op.create_table(
        "events",
        _given("owner"),
        _given("conversation_id"),
        _given("turn_id"),
        _given("number", NUMBER),
        _given("data", sa.LargeBinary),
        sa.PrimaryKeyConstraint(
            "owner", "conversation_id", "turn_id", "number", name="events_by_number"
        ),
    )
    keys = () if _is_sqlite() else (sa.PrimaryKeyConstraint("owner", "number", name="calls_all"),)
    op.create_table(
        "calls",
        _growing(),
        _given("owner"),
        _given("model"),
        *_usage(),
        _given("ended_at", TIME),
        *keys,
    )
    op.create_index("calls_by_end", "calls", ["owner", "ended_at"])


def _create_search() -> None:
    if _is_sqlite():
        op.execute(
            "CREATE VIRTUAL TABLE message_search USING fts5("
            "terms, content='', detail=none, tokenize=\"ascii tokenchars '_'\")"
        )
        return
    op.execute("CREATE SEQUENCE fences")
    op.execute("ALTER TABLE messages ADD COLUMN terms tsvector")
    # A message of a kilobyte stays in its row with its terms: elsewhere they take more room.
    op.execute("ALTER TABLE messages SET (toast_tuple_target = 4080)")
    op.execute("CREATE INDEX messages_by_terms ON messages USING gin (terms)")
    op.create_index("messages_by_number", "messages", ["owner", "number"], unique=True)


def _drop_search() -> None:
    if _is_sqlite():
        op.execute("DROP TABLE message_search")
        return
    op.execute("DROP SEQUENCE fences")
    op.drop_index("messages_by_number", "messages")
    op.execute("DROP INDEX messages_by_terms")
    op.execute("ALTER TABLE messages DROP COLUMN terms")
