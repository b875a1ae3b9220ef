"""A row that cannot be read leaves nothing open: what is read next is the file as it is then."""

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cllm.core.errors import StoreUnavailableError
from cllm.core.ports import StreamEvent
from cllm.stores.sqlite.store import SqliteStore
from cllm.testing.store_harness import answered, say, say_again, start

NO_TEXT = "CAST(x'7bff7d' AS TEXT)"
Reading = Callable[[SqliteStore], Awaitable[object]]


@pytest.fixture
async def store(database: Path) -> AsyncIterator[SqliteStore]:
    """A conversation with a variant and the events of a turn."""
    opened = SqliteStore(database, clock=lambda: datetime.now(UTC))
    await say(opened, "demo", "t1")
    await say_again(opened, "demo", "v1", place="t1", text="another answer")
    lease = await opened.begin_turn("demo", start("t2"))
    await opened.add_events(lease, [StreamEvent(number=number, data=b"{}") for number in (1, 2)])
    await opened.finish_turn(lease, answered(lease))
    yield opened
    await opened.close()


def change(database: Path, statement: str) -> None:
    own = sqlite3.connect(database, timeout=1)
    own.execute(statement.replace("NO_TEXT", NO_TEXT).replace("OF_VARIANT", OF_VARIANT))
    own.commit()
    own.close()


def checkpoint(database: Path) -> tuple[int, int, int]:
    own = sqlite3.connect(database, timeout=1)
    busy, pages, done = own.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    own.close()
    return busy, pages, done


OF_VARIANT = "WHERE message_group = (SELECT message_group FROM turns WHERE position IS NULL)"
DAMAGED: dict[str, tuple[str, str, Reading]] = {
    "a message": (
        "UPDATE messages SET raw = NO_TEXT WHERE number = 1",
        "UPDATE messages SET raw = '{}' WHERE number = 1",
        lambda store: store.load("demo"),
    ),
    "a role": (
        "UPDATE messages SET role = 'nobody' WHERE number = 1",
        "UPDATE messages SET role = 'user' WHERE number = 1",
        lambda store: store.load("demo"),
    ),
    "a message of a variant": (
        "UPDATE messages SET raw = NO_TEXT OF_VARIANT",
        "UPDATE messages SET raw = '{}' OF_VARIANT",
        lambda store: store.load("demo"),
    ),
    "an event": (
        "UPDATE events SET data = NO_TEXT WHERE number = 1",
        "UPDATE events SET data = x'7b7d' WHERE number = 1",
        lambda store: store.events_after("demo", "t2", 0),
    ),
    "the place of a turn": (
        "UPDATE turns SET place = NO_TEXT WHERE id = 'v1'",
        "UPDATE turns SET place = 't1' WHERE id = 'v1'",
        lambda store: store.delete_from("demo", 1),
    ),
}


@pytest.mark.parametrize("what", DAMAGED)
async def test_a_repaired_row_is_read(database: Path, store: SqliteStore, what: str):
    damage, mending, read = DAMAGED[what]
    change(database, damage)
    with pytest.raises(StoreUnavailableError) as held:
        await read(store)
    change(database, mending)
    change(database, "UPDATE conversations SET title = 'changed outside'")
    assert (await store.summary("demo")).title == "changed outside"
    assert checkpoint(database) == (0, 0, 0)
    await read(store)
    del held
