import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.snapshot_rows import fill_server_store, list_server_rows

from cllm.app import now
from cllm.core.errors import ConversationNotFoundError, StoreError
from cllm.core.ports import NewConversation
from cllm.core.ports.snapshot import CallRow, EventRow, ResponseRow
from cllm.stores.sqlite.store import SqliteStore

pytestmark = pytest.mark.asyncio


async def test_a_snapshot_does_not_see_later_changes(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "a.db", clock=now)
    await store.create(NewConversation(id="first"))
    async with store.open_snapshot() as snapshot:
        assert await snapshot.list_keys() == (("local", "first"),)
        await store.create(NewConversation(id="second"))
        await store.delete("first")
        assert await snapshot.list_keys() == (("local", "first"),)
        assert (await snapshot.load("first", owner="local")).id == "first"
        with pytest.raises(ConversationNotFoundError):
            await snapshot.load("second", owner="local")
    async with store.open_snapshot() as snapshot:
        assert await snapshot.list_keys() == (("local", "second"),)
    await store.close()


async def test_rows_of_a_server_are_read_and_added_once(tmp_path: Path) -> None:
    source = SqliteStore(tmp_path / "a.db", clock=now)
    await fill_server_store(source)
    rows = await list_server_rows(source)
    kinds = [type(row) for row in rows]
    assert kinds == [CallRow] * 3 + [ResponseRow] + [EventRow] * 2
    assert [row.occurrence for row in rows if isinstance(row, CallRow)] == [1, 2, 1]
    target = SqliteStore(tmp_path / "b.db", clock=now)
    await target.add_server_rows(rows)
    assert [row for row in rows if not isinstance(row, EventRow)] == await list_server_rows(target)
    await target.add(await source.load("cats", owner="ann"), owner="ann")
    for _ in range(2):
        await target.add_server_rows(rows)
        assert await list_server_rows(target) == rows
    assert await target.usage(owner="ann") == await source.usage(owner="ann")
    await source.close()
    await target.close()


async def test_fields_of_an_older_deployment_are_read_and_added(tmp_path: Path) -> None:
    stores = [SqliteStore(tmp_path / name, clock=now) for name in ("a.db", "b.db")]
    await fill_server_store(stores[0])
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection, connection:
        connection.execute("""UPDATE messages SET imported = '{"total_cost": 1.5}'""")
    connection.close()
    rows = await list_server_rows(stores[0])
    await stores[1].add(await stores[0].load("cats", owner="ann"), owner="ann")
    await stores[1].add_server_rows(rows)
    first, second = [await store.imported_fields("cats", owner="ann") for store in stores]
    assert first == second
    assert len(first) == 2
    for store in stores:
        await store.close()


async def test_a_damaged_row_does_not_hide_the_others(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "a.db", clock=now)
    await fill_server_store(store)
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection, connection:
        connection.execute("UPDATE calls SET input_tokens = 'x' WHERE cost IS NOT NULL")
        connection.execute("UPDATE requests SET headers = '{' WHERE status IS NOT NULL")
        connection.execute("UPDATE events SET data = 'text' WHERE number = 1")
    connection.close()
    async with store.open_snapshot() as snapshot:
        rows = [row async for row in snapshot.read_server_rows()]
    errors = [row for row in rows if isinstance(row, StoreError)]
    assert [str(error).partition("(")[2].partition(")")[0] for error in errors] == [
        "not a count of tokens, in the table calls",
        "DecodeError, in the table requests",
        "a value of another type, in the table events",
    ]
    assert len(rows) == 6
    await store.close()
