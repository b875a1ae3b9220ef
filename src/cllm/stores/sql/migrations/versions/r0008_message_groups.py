"""Turns refer to their messages by a group, so that branches share the messages of their path.

`sequence_number` moves from messages to turns, since a message can have another one in a branch.
The upgrade joins no copies that earlier branches made. The downgrade copies shared messages.
"""

# ruff: noqa: S608 - only column names are inserted into the text

from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from alembic import op

from cllm.core.message import Message
from cllm.stores.search import build_index_terms
from cllm.stores.sql.migrations.versions.r0005_turns import INDEX

revision = "0008"
down_revision = "0007"
branch_labels = None
depends_on = None

BATCH = 500
"""Rows that are indexed at a time."""
CONTENT = "role, dialect, raw, imported, digest"


def upgrade() -> None:
    is_sqlite = op.get_bind().dialect.name == "sqlite"
    op.add_column("turns", sa.Column("message_group", sa.BigInteger))
    count = sa.BigInteger if is_sqlite else sa.Integer
    op.add_column("turns", sa.Column("first_sequence", count))
    if is_sqlite:
        _upgrade_sqlite()
    else:
        _upgrade_postgres()
    op.create_index("turns_by_group", "turns", ["owner", "message_group"])


def downgrade() -> None:
    op.drop_index("turns_by_group", "turns")
    if op.get_bind().dialect.name == "sqlite":
        _downgrade_sqlite()
    else:
        _downgrade_postgres()
    op.drop_column("turns", "message_group")
    op.drop_column("turns", "first_sequence")


def _execute(*statements: str) -> None:
    for statement in statements:
        op.get_bind().exec_driver_sql(statement)


def _has_messages() -> bool:
    return op.get_bind().execute(sa.text("SELECT 1 FROM messages LIMIT 1")).first() is not None


def _content_columns() -> "list[sa.Column[Any]]":
    return [
        *(sa.Column(name, sa.Text, nullable=False) for name in ("role", "dialect", "raw")),
        sa.Column("imported", sa.Text),
        sa.Column("digest", sa.LargeBinary),
    ]


def _upgrade_sqlite() -> None:
    # The row numbers of messages are those of the search index.
    op.rename_table("messages", "older_messages")
    op.create_table(
        "messages",
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("message_group", sa.BigInteger, nullable=False),
        sa.Column("ordinal", sa.BigInteger, nullable=False),
        *_content_columns(),
    )
    _execute(
        """UPDATE turns SET message_group = rowid, first_sequence = CASE
            WHEN position IS NOT NULL THEN (
                SELECT min(m.sequence_number - m.ordinal) FROM older_messages m
                WHERE m.owner = turns.owner AND m.conversation_id = turns.conversation_id
                    AND m.turn = turns.number) END""",
        f"""INSERT INTO messages (number, owner, message_group, ordinal, {CONTENT})
        SELECT m.number, m.owner, t.message_group, m.ordinal, {_of_message(CONTENT)}
        FROM older_messages m CROSS JOIN turns t ON t.owner = m.owner
            AND t.conversation_id = m.conversation_id AND t.number = m.turn
        ORDER BY m.number""",
    )
    op.drop_table("older_messages")
    group = ["owner", "message_group", "ordinal"]
    op.create_index("messages_by_group", "messages", group, unique=True)
    op.create_index("messages_by_digest", "messages", ["owner", "digest"])


def _upgrade_postgres() -> None:
    has_messages = _has_messages()
    if has_messages:
        # Every row is written again, and this index is the one that is expensive to maintain.
        _execute("DROP INDEX messages_by_terms")
    op.drop_constraint("messages_of_a_turn", "messages", type_="foreignkey")
    op.add_column("messages", sa.Column("message_group", sa.BigInteger))
    _execute(
        "CREATE SEQUENCE message_groups",
        """UPDATE turns SET message_group = numbered.at, first_sequence = numbered.first
        FROM (
            SELECT t.owner, t.conversation, t.number,
                row_number() OVER (ORDER BY t.owner, t.conversation, t.number) AS at,
                CASE WHEN t.position IS NOT NULL THEN (
                    SELECT min(m.sequence_number - m.ordinal) FROM messages m
                    WHERE m.owner = t.owner AND m.conversation = t.conversation
                        AND m.turn = t.number) END AS first
            FROM turns t) AS numbered
        WHERE turns.owner = numbered.owner AND turns.conversation = numbered.conversation
            AND turns.number = numbered.number""",
        """SELECT setval('message_groups', max(message_group)) FROM turns
        HAVING max(message_group) IS NOT NULL""",
        """UPDATE messages m SET message_group = t.message_group FROM turns t
        WHERE t.owner = m.owner AND t.conversation = m.conversation AND t.number = m.turn""",
    )
    op.alter_column("turns", "message_group", nullable=False)
    op.drop_constraint("messages_by_turn", "messages", type_="primary")
    group = ["owner", "message_group", "ordinal"]
    op.create_primary_key("messages_by_group", "messages", group)
    for column in ("conversation", "turn", "sequence_number"):
        op.drop_column("messages", column)
    if has_messages:
        _execute(*INDEX, "ANALYZE turns, messages")


def _downgrade_sqlite() -> None:
    op.rename_table("messages", "newer_messages")
    turn = ["owner", "conversation_id", "turn"]
    op.create_table(
        "messages",
        sa.Column("number", sa.Integer, primary_key=True),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("conversation_id", sa.Text, nullable=False),
        sa.Column("turn", sa.BigInteger, nullable=False),
        sa.Column("ordinal", sa.BigInteger, nullable=False),
        sa.Column("sequence_number", sa.BigInteger),
        *_content_columns(),
        sa.ForeignKeyConstraint(
            turn,
            ["turns.owner", "turns.conversation_id", "turns.number"],
            name="messages_of_a_turn",
            ondelete="CASCADE",
        ),
    )
    copied = "owner, conversation_id, turn, ordinal, sequence_number"
    copy = f"""INSERT INTO messages (number, {copied}, {CONTENT})
        SELECT {{number}}, m.owner, t.conversation_id, t.number, m.ordinal,
            t.first_sequence + m.ordinal, {_of_message(CONTENT)}
        FROM newer_messages m CROSS JOIN turns t
            ON t.owner = m.owner AND t.message_group = m.message_group
        WHERE t.rowid {{which}} (SELECT min(o.rowid) FROM turns o
            WHERE o.owner = m.owner AND o.message_group = m.message_group)
        ORDER BY m.number"""
    _execute(
        "CREATE INDEX turns_by_group ON turns (owner, message_group)",
        copy.format(number="m.number", which="="),
    )
    last = op.get_bind().execute(sa.text("SELECT max(number) FROM messages")).scalar()
    _execute(copy.format(number="NULL", which=">"), "DROP INDEX turns_by_group")
    _index_copies(last or 0)
    op.drop_table("newer_messages")
    op.create_index("messages_by_turn", "messages", [*turn, "ordinal"], unique=True)
    op.create_index("messages_by_digest", "messages", ["owner", "digest"])


def _index_copies(after: int) -> None:
    bind = op.get_bind()
    insert = sa.text("INSERT INTO message_search (rowid, terms) VALUES (:number, :terms)")
    for rows in _read_batches(bind, after):
        terms = [
            {"number": number, "terms": build_index_terms(Message(role="user", raw=raw), owner)}
            for number, owner, raw in rows
        ]
        if indexed := [each for each in terms if each["terms"]]:
            bind.execute(insert, indexed)


def _read_batches(bind: sa.Connection, after: int) -> Iterator[list[Any]]:
    query = sa.text("""SELECT m.number, m.owner, CAST(m.raw AS BLOB) FROM messages m
        CROSS JOIN turns t ON t.owner = m.owner AND t.conversation_id = m.conversation_id
            AND t.number = m.turn
        WHERE m.number > :after AND t.state IN ('complete', 'incomplete')
        ORDER BY m.number LIMIT :batch""")
    while rows := bind.execute(query, {"after": after, "batch": BATCH}).all():
        yield list(rows)
        after = rows[-1][0]


def _downgrade_postgres() -> None:
    has_messages = _has_messages()
    if has_messages:
        _execute("DROP INDEX messages_by_terms")
    for name, kind in (("conversation", sa.BigInteger), ("turn", sa.Integer)):
        op.add_column("messages", sa.Column(name, kind))
    op.add_column("messages", sa.Column("sequence_number", sa.Integer))
    op.drop_constraint("messages_by_group", "messages", type_="primary")
    first = """SELECT DISTINCT ON (owner, message_group) owner, message_group, conversation,
        number, first_sequence FROM turns ORDER BY owner, message_group, conversation"""
    _execute(
        f"""INSERT INTO messages (owner, conversation, turn, ordinal, sequence_number,
            message_group, {CONTENT}, terms)
        SELECT t.owner, t.conversation, t.number, m.ordinal, t.first_sequence + m.ordinal,
            m.message_group, {_of_message(CONTENT)}, m.terms
        FROM turns t JOIN ({first}) AS f ON f.owner = t.owner
            AND f.message_group = t.message_group AND f.conversation < t.conversation
        JOIN messages m ON m.owner = t.owner AND m.message_group = t.message_group""",
        f"""UPDATE messages m SET conversation = f.conversation, turn = f.number,
            sequence_number = f.first_sequence + m.ordinal
        FROM ({first}) AS f WHERE m.conversation IS NULL
            AND f.owner = m.owner AND f.message_group = m.message_group""",
    )
    for column in ("conversation", "turn"):
        op.alter_column("messages", column, nullable=False)
    turn = ["owner", "conversation", "turn"]
    op.create_primary_key("messages_by_turn", "messages", [*turn, "ordinal"])
    parents = ["owner", "conversation", "number"]
    op.create_foreign_key(
        "messages_of_a_turn", "messages", "turns", turn, parents, ondelete="CASCADE"
    )
    op.drop_column("messages", "message_group")
    _execute("DROP SEQUENCE message_groups")
    if has_messages:
        _execute(*INDEX, "ANALYZE turns, messages")


def _of_message(columns: str) -> str:
    return ", ".join(f"m.{column}" for column in columns.split(", "))
