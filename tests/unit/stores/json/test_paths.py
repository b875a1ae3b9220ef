import json
import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cllm.core.message import plain_message
from cllm.core.ports import NewConversation, PathMatch, TurnStart
from cllm.stores.json.store import JsonFileStore
from cllm.testing.store_harness import TickingClock, answered, say, start
from cllm.testing.store_paths import find
from cllm.wire.path_digest import digest_path

NOW = datetime(2026, 1, 1, tzinfo=UTC)
Open = Callable[[], JsonFileStore]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "conversations"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "cllm"


@pytest.fixture
def open_store(folder: Path, cache: Path) -> Open:
    clock = TickingClock()
    return lambda: JsonFileStore(folder, clock=clock, cache=cache, patience=0.01)


def index_file(cache: Path) -> Path:
    (found,) = (cache / "paths").glob("*.sqlite3")
    return found


def found(matches: tuple[PathMatch, ...]) -> list[str]:
    return [match.conversation for match in matches]


def edit(path: Path, change: Callable[[Any], object]) -> None:
    document = json.loads(path.read_bytes())
    change(document)
    path.write_text(json.dumps(document), encoding="utf-8")


def count_reads(store: JsonFileStore, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return a list to which each file that is read is added."""
    read_keys: list[str] = []
    read = store._folder.read_settled

    def record(key: str):
        read_keys.append(key)
        return read(key)

    monkeypatch.setattr(store._folder, "read_settled", record)
    return read_keys


async def test_a_lookup_reads_changed_files_and_matches_only(
    open_store: Open, monkeypatch: pytest.MonkeyPatch
):
    store = open_store()
    for ref in "abc":
        await say(store, ref, "t1", ref)
    read_keys = count_reads(store, monkeypatch)
    assert found(await find(store, "b", "b?")) == ["b"]
    assert sorted(read_keys) == ["a", "b", "b", "c"]
    read_keys.clear()
    assert found(await find(store, "b", "b?")) == ["b"]
    assert read_keys == ["b"]
    await say(store, "c", "t2", "more")
    read_keys.clear()
    assert found(await find(store, "a", "a?")) == ["a"]
    assert read_keys == ["c", "a"]
    await store.close()
    another = open_store()
    read_keys = count_reads(another, monkeypatch)
    assert await find(another, "unknown") == ()
    assert read_keys == []


async def test_turns_and_lists_do_not_open_the_index(open_store: Open, cache: Path):
    store = open_store()
    await say(store, "demo", "t1", "one")
    await store.list_conversations()
    await store.load("demo")
    assert not cache.exists()


async def test_a_search_in_a_missing_folder_creates_nothing(
    open_store: Open, folder: Path, cache: Path
):
    store = open_store()
    assert await find(store, "one") == ()
    assert await store.list_family("demo") == ()
    assert not folder.exists()
    assert not cache.exists()


async def test_manual_edits_win(open_store: Open, folder: Path):
    store = open_store()
    await say(store, "demo", "t1", "one")
    assert found(await find(store, "one", "one?")) == ["demo"]
    edit(folder / "demo.json", lambda each: each["messages"][1].update(content="other"))
    assert await find(store, "one", "one?") == ()
    assert found(await find(store, "other", "one?")) == ["demo"]
    (folder / "demo.json").rename(folder / "gone.json")
    assert await find(store, "other", "one?") == ()


async def test_an_edit_that_the_index_did_not_see_wins(
    open_store: Open, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    store = open_store()
    await say(store, "demo", "t1", "one")
    await say(store, "old", "t1", "one")
    states = store._folder.file_states()
    assert found(await find(store, "one", "one?")) == ["old", "demo"]
    monkeypatch.setattr(store._folder, "file_states", lambda: states)
    edit(folder / "old.json", lambda each: each["messages"][2].update(content="edited"))
    assert found(await find(store, "one", "one?")) == ["demo"]
    assert found(await find(store, "one", "more")) == ["old", "demo"]
    edit(folder / "old.json", lambda each: each["metadata"]["cllm"].update(family="f"))
    assert [each.id for each in await store.list_family("old")] == []


async def test_a_write_in_the_same_moment_is_seen(open_store: Open, folder: Path):
    """Same size and modification time, as after a write within one tick of the clock."""
    store = open_store()
    await say(store, "demo", "t1", "one")
    assert found(await find(store, "one", "one?")) == ["demo"]
    file = folder / "demo.json"
    status = file.stat()
    file.write_bytes(file.read_bytes().replace(b'"one"', b'"two"'))
    os.utime(file, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert found(await find(store, "two", "one?")) == ["demo"]


async def test_unreadable_files_are_skipped(open_store: Open, folder: Path):
    store = open_store()
    await say(store, "demo", "t1", "one")
    (folder / "broken.json").write_text("{", encoding="utf-8")
    (folder / "link.json").symlink_to("nowhere")
    os.mkfifo(folder / "pipe.json")
    assert found(await find(store, "one", "one?")) == ["demo"]
    (folder / "demo.json").write_text("{", encoding="utf-8")
    assert await find(store, "one", "one?") == ()


async def test_the_state_of_a_turn_is_the_current_one(open_store: Open):
    store, other = open_store(), open_store()
    await say(store, "demo", "t1", "one")
    lease = await store.begin_turn("demo", start("t2", "two"))
    (match,) = await find(other, "one", "one?", "two")
    assert match.state == "running"
    await store.close()
    (match,) = await find(other, "one", "one?", "two")
    assert match.state == "failed"
    assert lease.turn.id == match.turn


async def test_a_missing_index_is_built_again(open_store: Open, cache: Path):
    store = open_store()
    await say(store, "demo", "t1", "one")
    assert found(await find(store, "one")) == ["demo"]
    await store.close()
    index_file(cache).unlink()
    assert found(await find(open_store(), "one")) == ["demo"]
    assert index_file(cache).stat().st_mode & 0o777 == 0o600


def overwrite(path: Path) -> None:
    path.write_bytes(b"no database " * 1000)


def destroy_pages(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:4096] + b"\xff" * (len(data) - 4096))


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:5000])


def change_version(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA user_version = 7")


def drop_table(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("DROP TABLE digests")


def make_empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize(
    "damage", [overwrite, destroy_pages, truncate, change_version, drop_table, make_empty]
)
async def test_a_damaged_index_is_built_again(
    damage: Callable[[Path], None],
    open_store: Open,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    store = open_store()
    for ref in ("a", "b"):
        await say(store, ref, "t1", "one")
    await find(store, "one")
    await store.close()
    damage(index_file(cache))
    store = open_store()
    assert found(await find(store, "one", "one?")) == ["b", "a"]
    await store.close()
    store = open_store()
    read_keys = count_reads(store, monkeypatch)
    assert found(await find(store, "one", "one?")) == ["b", "a"]
    assert read_keys == ["b", "a"]


async def test_an_index_that_is_damaged_in_use_is_built_again(
    open_store: Open, cache: Path, monkeypatch: pytest.MonkeyPatch
):
    store = open_store()
    await say(store, "demo", "t1", "one")
    await find(store, "one")
    drop_table(index_file(cache))
    assert found(await find(store, "one")) == ["demo"]
    await say(store, "demo", "t2", "two")
    assert found(await find(open_store(), "one", "one?", "two", "two?")) == ["demo"]


def write_protect(cache: Path, _: pytest.MonkeyPatch) -> None:
    cache.parent.mkdir(parents=True, exist_ok=True)
    cache.write_text("A file is in the way.", encoding="utf-8")


def fill_disk(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A database with a limit of two pages fails as a full disk does."""
    connect = sqlite3.connect

    def connect_limited(name: str, **options: Any) -> sqlite3.Connection:
        connection: sqlite3.Connection = connect(name, **options)
        if name != ":memory:":
            connection.execute("PRAGMA max_page_count = 2")
        return connection

    monkeypatch.setattr("cllm.stores.json.file_index.sqlite3.connect", connect_limited)


@pytest.mark.parametrize("prepare", [write_protect, fill_disk])
async def test_without_a_usable_cache_folder_the_results_are_the_same(
    prepare: Callable[[Path, pytest.MonkeyPatch], None],
    open_store: Open,
    cache: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    prepare(cache, monkeypatch)
    store = open_store()
    for ref in ("a", "b"):
        await say(store, ref, "t1", "one")
    assert found(await find(store, "one", "one?")) == ["b", "a"]
    await say(store, "a", "t2", "two")
    assert found(await find(store, "one", "one?")) == ["a", "b"]
    read_keys = count_reads(store, monkeypatch)
    assert found(await find(store, "one", "one?", "two")) == ["a"]
    assert read_keys == ["a"]
    assert [each.id for each in await store.list_family("a")] == ["a"]


async def test_a_locked_index_is_not_deleted(
    open_store: Open, cache: Path, monkeypatch: pytest.MonkeyPatch
):
    store = open_store()
    await say(store, "demo", "t1", "one")
    await find(store, "one")
    monkeypatch.setattr("cllm.stores.json.file_index.BUSY_SECONDS", 0)
    writer = sqlite3.connect(index_file(cache), isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    await say(store, "demo", "t2", "two")
    other = open_store()
    assert found(await find(other, "one", "one?", "two")) == ["demo"]
    writer.execute("ROLLBACK")
    writer.close()
    await say(store, "demo", "t3", "three")
    whole = ("one", "one?", "two", "two?", "three")
    assert found(await find(other, *whole)) == found(await find(store, *whole)) == ["demo"]


async def test_each_folder_has_an_index_by_its_real_path(
    open_store: Open, folder: Path, cache: Path, tmp_path: Path
):
    await say(open_store(), "demo", "t1", "one")
    link = tmp_path / "link"
    link.symlink_to(folder)
    clock = TickingClock()
    for path in (folder, link, tmp_path / "other"):
        store = JsonFileStore(path, clock=clock, cache=cache)
        await store.create(NewConversation(id=f"c{path.name}"))
        await find(store, "one")
        await store.close()
    assert len(list((cache / "paths").glob("*.sqlite3"))) == 2


async def test_an_index_without_a_cache_folder_is_in_memory(folder: Path, tmp_path: Path):
    store = JsonFileStore(folder, clock=lambda: NOW)
    await say(store, "demo", "t1", "one")
    assert found(await find(store, "one", "one?")) == ["demo"]
    assert [each.name for each in tmp_path.iterdir()] == ["conversations"]


async def test_other_owners_have_no_files(open_store: Open):
    store = open_store()
    await say(store, "demo", "t1", "one")
    digests = digest_path([plain_message("user", "one")])
    assert await store.find_paths(digests, owner="eve") == ()
    assert await store.list_family("demo", owner="eve") == ()


async def test_an_unfinished_hidden_turn_is_not_found(open_store: Open):
    store = open_store()
    hidden = TurnStart(id="t1", messages=(plain_message("user", "one"),), visible=False)
    lease = await store.begin_turn("demo", hidden, create=NewConversation(id="demo"))
    assert await find(store, "one") == ()
    await store.finish_turn(lease, answered(lease))
    assert found(await find(store, "one")) == ["demo"]
