"""A database of an older deployment: conversations with their messages."""

import uuid
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

import sqlalchemy as sa

ANN = uuid.UUID(int=0xA)
STARTED = datetime(2025, 5, 1, 12, 30, 15, 250000)  # noqa: DTZ001 - as older deployments have them
PROMPT = "You are Zzyzzx, a pirate."
MESSAGE_ROWS: tuple[tuple[str, str | None, Any, str | None], ...] = (
    ("user", "My cat is called Luna.", None, None),
    ("assistant", "Hello, Luna! 猫", [{"type": "thought", "text": "é"}], "0.001250"),
    ("user", "What is she?", None, None),
    ("user", "I mean my cat.", None, None),
    ("assistant", None, None, "0.000250"),
    ("tool", "cat", None, None),
    ("assistant", "A cat.", None, "0.000500"),
    ("user", "And now?", None, None),
)
JSON = sa.JSON(none_as_null=True)
CONVERSATIONS = sa.table(
    "conversations",
    sa.column("id", sa.Uuid),
    sa.column("user_id", sa.Uuid),
    sa.column("title", sa.Text),
    sa.column("system_message", sa.Text),
    sa.column("created_at", sa.DateTime),
    sa.column("updated_at", sa.DateTime),
    sa.column("archived_at", sa.DateTime),
    sa.column("metadata", JSON),
)
MESSAGES = sa.table(
    "messages",
    sa.column("id", sa.Uuid),
    sa.column("conversation_id", sa.Uuid),
    sa.column("role", sa.Text),
    sa.column("content", sa.Text),
    sa.column("reasoning_events", JSON),
    sa.column("metadata", JSON),
    sa.column("total_cost", sa.Numeric(10, 6)),
    sa.column("created_at", sa.DateTime),
    sa.column("sequence_number", sa.Integer),
)


def fill(bind: sa.Connection) -> None:
    """Fill a database that is at the first revision: three conversations, one of them empty."""
    for number, owner in enumerate((None, ANN, None)):
        started = STARTED + timedelta(days=number)
        row = {
            "id": uuid.UUID(int=0x100 + number),
            "user_id": owner,
            "title": None if number == 0 else f"Title {number} \U0001f680",
            "system_message": PROMPT,
            "created_at": started,
            "updated_at": started + timedelta(minutes=9),
            "archived_at": started if number == 1 else None,
            "metadata": {"tags": ["a", number], "deep": {"é": None}},
        }
        bind.execute(sa.insert(CONVERSATIONS), [row])
        if number < 2:
            bind.execute(sa.insert(MESSAGES), _build_messages(number, started))


def _build_messages(conversation: int, started: datetime) -> list[dict[str, Any]]:
    return [
        {
            "id": uuid.UUID(int=0x1000 * (conversation + 1) + number),
            "conversation_id": uuid.UUID(int=0x100 + conversation),
            "role": role,
            "content": content,
            "reasoning_events": events,
            "metadata": {"model": "old"} if role == "assistant" else {},
            "total_cost": None if cost is None else Decimal(cost),
            "created_at": started + timedelta(seconds=number),
            "sequence_number": number,
        }
        for number, (role, content, events, cost) in enumerate(MESSAGE_ROWS, 1)
    ]


def contents(bind: sa.Connection) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    """All rows of the two tables, without the system prompts."""
    columns = [column for column in CONVERSATIONS.c if column.name != "system_message"]
    order = (MESSAGES.c.conversation_id, MESSAGES.c.sequence_number)
    conversations = bind.execute(sa.select(*columns).order_by(CONVERSATIONS.c.id)).mappings()
    messages = bind.execute(sa.select(MESSAGES).order_by(*order)).mappings()
    return [dict(row) for row in conversations], [dict(row) for row in messages]
