import io
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from tests.snapshot_rows import fill_server_store, list_server_rows

from cllm.app import now
from cllm.core.conversation import Turn
from cllm.core.message import plain_message
from cllm.core.ports import NewConversation, Store, TurnStart
from cllm.stores.combined import CombinedStore
from cllm.stores.json.store import JsonFileStore
from cllm.stores.sqlite.store import SqliteStore
from cllm.transfer.backup import BackupFile
from cllm.transfer.backup_writer import write_backup
from cllm.transfer.report import ImportReport
from cllm.transfer.restoration import NO_DATABASE, restore_backup

pytestmark = pytest.mark.asyncio
OLD_FILE = '{ "id": "old", "messages": [ ], "colour": "red" }'


async def copy(source: Store, target: Store) -> ImportReport:
    file = io.BytesIO()
    result = await write_backup(source, file, now=now(), version="1")
    assert result.problems == ()
    return await restore_backup(BackupFile(file, Path("b.zip")), target, clock=now)


async def test_files_are_restored_byte_for_byte(tmp_path: Path) -> None:
    source, target = (JsonFileStore(tmp_path / name, clock=now) for name in ("a", "b"))
    await source.create(NewConversation(id="cats"))
    (tmp_path / "a/old.json").write_text(OLD_FILE, encoding="utf-8")
    assert (await copy(source, target)).imported == 2
    for name in ("cats", "old"):
        one, other = (tmp_path / folder / f"{name}.json" for folder in ("a", "b"))
        assert one.read_bytes() == other.read_bytes()
        assert one.stat().st_mtime == pytest.approx(other.stat().st_mtime, abs=1e-5)
        assert other.stat().st_mode & 0o777 == 0o600
    assert (await copy(source, target)).unchanged == 2


async def test_a_file_in_another_spelling_is_the_same(tmp_path: Path) -> None:
    source, target = (JsonFileStore(tmp_path / name, clock=now) for name in ("a", "b"))
    await source.create(NewConversation(id="cats"))
    await copy(source, target)
    path = tmp_path / "b/cats.json"
    path.write_bytes(path.read_bytes().replace(b"\n", b"\r\n"))
    assert (await copy(source, target)).unchanged == 1
    path.write_text("{", encoding="utf-8")
    report = await copy(source, target)
    assert [one.id for one in report.skipped] == ["cats"]
    assert path.read_text(encoding="utf-8") == "{"


@pytest.mark.parametrize("target", ["files", "database"])
async def test_the_messages_of_a_branch_count_as_in_the_backup(target: str, tmp_path: Path) -> None:
    source = SqliteStore(tmp_path / "a.db", clock=now)
    await source.create(NewConversation(id="cats"))
    messages = (plain_message("user", "Hello"), plain_message("assistant", "Hi"))
    lease = await source.begin_turn("cats", TurnStart(id="t", messages=messages[:1]))
    turn = Turn(id="t", place="t", state="complete", messages=messages, started_at=now())
    await source.finish_turn(lease, turn)
    await source.branch("cats", NewConversation(id="kittens"))
    stores: dict[str, Store] = {
        "files": JsonFileStore(tmp_path / "files", clock=now),
        "database": SqliteStore(tmp_path / "b.db", clock=now),
    }

    report = await copy(source, stores[target])

    assert (report.imported, report.messages) == (2, 4)
    for store in (source, *stores.values()):
        await store.close()


async def test_rows_of_a_server_need_a_database(tmp_path: Path) -> None:
    source = SqliteStore(tmp_path / "a.db", clock=now)
    await fill_server_store(source)
    with closing(sqlite3.connect(tmp_path / "a.db")) as connection, connection:
        connection.execute("UPDATE conversations SET owner = 'local'")
        connection.execute("UPDATE turns SET owner = 'local'")
        connection.execute("UPDATE messages SET owner = 'local'")
    connection.close()
    report = await copy(source, JsonFileStore(tmp_path / "files", clock=now))
    assert (report.imported, report.notes) == (1, {NO_DATABASE: 6})
    await source.close()


async def test_everything_returns_to_the_kind_of_store_it_comes_from(tmp_path: Path) -> None:
    def open_both(name: str) -> tuple[JsonFileStore, SqliteStore, CombinedStore]:
        files = JsonFileStore(tmp_path / name, clock=now)
        database = SqliteStore(tmp_path / f"{name}.db", clock=now)
        both = CombinedStore(files, lambda: database, locations=("files", "database"))
        return files, database, both

    files, database, both = open_both("a")
    await files.create(NewConversation(id="cats"))
    await fill_server_store(database)
    await database.create(NewConversation(id="cats", title="Other"))
    new_files, new_database, new_both = open_both("b")
    for number in (3, 0):
        report = await copy(both, new_both)
        assert (report.imported, report.skipped) == (number, [])
    assert await new_files.load("cats") == await files.load("cats")
    assert (await new_database.load("cats")).title == "Other"
    assert await list_server_rows(new_database) == await list_server_rows(database)
    await both.close()
    await new_both.close()


async def test_a_running_turn_is_restored_as_interrupted_and_again(tmp_path: Path) -> None:
    source, target = (SqliteStore(tmp_path / name, clock=now) for name in ("a.db", "b.db"))
    start = TurnStart(id="t1", messages=(plain_message("user", "Hello"),))
    await source.begin_turn("cats", start, create=NewConversation(id="cats"))
    assert (await copy(source, target)).imported == 1
    assert (await target.load("cats")).turns[0].state == "failed"
    assert (await copy(source, target)).unchanged == 1
    await source.close()
    await target.close()
