import io
import json
import os
import zipfile
from pathlib import Path

import pytest
from tests.import_sources import write_chatgpt, write_zip
from tests.unit.transfer.conftest import Import, list_all

from cllm.app import now
from cllm.core.errors import UsageError
from cllm.core.ports import NewConversation, Store
from cllm.stores.json.store import JsonFileStore
from cllm.stores.memory import MemoryStore
from cllm.transfer.backup import BackupFile
from cllm.transfer.backup_writer import write_backup
from cllm.transfer.restoration import restore_backup

pytestmark = pytest.mark.asyncio
PATH = Path("b.zip")


async def save(store: Store) -> bytes:
    file = io.BytesIO()
    await write_backup(store, file, now=now(), version="1.2")
    return file.getvalue()


def change(data: bytes, name: str, content: bytes | None) -> io.BytesIO:
    changed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(data)) as old, zipfile.ZipFile(changed, "w") as new:
        for entry in old.namelist():
            if entry != name:
                new.writestr(entry, old.read(entry))
        if content is not None:
            new.writestr(name, content)
    return changed


async def test_a_backup_has_the_conversations_of_all_owners(
    import_file: Import, store: Store, tmp_path: Path
) -> None:
    await import_file(write_chatgpt(tmp_path / "a.zip"))
    await store.create(NewConversation(id="theirs"), owner="../ann")
    data = await save(store)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        names = archive.namelist()
        manifest = json.loads(archive.read("manifest.json"))
    assert "owners/%2E%2E%2Fann/theirs.json" in names
    assert (manifest["format"], manifest["cllm"]) == ("cllm-backup", "1.2")
    target = MemoryStore(clock=now)
    report = await restore_backup(BackupFile(io.BytesIO(data), PATH), target, clock=now)
    assert report.imported == 4
    assert await list_all(target) == await list_all(store)
    assert (await target.load("theirs", owner="../ann")).id == "theirs"


async def test_damage_is_found_before_anything_is_restored(store: Store) -> None:
    for name in ("one", "two"):
        await store.create(NewConversation(id=name))
    data = await save(store)
    name = "conversations/two.json"
    target = MemoryStore(clock=now)
    for content, reason in ((b"{}", "its digest differs"), (None, "it is missing")):
        backup = BackupFile(change(data, name, content), PATH)
        assert list(backup.find_problems()) == [f"two: {reason}."]
        with pytest.raises(UsageError, match=f"is damaged .*{reason}"):
            await restore_backup(backup, target, clock=now)
    assert await list_all(target) == {}


async def test_a_store_with_other_conversations_is_refused(store: Store) -> None:
    await store.create(NewConversation(id="one"))
    backup = BackupFile(io.BytesIO(await save(store)), PATH)
    target = MemoryStore(clock=now)
    await target.create(NewConversation(id="mine"))
    with pytest.raises(UsageError, match=r"such as 'mine'; .*--merge"):
        await restore_backup(backup, target, clock=now)
    report = await restore_backup(backup, target, clock=now, merge=True)
    assert report.imported == 1
    await store.create(NewConversation(id="mine", title="Other"))
    backup = BackupFile(io.BytesIO(await save(store)), PATH)
    report = await restore_backup(backup, target, clock=now)
    assert [(one.id, one.reason) for one in report.skipped] == [
        ("mine", "another conversation with this ID exists")
    ]


async def test_an_interrupted_restore_is_completed_under_names(
    store: Store, tmp_path: Path
) -> None:
    await store.create(NewConversation(id="c-1", name="cats"))
    await store.branch("cats", NewConversation(id="c-2", name="dogs"))
    backup = BackupFile(io.BytesIO(await save(store)), PATH)
    files = JsonFileStore(tmp_path, clock=now)
    assert (await restore_backup(backup, files, clock=now)).imported == 2
    await files.delete("dogs")
    report = await restore_backup(backup, files, clock=now)
    assert (report.imported, report.unchanged, report.skipped) == (1, 1, [])
    parent = (await files.load("dogs")).parent
    assert parent is not None
    assert parent.conversation == "cats"


async def test_unreadable_conversations_are_reported_and_the_others_saved(tmp_path: Path) -> None:
    files = JsonFileStore(tmp_path, clock=now)
    await files.create(NewConversation(id="good"))
    (tmp_path / "bad.json").write_text("{", encoding="utf-8")
    file = io.BytesIO()
    result = await write_backup(files, file, now=now(), version="1")
    assert [entry.id for entry in result.manifest.conversations] == ["good"]
    assert (result.counts, len(result.problems)) == ((1,), 1)
    assert "bad.json" in result.problems[0]


async def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"Cannot read .*b.zip \(no such file or directory\)"):
        BackupFile(tmp_path / "b.zip", tmp_path / "b.zip")


@pytest.mark.parametrize(
    "files", [{"a": b""}, {"manifest.json": b"{"}, {"manifest.json": {"format": "other"}}]
)
async def test_another_file_is_not_a_backup(tmp_path: Path, files: dict[str, object]) -> None:
    path = write_zip(tmp_path / "b.zip", files)
    with pytest.raises(UsageError, match="not a readable backup"):
        BackupFile(path, path)


async def test_a_newer_backup_is_refused(store: Store) -> None:
    await store.create(NewConversation(id="one"))
    data = await save(store)
    manifest = {"format": "cllm-backup", "version": 3, "created_at": now().isoformat(), "cllm": "9"}
    newer = change(data, "manifest.json", json.dumps(manifest).encode())
    with pytest.raises(UsageError, match="newer version"):
        BackupFile(newer, PATH)


async def test_a_pipe_is_not_opened(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="is not a file"):
        BackupFile(tmp_path / "pipe", tmp_path / "pipe")


def change_manifest(data: bytes, **changes: object) -> io.BytesIO:
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        manifest = json.loads(archive.read("manifest.json"))
    (entry,) = manifest["conversations"]
    manifest["conversations"] = [entry | changes]
    return change(data, "manifest.json", json.dumps(manifest).encode())


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"id": "../../evil"}, "its ID is not valid"),
        ({"id": "other"}, "its id differs from the file name"),
        ({"messages": 7}, "it is not the conversation in the manifest"),
        ({"size": 10**12}, "it is too large"),
        ({"size": -1}, "it is too large"),
        ({"file": "conversations/none.json"}, "it is missing"),
        ({"sha256": "0" * 64}, "its digest differs"),
    ],
)
async def test_a_hostile_manifest_restores_nothing(
    store: Store, tmp_path: Path, changes: dict[str, object], reason: str
) -> None:
    await store.create(NewConversation(id="one"))
    backup = BackupFile(change_manifest(await save(store), **changes), PATH)
    files = JsonFileStore(tmp_path / "files", clock=now)
    with pytest.raises(UsageError, match=reason):
        await restore_backup(backup, files, clock=now)
    assert await list_all(files) == {}


async def test_an_entry_is_named_once(store: Store) -> None:
    await store.create(NewConversation(id="one"))
    data = await save(store)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        manifest = json.loads(archive.read("manifest.json"))
    manifest["conversations"] *= 2
    with pytest.raises(UsageError, match=r"manifest .* is damaged"):
        BackupFile(change(data, "manifest.json", json.dumps(manifest).encode()), PATH)


@pytest.mark.parametrize(
    ("line", "changes", "reason"),
    [
        (b'{"type": "call"}\n', {}, "row 1 is not valid"),
        (
            (
                b'{"type": "event", "owner": "o", "conversation": "c", "turn": "t", "number": 1, '
                b'"data": "AA=="}\n'
            ),
            {"rows": 2},
            "its digest differs",
        ),
        (b"x" * 100, {"size": 10}, "it is too large"),
    ],
)
async def test_damaged_rows_of_a_server_are_found(
    store: Store, line: bytes, changes: dict[str, object], reason: str
) -> None:
    await store.create(NewConversation(id="one"))
    data = await save(store)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        manifest = json.loads(archive.read("manifest.json"))
    entry = {"file": "rows", "rows": 1, "size": len(line), "sha256": "0"} | changes
    manifest["server_rows"] = [entry]
    named = change(data, "manifest.json", json.dumps(manifest).encode())
    backup = BackupFile(change(named.getvalue(), "rows", line), PATH)
    assert list(backup.find_problems()) == [f"rows: {reason}."]
