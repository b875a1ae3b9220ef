import asyncio
import shutil
from pathlib import Path

import pytest
from tests.hostile_sources import WRITERS, HostileMessage
from tests.import_sources import write_chatgpt, write_codex, write_lines
from tests.unit.transfer.conftest import Import, list_all, texts

from cllm.app import now
from cllm.core.errors import UsageError
from cllm.core.ports import NewConversation, Store
from cllm.stores.memory import MemoryStore
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


async def test_a_cancellation_completes_the_current_conversation(
    store: Store, tmp_path: Path
) -> None:
    """Whenever it comes, the store has whole conversations, and a second import adds the rest."""
    path = write_chatgpt(tmp_path / "a.zip")
    whole = MemoryStore(clock=now)
    await import_source(path, ImportWriter(whole, ImportReport(), clock=now), name=None, clock=now)
    expected = await list_all(whole)
    for steps in range(1, 40, 3):
        partial = MemoryStore(clock=now)
        report = ImportReport()
        writer = ImportWriter(partial, report, clock=now)
        task = asyncio.create_task(import_source(path, writer, name=None, clock=now))
        for _ in range(steps):
            await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        found = await list_all(partial)
        assert found == {title: expected[title] for title in found}
        assert report.imported + report.branches == len(found)
        await import_source(path, writer, name=None, clock=now)
        assert await list_all(partial) == expected


async def test_an_error_of_the_callback_ends_the_import(store: Store, tmp_path: Path) -> None:
    def stop() -> None:
        raise KeyError("stop")

    report = ImportReport()
    writer = ImportWriter(store, report, clock=now)
    path = write_chatgpt(tmp_path / "a.zip")
    with pytest.raises(KeyError, match="stop"):
        await import_source(path, writer, name=None, clock=now, on_item=stop)
    assert (report.imported, await list_all(store)) == (0, {})


async def test_a_path_that_looks_like_a_url_is_a_path(
    store: Store, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    writer = ImportWriter(store, ImportReport(), clock=now)
    with pytest.raises(UsageError, match="no such file"):
        await import_source(Path("sqlite:x.db"), writer, name=None, clock=now)
    assert list(tmp_path.iterdir()) == []


async def test_neighbours_of_an_upload_are_not_read(store: Store, tmp_path: Path) -> None:
    write_codex(tmp_path / "sessions")
    write_lines(tmp_path / "session_index.jsonl", {"id": "c0de", "thread_name": "Secret"})
    writer = ImportWriter(store, ImportReport(), clock=now)
    await import_source(
        tmp_path / "sessions", writer, name=None, clock=now, can_read_neighbours=False
    )
    assert "List the files." in await list_all(store)


@pytest.mark.parametrize("name", [name for name in WRITERS if name != "cllm"])
async def test_a_source_that_has_grown_is_continued(
    name: str, store: Store, import_file: Import, tmp_path: Path
) -> None:
    roles = ("user", "assistant")
    messages = [
        HostileMessage(
            f"m{number}", f"m{number - 1}" if number else None, roles[number % 2], f"{number}"
        )
        for number in range(6)
    ]
    totals = []
    for count in (2, 2, 3, 6):
        for old in tmp_path.iterdir():
            old.unlink()
        planned = await import_file(
            WRITERS[name](tmp_path, messages[:count], "T"), name, dry_run=True
        )
        before = await list_all(store)
        assert planned == await import_file(tmp_path, name)
        totals.append((planned.imported, planned.continued, planned.unchanged, planned.messages))
        assert len(before) == (0 if planned.imported else 1)
    assert totals == [(1, 0, 0, 2), (0, 0, 1, 0), (0, 1, 0, 1), (0, 1, 0, 3)]
    (found,) = (await list_all(store)).values()
    assert texts(found) == [str(number) for number in range(6)]
    assert found.variants == ()
