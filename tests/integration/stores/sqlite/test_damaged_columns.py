"""Any column of any table with a value that cllm does not write: an answer, or one sentence.

No operation of the store then fails like a bug in cllm.
"""

import sqlite3
from collections.abc import Awaitable, Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from shutil import copy

import pytest
from tests.torture import choose_size

from cllm.core.errors import CllmError
from cllm.core.ports import CallRecord, Changes, NewConversation, RequestKey, StreamEvent, TurnPart
from cllm.core.reply import Usage
from cllm.stores.sqlite.store import SqliteStore
from cllm.testing.store_contract import answered, say, start
from cllm.testing.store_harness import say_again

TABLES = ("conversations", "turns", "messages", "leases", "requests", "events", "calls")
ALL_VALUES = ("'x'", "x'ff00'", "CAST(x'ff' AS TEXT)", "NULL", "-1", "9e99", "'{'", "7")
VALUES = choose_size(("CAST(x'ff' AS TEXT)", "NULL", "9e99", "'{'"), ALL_VALUES)
REQUEST = RequestKey(owner="local", key="key", body="body")


async def say_unseen(store: SqliteStore) -> None:
    lease = await store.begin_turn("demo", start("t4", visible=False), tail="window")
    await store.finish_turn(lease, answered(lease))


async def drop(store: SqliteStore) -> None:
    lease = await store.begin_turn("demo", start("t5"))
    await store.drop_turn(lease)


OPERATIONS: dict[str, Callable[[SqliteStore], Awaitable[object]]] = {
    "load": lambda store: store.load("demo"),
    "load the end": lambda store: store.load("demo", tail=1),
    "load the window": lambda store: store.load("demo", tail="window"),
    "outline": lambda store: store.outline("demo"),
    "messages": lambda store: store.messages_from(
        "demo", [TurnPart(turn="t1"), TurnPart(turn="t2", start=1)], most=1000
    ),
    "summary": lambda store: store.summary("demo"),
    "list": lambda store: store.list_conversations(archive_filter="all"),
    "count": lambda store: store.count_conversations(),
    "search": lambda store: store.search("hello"),
    "sums by day": lambda store: store.usage(),
    "sums by model": lambda store: store.usage(by="model"),
    "events": lambda store: store.events_after("demo", "t2", 0),
    "claim": lambda store: store.claim_request(REQUEST, seconds=60),
    "say": lambda store: say(store, "demo", "t3"),
    "say unseen": say_unseen,
    "answer anew": lambda store: say_again(store, "demo", "v2", place="t2", text="again"),
    "drop": drop,
    "update": lambda store: store.update("demo", Changes(title="Cats")),
    "branch": lambda store: store.branch("demo", NewConversation(id="other"), at=2),
    "choose": lambda store: store.choose_variant("demo", "v1"),
    "cut off": lambda store: store.delete_from("demo", 2),
    "sweep": lambda store: store.drop_old_events(datetime.now(UTC)),
    "delete": lambda store: store.delete("demo"),
}


def opened(path: Path) -> SqliteStore:
    return SqliteStore(
        path, clock=lambda: datetime.now(UTC), synchronous="NORMAL", patience=0, busy_seconds=1
    )


@pytest.fixture
async def whole(tmp_path: Path) -> Path:
    """A database with something in every table."""
    path = tmp_path / "whole.db"
    store = opened(path)
    await say(store, "demo", "t1", "hello")
    await say_again(store, "demo", "v1", place="t1", text="another answer")
    lease = await store.begin_turn("demo", start("t2"))
    await store.add_events(lease, [StreamEvent(number=1, data=b"{}")])
    await store.finish_turn(lease, answered(lease))
    await store.update("demo", Changes(pins=(1,)))
    await store.claim_request(REQUEST, seconds=-1)
    call = CallRecord(model="m", usage=Usage(), cost=None, ended_at=datetime.now(UTC))
    await store.count_call(call)
    await store.begin_turn("held", start("t1"), create=NewConversation(id="held"))
    await store.close()
    return path


def columns_of(path: Path, table: str) -> list[str]:
    with closing(sqlite3.connect(path)) as own:
        return [row[1] for row in own.execute(f"PRAGMA table_info({table})").fetchall()]


def spoil(path: Path, table: str, column: str, value: str) -> bool:
    """Whether SQLite takes the value for the column, in all rows or else in one."""
    change = f'UPDATE {table} SET "{column}" = {value}'  # noqa: S608 - our own words
    with closing(sqlite3.connect(path)) as own:
        for where in ("", f" WHERE rowid = (SELECT min(rowid) FROM {table})"):  # noqa: S608
            try:
                own.execute(change + where)
                own.commit()
            except sqlite3.IntegrityError:
                continue
            return True
    return False


@pytest.mark.torture
@pytest.mark.parametrize("table", TABLES)
async def test_a_damaged_column_never_looks_like_a_bug(whole: Path, tmp_path: Path, table: str):
    for column in columns_of(whole, table):
        for value in VALUES:
            path = Path(copy(whole, tmp_path / "cllm.db"))
            if spoil(path, table, column, value):
                await try_all(path, f"{table}.{column} = {value}")
            for left in tmp_path.glob("cllm.db*"):
                left.unlink()


async def try_all(path: Path, damage: str) -> None:
    store = opened(path)
    sentences = []
    for name, operation in OPERATIONS.items():
        try:
            await operation(store)
        except CllmError as error:
            sentences.append(str(error))
        except Exception as error:
            raise AssertionError(f"{name}, where {damage}") from error
    await store.close()
    assert not any("\n" in sentence for sentence in sentences)
