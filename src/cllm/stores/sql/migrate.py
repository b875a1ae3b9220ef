"""Upgrades and downgrades a database with Alembic, in one transaction. Prints nothing."""

from collections.abc import Mapping
from typing import Any

import msgspec
import sqlalchemy as sa
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext

from cllm.core.errors import StoreUnavailableError, UsageError
from cllm.stores.sql import HEAD, REVISIONS, UNRELEASED_REVISIONS, VERSION_TABLE
from cllm.stores.sql.tables import head

LEGACY_CONVERSATION_COLUMNS = {
    *("id", "user_id", "title", "created_at", "updated_at", "archived_at", "metadata"),
}
LEGACY_MESSAGE_COLUMNS = {
    *("id", "conversation_id", "role", "content", "reasoning_events", "metadata", "total_cost"),
    *("created_at", "sequence_number"),
}
SYSTEM_MESSAGE_COLUMN = "system_message"
COST_COLUMN = "messages.total_cost"
"""Missing in the oldest databases, which have the cost in the metadata of a message."""
_ADD_COSTS = {
    "sqlite": "UPDATE messages SET total_cost = json_extract(metadata, '$.cost.total_cost')",
    "postgresql": "UPDATE messages SET total_cost = "
    "CAST(metadata->'cost'->>'total_cost' AS numeric(10, 6))",
}
LEGACY_VERSION_TABLE = "alembic_version"
UNMANAGED_PREFIXES = ("message_search", "terms", "messages_by_terms", VERSION_TABLE)
FIRST, SECOND, *CURRENT = REVISIONS
_ADDED = {
    "0006": {"holder"},
    "0007": {
        *("parent_kind", "family", "source", "side", "path_start", "conversations_by_family"),
        *("digest", "messages_by_digest"),
    },
    "0008": {"message_group", "first_sequence", "turns_by_group", "messages_by_group"},
}
"""Columns and indexes that a revision adds to the tables of an earlier one."""
_REMOVED = {
    "0008": {
        *("conversation_id", "conversation", "turn", "sequence_number"),
        *("messages_by_turn", "messages_of_a_turn"),
    },
}
"""Columns, indexes and keys that a revision removes from the tables of an earlier one."""
_DELETED_ROWS = (
    ("0007", "sources, sessions and kinds of conversations", """FROM conversations
        WHERE source IS NOT NULL OR side <> 0 OR parent_kind IS NOT NULL
        OR (parent_id IS NULL AND family <> id)"""),
    ("0005", "models, usage, costs and windows of turns", """FROM turns
        WHERE model IS NOT NULL OR input_tokens IS NOT NULL OR "window" IS NOT NULL"""),
    ("0005", "variants", "FROM turns WHERE position IS NULL"),
    ("0005", "parents, pins and summaries of conversations", """FROM conversations
        WHERE parent_id IS NOT NULL OR pins IS NOT NULL OR summary IS NOT NULL"""),
    ("0005", "calls without a conversation", "FROM calls"),
    ("0005", "stream events", "FROM events"),
    ("0005", "stored responses", "FROM requests WHERE status IS NOT NULL"),
)  # fmt: skip
"""Data that a downgrade to before a revision deletes: the revision, what it is, and its rows."""
_STATES = {"add": "missing", "remove": "unknown", "modify": "different"}
_TRIGGERS = {
    "sqlite": "SELECT name, tbl_name FROM sqlite_master WHERE type = 'trigger' ORDER BY name",
    "postgresql": "SELECT t.tgname, c.relname FROM pg_trigger t JOIN pg_class c ON c.oid = "
    "t.tgrelid WHERE NOT t.tgisinternal AND c.relnamespace = to_regnamespace(current_schema()) "
    "ORDER BY t.tgname",
}


class StoredPrompt(msgspec.Struct, frozen=True, kw_only=True):
    conversation: str
    system_message: str


class Adoption(msgspec.Struct, frozen=True, kw_only=True):
    revision: str
    conversations: int
    without_user: int


def current_revision(bind: sa.Connection) -> str | None:
    heads = _build_context(bind).get_current_heads()
    if len(heads) > 1:
        raise StoreUnavailableError(
            f"The database has {len(heads)} revisions; restore it from a backup, or delete the "
            f"wrong rows of its table {VERSION_TABLE}."
        )
    return heads[0] if heads else None


def is_empty(bind: sa.Connection) -> bool:
    return not sa.inspect(bind).get_table_names()


def prepare(bind: sa.Connection) -> None:
    """Create the tables in an empty database; raise for another one that is not at HEAD."""
    revision = current_revision(bind)
    if revision == HEAD:
        return
    if revision is None and is_empty(bind):
        upgrade(bind)
        return
    raise StoreUnavailableError(describe_mismatch(revision))


def describe_mismatch(revision: str | None) -> str:
    if revision is None:
        return (
            "The database has tables that cllm did not create; if an older deployment created "
            "them, run: cllm db adopt --store URL"
        )
    if revision in REVISIONS:
        return (
            f"The database is at revision {revision} and cllm needs {HEAD}; back it up, "
            "then run: cllm db upgrade --store URL"
        )
    if revision in UNRELEASED_REVISIONS:
        return (
            f"The database is at revision {revision} of an unreleased development version; run "
            f"cllm db upgrade with that version to reach {HEAD}, then use this one."
        )
    return (
        f"The database is at revision {revision}, which this version of cllm ({HEAD}) does not "
        "know; use the newer version that created it."
    )


def upgrade(bind: sa.Connection, to: str = "head") -> None:
    """Upgrade the database; a database of an older deployment must be adopted first."""
    revision = current_revision(bind)
    if revision is None and not is_empty(bind):
        raise StoreUnavailableError(describe_mismatch(revision))
    _check_revision(revision)
    command.upgrade(_build_config(bind), to)


def downgrade(bind: sa.Connection, to: str) -> None:
    _check_downgrade(bind, to)
    command.downgrade(_build_config(bind), to)


def list_lost_data(bind: sa.Connection, to: str) -> list[str]:
    """Return what a downgrade deletes, with numbers. Raises UsageError as `downgrade` does."""
    revision = _check_downgrade(bind, to)
    counts = {
        name: bind.execute(sa.text(f"SELECT count(*) {rows}")).scalar_one()
        for added, name, rows in _DELETED_ROWS
        if to < added <= revision
    }
    return [f"{name}: {count}" for name, count in counts.items() if count]


def _check_downgrade(bind: sa.Connection, to: str) -> str:
    """Return the revision of the database."""
    revision = current_revision(bind)
    _check_revision(revision)
    older = () if revision is None else REVISIONS[: REVISIONS.index(revision)]
    if revision is None or not older:
        state = "has no revision" if revision is None else f"is at revision {revision}"
        raise UsageError(f"The database {state}; it cannot be downgraded.")
    if to not in older:
        raise UsageError(
            f"The database is at revision {revision}, and '{to}' is not an earlier revision; "
            f"use an earlier one: {', '.join(older)}."
        )
    return revision


def find_differences(
    bind: sa.Connection, *, upgrade_command: str = "cllm db upgrade --store URL"
) -> list[str]:
    """Differences between the database's schema and the expected one, as texts."""
    revision = current_revision(bind)
    if revision is None and is_empty(bind):
        return [f"The database is empty; create its tables with: {upgrade_command}"]
    if revision in (FIRST, SECOND):
        return [f"missing column: {name}" for name in _list_missing_columns(bind, revision)]
    if revision not in CURRENT:
        return [describe_mismatch(revision)]
    name = bind.dialect.name
    expected = head("sqlite" if name == "sqlite" else "postgresql")
    differences = compare_metadata(_build_context(bind), expected)
    added, removed = (_list_later(names, revision) for names in (_ADDED, _REMOVED))
    differences = [
        one
        for one in differences
        if not _is_change(one, "add", added) and not _is_change(one, "remove", removed)
    ]
    return [*map(_describe_difference, differences), *_list_triggers(bind)]


def _list_later(changes: Mapping[str, set[str]], revision: str) -> set[str]:
    return set().union(*(names for later, names in changes.items() if later > revision))


def _is_change(difference: Any, verb: str, names: set[str]) -> bool:
    kinds = [f"{verb}_{kind}" for kind in ("column", "index", "fk")]
    return difference[0] in kinds and difference[-1].name in names


def _describe_difference(difference: Any) -> str:
    if isinstance(difference, list):
        return "; ".join(map(_describe_difference, difference))
    kind, *objects = difference
    verb, _, noun = kind.partition("_")
    names = [name for each in objects if (name := _object_name(each)) is not None]
    return f"{_STATES.get(verb, verb)} {noun}: {'.'.join(names)}"


def _object_name(item: Any) -> str | None:
    if isinstance(item, str):
        return item
    name = getattr(item, "name", None)
    table = getattr(item, "table", None) if isinstance(item, sa.Index | sa.Constraint) else None
    return name if table is None else f"{table.name}.{name}"


def _list_triggers(bind: sa.Connection) -> list[str]:
    rows = bind.execute(sa.text(_TRIGGERS[bind.dialect.name])).all()
    return [f"unknown trigger: {name} on {table}" for name, table in rows]


def list_stored_prompts(bind: sa.Connection) -> list[StoredPrompt]:
    """Return the system prompts that an upgrade to the second revision deletes."""
    if current_revision(bind) != FIRST:
        return []
    table = sa.table("conversations", sa.column("id"), sa.column(SYSTEM_MESSAGE_COLUMN))
    rows = bind.execute(sa.select(table).where(table.c.system_message != "")).all()
    return [StoredPrompt(conversation=str(row[0]), system_message=row[1]) for row in rows]


def adopt(bind: sa.Connection, *, upgrade_command: str = "cllm db upgrade") -> Adoption:
    """Mark a database of an older deployment with its revision; add the column of costs."""
    if current_revision(bind) is not None:
        raise UsageError(f"cllm already manages this database; upgrade it with: {upgrade_command}")
    columns = _list_columns(bind, "conversations")
    if not columns or not _list_columns(bind, "messages"):
        raise UsageError(
            "The database does not have the tables `conversations` and `messages` of an older "
            "deployment; it was not changed."
        )
    missing = _list_missing_columns(bind, SECOND)
    if missing == [COST_COLUMN]:
        bind.execute(sa.text("ALTER TABLE messages ADD COLUMN total_cost numeric(10, 6)"))
        bind.execute(sa.text(_ADD_COSTS[bind.dialect.name]))
    elif missing:
        raise UsageError(
            f"The database lacks {', '.join(missing)}, which every older deployment has; it was "
            "not changed."
        )
    revision = FIRST if SYSTEM_MESSAGE_COLUMN in columns else SECOND
    table = sa.table("conversations", sa.column("user_id"))
    count = sa.select(sa.func.count(), sa.func.count(table.c.user_id)).select_from(table)
    total, owned = bind.execute(count).one()
    command.stamp(_build_config(bind), revision)
    return Adoption(revision=revision, conversations=total, without_user=total - owned)


def _list_missing_columns(bind: sa.Connection, revision: str) -> list[str]:
    """Return the columns that one of the first two revisions has and the database does not have."""
    own = {SYSTEM_MESSAGE_COLUMN} if revision == FIRST else set()
    expected = {
        "conversations": LEGACY_CONVERSATION_COLUMNS | own,
        "messages": LEGACY_MESSAGE_COLUMNS,
    }
    return [
        f"{table}.{column}"
        for table, columns in expected.items()
        for column in sorted(columns - _list_columns(bind, table))
    ]


def _list_columns(bind: sa.Connection, table: str) -> set[str]:
    inspector = sa.inspect(bind)
    if not inspector.has_table(table):
        return set()
    return {column["name"] for column in inspector.get_columns(table)}


def _check_revision(revision: str | None) -> None:
    if revision is not None and revision not in REVISIONS:
        raise StoreUnavailableError(describe_mismatch(revision))


def _build_context(bind: sa.Connection) -> MigrationContext:
    options = {"version_table": VERSION_TABLE, "include_object": _is_managed}
    return MigrationContext.configure(bind, opts=options)


def _build_config(bind: sa.Connection) -> Config:
    config = Config()
    config.set_main_option("script_location", "cllm.stores.sql:migrations")
    config.set_main_option("path_separator", "os")
    config.attributes["cllm"] = {
        "connection": bind,
        "version_table": VERSION_TABLE,
        "transactional_ddl": False,
        "include_object": _is_managed,
    }
    return config


def _is_managed(_object: object, name: str | None, _kind: str, *_: object) -> bool:
    """Whether the comparison includes the object.

    Search indexes and the revision table of an older deployment are not compared.
    """
    name = name or ""
    return name != LEGACY_VERSION_TABLE and not name.startswith(UNMANAGED_PREFIXES)
