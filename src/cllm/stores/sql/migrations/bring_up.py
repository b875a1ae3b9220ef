"""From the rows of an older deployment to ours: messages in a row become turns, users owners."""

import uuid
from collections.abc import Iterator, Sequence
from typing import Any

import sqlalchemy as sa

from cllm.core.message import Message
from cllm.stores.sql.migrations import older
from cllm.stores.sql.migrations.kept import KeptMessage, KeptTurn, conversation_kept, message_kept
from cllm.stores.sql.migrations.older import LOCAL, Row, id_text, in_utc, json_text, read_rows
from cllm.stores.sql.rows import row_decoder
from cllm.stores.sql.search import indexed_terms

_CONVERSATIONS = older.newer(
    "conversations",
    ("created_at", "updated_at", "archived_at"),
    *("owner", "id", "name", "title", "model", "system", "system_record", "metadata"),
    "message_count",
)
_TURNS = older.newer(
    "turns",
    ("started_at", "ended_at"),
    *("owner", "conversation_id", "number", "id", "place", "position", "state", "cost"),
    "failure",
)
_MESSAGES = older.newer(
    "messages",
    (),
    *("number", "owner", "conversation_id", "turn", "ordinal", "sequence_number"),
    *("role", "dialect", "raw", "imported"),
)
_TERMS = {
    "sqlite": "INSERT INTO message_search (rowid, terms) VALUES (:number, :terms)",
    "postgresql": "UPDATE messages SET terms = array_to_tsvector(string_to_array(:terms, ' ')) "
    "WHERE owner = :owner AND conversation_id = :conversation_id AND number = :number",
}


def bring_up(bind: sa.Connection) -> None:
    """Fill our tables from the older ones, which have been moved aside."""
    table = older.older_conversations(bind)
    said = older.older_messages(bind)
    ids = list(bind.execute(sa.select(table.c.id).order_by(table.c.created_at)).scalars())
    number = 0
    for batch in older.in_batches(ids):
        found = read_rows(bind, sa.select(table).where(table.c.id.in_(batch)))
        order = (said.c.conversation_id, said.c.sequence_number)
        query = sa.select(said).where(said.c.conversation_id.in_(batch)).order_by(*order)
        messages: dict[str, list[Row]] = {}
        for row in read_rows(bind, query):
            messages.setdefault(id_text(row["conversation_id"]), []).append(row)
        for row in found:
            number = _add(bind, row, messages.get(id_text(row["id"]), []), number)
    if number and bind.dialect.name == "postgresql":
        last = {"number": number}
        bind.execute(
            sa.text("SELECT setval(pg_get_serial_sequence('messages', 'number'), :number)"), last
        )


def _add(bind: sa.Connection, row: Row, said: Sequence[Row], number: int) -> int:
    """Add one conversation; the number of the last message that was added."""
    conversation = _conversation(row, len(said))
    conversation["name"] = _free_name(bind, conversation["owner"], conversation["name"])
    bind.execute(sa.insert(_CONVERSATIONS), [conversation])
    where = {"owner": conversation["owner"], "conversation_id": conversation["id"]}
    sequence = 0
    for turn_number, group in enumerate(_grouped([_read(message) for message in said]), 1):
        turn = _turn(turn_number, group)
        bind.execute(sa.insert(_TURNS), [where | turn])
        rows = []
        for ordinal, message in enumerate(group):
            number, sequence = number + 1, sequence + 1
            at = {"number": number, "turn": turn_number, "ordinal": ordinal}
            rows.append(where | at | {"sequence_number": sequence} | _message(message))
        bind.execute(sa.insert(_MESSAGES), rows)
        if turn["state"] != "failed":
            _index(bind, rows)
    return number


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


def _free_name(bind: sa.Connection, owner: str, name: str | None) -> str | None:
    """The name, unless another conversation has it: metadata can say the same name twice."""
    table = _CONVERSATIONS
    taken = sa.select(table.c.id).where(table.c.owner == owner, table.c.name == name)
    return None if name is None or bind.execute(taken).first() is not None else name


def _read(row: Row) -> Row:
    """The row with its metadata and what was kept there side by side."""
    metadata, kept = message_kept(row["metadata"])
    return {**row, "metadata": metadata, "kept": kept}


def _grouped(said: Sequence[Row]) -> Iterator[list[Row]]:
    """Turns: as they were kept, or as the roles of messages tell them."""
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
        "place": turn_id,
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


def _index(bind: sa.Connection, rows: Sequence[dict[str, Any]]) -> None:
    found = [
        {
            "terms": indexed_terms(
                Message(role=row["role"], raw=row["raw"].encode()), row["owner"]
            ),
            "number": row["number"],
            "owner": row["owner"],
            "conversation_id": row["conversation_id"],
        }
        for row in rows
    ]
    worth = [each for each in found if each["terms"]]
    if worth:
        bind.execute(sa.text(_TERMS[bind.dialect.name]), worth)
