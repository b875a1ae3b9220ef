"""A bug in a store is raised unchanged, not reported as a damaged database."""

import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import msgspec
import pytest
import sqlalchemy as sa
from tests import older_deployment as older

from cllm.core.ports import Changes, NewConversation, ServerStore
from cllm.stores.registry import open_store
from cllm.stores.sql import migrate
from cllm.stores.sql.database import Database
from cllm.testing.store_contract import say, start

BUGS = (
    AttributeError("'NoneType' object has no attribute 'turns'"),
    TypeError("unsupported operand type(s)"),
    ValueError("not enough values to unpack"),
    msgspec.ValidationError("Expected `int`, got `str`"),
    sqlite3.ProgrammingError("Incorrect number of bindings supplied"),
)
Operation = Callable[[ServerStore], Awaitable[object]]
OPERATIONS: dict[str, tuple[tuple[str, ...], Operation]] = {
    "begin a turn": (
        ("cllm.stores.edits.build_running_turn",),
        lambda store: store.begin_turn("demo", start("t2")),
    ),
    "branch": (
        ("cllm.stores.edits.build_branch",),
        lambda store: store.branch("demo", NewConversation(id="other")),
    ),
    "update": (
        ("cllm.stores.edits.with_changes",),
        lambda store: store.update("demo", Changes(title="Cats")),
    ),
    "search": (
        ("cllm.stores.search.rank_match",),
        lambda store: store.search("Hello"),
    ),
    "write a turn": (
        ("cllm.stores.sql.rows.encode_json",),
        lambda store: say(store, "demo", "t2"),
    ),
    "write a turn with search terms": (
        ("cllm.stores.search.extract_terms",),
        lambda store: say(store, "demo", "t2"),
    ),
}


@pytest.fixture
async def store(url: str) -> AsyncIterator[ServerStore]:
    opened = cast("ServerStore", open_store(url, clock=lambda: datetime.now(UTC)))
    await say(opened, "demo", "t1", "Hello")
    yield opened
    await opened.close()


def break_with(bug: Exception, names: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise bug

    for name in names:
        monkeypatch.setattr(name, fail)


each_bug = pytest.mark.parametrize("bug", BUGS, ids=lambda bug: type(bug).__name__)


@each_bug
@pytest.mark.parametrize("operation", OPERATIONS)
async def test_a_bug_in_an_operation_is_not_reported_as_a_damaged_database(
    store: ServerStore, operation: str, bug: Exception, monkeypatch: pytest.MonkeyPatch
):
    broken, run = OPERATIONS[operation]
    break_with(bug, broken, monkeypatch)
    with pytest.raises(type(bug)) as raised:
        await run(store)

    assert raised.value is bug
    monkeypatch.undo()
    assert (await store.load("demo")).turns[0].id == "t1"


@pytest.mark.parametrize("bug", BUGS[:-1], ids=lambda bug: type(bug).__name__)
def test_a_bug_in_a_migration_is_not_reported_as_a_damaged_database(
    empty_url: str, bug: Exception, monkeypatch: pytest.MonkeyPatch
):
    def fill(bind: sa.Connection) -> None:
        migrate.upgrade(bind, "0001")
        older.fill(bind)

    database = Database(empty_url)
    database.run(fill, create=True)
    break_with(bug, ("cllm.stores.sql.migrations.conversion._group_turns",), monkeypatch)
    with pytest.raises(type(bug)) as raised:
        database.run(migrate.upgrade)

    assert raised.value is bug


@each_bug
@pytest.mark.parametrize("scheme", ["json", "memory"])
@pytest.mark.parametrize("operation", ["begin a turn", "branch"])
async def test_a_bug_in_a_store_without_a_database_is_raised_as_it_is(
    tmp_path: Path,
    scheme: str,
    operation: str,
    bug: Exception,
    monkeypatch: pytest.MonkeyPatch,
):
    location = tmp_path / "conversations" if scheme == "json" else ""
    store = cast("ServerStore", open_store(f"{scheme}:{location}", clock=lambda: datetime.now(UTC)))
    await say(store, "demo", "t1", "Hello")
    broken, run = OPERATIONS[operation]
    break_with(bug, broken, monkeypatch)
    with pytest.raises(type(bug)) as raised:
        await run(store)

    assert raised.value is bug
    await store.close()
