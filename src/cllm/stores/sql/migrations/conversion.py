"""Converts the rows of an older deployment to the current tables, and back.

An upgrade makes turns of consecutive messages and owners of users. A downgrade loses variants,
events and usage; ids, owners, other JSON and hidden states are recorded in a metadata column.
"""

import uuid
from collections.abc import Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

import msgspec
import sqlalchemy as sa

from cllm.core.conversation import INTERRUPTION
from cllm.core.message import Message
from cllm.stores.search import build_index_terms, message_terms
from cllm.stores.sql.migrations import legacy
from cllm.stores.sql.migrations.legacy import (
    LOCAL,
    NAMESPACE,
    LegacyConversation,
    LegacyMessage,
    LegacyTurn,
    Row,
    build_id,
    decode_id,
    encode_json,
    parse_uuid,
    read_rows,
    split_conversation_record,
    split_message_record,
    to_naive_utc,
    to_utc,
    with_record,
)
from cllm.stores.sql.rows import row_decoder

_PLAIN_ROLES = ("user", "assistant", "system", "tool")
_COLUMNS = (
    *("number", "owner", "turn", "ordinal", "sequence_number", "role", "dialect", "raw"),
    "imported",
)
_INDEX = "INSERT INTO message_search (rowid, terms) VALUES (:number, :terms)"
# A message's terms are stored only if the database would compute other terms from its text.
_TERMS = """CASE WHEN message_terms(:owner, 0, :raw, :terms)
    IS DISTINCT FROM message_terms(:owner, 0, :raw, NULL) THEN :terms END"""


def upgrade_rows(bind: sa.Connection) -> None:
    """Fill the current tables from the renamed tables of the older deployment."""
    table = legacy.legacy_conversations(bind)
    message_table = legacy.legacy_messages(bind)
    ids = list(bind.execute(sa.select(table.c.id).order_by(table.c.created_at)).scalars())
    writer = _TableWriter(bind)
    for batch in legacy.split_batches(ids):
        conversations = read_rows(bind, sa.select(table).where(table.c.id.in_(batch)))
        columns = message_table.c
        order = (columns.conversation_id, columns.sequence_number)
        query = sa.select(message_table).where(columns.conversation_id.in_(batch)).order_by(*order)
        messages: dict[str, list[Row]] = {}
        for row in read_rows(bind, query):
            messages.setdefault(decode_id(row["conversation_id"]), []).append(row)
        for row in conversations:
            writer.add(row, messages.get(decode_id(row["id"]), []))
    writer.end()


class _TableWriter:
    def __init__(self, bind: sa.Connection) -> None:
        self._bind = bind
        self._is_sqlite = bind.dialect.name == "sqlite"
        self._link, self._linked = legacy.LINK[bind.dialect.name]
        self._numbers = {"conversations": 0, "messages": 0}
        times = ("created_at", "updated_at", "archived_at")
        columns = ("owner", "id", "name", "title", "model", "system", "system_record", "metadata")
        self._conversations = legacy.current_table(
            "conversations", times, *columns, "message_count", *self._own_number
        )
        turn = ("number", "id", "place", "position", "state", "cost", "failure")
        self._turns = legacy.current_table(
            "turns", ("started_at", "ended_at"), "owner", self._link, *turn
        )
        names = (*_COLUMNS, self._link)
        values = ", ".join(f":{name}" for name in names)
        terms = ("", "") if self._is_sqlite else (", terms", f", {_TERMS}")
        self._add_message = sa.text(
            f"INSERT INTO messages ({', '.join(names)}{terms[0]}) VALUES ({values}{terms[1]})"  # noqa: S608
        )

    @property
    def _own_number(self) -> tuple[str, ...]:
        return () if self._is_sqlite else ("number",)

    def add(self, row: Row, messages: Sequence[Row]) -> None:
        conversation = _convert_conversation(row, len(messages))
        conversation["name"] = self._free_name(conversation["owner"], conversation["name"])
        for column in self._own_number:
            conversation[column] = self._next("conversations")
        self._bind.execute(sa.insert(self._conversations), [conversation])
        where = {"owner": conversation["owner"], self._link: conversation[self._linked]}
        sequence = 0
        for number, group in enumerate(_group_turns([_with_record(row) for row in messages]), 1):
            turn = _build_turn(number, group)
            place = turn["id"] if self._is_sqlite else None
            self._bind.execute(sa.insert(self._turns), [where | turn | {"place": place}])
            rows = []
            for ordinal, message in enumerate(group):
                sequence += 1
                at = {"number": self._next("messages"), "turn": number, "ordinal": ordinal}
                rows.append(where | at | {"sequence_number": sequence} | _convert_message(message))
            self._add_messages(rows, is_history=turn["state"] != "failed")

    def _add_messages(self, rows: Sequence[dict[str, Any]], *, is_history: bool) -> None:
        for row in rows:
            message = Message(role=row["role"], raw=row["raw"].encode())
            terms = (
                build_index_terms(message, row["owner"])
                if self._is_sqlite
                else message_terms(message)
            )
            row["terms"] = terms if is_history else ""
        self._bind.execute(self._add_message, rows)
        indexed = [row for row in rows if row["terms"]]
        if self._is_sqlite and indexed:
            self._bind.execute(sa.text(_INDEX), indexed)

    def _free_name(self, owner: str, name: str | None) -> str | None:
        """Return the name, or None if another conversation has it: metadata can repeat names."""
        table = self._conversations
        exists = sa.select(table.c.id).where(table.c.owner == owner, table.c.name == name)
        return None if name is None or self._bind.execute(exists).first() is not None else name

    def _next(self, table: str) -> int:
        self._numbers[table] += 1
        return self._numbers[table]

    def end(self) -> None:
        """Set the sequences of PostgreSQL to the last used numbers."""
        for table, number in self._numbers.items():
            if number and not self._is_sqlite:
                restart = f"SELECT setval(pg_get_serial_sequence('{table}', 'number'), {number})"
                self._bind.execute(sa.text(restart))


@row_decoder
def _convert_conversation(row: Row, message_count: int) -> dict[str, Any]:
    metadata, record = split_conversation_record(row["metadata"], uuid.UUID(str(row["id"])))
    owner = LOCAL if row["user_id"] is None else decode_id(row["user_id"])
    return {
        "owner": record.owner or owner,
        "id": record.id or decode_id(row["id"]),
        "name": record.name,
        "model": record.model,
        "system": record.system,
        "system_record": record.system_record or legacy.DYNAMIC,
        "title": row["title"],
        "created_at": to_utc(row["created_at"]),
        "updated_at": to_utc(row["updated_at"]),
        "archived_at": None if row["archived_at"] is None else to_utc(row["archived_at"]),
        "metadata": encode_json(metadata),
        "message_count": message_count,
    }


def _with_record(row: Row) -> Row:
    metadata, record = split_message_record(row["metadata"])
    return {**row, "metadata": metadata, "record": record}


def _group_turns(messages: Sequence[Row]) -> Iterator[list[Row]]:
    group: list[Row] = []
    for row in messages:
        if group and _starts_group(group, row):
            yield group
            group = []
        group.append(row)
    if group:
        yield group


def _starts_group(group: Sequence[Row], row: Row) -> bool:
    record: LegacyTurn | None = group[0]["record"].turn
    if row["record"].turn is not None:
        return True
    if record is not None:
        return len(group) >= record.messages
    return legacy.starts_turn(row["role"], group[-1]["role"])


@row_decoder
def _build_turn(number: int, group: Sequence[Row]) -> dict[str, Any]:
    costs = [row["total_cost"] for row in group if row["total_cost"] is not None]
    turn_id = decode_id(group[0]["id"])
    record: LegacyTurn | None = group[0]["record"].turn
    if record is None or record.messages != len(group):
        record = None
    return {
        "number": number,
        "position": number,
        "id": turn_id,
        "state": legacy.guess_state(group[-1]["role"]) if record is None else record.state,
        "failure": None if record is None else record.failure,
        "cost": float(sum(costs)) if costs else None,
        "started_at": to_utc(group[0]["created_at"]),
        "ended_at": to_utc(group[-1]["created_at"]),
    }


@row_decoder
def _convert_message(row: Row) -> dict[str, Any]:
    record: LegacyMessage = row["record"]
    imported = {
        "id": decode_id(row["id"]),
        "metadata": row["metadata"],
        "reasoning_events": row["reasoning_events"],
        "total_cost": None if row["total_cost"] is None else str(row["total_cost"]),
        "created_at": to_utc(row["created_at"]),
    }
    return {
        "role": record.role or legacy.convert_role(row["role"]),
        "dialect": record.dialect,
        "raw": record.raw or legacy.build_raw(row["role"], row["content"]),
        "imported": encode_json(imported),
    }


def downgrade_rows(bind: sa.Connection) -> None:
    """Fill the tables of the older deployment from the renamed current tables."""
    link, linked = legacy.LINK[bind.dialect.name]
    number = () if linked == "id" else (linked,)
    conversations = _renamed_table(
        "conversations",
        ("created_at", "updated_at", "archived_at"),
        *("owner", "id", "name", "title", "model", "system", "system_record", "metadata"),
        *number,
    )
    turns = _renamed_table("turns", ("started_at",), "owner", link, "number", "state", "failure")
    columns = ("turn", "sequence_number", "role", "dialect", "raw", "imported")
    messages = _renamed_table("messages", (), "owner", link, *columns)
    joined = (turns.c.owner == messages.c.owner, turns.c[link] == messages.c[link])
    path = (
        sa.select(messages, turns.c.started_at, turns.c.state, turns.c.failure)
        .join(turns, sa.and_(*joined, turns.c.number == messages.c.turn))
        .where(messages.c.sequence_number.is_not(None))
        .order_by(messages.c.sequence_number)
    )
    used_ids: set[uuid.UUID] = set()
    for owner, key in bind.execute(sa.select(conversations.c.owner, conversations.c[linked])).all():
        of_owner = sa.select(conversations).where(conversations.c.owner == owner)
        (row,) = read_rows(bind, of_owner.where(conversations.c[linked] == key))
        query = path.where(messages.c.owner == owner, messages.c[link] == key)
        used_ids.add(_add_legacy(bind, row, read_rows(bind, query), used_ids))


def _renamed_table(name: str, times: Sequence[str], *columns: str) -> sa.TableClause:
    return legacy.current_table(name, times, *columns, prefix="newer_")


def _add_legacy(
    bind: sa.Connection, row: Row, messages: Sequence[Row], used_ids: set[uuid.UUID]
) -> uuid.UUID:
    key, conversation = _build_legacy_conversation(bind, row, used_ids)
    bind.execute(sa.insert(legacy.legacy_conversations(bind, prefix="")), [conversation])
    turns = _record_turns(messages)
    rows = [
        _build_legacy_message(bind, key, message, turns.get(index))
        for index, message in enumerate(messages)
    ]
    if rows:
        bind.execute(sa.insert(legacy.legacy_messages(bind, prefix="")), rows)
    return key


@row_decoder
def _build_legacy_conversation(
    bind: sa.Connection, row: Row, used_ids: set[uuid.UUID]
) -> tuple[uuid.UUID, dict[str, Any]]:
    key = parse_uuid(row["id"])
    user = None if row["owner"] == LOCAL else parse_uuid(row["owner"])
    system_record = None if row["system_record"] == legacy.DYNAMIC else row["system_record"]
    record = LegacyConversation(
        name=row["name"], model=row["model"], system=row["system"], system_record=system_record
    )
    if key is None or key in used_ids or (user is None and row["owner"] != LOCAL):
        key = build_id(row["owner"], row["id"])
        record = msgspec.structs.replace(record, owner=row["owner"], id=row["id"])
    metadata = msgspec.json.decode(row["metadata"], type=dict[str, Any])
    return key, {
        "id": legacy.encode_uuid(bind, key),
        "user_id": None if user is None else legacy.encode_uuid(bind, user),
        "title": row["title"],
        "created_at": to_naive_utc(row["created_at"]),
        "updated_at": to_naive_utc(row["updated_at"]),
        "archived_at": None if row["archived_at"] is None else to_naive_utc(row["archived_at"]),
        "metadata": with_record(metadata, record),
    }


@row_decoder
def _read_role(row: Row) -> str:
    raw: dict[str, Any] = msgspec.json.decode(row["raw"], type=dict[str, Any])
    return raw.get("role") or str(row["role"])


def _record_turns(messages: Sequence[Row]) -> dict[int, LegacyTurn]:
    """Return the turns by the index of their first message; empty if the roles show the turns."""
    roles = [_read_role(row) for row in messages]
    numbers = [row["turn"] for row in messages]
    starts = [at for at, turn in enumerate(numbers) if at == 0 or turn != numbers[at - 1]]
    guessed = [
        at
        for at, role in enumerate(roles)
        if legacy.starts_turn(role, roles[at - 1] if at else None)
    ]
    ends = [*starts, len(messages)][1:]
    spans = list(zip(starts, ends, strict=True))
    if starts == guessed and all(
        messages[first]["state"] == legacy.guess_state(roles[end - 1]) for first, end in spans
    ):
        return {}
    return {first: _record_turn(messages[first], end - first) for first, end in spans}


def _record_turn(row: Row, messages: int) -> LegacyTurn:
    if row["state"] == "running":
        return LegacyTurn(messages=messages, state="failed", failure=encode_json(INTERRUPTION))
    return LegacyTurn(messages=messages, state=row["state"], failure=row["failure"])


@row_decoder
def _build_legacy_message(
    bind: sa.Connection, conversation: uuid.UUID, row: Row, turn: LegacyTurn | None
) -> dict[str, Any]:
    imported = msgspec.json.decode(row["imported"] or "{}", type=dict[str, Any])
    raw = msgspec.json.decode(row["raw"], type=dict[str, Any])
    role = _read_role(row)
    content = raw.get("content")
    if not isinstance(content, str):
        content = Message(role=row["role"], raw=row["raw"].encode()).text or None
    if content is not None:
        # A column of PostgreSQL cannot contain NUL; the record has the JSON.
        content = content.replace("\0", "\ufffd")
    record = LegacyMessage(turn=turn)
    is_plain = legacy.build_raw(role, content) == row["raw"]
    if not is_plain or row["dialect"] != "openai" or role not in _PLAIN_ROLES:
        record = LegacyMessage(raw=row["raw"], dialect=row["dialect"], role=row["role"], turn=turn)
    created = imported.get("created_at")
    moment = datetime.fromisoformat(created) if created else row["started_at"]
    cost = imported.get("total_cost")
    number = row["sequence_number"]
    message_id = imported.get("id") or str(uuid.uuid5(NAMESPACE, f"{conversation}/{number}"))
    return {
        "id": legacy.encode_uuid(bind, uuid.UUID(message_id)),
        "conversation_id": legacy.encode_uuid(bind, conversation),
        "role": role,
        "content": content,
        "reasoning_events": imported.get("reasoning_events"),
        "metadata": with_record(imported.get("metadata") or {}, record),
        "total_cost": None if cost is None else Decimal(cost),
        "created_at": to_naive_utc(moment),
        "sequence_number": number,
    }
