"""Large conversations and many of them in SQLite: nobody waits for what they do not need."""

import asyncio
import sqlite3
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec

from cllm.core.conversation import StoredConversation, Turn
from cllm.core.message import plain_message
from cllm.core.ports import NewConversation
from cllm.stores.sqlite.edits import add_conversation
from cllm.stores.sqlite.reader import find_conversation, load
from cllm.stores.sqlite.store import SqliteStore
from cllm.testing.store_contract import answered, say, say_again, start, texts

MEGABYTE = 1_000_000


def opened(path: Path) -> SqliteStore:
    return SqliteStore(path, clock=lambda: datetime.now(UTC), synchronous="NORMAL")


async def test_fifty_megabytes_in_one_conversation_do_not_slow_others(database):
    store = opened(database)
    await store.create(NewConversation(id="huge"))
    for number in range(25):
        lease = await store.begin_turn("huge", start(f"t{number}"), tail=0)
        await store.finish_turn(lease, answered(lease, "x" * 2 * MEGABYTE))
    loads = [asyncio.create_task(store.load("huge")) for _ in range(5)]
    await asyncio.sleep(0)
    await say(store, "small", "t1")
    assert not loads[-1].done()
    sizes = [sum(len(message.raw) for message in (await load).messages) for load in loads]
    assert min(sizes) > 50 * MEGABYTE
    await store.close()


async def test_a_turn_in_a_long_conversation_reads_only_its_window(database):
    store = opened(database)
    await store.create(NewConversation(id="long"))
    fill(database, "filled", turns=3000)
    lease = await store.begin_turn("filled", start("new"), tail=40)
    assert sum(len(turn.messages) for turn in lease.conversation.turns) == 40
    assert lease.conversation.message_count == 6000
    await store.finish_turn(lease, answered(lease))
    assert (await store.load("filled", tail=2)).turns[0].id == "new"
    await store.close()


async def test_the_cost_of_a_window_does_not_grow_with_the_conversation(database):
    store = opened(database)
    await store.create(NewConversation(id="none"))
    for turns in (50, 5000):
        fill(database, str(turns), turns=turns)
    db = sqlite3.connect(database)
    short, long = (steps_to_load(db, ref) for ref in ("50", "5000"))
    db.close()
    assert long < short * 1.1
    await store.close()


def steps_to_load(db: sqlite3.Connection, ref: str) -> int:
    """How many instructions SQLite runs for the newest 40 messages."""
    steps = 0

    def step() -> int:
        nonlocal steps
        steps += 1
        return 0

    db.set_progress_handler(step, 1)
    loaded = load(db, find_conversation(db, ref, "local"), 40)
    db.set_progress_handler(None, 0)
    assert sum(len(turn.messages) for turn in loaded.turns) == 40
    return steps


async def test_choosing_an_early_variant_does_not_change_the_tail(database):
    store = opened(database)
    await say(store, "demo", "t1", "one")
    await say_again(store, "demo", "t2", place="t1", text="better")
    await say(store, "demo", "t3", "three")
    for chosen in ("t1", "t2"):
        await store.choose_variant("demo", chosen)
        tail = await store.load("demo", tail=2)
        assert (texts(tail), tail.variants, tail.first_sequence) == (["three", "three?"], (), 3)
        whole = await store.load("demo", tail=3)
        assert [turn.id for turn in whole.turns] == [chosen, "t3"]
        assert len(whole.variants) == 1
    await store.close()


async def test_two_hundred_parallel_readers_share_two_threads(database):
    store = opened(database)
    await say(store, "demo", "t1")
    before = threading.active_count()
    loaded = await asyncio.gather(*(store.load("demo") for _ in range(200)))
    assert {conversation.message_count for conversation in loaded} == {2}
    assert threading.active_count() <= before + 1
    await store.close()


async def test_only_the_newest_thousand_matches_are_ranked_and_more_is_set(database):
    store = opened(database)
    await store.count_conversations()
    fill(database, "filled", turns=700, text="apple pie")
    hits = await store.search("apple", limit=5)
    assert (len(hits.items), hits.total, hits.more) == (5, 1000, True)
    assert (await store.search("apple", limit=5, offset=1000)).items == ()
    await store.close()


async def test_frequent_matches_rank_before_newer_ones(database):
    store = opened(database)
    await say(store, "best", "t1", "apple apple apple")
    await say(store, "newer", "t1", "apple " + "and a lot of other words " * 20)
    found = [hit.conversation for hit in (await store.search("apple")).items]
    assert found == ["best", "best", "newer", "newer"]
    await store.close()


async def test_a_hundred_conversations_with_one_timestamp_are_each_listed_once(database):
    moment = datetime(2026, 1, 1, tzinfo=UTC)
    store = SqliteStore(database, clock=lambda: moment, synchronous="NORMAL")
    for number in range(100):
        await store.create(NewConversation(id=f"c{number:02}"))
    listed: list[str] = []
    cursor = None
    while True:
        page = await store.list_conversations(limit=7, cursor=cursor)
        listed += [item.id for item in page.items]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert listed == [f"c{number:02}" for number in range(100)]
    await store.close()


def fill(database: Path, ref: str, *, turns: int, text: str = "word") -> None:
    """A conversation with many turns, straight into the file."""
    began = datetime(2026, 1, 1, tzinfo=UTC)
    messages = (plain_message("user", text), plain_message("assistant", text))
    one = Turn(id="", place="", state="complete", messages=messages, started_at=began)
    path = tuple(
        msgspec.structs.replace(
            one, id=f"t{number}", place=f"t{number}", started_at=began + timedelta(seconds=number)
        )
        for number in range(turns)
    )
    db = sqlite3.connect(database, isolation_level=None)
    db.execute("BEGIN")
    add_conversation(db, StoredConversation(id=ref, created_at=began, updated_at=began, turns=path))
    db.execute("COMMIT")
    db.close()
