"""A part of a conversation is read by few statements, however many turns it has."""

import sqlite3
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cllm.core.ports import TurnPart
from cllm.stores.sqlite import reader as sqlite_parts
from cllm.stores.sqlite.store import SqliteStore
from cllm.testing.store_harness import say, say_again

TURNS = 60
FEW = 5


@pytest.fixture
async def store(database: Path) -> AsyncIterator[SqliteStore]:
    opened = SqliteStore(database, clock=lambda: datetime.now(UTC))
    for number in range(TURNS):
        await say(opened, "demo", f"t{number}", f"question {number}")
        if number % 10 == 0:
            await say_again(opened, "demo", f"v{number}", place=f"t{number}", text="again")
    yield opened
    await opened.close()


async def test_consecutive_turns_are_read_with_one_statement(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
):
    turns = (await store.load("demo")).turns
    parts = [TurnPart(turn=turn.id) for turn in turns]
    ran: list[str] = []
    messages_from = sqlite_parts.messages_from

    def watched(db: sqlite3.Connection, *args: Any, **kwargs: Any) -> Any:
        db.set_trace_callback(ran.append)
        try:
            return messages_from(db, *args, **kwargs)
        finally:
            db.set_trace_callback(None)

    monkeypatch.setattr(sqlite_parts, "messages_from", watched)
    found = await store.messages_from("demo", parts, most=10**6)
    assert found == tuple(turn.messages for turn in turns)
    assert 0 < len(ran) <= FEW


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("most", [1, 300, 10**6])
async def test_parts_are_returned_in_the_requested_order(store: SqliteStore, order: int, most: int):
    conversation = await store.load("demo")
    turns = [*conversation.turns[::order], *conversation.variants]
    parts = [TurnPart(turn=turn.id) for turn in turns]
    found = await store.messages_from("demo", parts, most=most)
    assert found
    whole = [turn.messages for turn in turns]
    assert list(found[:-1]) == whole[: len(found) - 1]
    assert found[-1] == whole[len(found) - 1][: len(found[-1])]
    read = sum(len(message.raw) for messages in found for message in messages)
    longest = max(len(message.raw) for messages in whole for message in messages)
    assert read >= most or len(found) == len(whole)
    assert read < most + longest


async def test_a_part_can_start_within_a_turn(store: SqliteStore):
    (turn,) = (await store.load("demo", tail=1)).turns
    others = [TurnPart(turn="t5"), TurnPart(turn="gone"), TurnPart(turn=turn.id, start=1)]
    first, none, rest = await store.messages_from("demo", others, most=10**6)
    assert len(first) == len(turn.messages)
    assert none == ()
    assert rest == turn.messages[1:]
