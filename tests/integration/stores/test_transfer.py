"""Whole conversations move between stores, exports and backups without a difference."""

import asyncio
import io
import shutil
import tempfile
import uuid
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.conversation_strategies import TEXTS, TIMES, conversations
from tests.postgres import Server, postgres_server
from tests.snapshot_rows import list_server_rows
from tests.torture import choose_size

from cllm.app import now
from cllm.core.conversation import StoredConversation
from cllm.core.ports import CallRecord, Store
from cllm.core.ports.snapshot import ServerRow, SnapshotStore
from cllm.core.reply import Usage
from cllm.stores.postgres.store import PostgresStore
from cllm.stores.registry import open_store
from cllm.stores.sqlite.store import SqliteStore
from cllm.transfer.backup import BackupFile
from cllm.transfer.backup_writer import write_backup
from cllm.transfer.export_formats import encode_line
from cllm.transfer.importers.cllm_files import decode_file
from cllm.transfer.report import ImportReport
from cllm.transfer.restoration import restore_backup
from cllm.transfer.verification import StoreCheck
from cllm.transfer.writer import ImportWriter
from cllm.wire.conversation_file.codec import encode_conversation

__all__ = ["postgres_server"]
SLOW = settings(
    max_examples=choose_size(5, 500),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


async def add(store: Store, conversation: StoredConversation) -> StoredConversation:
    report = ImportReport()
    await ImportWriter(store, report, clock=now).add(conversation)
    assert (report.imported, report.skipped) == (1, [])
    return await store.load(conversation.id)


@given(conversation=conversations())
def test_an_export_is_imported_to_the_same_bytes(conversation: StoredConversation) -> None:
    exported = encode_conversation(conversation)
    assert encode_conversation(decode_file(exported)) == exported
    line = encode_line(conversation)
    assert line.count(b"\n") == 1
    assert encode_conversation(decode_file(line)) == exported


@SLOW
@given(conversation=conversations())
def test_a_conversation_moves_through_every_store_to_the_same_bytes(
    postgres_server: Server, conversation: StoredConversation
) -> None:
    async def run(folder: Path) -> None:
        database = f"move_{uuid.uuid4().hex}"
        await postgres_server.execute(f"CREATE DATABASE {database}")
        urls = (
            f"json:{folder / 'first'}",
            f"sqlite:{folder / 'a.db'}",
            postgres_server.url(database),
            f"json:{folder / 'last'}",
        )
        moved = conversation
        try:
            for url in urls:
                store = open_store(url, clock=now)
                moved = await add(store, moved)
                check = StoreCheck(store)
                await check.run()
                assert (check.count, check.problems) == (1, [])
                await store.close()
        finally:
            await postgres_server.execute(f"DROP DATABASE {database} WITH (FORCE)")
        first, last = (folder / name / "cats.json" for name in ("first", "last"))
        assert first.read_bytes() == last.read_bytes()
        assert first.read_bytes() == encode_conversation(conversation)

    folder = Path(tempfile.mkdtemp())
    try:
        asyncio.run(run(folder))
    finally:
        shutil.rmtree(folder)


COUNTS = st.integers(0, 2**40)
CALLS = st.lists(
    st.builds(
        CallRecord,
        model=TEXTS,
        usage=st.builds(Usage, input=COUNTS, output=COUNTS, estimated=st.booleans()),
        cost=st.none() | st.floats(0, 10),
        ended_at=TIMES,
    ),
    max_size=3,
)


async def list_rows(store: Store) -> list[ServerRow]:
    return await list_server_rows(store) if isinstance(store, SnapshotStore) else []


@pytest.mark.parametrize("source_scheme", ["json", "sqlite", "postgresql"])
@SLOW
@given(one=conversations("one"), two=conversations("two"), calls=CALLS)
def test_a_backup_is_restored_completely_and_verified(
    postgres_server: Server,
    source_scheme: str,
    one: StoredConversation,
    two: StoredConversation,
    calls: list[CallRecord],
) -> None:
    """A backup of each store, restored into each store, with calls that occur twice."""

    async def run(folder: Path) -> None:
        template = await postgres_server.head_template()
        databases = [await postgres_server.create_database(template=template) for _ in range(2)]

        def open_kind(scheme: str, number: int) -> Store:
            path = f"{scheme}:{folder / f'{scheme}-{number}'}"
            url = postgres_server.url(databases[number])
            return open_store(url if scheme == "postgresql" else path, clock=now)

        source = open_kind(source_scheme, 0)
        for conversation in (one, two):
            await add(source, conversation)
        if calls and isinstance(source, SqliteStore | PostgresStore):
            await source.count_call(*calls, *calls)
        rows = await list_rows(source)
        file = io.BytesIO()
        result = await write_backup(source, file, now=now(), version="1")
        row_count = sum(entry.rows for entry in result.manifest.server_rows)
        assert (result.counts, row_count, result.problems) == ((2,), len(rows), ())
        await source.close()
        for scheme in ("json", "sqlite", "postgresql"):
            target = open_kind(scheme, 1)
            backup = BackupFile(file, Path("b.zip"))
            report = await restore_backup(backup, target, clock=now)
            assert (report.imported, report.skipped) == (2, [])
            assert (await restore_backup(backup, target, clock=now)).unchanged == 2
            assert await list_rows(target) == ([] if scheme == "json" else rows)
            check = StoreCheck(target)
            await check.run()
            assert (check.count, check.problems) == (2, [])
            for conversation in (one, two):
                stored = encode_conversation(await target.load(conversation.id))
                assert stored == encode_conversation(conversation)
            await target.close()
        for database in databases:
            await postgres_server.drop_database(database)

    folder = Path(tempfile.mkdtemp())
    try:
        asyncio.run(run(folder))
    finally:
        shutil.rmtree(folder)
