"""Values that a database cannot store as they are, in every format of an import."""

from pathlib import Path

import pytest
from tests.hostile_sources import TEXTS, WRITERS, HostileMessage
from tests.postgres import Server, database, postgres_server

from cllm.app import now
from cllm.stores.registry import open_store
from cllm.transfer.import_source import import_source
from cllm.transfer.report import ImportReport
from cllm.transfer.writer import ImportWriter

__all__ = ["database", "postgres_server"]
pytestmark = pytest.mark.asyncio


@pytest.mark.parametrize("text", list(TEXTS))
async def test_texts_are_stored_or_reported(
    text: str, postgres_server: Server, database: str, tmp_path: Path
) -> None:
    value = TEXTS[text]
    messages = [
        HostileMessage("a", text=value, model=value),
        HostileMessage("b", "a", "assistant", value, model=value),
    ]
    store = open_store(postgres_server.url(database), clock=now)
    try:
        for name, write in WRITERS.items():
            folder = tmp_path / name
            folder.mkdir()
            path = write(folder, messages, value)
            first, second = ImportReport(), ImportReport()
            for report in (first, second):
                writer = ImportWriter(store, report, clock=now)
                await import_source(path, writer, name=name, clock=now)
            assert first.imported + len(first.skipped) == 1
            assert (second.imported, second.unchanged) == (0, first.imported)
        page = await store.list_conversations(archive_filter="all", side=True, limit=100)
        for summary in page.items:
            assert (await store.load(summary.id)).turns
    finally:
        await store.close()
