"""Lost connections, unreachable servers, and their errors."""

import asyncio
from datetime import UTC, datetime

import asyncpg
import pytest
from tests.postgres import Server, own_server

from cllm.core.errors import StoreError, StoreUnavailableError
from cllm.core.ports import Changes, NewConversation, TurnStart
from cllm.stores.postgres import statements as postgres_statements
from cllm.stores.postgres.store import PostgresStore
from cllm.testing.store_contract import answered, say, start

KILL_ALL = (
    "SELECT count(pg_terminate_backend(pid, 2000)) FROM pg_stat_activity "
    "WHERE pid <> pg_backend_pid() AND datname = current_database()"
)


async def kill_backends(server: Server, database: str) -> int:
    rows = await server.execute(KILL_ALL, database=database)
    return int(rows[0][0])


async def test_killed_backends_are_replaced_without_an_error(
    postgres_server: Server, database: str, store: PostgresStore
):
    await say(store, "demo", "t0")
    for number in range(1, 6):
        assert await kill_backends(postgres_server, database) > 0
        await say(store, "demo", f"t{number}")
    loaded = await store.load("demo")
    assert [turn.id for turn in loaded.turns] == [f"t{number}" for number in range(6)]


@pytest.mark.parametrize("step", ["begin", "renew", "finish", "drop", "update", "list", "create"])
async def test_every_operation_survives_a_connection_that_died_before_it(
    postgres_server: Server, database: str, store: PostgresStore, step: str
):
    await say(store, "demo", "t1")
    lease = None
    if step in {"renew", "finish", "drop"}:
        lease = await store.begin_turn("demo", start("t2"))
    await kill_backends(postgres_server, database)
    if step == "begin":
        lease = await store.begin_turn("demo", start("t2"))
    elif step == "update":
        await store.update("demo", Changes(title="new"))
    elif step == "create":
        await store.create(NewConversation(id="other"))
    elif step == "list":
        assert len((await store.list_conversations()).items) == 1
    assert lease is None or step in {"begin", "renew", "finish", "drop"}
    if step == "renew":
        assert lease is not None
        lease = await store.renew_lease(lease)
    if step == "drop":
        assert lease is not None
        await store.drop_turn(lease)
    elif lease is not None:
        await store.finish_turn(lease, answered(lease))
    expected = 2 if step in {"begin", "renew", "finish"} else 1
    assert len((await store.load("demo")).turns) == expected


async def test_backends_killed_in_the_middle_of_a_storm_lose_nothing_acknowledged(
    postgres_server: Server, database: str, store: PostgresStore
):
    acknowledged: list[tuple[str, str]] = []

    async def talk(name: str) -> None:
        for number in range(12):
            turn_id = f"{name}-{number}"
            try:
                await say(store, name, turn_id)
            except StoreError:
                continue
            acknowledged.append((name, turn_id))

    async def kill() -> None:
        for _ in range(8):
            await asyncio.sleep(0.02)
            await kill_backends(postgres_server, database)

    await asyncio.gather(kill(), *(talk(f"c{number}") for number in range(8)))
    assert len(acknowledged) > 40
    for name in {name for name, _ in acknowledged}:
        loaded = await store.load(name)
        complete = [turn.id for turn in loaded.turns if turn.state == "complete"]
        assert len(complete) == len(set(complete))
        assert {turn_id for conversation, turn_id in acknowledged if conversation == name} <= set(
            complete
        )
        numbers = [number for number, _, _ in loaded.numbered_messages()]
        assert numbers == list(range(1, len(numbers) + 1))


@pytest.mark.parametrize("how", ["stop", "kill"])
async def test_a_store_waits_for_a_restarting_server(how: str):
    with own_server() as server:
        store = PostgresStore(server.url(), clock=lambda: datetime.now(UTC))
        await say(store, "demo", "t1")
        lease = await store.begin_turn("demo", start("t2"))
        getattr(server, how)()
        restarting = asyncio.create_task(asyncio.to_thread(server.start_again))
        await store.finish_turn(lease, answered(lease))
        await restarting
        await say(store, "demo", "t3")
        loaded = await store.load("demo")
        assert [turn.id for turn in loaded.turns] == ["t1", "t2", "t3"]
        await store.close()


async def test_an_unreachable_server_is_reported_without_its_address():
    with own_server() as server:
        url = server.url().replace("postgres@", "somebody:secret-word@")
        store = PostgresStore(url + "&pool_patience=0.2", clock=lambda: datetime.now(UTC))
        server.stop()
        with pytest.raises(StoreUnavailableError) as caught:
            await store.load("demo")
        text = str(caught.value)
        assert text.count(".") == 1
        for hidden in ("secret-word", "somebody", server.socket_folder, "5432"):
            assert hidden not in text
        server.start()
        await store.close()


@pytest.mark.parametrize(
    ("part", "instead", "message"),
    [("/test_", "/no_such_", "no database"), ("postgres@", "nobody:pw@", "user")],
)
async def test_a_wrong_url_says_what_to_correct(
    postgres_server: Server, database: str, part: str, instead: str, message: str
):
    url = postgres_server.url(database).replace(part, instead, 1)
    store = PostgresStore(url, clock=lambda: datetime.now(UTC))
    with pytest.raises(StoreUnavailableError, match=message) as caught:
        await store.load("demo")
    assert "pw" not in str(caught.value)
    await store.close()


async def test_a_read_only_server_is_reported(
    postgres_server: Server, database: str, store: PostgresStore
):
    await say(store, "demo", "t1")
    await postgres_server.execute(
        f"ALTER DATABASE {database} SET default_transaction_read_only = on", database=database
    )
    await kill_backends(postgres_server, database)
    assert len((await store.load("demo")).turns) == 1
    with pytest.raises(StoreUnavailableError, match="is read-only"):
        await store.begin_turn("demo", TurnStart(id="t2", messages=()))
    with pytest.raises(StoreUnavailableError, match="is read-only"):
        await store.check_writable()


async def test_a_database_of_another_revision_is_reported(
    postgres_server: Server, database: str, store: PostgresStore
):
    await store.check_writable()
    await postgres_server.execute(
        "UPDATE cllm_revision SET version_num = '0007'", database=database
    )
    with pytest.raises(StoreUnavailableError, match=r"at revision 0007 .* cllm db upgrade"):
        await store.check_writable()


async def test_a_missing_privilege_is_reported(postgres_server: Server, empty_database: str):
    user = f"weak_{empty_database}"
    await postgres_server.execute(f"CREATE ROLE {user} LOGIN")
    url = postgres_server.url(empty_database).replace("postgres@", f"{user}@")
    store = PostgresStore(url, clock=lambda: datetime.now(UTC))
    with pytest.raises(StoreUnavailableError, match="grant"):
        await store.load("demo")
    await store.close()
    await postgres_server.execute(f"DROP ROLE {user}")


async def test_a_start_on_a_lost_connection_is_undone_after_its_lease_expired(
    postgres_server: Server, database: str, open_store
):
    store = await open_store()
    await say(store, "demo", "t1")
    hasty = await open_store(lease_seconds=0)
    lease = await hasty.begin_turn("demo", start("t2"))
    connection = await asyncpg.connect(postgres_server.url(database))
    key = (lease.conversation.owner, "demo", lease.fence, "t2")
    assert await connection.fetch(postgres_statements.DROP, *key) == []
    assert len(await connection.fetch(postgres_statements.DROP_UNCONFIRMED, *key)) == 1
    await connection.close()
    assert (await store.load("demo")).message_count == 2
    await say(store, "demo", "t2")
    assert [turn.id for turn in (await store.load("demo")).turns] == ["t1", "t2"]
