"""Files, rows and words that somebody made to do harm: they end as data, or in our errors."""

import os
import sqlite3
from datetime import UTC, datetime, timedelta
from pathlib import Path

import msgspec
import pytest

from cllm.core.errors import (
    CllmError,
    ConversationBusyError,
    StoreUnavailableError,
    TurnNotFoundError,
    UsageError,
)
from cllm.core.ports import NewConversation
from cllm.stores.sql.database import Database
from cllm.stores.sql.migrate import current_revision, find_differences
from cllm.stores.sqlite.store import SqliteStore
from cllm.testing.store_contract import answered, say, start
from cllm.testing.store_harness import TickingClock

DAMAGE = (
    "UPDATE conversations SET metadata = '{'",
    "UPDATE conversations SET created_at = 'yesterday'",
    "UPDATE conversations SET system_record = '[]'",
    "UPDATE conversations SET message_count = 'x'",
    "UPDATE conversations SET message_count = 99",
    "UPDATE messages SET raw = x'ff00'",
    "UPDATE turns SET \"window\" = '[]'",
    "UPDATE turns SET started_at = 12",
)
SPYING = (
    "CREATE TABLE stash (raw TEXT)",
    "CREATE TRIGGER spy AFTER INSERT ON messages BEGIN INSERT INTO stash VALUES (new.raw); END",
)


def opened(path: Path, **options) -> SqliteStore:
    return SqliteStore(path, clock=lambda: datetime.now(UTC), busy_seconds=1, **options)


def execute(path: Path, *statements: str) -> None:
    own = sqlite3.connect(path)
    for statement in statements:
        own.execute(statement)
    own.commit()
    own.close()


@pytest.mark.parametrize("damage", DAMAGE)
async def test_an_unreadable_row_is_reported(database, damage):
    store = opened(database)
    await say(store, "demo", "t1")
    await store.close()
    execute(database, damage)
    store = opened(database)
    with pytest.raises(StoreUnavailableError, match=r"row that cannot be read .*;") as caught:
        await store.load("demo", tail=1)
    assert "\n" not in str(caught.value)
    await store.close()


async def test_an_unpaired_surrogate_is_refused_everywhere(database):
    store = opened(database)
    await say(store, "demo", "t1")
    for call in (
        store.load("demo", owner="\ud800"),
        store.list_conversations(owner="\ud800"),
        store.search("Hello", owner="\ud800"),
        store.usage(owner="\ud800"),
        store.choose_variant("demo", "\ud800"),
        store.events_after("demo", "\ud800", 0),
    ):
        with pytest.raises(UsageError, match="a lone surrogate"):
            await call
    await store.close()


async def test_the_lease_is_released_if_the_turn_cannot_be_stored(database):
    store = opened(database)
    lease = await store.begin_turn("demo", start("t1"), create=NewConversation(id="demo"))
    turn = msgspec.structs.replace(answered(lease), provider="\ud800")
    with pytest.raises(UsageError):
        await store.finish_turn(lease, turn)
    await say(store, "demo", "t2")
    states = [(turn.id, turn.state) for turn in (await store.load("demo")).turns]
    assert states == [("t1", "failed"), ("t2", "complete")]
    await store.close()


@pytest.mark.parametrize("work", [current_revision, find_differences])
async def test_a_pipe_is_reported_without_blocking(database, work):
    os.mkfifo(database)
    store = opened(database)
    with pytest.raises(StoreUnavailableError, match="not a regular file"):
        await store.list_conversations()
    await store.close()
    for create in (True, False):
        with pytest.raises(StoreUnavailableError, match="not a regular file"):
            Database(f"sqlite:{database}").run(work, create=create)


async def test_a_device_is_reported():
    store = opened(Path("/dev/null"))
    with pytest.raises(StoreUnavailableError, match="not a regular file"):
        await store.list_conversations()
    await store.close()


async def test_a_symbolic_link_to_a_database_works(tmp_path):
    store = opened(tmp_path / "real.db")
    await say(store, "demo", "t1")
    await store.close()
    (tmp_path / "link.db").symlink_to(tmp_path / "real.db")
    store = opened(tmp_path / "link.db")
    assert (await store.load("demo")).message_count == 2
    await store.close()


async def test_a_new_database_is_private(tmp_path):
    database = tmp_path / "new" / "cllm.db"
    store = opened(database)
    await say(store, "demo", "t1")
    assert database.parent.stat().st_mode & 0o777 == 0o700
    assert {path.stat().st_mode & 0o777 for path in database.parent.iterdir()} == {0o600}
    await store.close()


async def test_the_check_reports_unknown_triggers(database):
    store = opened(database)
    await say(store, "demo", "t1")
    await store.close()
    execute(database, *SPYING)
    found = Database(f"sqlite:{database}").run(find_differences)
    assert any("trigger" in difference and "spy" in difference for difference in found)


async def test_a_view_in_place_of_a_table_is_a_store_error(database):
    store = opened(database)
    await say(store, "demo", "t1")
    await store.close()
    execute(
        database,
        "ALTER TABLE leases RENAME TO leases_real",
        "CREATE VIEW leases AS SELECT * FROM leases_real",
    )
    store = opened(database)
    with pytest.raises(StoreUnavailableError):
        await say(store, "demo", "t2")
    await store.close()


async def test_a_lease_from_before_a_large_clock_change_is_not_valid(database):
    clock = TickingClock()
    clock.advance(timedelta(days=365).total_seconds())
    store = SqliteStore(database, clock=clock)
    await store.begin_turn("demo", start("t1"), create=NewConversation(id="demo"))
    clock.advance(-timedelta(days=365).total_seconds())
    await say(store, "demo", "t2")
    assert [turn.state for turn in (await store.load("demo")).turns] == ["failed", "complete"]
    await store.close()


async def test_a_small_clock_change_does_not_free_a_running_turn(database):
    clock = TickingClock()
    store = SqliteStore(database, clock=clock)
    lease = await store.begin_turn("demo", start("t1"), create=NewConversation(id="demo"))
    clock.advance(-300)
    with pytest.raises(ConversationBusyError):
        await store.begin_turn("demo", start("t2"))
    await store.finish_turn(lease, answered(lease))
    assert (await store.load("demo")).message_count == 2
    await store.close()


async def test_fencing_numbers_grow_when_the_clock_is_set_back(database):
    clock = TickingClock()
    store = SqliteStore(database, clock=clock, lease_seconds=1)
    first = await store.begin_turn("demo", start("t1"), create=NewConversation(id="demo"))
    clock.advance(-7200)
    second = await store.begin_turn("demo", start("t2"))
    assert second.fence > first.fence
    with pytest.raises(CllmError):
        await store.finish_turn(first, answered(first))
    await store.finish_turn(second, answered(second))
    await store.close()


async def test_a_name_of_a_hidden_first_turn_is_busy(database):
    store = opened(database)
    hidden = await store.begin_turn(
        "cats", start("t1", visible=False), create=NewConversation(id="c1", name="cats")
    )
    with pytest.raises(ConversationBusyError):
        await store.begin_turn("c2", start("t2"), create=NewConversation(id="c2", name="cats"))
    await store.finish_turn(hidden, answered(hidden))
    assert (await store.load("cats")).id == "c1"
    await store.close()


@pytest.mark.parametrize(
    "query",
    [
        *('"hello', "hello*", "NEAR(hello)", "-hello", "title:hello", "hello AND", "^hello"),
        *("{hello}", "hello\0", "\ud800hello", "' OR 1=1 --", "hello " * 10_000),
        " ".join(f"w{number}" for number in range(10_000)),
        "猫" * 5_000,
        "x" * 500_000,
    ],
)
async def test_any_query_is_searched_as_words(database, query):
    store = opened(database)
    await say(store, "demo", "t1", "hello near title")
    found = await store.search(query)
    assert found.total in (0, 2)
    assert (await store.search("hello")).total == 2
    await store.close()


async def test_an_unknown_turn_id_of_any_text_is_not_found(database):
    store = opened(database)
    await say(store, "demo", "t1")
    for name in ("' OR 1=1 --", "a\0b", "x" * 100_000, "\u202etxt", ""):
        with pytest.raises(TurnNotFoundError):
            await store.choose_variant("demo", name)
    await store.close()
