"""Converts our rows back to those of an older deployment: the default path as messages.

Variants, events and usage are lost. Ids, owners, other JSON, and states that the messages do not
show are recorded in a metadata column.
"""

import uuid
from collections.abc import Sequence
from datetime import datetime
from decimal import Decimal
from typing import Any

import msgspec
import sqlalchemy as sa

from cllm.core.message import Message
from cllm.stores.edits import INTERRUPTION
from cllm.stores.sql.migrations import older
from cllm.stores.sql.migrations.older import (
    LOCAL,
    NAMESPACE,
    KeptConversation,
    KeptMessage,
    KeptTurn,
    Row,
    as_uuid,
    id_from,
    json_text,
    naive,
    read_rows,
    with_kept,
)
from cllm.stores.sql.rows import row_decoder

_PLAIN = ("user", "assistant", "system", "tool")


def take_down(bind: sa.Connection) -> None:
    """Fill the older tables from ours, which have been renamed."""
    link, linked = older.LINK[bind.dialect.name]
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
        taken.add(_add(bind, row, read_rows(bind, query), taken))


def _newer(name: str, times: Sequence[str], *columns: str) -> sa.TableClause:
    return older.newer(name, times, *columns, prefix="newer_")


def _add(bind: sa.Connection, row: Row, said: Sequence[Row], taken: set[uuid.UUID]) -> uuid.UUID:
    key, conversation = _conversation(bind, row, taken)
    bind.execute(sa.insert(older.older_conversations(bind, prefix="")), [conversation])
    turns = _turns_kept(said)
    rows = [_message(bind, key, row, turns.get(place)) for place, row in enumerate(said)]
    if rows:
        bind.execute(sa.insert(older.older_messages(bind, prefix="")), rows)
    return key


@row_decoder
def _conversation(
    bind: sa.Connection, row: Row, taken: set[uuid.UUID]
) -> tuple[uuid.UUID, dict[str, Any]]:
    key = as_uuid(row["id"])
    user = None if row["owner"] == LOCAL else as_uuid(row["owner"])
    record = None if row["system_record"] == older.DYNAMIC else row["system_record"]
    kept = KeptConversation(
        name=row["name"], model=row["model"], system=row["system"], system_record=record
    )
    if key is None or key in taken or (user is None and row["owner"] != LOCAL):
        key = id_from(row["owner"], row["id"])
        kept = msgspec.structs.replace(kept, owner=row["owner"], id=row["id"])
    metadata = msgspec.json.decode(row["metadata"], type=dict[str, Any])
    return key, {
        "id": older.write_uuid(bind, key),
        "user_id": None if user is None else older.write_uuid(bind, user),
        "title": row["title"],
        "created_at": naive(row["created_at"]),
        "updated_at": naive(row["updated_at"]),
        "archived_at": None if row["archived_at"] is None else naive(row["archived_at"]),
        "metadata": with_kept(metadata, kept),
    }


@row_decoder
def _role(row: Row) -> str:
    said: dict[str, Any] = msgspec.json.decode(row["raw"], type=dict[str, Any])
    return said.get("role") or str(row["role"])


def _turns_kept(said: Sequence[Row]) -> dict[int, KeptTurn]:
    """The turns by the indexes of their first messages, if roles do not show them."""
    roles = [_role(row) for row in said]
    numbers = [row["turn"] for row in said]
    begun = [at for at, turn in enumerate(numbers) if at == 0 or turn != numbers[at - 1]]
    guessed = [
        at
        for at, role in enumerate(roles)
        if older.begins_turn(role, roles[at - 1] if at else None)
    ]
    ends = [*begun, len(said)][1:]
    is_told = begun == guessed and all(
        said[first]["state"] == older.state_after(roles[end - 1])
        for first, end in zip(begun, ends, strict=True)
    )
    if is_told:
        return {}
    return {
        first: _kept_turn(said[first], end - first) for first, end in zip(begun, ends, strict=True)
    }


def _kept_turn(row: Row, messages: int) -> KeptTurn:
    if row["state"] == "running":
        return KeptTurn(messages=messages, state="failed", failure=json_text(INTERRUPTION))
    return KeptTurn(messages=messages, state=row["state"], failure=row["failure"])


@row_decoder
def _message(
    bind: sa.Connection, conversation: uuid.UUID, row: Row, turn: KeptTurn | None
) -> dict[str, Any]:
    imported = msgspec.json.decode(row["imported"] or "{}", type=dict[str, Any])
    said = msgspec.json.decode(row["raw"], type=dict[str, Any])
    role = _role(row)
    content = said.get("content")
    if not isinstance(content, str):
        content = Message(role=row["role"], raw=row["raw"].encode()).text or None
    own = older.plain_raw(role, content)
    kept = KeptMessage(turn=turn)
    if own != row["raw"] or row["dialect"] != "openai" or role not in _PLAIN:
        kept = KeptMessage(raw=row["raw"], dialect=row["dialect"], role=row["role"], turn=turn)
    created = imported.get("created_at")
    moment = datetime.fromisoformat(created) if created else row["started_at"]
    cost = imported.get("total_cost")
    number = row["sequence_number"]
    own_id = imported.get("id") or str(uuid.uuid5(NAMESPACE, f"{conversation}/{number}"))
    return {
        "id": older.write_uuid(bind, uuid.UUID(own_id)),
        "conversation_id": older.write_uuid(bind, conversation),
        "role": role,
        "content": content,
        "reasoning_events": imported.get("reasoning_events"),
        "metadata": with_kept(imported.get("metadata") or {}, kept),
        "total_cost": None if cost is None else Decimal(cost),
        "created_at": naive(moment),
        "sequence_number": number,
    }
