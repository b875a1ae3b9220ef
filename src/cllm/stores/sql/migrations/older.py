"""The rows of older deployments, and how ours say the same: used by the revision between them.

What has no place in the other shape goes into a metadata column (`kept.py`), or into the column
`imported`, so that going down and up again loses nothing that an older deployment had.
"""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
import sqlalchemy as sa

from cllm.stores.sql.rows import UnreadableRowError, row_decoder

LOCAL = "local"
BATCH = 200
ROLES = {"developer": "system", "system": "system", "assistant": "assistant"}
TOOL_ROLES = ("tool", "function")
DYNAMIC = '{"policy":"dynamic"}'

Row = Mapping[str, Any]


def older_conversations(bind: sa.Connection, *, prefix: str = "older_") -> sa.TableClause:
    kind = _uuid_kind(bind)
    return sa.table(
        f"{prefix}conversations",
        sa.column("id", kind),
        sa.column("user_id", kind),
        sa.column("title", sa.Text),
        sa.column("created_at", sa.DateTime),
        sa.column("updated_at", sa.DateTime),
        sa.column("archived_at", sa.DateTime),
        sa.column("metadata", sa.JSON(none_as_null=True)),
    )


def older_messages(bind: sa.Connection, *, prefix: str = "older_") -> sa.TableClause:
    kind = _uuid_kind(bind)
    return sa.table(
        f"{prefix}messages",
        sa.column("id", kind),
        sa.column("conversation_id", kind),
        sa.column("role", sa.Text),
        sa.column("content", sa.Text),
        sa.column("reasoning_events", sa.JSON(none_as_null=True)),
        sa.column("metadata", sa.JSON(none_as_null=True)),
        sa.column("total_cost", sa.Numeric(10, 6)),
        sa.column("created_at", sa.DateTime),
        sa.column("sequence_number", sa.Integer),
    )


def newer(name: str, times: Sequence[str], *columns: str, prefix: str = "") -> sa.TableClause:
    """One of our tables, with these columns; `times` are those that hold a time."""
    zoned = sa.DateTime(timezone=True)
    return sa.table(
        f"{prefix}{name}",
        *(sa.column(each, zoned) for each in times),
        *(sa.column(each) for each in columns),
    )


def _uuid_kind(bind: sa.Connection) -> sa.types.TypeEngine[Any]:
    """SQLite has them as text, in the form in which somebody wrote them."""
    return sa.String() if bind.dialect.name == "sqlite" else sa.Uuid()


def write_uuid(bind: sa.Connection, value: uuid.UUID) -> Any:
    return value.hex if bind.dialect.name == "sqlite" else value


def as_uuid(text: str) -> uuid.UUID | None:
    """The UUID that is written like that in our tables, if it is one."""
    try:
        found = uuid.UUID(text)
    except ValueError:
        return None
    return found if str(found) == text else None


@row_decoder
def id_text(value: Any) -> str:
    return str(uuid.UUID(str(value)))


def read_rows(bind: sa.Connection, query: sa.Select[Any]) -> list[Row]:
    """The rows of a query; UnreadableRowError where a column is not of its type."""
    try:
        return [dict(row) for row in bind.execute(query).mappings()]
    except ValueError as error:
        raise UnreadableRowError(str(error)) from error


def in_utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def naive(moment: datetime) -> datetime:
    return in_utc(moment).replace(tzinfo=None)


def our_role(role: str) -> str:
    return "tool" if role in TOOL_ROLES else ROLES.get(role, "user")


def begins_turn(role: str, before: str | None) -> bool:
    """Whether a message begins a turn, as far as roles tell: a run of users, and what answers."""
    return before is None or (role == "user" and before != "user")


def state_after(role: str) -> str:
    """How a turn ended, as far as its last role tells."""
    return "incomplete" if role == "user" else "complete"


def json_text(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def plain_raw(role: str, content: str | None) -> str:
    """The JSON of a message of which a role and a text are known."""
    return json_text({"role": role, "content": content})


def in_batches(ids: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for first in range(0, len(ids), BATCH):
        yield ids[first : first + BATCH]
