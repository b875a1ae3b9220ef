import pytest
from tests.postgres import Server
from tests.snapshot_rows import fill_server_store, list_server_rows

from cllm.core.errors import ConversationNotFoundError, StoreUnavailableError
from cllm.core.ports import NewConversation
from cllm.core.ports.snapshot import CallRow, EventRow, ImportedRow, ResponseRow
from cllm.stores.postgres.store import PostgresStore

pytestmark = pytest.mark.asyncio


async def test_a_snapshot_does_not_see_later_changes(store: PostgresStore) -> None:
    await store.create(NewConversation(id="first"))
    async with store.open_snapshot() as snapshot:
        assert await snapshot.list_keys() == (("local", "first"),)
        await store.create(NewConversation(id="second"))
        await store.delete("first")
        assert await snapshot.list_keys() == (("local", "first"),)
        assert (await snapshot.load("first", owner="local")).id == "first"
        with pytest.raises(ConversationNotFoundError):
            await snapshot.load("second", owner="local")


async def test_a_snapshot_cannot_write(store: PostgresStore) -> None:
    async with store.open_snapshot() as snapshot:
        assert isinstance(snapshot, PostgresStore)
        with pytest.raises(StoreUnavailableError, match="read-only"):
            await snapshot.create(NewConversation(id="first"))


async def test_rows_of_a_server_are_read_and_added_once(
    store: PostgresStore, postgres_server: Server, database: str
) -> None:
    await fill_server_store(store)
    imported = """UPDATE messages SET imported = '{"total_cost": 1.5}'"""
    await postgres_server.execute(imported, database=database)
    rows = await list_server_rows(store)
    kinds = [type(row) for row in rows]
    assert kinds == [CallRow] * 3 + [ResponseRow] + [EventRow] * 2 + [ImportedRow] * 2
    assert [row.occurrence for row in rows if isinstance(row, CallRow)] == [1, 2, 1]
    for table in ("calls", "requests", "events"):
        await postgres_server.execute(f"DELETE FROM {table}", database=database)  # noqa: S608
    await postgres_server.execute("UPDATE messages SET imported = NULL", database=database)
    for _ in range(2):
        await store.add_server_rows(rows)
        assert await list_server_rows(store) == rows
