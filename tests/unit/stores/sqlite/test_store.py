import sqlite3
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from cllm.core.errors import (
    ConversationBusyError,
    SettingsError,
    StoreUnavailableError,
    UsageError,
)
from cllm.core.message import Message
from cllm.core.ports import NewConversation, TurnStart
from cllm.stores.memory import MemoryStore
from cllm.stores.sqlite.store import SqliteStore, parse_location
from cllm.testing.store_harness import TickingClock, answered, start


@pytest.mark.parametrize(
    ("location", "synchronous"),
    [("a.db", "FULL"), ("a.db?synchronous=full", "FULL"), ("a.db?synchronous=NORMAL", "NORMAL")],
)
def test_a_location_has_a_path_and_the_synchronous_mode(location: str, synchronous: str):
    assert parse_location(location) == (Path("a.db"), synchronous)


@pytest.mark.parametrize("location", ["", ":memory:", "?synchronous=full"])
def test_a_location_needs_a_path(location: str):
    with pytest.raises(SettingsError, match="needs the path of a file"):
        parse_location(location)


def test_an_unknown_option_is_refused():
    with pytest.raises(SettingsError, match="unknown option"):
        parse_location("a.db?mode=ro")


async def test_a_busy_error_names_the_running_turn(tmp_path: Path):
    store = SqliteStore(tmp_path / "a.db", clock=TickingClock(), patience=0)
    lease = await store.begin_turn("demo", start("t1"), create=NewConversation(id="demo"))
    with pytest.raises(ConversationBusyError) as raised:
        await store.begin_turn("demo", start("t2"))
    assert raised.value.turn_id == "t1"
    with pytest.raises(ConversationBusyError):
        await store.delete("demo")
    await store.drop_turn(lease)
    await store.close()


async def test_a_turn_that_cannot_be_stored_releases_its_lease(tmp_path: Path):
    store = SqliteStore(tmp_path / "a.db", clock=TickingClock())
    lease = await store.begin_turn("demo", start("t1"), create=NewConversation(id="demo"))
    reply = Message(role="assistant", raw=b'{"content":"\xff"}')
    turn = answered(lease)
    with pytest.raises(UsageError):
        await store.finish_turn(lease, msgspec.structs.replace(turn, messages=(reply,)))
    await store.drop_turn(await store.begin_turn("demo", start("t2")))
    await store.close()


async def test_a_turn_whose_end_cannot_be_saved_does_not_block_its_conversation(tmp_path: Path):
    store = SqliteStore(tmp_path / "a.db", clock=TickingClock(), busy_seconds=0.01)
    lease = await store.begin_turn("demo", start("t1"), create=NewConversation(id="demo"))
    with closing(sqlite3.connect(tmp_path / "a.db", isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailableError):
            await store.finish_turn(lease, answered(lease))
        other.execute("ROLLBACK")
    second = await store.begin_turn("demo", start("t2"))
    assert [turn.state for turn in second.conversation.turns] == ["failed"]
    await store.close()


async def test_a_lease_finishes_its_turn_only(tmp_path: Path):
    store = SqliteStore(tmp_path / "a.db", clock=TickingClock())
    lease = await store.begin_turn(
        "demo", TurnStart(id="t1", messages=()), create=NewConversation(id="demo")
    )
    other = msgspec.structs.replace(lease.turn, id="t2")
    with pytest.raises(UsageError, match="The lease is for turn 't1', not for 't2'"):
        await store.finish_turn(lease, other)
    await store.close()


async def test_two_paths_of_one_file_are_the_same_store(tmp_path: Path):
    (tmp_path / "link.db").symlink_to(tmp_path / "a.db")
    store, link, other = (
        SqliteStore(tmp_path / name, clock=TickingClock()) for name in ("a.db", "link.db", "b.db")
    )
    assert await store.is_same_store(link)
    assert not await store.is_same_store(other)
    assert not await store.is_same_store(MemoryStore(clock=TickingClock()))
    assert not (tmp_path / "a.db").exists()
    await store.create(NewConversation(id="cats"))
    (tmp_path / "hard.db").hardlink_to(tmp_path / "a.db")
    assert await store.is_same_store(link)
    assert await store.is_same_store(SqliteStore(tmp_path / "hard.db", clock=TickingClock()))
    assert not await store.is_same_store(other)
    await store.close()
