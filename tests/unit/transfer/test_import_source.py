import shutil
from pathlib import Path

import pytest
from tests.import_sources import write_chatgpt
from tests.unit.transfer.conftest import Import, list_all

from cllm.app import now
from cllm.core.ports import NewConversation, Store
from cllm.stores.registry import open_store
from cllm.transfer.import_source import import_source, is_store_url
from cllm.transfer.report import ImportReport
from cllm.transfer.writer import ImportWriter

pytestmark = pytest.mark.asyncio


async def test_another_database_is_read(store: Store, import_file: Import, tmp_path: Path) -> None:
    url = f"sqlite:{tmp_path / 'other.db'}"
    other = open_store(url, clock=now)
    report = ImportReport()
    writer = ImportWriter(other, report, clock=now)
    seen: list[int] = []
    await import_source(
        str(write_chatgpt(tmp_path / "a.zip")),
        writer,
        name=None,
        clock=now,
        on_item=lambda: seen.append(1),
    )
    await other.create(NewConversation(id="theirs"), owner="ann")
    await other.close()
    assert len(seen) == 3
    for source in (tmp_path / "other.db", url):
        report = await import_file(source)
        assert report.imported + report.unchanged == 3
        assert report.notes == {"the conversations of the owner 'ann' were left out": 1}
    assert len(await list_all(store)) == 3


async def test_damaged_conversations_of_a_store_are_reported(
    import_file: Import, tmp_path: Path
) -> None:
    folder = tmp_path / "conversations"
    other = open_store(f"json:{folder}", clock=now)
    await other.create(NewConversation(id="good"))
    (folder / "bad.json").write_text("{", encoding="utf-8")
    report = await import_file(f"json:{folder}")
    assert (report.imported, [one.damaged for one in report.skipped]) == (1, [True])
    shutil.rmtree(folder)


async def test_a_path_is_not_a_url() -> None:
    assert is_store_url("postgresql://x/y")
    assert is_store_url("json:folder")
    assert not is_store_url("folder/json")
    assert not is_store_url("C:/x")
