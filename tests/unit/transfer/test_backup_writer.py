import io
import json
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests.snapshot_rows import fill_server_store, list_server_rows

from cllm.app import now
from cllm.core.errors import StoreUnavailableError
from cllm.core.ports import NewConversation, Store
from cllm.core.ports.snapshot import StoredFile
from cllm.stores.combined import CombinedStore
from cllm.stores.json.store import JsonFileStore
from cllm.stores.sqlite.store import SqliteStore
from cllm.transfer.backup import BackupFile, BackupManifest
from cllm.transfer.backup_writer import MAX_ROUNDS, write_backup

pytestmark = pytest.mark.asyncio
OLD_FILE = '{ "id": "old", "messages": [ ], "colour": "red" }'


async def save(store: Store) -> tuple[BackupManifest, list[str], BackupFile]:
    file = io.BytesIO()
    result = await write_backup(store, file, now=now(), version="1")
    backup = BackupFile(file, Path("b.zip"))
    assert list(backup.find_problems()) == []
    assert sum(result.counts) == len(result.manifest.conversations)
    return result.manifest, list(result.problems), backup


async def test_files_are_saved_byte_for_byte_with_their_time(tmp_path: Path) -> None:
    path = tmp_path / "old.json"
    path.write_text(OLD_FILE, encoding="utf-8")
    os.utime(path, (1_000_000_000.25, 1_000_000_000.25))
    manifest, problems, backup = await save(JsonFileStore(tmp_path, clock=now))
    (entry,) = manifest.conversations
    assert (entry.source, problems) == ("files", [])
    file = backup.read(entry)
    assert file.data == path.read_bytes()
    assert file.modified_at.timestamp() == 1_000_000_000.25


async def test_a_symbolic_link_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text(OLD_FILE, encoding="utf-8")
    (tmp_path / "loop.json").symlink_to("loop.json")
    (tmp_path / "gone.json").symlink_to("nowhere")
    manifest, problems, _ = await save(JsonFileStore(tmp_path, clock=now))
    assert [entry.id for entry in manifest.conversations] == ["old"]
    gone, loop = problems
    assert "gone.json" in gone
    assert "loop.json" in loop


class BusyFolder(JsonFileStore):
    """A folder in which something happens after each read."""

    after_read: Callable[[str], Awaitable[object]]

    async def read_file(self, key: str) -> StoredFile:
        file = await super().read_file(key)
        await self.after_read(key)
        return file


async def test_files_that_change_meanwhile_are_read_again(tmp_path: Path) -> None:
    store = BusyFolder(tmp_path, clock=now)
    for name in ("a", "b", "c"):
        await store.create(NewConversation(id=name))
    moves = [("c", "d"), ("a", "e")]

    async def move(key: str) -> None:
        """Move a conversation, of which a backup must contain one side only."""
        if moves and key == "b":
            source, target = moves.pop()
            await store.create(NewConversation(id=target))
            await store.delete(source)
            (tmp_path / "b.json").touch()

    store.after_read = move
    manifest, problems, _ = await save(store)
    assert [entry.id for entry in manifest.conversations] == ["b", "d", "e"]
    assert problems == []


async def test_a_folder_that_always_changes_is_reported(tmp_path: Path) -> None:
    store = BusyFolder(tmp_path, clock=now)
    await store.create(NewConversation(id="a"))
    rounds = 0

    async def change(_key: str) -> None:
        nonlocal rounds
        rounds += 1
        os.utime(tmp_path / "a.json", (rounds, rounds))

    store.after_read = change
    manifest, problems, _ = await save(store)
    assert rounds == MAX_ROUNDS
    assert len(manifest.conversations) == 1
    assert len(problems) == 1
    assert "run the backup again" in problems[0]


async def test_a_file_that_is_deleted_meanwhile_is_not_in_the_backup(tmp_path: Path) -> None:
    store = BusyFolder(tmp_path, clock=now)
    for name in ("a", "b"):
        await store.create(NewConversation(id=name))

    async def delete(key: str) -> None:
        if key == "b":
            (tmp_path / "a.json").unlink(missing_ok=True)

    store.after_read = delete
    manifest, problems, _ = await save(store)
    assert ([entry.id for entry in manifest.conversations], problems) == (["b"], [])


async def test_a_backup_has_the_rows_of_a_server(tmp_path: Path) -> None:
    store = SqliteStore(tmp_path / "a.db", clock=now)
    await fill_server_store(store)
    manifest, problems, backup = await save(store)
    assert (sum(entry.rows for entry in manifest.server_rows), problems) == (6, [])
    (entry,) = manifest.server_rows
    assert list(backup.read_rows(entry)) == await list_server_rows(store)
    await store.close()


async def test_both_stores_are_saved_with_the_same_ids(tmp_path: Path) -> None:
    files = JsonFileStore(tmp_path / "files", clock=now)
    database = SqliteStore(tmp_path / "a.db", clock=now)
    for store in (files, database):
        await store.create(NewConversation(id="cats"))
    both = CombinedStore(files, lambda: database, locations=("files", "a.db"))
    manifest, problems, _ = await save(both)
    assert [(entry.file, entry.source) for entry in manifest.conversations] == [
        ("conversations/cats.json", "files"),
        ("conversations/cats.2.json", "database"),
    ]
    assert problems == []
    await both.close()


async def test_an_unavailable_store_is_a_problem_and_does_not_hide_the_other(
    tmp_path: Path,
) -> None:
    files = JsonFileStore(tmp_path / "files", clock=now)
    await files.create(NewConversation(id="cats"))
    (tmp_path / "a.db").write_text("This is not a database. " * 100, encoding="utf-8")
    database = SqliteStore(tmp_path / "a.db", clock=now)
    both = CombinedStore(files, lambda: database, locations=("files", "a.db"))
    manifest, problems, _ = await save(both)
    assert [entry.id for entry in manifest.conversations] == ["cats"]
    assert len(problems) == 1
    assert "not an SQLite database" in problems[0]
    with pytest.raises(StoreUnavailableError):
        await save(database)
    await both.close()


async def test_the_manifest_is_readable(tmp_path: Path) -> None:
    (tmp_path / "old.json").write_text(OLD_FILE, encoding="utf-8")
    manifest, _, _ = await save(JsonFileStore(tmp_path, clock=now))
    fields = json.loads(json.dumps([entry.file for entry in manifest.conversations]))
    assert fields == ["conversations/old.json"]
