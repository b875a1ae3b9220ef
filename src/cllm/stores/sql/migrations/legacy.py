"""Tables and records of older deployments, for the conversion in both directions.

Fields without a column in the other schema are under one key of a metadata column, or in
`imported`, so that a downgrade and upgrade lose nothing. Users can write metadata: the key is used
only if it is complete, an owner and id only if the row's id was computed from them.
"""

import uuid
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec
import sqlalchemy as sa

from cllm.core.conversation import SystemRecord, TurnFailure, is_valid_id
from cllm.core.message import Dialect, Role
from cllm.stores.sql.rows import StoredMessage, UnreadableRowError, row_decoder

CURRENT_TABLES = ("calls", "events", "requests", "leases", "messages", "turns", "conversations")
LINK = {"sqlite": ("conversation_id", "id"), "postgresql": ("conversation", "number")}
"""The column that refers to a conversation, and the referenced one."""
KEY = "cllm"
NAMESPACE = uuid.UUID("6f1d3f4e-7c52-4f0b-9d1f-7a1f6a2f3c11")
LOCAL = "local"
BATCH = 200
ROLES = {"developer": "system", "system": "system", "assistant": "assistant"}
TOOL_ROLES = ("tool", "function")
DYNAMIC = '{"policy":"dynamic"}'

Row = Mapping[str, Any]


def legacy_conversations(bind: sa.Connection, *, prefix: str = "older_") -> sa.TableClause:
    kind = _uuid_type(bind)
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


def legacy_messages(bind: sa.Connection, *, prefix: str = "older_") -> sa.TableClause:
    kind = _uuid_type(bind)
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


def current_table(
    name: str, times: Sequence[str], *columns: str, prefix: str = ""
) -> sa.TableClause:
    zoned = sa.DateTime(timezone=True)
    return sa.table(
        f"{prefix}{name}",
        *(sa.column(each, zoned) for each in times),
        *(sa.column(each) for each in columns),
    )


def _uuid_type(bind: sa.Connection) -> sa.types.TypeEngine[Any]:
    """SQLite stores UUIDs as text in any notation."""
    return sa.String() if bind.dialect.name == "sqlite" else sa.Uuid()


def encode_uuid(bind: sa.Connection, value: uuid.UUID) -> Any:
    return value.hex if bind.dialect.name == "sqlite" else value


def parse_uuid(text: str) -> uuid.UUID | None:
    """Return the UUID, if the text is its canonical notation."""
    try:
        value = uuid.UUID(text)
    except ValueError:
        return None
    return value if str(value) == text else None


@row_decoder
def decode_id(value: Any) -> str:
    return str(uuid.UUID(str(value)))


def read_rows(bind: sa.Connection, query: sa.Select[Any]) -> list[Row]:
    """Return the rows of a query; UnreadableRowError if a column has another type."""
    try:
        return [dict(row) for row in bind.execute(query).mappings()]
    except ValueError as error:
        raise UnreadableRowError(str(error)) from error


def to_utc(moment: datetime) -> datetime:
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def to_naive_utc(moment: datetime) -> datetime:
    return to_utc(moment).replace(tzinfo=None)


def convert_role(role: str) -> str:
    return "tool" if role in TOOL_ROLES else ROLES.get(role, "user")


def starts_turn(role: str, previous: str | None) -> bool:
    return previous is None or (role == "user" and previous != "user")


def guess_state(role: str) -> str:
    return "incomplete" if role == "user" else "complete"


def encode_json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def build_raw(role: str, content: str | None) -> str:
    return encode_json({"role": role, "content": content})


def split_batches(ids: Sequence[Any]) -> Iterator[Sequence[Any]]:
    for first in range(0, len(ids), BATCH):
        yield ids[first : first + BATCH]


class LegacyConversation(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The record of a conversation; `theirs` is the key's earlier value."""

    owner: str | None = None
    id: str | None = None
    name: str | None = None
    model: str | None = None
    system: str | None = None
    system_record: str | None = None
    theirs: Any = msgspec.UNSET


class LegacyTurn(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    messages: int
    state: Literal["complete", "incomplete", "failed"]
    failure: str | None = None


class LegacyMessage(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The record of a message; without `raw` the other columns have everything."""

    raw: str | None = None
    dialect: Dialect = "openai"
    role: Role | None = None
    turn: LegacyTurn | None = None
    theirs: Any = msgspec.UNSET


def build_id(owner: str, conversation: str) -> uuid.UUID:
    """Return the legacy id of a conversation whose id is not a UUID."""
    return uuid.uuid5(NAMESPACE, f"{owner}/{conversation}")


def with_record(
    metadata: dict[str, Any], record: LegacyConversation | LegacyMessage
) -> dict[str, Any]:
    if KEY in metadata:
        record = msgspec.structs.replace(record, theirs=metadata[KEY])
    fields = {
        name: value
        for name, value in msgspec.to_builtins(record).items()
        if value is not None or name == "theirs"
    }
    return metadata if record == type(record)() else metadata | {KEY: fields}


def split_conversation_record(
    metadata: Any, row_id: uuid.UUID
) -> tuple[dict[str, Any], LegacyConversation]:
    checked = _check_object(metadata)
    record = _decode_record(checked, LegacyConversation)
    if record is None or not _is_valid_conversation(record, row_id):
        return checked, LegacyConversation()
    return _without_record(checked, record.theirs), record


def split_message_record(metadata: Any) -> tuple[dict[str, Any], LegacyMessage]:
    checked = _check_object(metadata)
    record = _decode_record(checked, LegacyMessage)
    if record is None or not _is_valid_message(record):
        return checked, LegacyMessage()
    return _without_record(checked, record.theirs), record


def _check_object(metadata: Any) -> dict[str, Any]:
    if metadata is None:
        return {}
    if not isinstance(metadata, dict):
        raise UnreadableRowError("metadata that is not a JSON object")
    return metadata


def _decode_record(metadata: dict[str, Any], kind: type[Any]) -> Any:
    try:
        return msgspec.convert(metadata[KEY], kind) if KEY in metadata else None
    except msgspec.ValidationError:
        return None


def _without_record(metadata: dict[str, Any], theirs: Any) -> dict[str, Any]:
    rest = {name: value for name, value in metadata.items() if name != KEY}
    return rest if theirs is msgspec.UNSET else rest | {KEY: theirs}


def _is_valid_conversation(record: LegacyConversation, row_id: uuid.UUID) -> bool:
    if (record.owner is None) != (record.id is None):
        return False
    if (
        record.owner is not None
        and record.id is not None
        and build_id(record.owner, record.id) != row_id
    ):
        return False
    if not all(is_valid_id(ref) for ref in (record.id, record.name) if ref is not None):
        return False
    return _can_decode(record.system, StoredMessage) and _can_decode(
        record.system_record, SystemRecord
    )


def _is_valid_message(record: LegacyMessage) -> bool:
    failure = None if record.turn is None else record.turn.failure
    return _can_decode(record.raw, dict[str, Any]) and _can_decode(failure, TurnFailure)


def _can_decode(text: str | None, kind: Any) -> bool:
    try:
        return text is None or msgspec.json.decode(text, type=kind) is not None
    except msgspec.MsgspecError:
        return False
