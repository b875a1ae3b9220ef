"""Converts the rows of an older deployment: consecutive messages become turns, users owners."""

import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import sqlalchemy as sa

from cllm.core.message import Message
from cllm.stores.sql.migrations import older
from cllm.stores.sql.migrations.older import (
    LOCAL,
    KeptMessage,
    KeptTurn,
    Row,
    conversation_kept,
    id_text,
    in_utc,
    json_text,
    message_kept,
    read_rows,
)
from cllm.stores.sql.rows import row_decoder
from cllm.stores.sql.search import indexed_terms, said_terms

_COLUMNS = (
    *("number", "owner", "turn", "ordinal", "sequence_number", "role", "dialect", "raw"),
    "imported",
)
_INDEX = "INSERT INTO message_search (rowid, terms) VALUES (:number, :terms)"
# A message's terms are stored only where the database would compute others from its text.
_TERMS = """CASE WHEN message_terms(:owner, 0, :raw, :terms)
    IS DISTINCT FROM message_terms(:owner, 0, :raw, NULL) THEN :terms END"""


def bring_up(bind: sa.Connection) -> None:
    """Fill our tables from the older ones, which have been renamed."""
    table = older.older_conversations(bind)
    said = older.older_messages(bind)
    ids = list(bind.execute(sa.select(table.c.id).order_by(table.c.created_at)).scalars())
    filling = _Filling(bind)
    for batch in older.in_batches(ids):
        found = read_rows(bind, sa.select(table).where(table.c.id.in_(batch)))
        order = (said.c.conversation_id, said.c.sequence_number)
        query = sa.select(said).where(said.c.conversation_id.in_(batch)).order_by(*order)
        messages: dict[str, list[Row]] = {}
        for row in read_rows(bind, query):
            messages.setdefault(id_text(row["conversation_id"]), []).append(row)
        for row in found:
            filling.add(row, messages.get(id_text(row["id"]), []))
    filling.end()


class _Filling:
    def __init__(self, bind: sa.Connection) -> None:
        self._bind = bind
        self._is_sqlite = bind.dialect.name == "sqlite"
        self._link, self._linked = older.LINK[bind.dialect.name]
        self._numbers = {"conversations": 0, "messages": 0}
        times = ("created_at", "updated_at", "archived_at")
        columns = ("owner", "id", "name", "title", "model", "system", "system_record", "metadata")
        self._conversations = older.newer(
            "conversations", times, *columns, "message_count", *self._own_number
        )
        turn = ("number", "id", "place", "position", "state", "cost", "failure")
        self._turns = older.newer("turns", ("started_at", "ended_at"), "owner", self._link, *turn)
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
            terms = indexed_terms(message, row["owner"]) if self._is_sqlite else said_terms(message)
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
    metadata, kept = conversation_kept(row["metadata"], uuid.UUID(str(row["id"])))
    owner = LOCAL if row["user_id"] is None else id_text(row["user_id"])
    return {
        "owner": kept.owner or owner,
        "id": kept.id or id_text(row["id"]),
        "name": kept.name,
        "model": kept.model,
        "system": kept.system,
        "system_record": kept.system_record or older.DYNAMIC,
        "title": row["title"],
        "created_at": in_utc(row["created_at"]),
        "updated_at": in_utc(row["updated_at"]),
        "archived_at": None if row["archived_at"] is None else in_utc(row["archived_at"]),
        "metadata": json_text(metadata),
        "message_count": message_count,
    }


def _read(row: Row) -> Row:
    metadata, kept = message_kept(row["metadata"])
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
    kept: KeptTurn | None = group[0]["kept"].turn
    if row["kept"].turn is not None:
        return True
    if kept is not None:
        return len(group) >= kept.messages
    return older.begins_turn(row["role"], group[-1]["role"])


@row_decoder
def _turn(number: int, group: Sequence[Row]) -> dict[str, Any]:
    costs = [row["total_cost"] for row in group if row["total_cost"] is not None]
    turn_id = id_text(group[0]["id"])
    kept: KeptTurn | None = group[0]["kept"].turn
    if kept is None or kept.messages != len(group):
        kept = None
    return {
        "number": number,
        "position": number,
        "id": turn_id,
        "state": older.state_after(group[-1]["role"]) if kept is None else kept.state,
        "failure": None if kept is None else kept.failure,
        "cost": float(sum(costs)) if costs else None,
        "started_at": in_utc(group[0]["created_at"]),
        "ended_at": in_utc(group[-1]["created_at"]),
    }


@row_decoder
def _message(row: Row) -> dict[str, Any]:
    kept: KeptMessage = row["kept"]
    imported = {
        "id": id_text(row["id"]),
        "metadata": row["metadata"],
        "reasoning_events": row["reasoning_events"],
        "total_cost": None if row["total_cost"] is None else str(row["total_cost"]),
        "created_at": in_utc(row["created_at"]),
    }
    return {
        "role": kept.role or older.our_role(row["role"]),
        "dialect": kept.dialect,
        "raw": kept.raw or older.plain_raw(row["role"], row["content"]),
        "imported": json_text(imported),
    }
