"""Leases that are deleted after a day."""

import sqlite3
from contextlib import closing
from pathlib import Path

from cllm.core.ports import NewConversation
from cllm.stores.sqlite.store import SqliteStore
from cllm.testing.store_harness import TickingClock, start

HOUR = 3600.0


async def test_leases_of_conversations_never_created_are_deleted_after_a_day(database: Path):
    clock = TickingClock()
    store = SqliteStore(database, clock=clock)
    await store.begin_turn("old", start("t1", visible=False), create=NewConversation(id="old"))
    await store.begin_turn("made", start("t1"), create=NewConversation(id="made"))
    clock.advance(24 * HOUR)
    await store.begin_turn("young", start("t1", visible=False), create=NewConversation(id="young"))
    clock.advance(HOUR)

    await store.drop_old_events(clock())

    await store.close()
    with closing(sqlite3.connect(database)) as db:
        stored = db.execute("SELECT conversation_id FROM leases ORDER BY 1").fetchall()
    assert stored == [("made",), ("young",)]
