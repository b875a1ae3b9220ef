"""Converts the rows of an older deployment to ours, and back.

Upwards, consecutive messages become turns and users owners. Downwards, the default path becomes
messages: variants, events and usage are lost. Ids, owners, other JSON, and states that the messages
do not show are recorded in a metadata column.
"""

import uuid
from collections.abc import Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

import msgspec
import sqlalchemy as sa

from cllm.core.message import Message
from cllm.stores.edits import INTERRUPTION
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

_PLAIN = ("user", "assistant", "system", "tool")
_COLUMNS = (
    *("number", "owner", "turn", "ordinal", "sequence_number", "role", "dialect", "raw"),
    "imported",
)
_INDEX = "INSERT INTO message_search (rowid, terms) VALUES (:number, :terms)"
# A message's terms are stored only where the database would compute others from its text.
_TERMS = """CASE WHEN message_terms(:owner, 0, :raw, :terms)
    IS DISTINCT FROM message_terms(:owner, 0, :raw, NULL) THEN :terms END"""


def upgrade_rows(bind: sa.Connection) -> None:
    """Fill our tables from the older ones, which have been renamed."""
    table = legacy.legacy_conversations(bind)
    said = legacy.legacy_messages(bind)
    ids = list(bind.execute(sa.select(table.c.id).order_by(table.c.created_at)).scalars())
    filling = _TableWriter(bind)
    for batch in legacy.split_batches(ids):
        found = read_rows(bind, sa.select(table).where(table.c.id.in_(batch)))
        order = (said.c.conversation_id, said.c.sequence_number)
        query = sa.select(said).where(said.c.conversation_id.in_(batch)).order_by(*order)
        messages: dict[str, list[Row]] = {}
        for row in read_rows(bind, query):
            messages.setdefault(decode_id(row["conversation_id"]), []).append(row)
        for row in found:
            filling.add(row, messages.get(decode_id(row["id"]), []))
    filling.end()


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

    def add(self, row: Row, said: Sequence[Row]) -> None:
        conversation = _conversation(row, len(said))
        conversation["name"] = self._free_name(conversation["owner"], conversation["name"])
        for column in self._own_number:
            conversation[column] = self._next("conversations")
        self._bind.execute(sa.insert(self._conversations), [conversation])
        where = {"owner": conversation["owner"], self._link: conversation[self._linked]}
        sequence = 0
        for number, group in enumerate(_grouped([_read(message) for message in said]), 1):
            turn = _turn(number, group)
            place = turn["id"] if self._is_sqlite else None
            self._bind.execute(sa.insert(self._turns), [where | turn | {"place": place}])
            rows = []
            for ordinal, message in enumerate(group):
                sequence += 1
                at = {"number": self._next("messages"), "turn": number, "ordinal": ordinal}
                rows.append(where | at | {"sequence_number": sequence} | _message(message))
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
        """The name, or None if another conversation has it: metadata can repeat names."""
        table = self._conversations
        taken = sa.select(table.c.id).where(table.c.owner == owner, table.c.name == name)
        return None if name is None or self._bind.execute(taken).first() is not None else name

    def _next(self, table: str) -> int:
        self._numbers[table] += 1
        return self._numbers[table]

    def end(self) -> None:
        """Set the sequences of PostgreSQL after the used numbers."""
        for table, number in self._numbers.items():
            if number and not self._is_sqlite:
                restart = f"SELECT setval(pg_get_serial_sequence('{table}', 'number'), {number})"
                self._bind.execute(sa.text(restart))


@row_decoder
def _conversation(row: Row, message_count: int) -> dict[str, Any]:
    metadata, kept = split_conversation_record(row["metadata"], uuid.UUID(str(row["id"])))
    owner = LOCAL if row["user_id"] is None else decode_id(row["user_id"])
    return {
        "owner": kept.owner or owner,
        "id": kept.id or decode_id(row["id"]),
        "name": kept.name,
        "model": kept.model,
        "system": kept.system,
        "system_record": kept.system_record or legacy.DYNAMIC,
        "title": row["title"],
        "created_at": to_utc(row["created_at"]),
        "updated_at": to_utc(row["updated_at"]),
        "archived_at": None if row["archived_at"] is None else to_utc(row["archived_at"]),
        "metadata": encode_json(metadata),
        "message_count": message_count,
    }


def _read(row: Row) -> Row:
    metadata, kept = split_message_record(row["metadata"])
    return {**row, "metadata": metadata, "kept": kept}


def _grouped(said: Sequence[Row]) -> Iterator[list[Row]]:
    group: list[Row] = []
    for row in said:
        if group and _is_next(group, row):
            yield group
            group = []
        group.append(row)
    if group:
        yield group


def _is_next(group: Sequence[Row], row: Row) -> bool:
    kept: LegacyTurn | None = group[0]["kept"].turn
    if row["kept"].turn is not None:
        return True
    if kept is not None:
        return len(group) >= kept.messages
    return legacy.starts_turn(row["role"], group[-1]["role"])


@row_decoder
def _turn(number: int, group: Sequence[Row]) -> dict[str, Any]:
    costs = [row["total_cost"] for row in group if row["total_cost"] is not None]
    turn_id = decode_id(group[0]["id"])
    kept: LegacyTurn | None = group[0]["kept"].turn
    if kept is None or kept.messages != len(group):
        kept = None
    return {
        "number": number,
        "position": number,
        "id": turn_id,
        "state": legacy.guess_state(group[-1]["role"]) if kept is None else kept.state,
        "failure": None if kept is None else kept.failure,
        "cost": float(sum(costs)) if costs else None,
        "started_at": to_utc(group[0]["created_at"]),
        "ended_at": to_utc(group[-1]["created_at"]),
    }


@row_decoder
def _message(row: Row) -> dict[str, Any]:
    kept: LegacyMessage = row["kept"]
    imported = {
        "id": decode_id(row["id"]),
        "metadata": row["metadata"],
        "reasoning_events": row["reasoning_events"],
        "total_cost": None if row["total_cost"] is None else str(row["total_cost"]),
        "created_at": to_utc(row["created_at"]),
    }
    return {
        "role": kept.role or legacy.convert_role(row["role"]),
        "dialect": kept.dialect,
        "raw": kept.raw or legacy.build_raw(row["role"], row["content"]),
        "imported": encode_json(imported),
    }


def downgrade_rows(bind: sa.Connection) -> None:
    """Fill the older tables from ours, which have been renamed."""
    link, linked = legacy.LINK[bind.dialect.name]
    number = () if linked == "id" else (linked,)
    conversations = _newer(
        "conversations",
        ("created_at", "updated_at", "archived_at"),
        *("owner", "id", "name", "title", "model", "system", "system_record", "metadata"),
        *number,
    )
    turns = _newer("turns", ("started_at",), "owner", link, "number", "state", "failure")
    columns = ("turn", "sequence_number", "role", "dialect", "raw", "imported")
    messages = _newer("messages", (), "owner", link, *columns)
    joined = (turns.c.owner == messages.c.owner, turns.c[link] == messages.c[link])
    said = (
        sa.select(messages, turns.c.started_at, turns.c.state, turns.c.failure)
        .join(turns, sa.and_(*joined, turns.c.number == messages.c.turn))
        .where(messages.c.sequence_number.is_not(None))
        .order_by(messages.c.sequence_number)
    )
    taken: set[uuid.UUID] = set()
    for owner, key in bind.execute(sa.select(conversations.c.owner, conversations.c[linked])).all():
        of_owner = sa.select(conversations).where(conversations.c.owner == owner)
        (row,) = read_rows(bind, of_owner.where(conversations.c[linked] == key))
        query = said.where(messages.c.owner == owner, messages.c[link] == key)
        taken.add(_add_older(bind, row, read_rows(bind, query), taken))


def _newer(name: str, times: Sequence[str], *columns: str) -> sa.TableClause:
    return legacy.current_table(name, times, *columns, prefix="newer_")


def _add_older(
    bind: sa.Connection, row: Row, said: Sequence[Row], taken: set[uuid.UUID]
) -> uuid.UUID:
    key, conversation = _older_conversation(bind, row, taken)
    bind.execute(sa.insert(legacy.legacy_conversations(bind, prefix="")), [conversation])
    turns = _turns_kept(said)
    rows = [_older_message(bind, key, row, turns.get(place)) for place, row in enumerate(said)]
    if rows:
        bind.execute(sa.insert(legacy.legacy_messages(bind, prefix="")), rows)
    return key


@row_decoder
def _older_conversation(
    bind: sa.Connection, row: Row, taken: set[uuid.UUID]
) -> tuple[uuid.UUID, dict[str, Any]]:
    key = parse_uuid(row["id"])
    user = None if row["owner"] == LOCAL else parse_uuid(row["owner"])
    record = None if row["system_record"] == legacy.DYNAMIC else row["system_record"]
    kept = LegacyConversation(
        name=row["name"], model=row["model"], system=row["system"], system_record=record
    )
    if key is None or key in taken or (user is None and row["owner"] != LOCAL):
        key = build_id(row["owner"], row["id"])
        kept = msgspec.structs.replace(kept, owner=row["owner"], id=row["id"])
    metadata = msgspec.json.decode(row["metadata"], type=dict[str, Any])
    return key, {
        "id": legacy.encode_uuid(bind, key),
        "user_id": None if user is None else legacy.encode_uuid(bind, user),
        "title": row["title"],
        "created_at": to_naive_utc(row["created_at"]),
        "updated_at": to_naive_utc(row["updated_at"]),
        "archived_at": None if row["archived_at"] is None else to_naive_utc(row["archived_at"]),
        "metadata": with_record(metadata, kept),
    }


@row_decoder
def _role(row: Row) -> str:
    said: dict[str, Any] = msgspec.json.decode(row["raw"], type=dict[str, Any])
    return said.get("role") or str(row["role"])


def _turns_kept(said: Sequence[Row]) -> dict[int, LegacyTurn]:
    """The turns by the indexes of their first messages, if roles do not show them."""
    roles = [_role(row) for row in said]
    numbers = [row["turn"] for row in said]
    begun = [at for at, turn in enumerate(numbers) if at == 0 or turn != numbers[at - 1]]
    guessed = [
        at
        for at, role in enumerate(roles)
        if legacy.starts_turn(role, roles[at - 1] if at else None)
    ]
    ends = [*begun, len(said)][1:]
    is_told = begun == guessed and all(
        said[first]["state"] == legacy.guess_state(roles[end - 1])
        for first, end in zip(begun, ends, strict=True)
    )
    if is_told:
        return {}
    return {
        first: _kept_turn(said[first], end - first) for first, end in zip(begun, ends, strict=True)
    }


def _kept_turn(row: Row, messages: int) -> LegacyTurn:
    if row["state"] == "running":
        return LegacyTurn(messages=messages, state="failed", failure=encode_json(INTERRUPTION))
    return LegacyTurn(messages=messages, state=row["state"], failure=row["failure"])


@row_decoder
def _older_message(
    bind: sa.Connection, conversation: uuid.UUID, row: Row, turn: LegacyTurn | None
) -> dict[str, Any]:
    imported = msgspec.json.decode(row["imported"] or "{}", type=dict[str, Any])
    said = msgspec.json.decode(row["raw"], type=dict[str, Any])
    role = _role(row)
    content = said.get("content")
    if not isinstance(content, str):
        content = Message(role=row["role"], raw=row["raw"].encode()).text or None
    own = legacy.build_raw(role, content)
    kept = LegacyMessage(turn=turn)
    if own != row["raw"] or row["dialect"] != "openai" or role not in _PLAIN:
        kept = LegacyMessage(raw=row["raw"], dialect=row["dialect"], role=row["role"], turn=turn)
    created = imported.get("created_at")
    moment = datetime.fromisoformat(created) if created else row["started_at"]
    cost = imported.get("total_cost")
    number = row["sequence_number"]
    own_id = imported.get("id") or str(uuid.uuid5(NAMESPACE, f"{conversation}/{number}"))
    return {
        "id": legacy.encode_uuid(bind, uuid.UUID(own_id)),
        "conversation_id": legacy.encode_uuid(bind, conversation),
        "role": role,
        "content": content,
        "reasoning_events": imported.get("reasoning_events"),
        "metadata": with_record(imported.get("metadata") or {}, kept),
        "total_cost": None if cost is None else Decimal(cost),
        "created_at": to_naive_utc(moment),
        "sequence_number": number,
    }
