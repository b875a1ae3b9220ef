"""The store behind PgBouncer in transaction mode, where two statements meet two processes."""

import asyncio
import os
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path

import asyncpg
import pytest
from tests.postgres import Server

from cllm.core.errors import StoreUnavailableError
from cllm.core.ports import CallRecord, Changes, NewConversation
from cllm.core.reply import Usage
from cllm.stores.postgres.store import PostgresStore
from cllm.testing.store_contract import answered, say, start, texts

SETTINGS = """
[databases]
{database} = host={socket_folder} user=postgres
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {port}
unix_socket_dir =
auth_type = any
pool_mode = transaction
default_pool_size = 2
max_client_conn = 200
logfile = {folder}/log
pidfile = {folder}/pid
"""


def _binary() -> str:
    found = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin")
    if found is None and os.environ.get("CI"):
        pytest.fail("pgbouncer is not installed; CI has to have it (see .ci/run).", pytrace=False)
    if found is None:
        pytest.skip("pgbouncer is not installed; Debian has it in the package pgbouncer.")
    return found


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


async def _answers(url: str) -> None:
    for _ in range(100):
        try:
            connection = await asyncpg.connect(url, statement_cache_size=0)
        except OSError:
            await asyncio.sleep(0.05)
            continue
        await connection.close()
        return
    pytest.fail("PgBouncer does not answer.")


@asynccontextmanager
async def pooler(postgres_server: Server, database: str) -> AsyncIterator[str]:
    """A URL that leads to the database through a pooler with two connections."""
    binary = _binary()
    port = _free_port()
    folder = Path(postgres_server.socket_folder) / f"pooler-{port}"
    folder.mkdir()
    folder.chmod(0o777)
    settings = folder / "pgbouncer.ini"
    text = SETTINGS.format(
        database=database,
        socket_folder=postgres_server.socket_folder,
        port=port,
        folder=folder,
    )
    settings.write_text(text, encoding="utf-8")
    process = subprocess.Popen(
        [binary, "-q", str(settings)], user=postgres_server.system_user, cwd=folder
    )
    url = f"postgresql://postgres@127.0.0.1:{port}/{database}"
    try:
        await _answers(url)
        yield url
    finally:
        process.terminate()
        process.wait(timeout=10)
        shutil.rmtree(folder, ignore_errors=True)


@asynccontextmanager
async def pooler_without_encoding(postgres_server: Server, database: str) -> AsyncIterator[str]:
    """A URL that leads to the database through a pooler that does not report `server_encoding`."""
    source = Path(postgres_server.socket_folder)
    folder = source / database
    folder.mkdir()

    async def forward(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()

    async def forward_messages(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError):
            while True:
                head = await reader.readexactly(5)
                body = await reader.readexactly(int.from_bytes(head[1:]) - 4)
                if not (head[:1] == b"S" and body.startswith(b"server_encoding\0")):
                    writer.write(head + body)
        writer.close()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        from_server, to_server = await asyncio.open_unix_connection(source / ".s.PGSQL.5432")
        await asyncio.gather(forward(reader, to_server), forward_messages(from_server, writer))

    try:
        async with await asyncio.start_unix_server(serve, folder / ".s.PGSQL.5432"):
            yield f"postgresql://postgres@/{database}?host={folder}"
    finally:
        shutil.rmtree(folder)


@pytest.fixture
async def pooled_url(postgres_server: Server, database: str) -> AsyncIterator[str]:
    async with pooler(postgres_server, database) as url:
        yield url


@pytest.fixture
async def pooled(pooled_url: str) -> AsyncIterator[PostgresStore]:
    store = PostgresStore(pooled_url, clock=lambda: datetime.now(UTC))
    yield store
    await store.close()


async def test_turns_of_two_stores_behind_a_pooler_keep_their_order(
    pooled: PostgresStore, pooled_url: str
):
    other = PostgresStore(pooled_url, clock=lambda: datetime.now(UTC))

    async def talk(store: PostgresStore, name: str) -> None:
        for number in range(10):
            await say(store, name, f"t{number}", f"{name} {number}")

    names = [f"c{number}" for number in range(10)]
    await asyncio.gather(
        *(talk(pooled if at % 2 else other, name) for at, name in enumerate(names))
    )
    for name in names:
        sent_texts = [text for text in texts(await other.load(name)) if not text.endswith("?")]
        assert sent_texts == [f"{name} {number}" for number in range(10)]
    await other.close()


async def test_every_kind_of_operation_works_behind_a_pooler(pooled: PostgresStore):
    await say(pooled, "demo", "t1", "an apple")
    variant = await pooled.begin_turn("demo", start("t2", place="t1"))
    await pooled.finish_turn(variant, answered(variant, "another apple"))
    lease = await pooled.begin_turn("demo", start("t3"), tail="window")
    await pooled.renew_lease(lease)
    await pooled.drop_turn(lease)
    await pooled.choose_variant("demo", "t1")
    await pooled.update("demo", Changes(title="Fruit", pins=(1,)))
    await pooled.branch("demo", NewConversation(id="copy"))
    assert (await pooled.search("apple")).total == 4
    call = CallRecord(model="m", usage=Usage(input=1), cost=None, ended_at=datetime.now(UTC))
    await pooled.count_call(call)
    assert [used.calls for used in await pooled.usage()] == [1]
    assert await pooled.count_conversations() == 2
    await pooled.delete_from("demo", 2)
    await pooled.delete("copy")
    assert [summary.title for summary in (await pooled.list_conversations()).items] == ["Fruit"]


async def test_statements_have_names_only_on_a_direct_connection(
    postgres_server: Server, database: str, pooled: PostgresStore
):
    direct = PostgresStore(postgres_server.url(database), clock=lambda: datetime.now(UTC))
    for store, named in ((direct, True), (pooled, False)):
        await say(store, "demo", f"t-{named}")
        rows = await store._connections.fetch("SELECT count(*) FROM pg_prepared_statements", ())
        assert (rows[0][0] > 0) is named
    await direct.close()


async def test_tables_are_created_through_a_pooler(postgres_server: Server, empty_database: str):
    async with pooler(postgres_server, empty_database) as url:
        stores = [PostgresStore(url, clock=lambda: datetime.now(UTC)) for _ in range(3)]
        await asyncio.gather(*(say(store, f"c{at}", "t1") for at, store in enumerate(stores)))
        assert await stores[0].count_conversations() == 3
        for store in stores:
            await store.close()


async def test_the_encoding_is_queried_if_the_pooler_does_not_report_it(
    postgres_server: Server, empty_database: str
):
    async with pooler_without_encoding(postgres_server, empty_database) as url:
        store = PostgresStore(url, clock=lambda: datetime.now(UTC))
        await say(store, "demo", "t1")
        assert await store.count_conversations() == 1
        await store.close()


async def test_another_encoding_that_the_pooler_does_not_report_is_refused(
    postgres_server: Server,
):
    options = "TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'"
    database = await postgres_server.create_database(options=options)
    async with pooler_without_encoding(postgres_server, database) as url:
        store = PostgresStore(url, clock=lambda: datetime.now(UTC))
        with pytest.raises(StoreUnavailableError, match="encoding LATIN1"):
            await store.count_conversations()
        await store.close()
    await postgres_server.drop_database(database)
