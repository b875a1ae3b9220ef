"""The newest schema as SQLAlchemy tables, for migrations and the check for drift.

The stores run SQL text, so that a turn never imports SQLAlchemy. Every key starts with the owner
and the conversation, so that a database can be partitioned by owner. JSON is stored as text, times
in UTC.
"""

from typing import Any, Literal

import sqlalchemy as sa

Engine = Literal["sqlite", "postgresql"]


def moment() -> sa.DateTime:
    """With a time zone in PostgreSQL, as text in UTC in SQLite."""
    return sa.DateTime(timezone=True)


def head(engine: Engine) -> sa.MetaData:
    """The tables of the newest revision, without the search index.

    SQLite's index needs a message number as primary key; PostgreSQL needs the owner in it.
    In PostgreSQL, turns refer to their conversation by a number, since ids are long and indexes
    repeat them.
    """
    metadata = sa.MetaData()
    _conversations(metadata, engine)
    _turns(metadata, engine)
    _messages(metadata, engine)
    _leases(metadata, engine)
    _requests(metadata, engine)
    _events(metadata)
    _calls(metadata, engine)
    return metadata


def _conversations(metadata: sa.MetaData, engine: Engine) -> None:
    """`family` is the conversation's own id unless it belongs to another; `side` is 0 or 1."""
    numbers: tuple[sa.schema.SchemaItem, ...] = ()
    newest: tuple[str, ...] = ("owner", "updated_at", "id")
    if engine == "postgresql":
        unique = sa.UniqueConstraint("owner", "number", name="conversations_by_number")
        numbers = (_number(engine), unique)
        newest = ("owner", "updated_at")
    sa.Table(
        "conversations",
        metadata,
        sa.Column("owner", sa.Text, primary_key=True),
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("name", sa.Text),
        sa.Column("title", sa.Text),
        sa.Column("model", sa.Text),
        sa.Column("system", sa.Text),
        sa.Column("system_record", sa.Text),
        sa.Column("context_record", sa.Text),
        sa.Column("created_at", moment(), nullable=False),
        sa.Column("updated_at", moment(), nullable=False),
        sa.Column("archived_at", moment()),
        sa.Column("metadata", sa.Text, nullable=False),
        sa.Column("pins", sa.Text),
        sa.Column("summary", sa.Text),
        sa.Column("parent_id", sa.Text),
        sa.Column("parent_sequence", sa.BigInteger),
        sa.Column("message_count", sa.BigInteger, nullable=False),
        *numbers,
        sa.Column("parent_kind", sa.Text),
        sa.Column("family", sa.Text),
        sa.Column("source", sa.Text),
        sa.Column("side", sa.SmallInteger, nullable=False, server_default="0"),
        sa.Column("path_start", sa.LargeBinary),
        sa.Index("conversations_by_name", "owner", "name", unique=True),
        sa.Index("conversations_by_time", *newest),
        sa.Index("conversations_by_family", "owner", "family", "updated_at"),
    )


def _usage_columns() -> list[sa.Column[int]]:
    """Return the columns of token counts: all NULL if the provider counted nothing."""
    names = ("input", "output", "cache_read", "cache_write", "reasoning", "cache_write_hour")
    return [
        *(sa.Column(f"{name}_tokens", sa.BigInteger) for name in names),
        sa.Column("estimated", sa.SmallInteger),
    ]


def _number(engine: Engine) -> sa.Column[int]:
    if engine == "sqlite":
        return sa.Column("number", sa.Integer, primary_key=True)
    return sa.Column("number", sa.BigInteger, sa.Identity(), nullable=False)


def _conversation(engine: Engine) -> "sa.Column[Any]":
    if engine == "sqlite":
        return sa.Column("conversation_id", sa.Text, nullable=False)
    return sa.Column("conversation", sa.BigInteger, nullable=False)


def _turns(metadata: sa.MetaData, engine: Engine) -> None:
    """`number` counts the turns of a conversation from 1; a running one has the highest.

    `position` orders the default path and is NULL off it: the number of the first turn in that
    slot. `first_sequence` is the number of its first message on the default path, NULL off it.
    Turns with the same `message_group` share their messages: those of a conversation and of its
    branches. In PostgreSQL `place` is NULL if it equals the turn's id, counts are NULL if 0 and
    `input_tokens` is not NULL, and ids are indexed by a hash.
    """
    is_sqlite = engine == "sqlite"
    conversation = _conversation(engine)
    key = ("owner", conversation.name)
    count = sa.BigInteger if is_sqlite else sa.Integer
    own_id = "id" if is_sqlite else sa.text("hashtextextended(id, 0)")
    sa.Table(
        "turns",
        metadata,
        sa.Column("owner", sa.Text, nullable=False),
        conversation,
        sa.Column("number", count, nullable=False),
        sa.Column("id", sa.Text, nullable=False),
        sa.Column("place", sa.Text, nullable=not is_sqlite),
        sa.Column("position", count),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("model", sa.Text),
        sa.Column("provider", sa.Text),
        *_usage_columns(),
        sa.Column("cost", sa.Double),
        sa.Column("notices", sa.Text),
        sa.Column("window", sa.Text),
        sa.Column("failure", sa.Text),
        sa.Column("started_at", moment(), nullable=False),
        sa.Column("ended_at", moment()),
        sa.Column("message_group", sa.BigInteger, nullable=is_sqlite),
        sa.Column("first_sequence", count),
        sa.PrimaryKeyConstraint(*key, "number", name="turns_by_number"),
        sa.ForeignKeyConstraint(
            key,
            ["conversations.owner", "conversations.id" if is_sqlite else "conversations.number"],
            name="turns_of_a_conversation",
            ondelete="CASCADE",
        ),
        sa.Index("turns_by_id", *key, own_id, unique=True),
        sa.Index("turns_by_position", *key, "position", unique=True),
        sa.Index("turns_by_end", "owner", "ended_at"),
        sa.Index("turns_by_group", "owner", "message_group"),
    )


def _messages(metadata: sa.MetaData, engine: Engine) -> None:
    """`raw` is the JSON unchanged. The turns of `message_group` have the message.

    `imported`: the other columns of a message from an older deployment. `digest`: of the path up to
    the message, NULL if a message before it cannot be read. Messages with the same digest are in
    the order of their numbers in the index.
    """
    natural = ("owner", "message_group", "ordinal")
    by_group: sa.Index | sa.PrimaryKeyConstraint
    if engine == "sqlite":
        count: type[sa.Integer] = sa.BigInteger
        by_digest: tuple[str, ...] = ("owner", "digest")
        by_group = sa.Index("messages_by_group", *natural, unique=True)
    else:
        count = sa.Integer
        by_digest = ("owner", "digest", "number")
        by_group = sa.PrimaryKeyConstraint(*natural, name="messages_by_group")
    sa.Table(
        "messages",
        metadata,
        _number(engine),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("message_group", sa.BigInteger, nullable=False),
        sa.Column("ordinal", count, nullable=False),
        sa.Column("role", sa.Text, nullable=False),
        sa.Column("dialect", sa.Text, nullable=False),
        sa.Column("raw", sa.Text, nullable=False),
        sa.Column("imported", sa.Text),
        sa.Column("digest", sa.LargeBinary),
        by_group,
        sa.Index("messages_by_digest", *by_digest),
    )


def _leases(metadata: sa.MetaData, engine: Engine) -> None:
    """One row per running turn; `creates` is 1 if its conversation does not exist yet.

    In SQLite `holder` names the lock of the process.
    """
    sa.Table(
        "leases",
        metadata,
        sa.Column("owner", sa.Text, primary_key=True),
        sa.Column("conversation_id", sa.Text, primary_key=True),
        sa.Column("name", sa.Text),
        sa.Column("turn_id", sa.Text, nullable=False),
        sa.Column("fence", sa.BigInteger, nullable=False),
        sa.Column("creates", sa.SmallInteger, nullable=False),
        sa.Column("expires_at", moment(), nullable=False),
        *_holder(engine),
    )


def _holder(engine: Engine) -> "tuple[sa.Column[str], ...]":
    return (sa.Column("holder", sa.Text),) if engine == "sqlite" else ()


def _requests(metadata: sa.MetaData, engine: Engine) -> None:
    """Idempotency keys and request bodies are stored as hashes."""
    sa.Table(
        "requests",
        metadata,
        sa.Column("owner", sa.Text, primary_key=True),
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("body", sa.Text, nullable=False),
        sa.Column("expires_at", moment(), nullable=False),
        sa.Column("status", sa.Integer),
        sa.Column("headers", sa.Text),
        sa.Column("response", sa.LargeBinary),
        *_holder(engine),
        sa.Index("requests_by_expiry", "expires_at"),
    )


def _events(metadata: sa.MetaData) -> None:
    sa.Table(
        "events",
        metadata,
        sa.Column("owner", sa.Text, primary_key=True),
        sa.Column("conversation_id", sa.Text, primary_key=True),
        sa.Column("turn_id", sa.Text, primary_key=True),
        sa.Column("number", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("data", sa.LargeBinary, nullable=False),
    )


def _calls(metadata: sa.MetaData, engine: Engine) -> None:
    keys = () if engine == "sqlite" else (sa.PrimaryKeyConstraint("owner", "number"),)
    sa.Table(
        "calls",
        metadata,
        _number(engine),
        sa.Column("owner", sa.Text, nullable=False),
        sa.Column("model", sa.Text, nullable=False),
        *_usage_columns(),
        sa.Column("cost", sa.Double),
        sa.Column("ended_at", moment(), nullable=False),
        *keys,
        sa.Index("calls_by_end", "owner", "ended_at"),
    )
