"""Lists and searches of a large folder give the same results with the index and without it."""

import json
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cllm.stores.json.store import MIN_INDEXED_FILES, JsonFileStore
from cllm.stores.json.texts import JsonTexts
from cllm.stores.search import MAX_RANKED

NOW = datetime(2026, 11, 16, tzinfo=UTC)
COUNT = MIN_INDEXED_FILES + 5


def write(folder: Path, key: str, *texts: str, minutes: int = 0, **fields: Any) -> Path:
    folder.mkdir(exist_ok=True)
    moment = (NOW + timedelta(minutes=minutes)).isoformat()
    messages = [{"role": "user", "content": text} for text in texts]
    content = {
        "id": key,
        "model": "a/b",
        "messages": messages,
        "created_at": moment,
        "updated_at": moment,
        "metadata": {},
    }
    path = folder / f"{key}.json"
    path.write_text(json.dumps(content | fields), encoding="utf-8")
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "conversations"
    for number in range(COUNT):
        write(folder, f"c{number}", f"number{number} cat", f"{number % 7}dogs", minutes=number)
    return folder


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


async def results(store: JsonFileStore, *queries: str) -> list[Any]:
    lists = [
        await store.list_conversations(archive_filter=which, limit=10**6)
        for which in ("active", "archived", "all")
    ]
    hits = [await store.search(query, limit=100, archive_filter="all") for query in queries]
    return [*lists, *hits]


async def assert_same(folder: Path, cache: Path) -> None:
    indexed = JsonFileStore(folder, clock=lambda: NOW, cache=cache)
    scanned = JsonFileStore(folder, clock=lambda: NOW)
    queries = ("cat", "number7 cat", "3dogs", "zebra", "猫")
    assert await results(indexed, *queries) == await results(scanned, *queries)
    await indexed.close()


async def test_the_results_are_those_of_reading_every_file(folder: Path, cache: Path):
    await assert_same(folder, cache)
    (index,) = (cache / "search").glob("*.sqlite3")
    assert index.stat().st_mode & 0o777 == 0o600
    write(folder, "c7", "a zebra", minutes=7)
    write(folder, "new", "猫です cat", minutes=3)
    (folder / "c8.json").unlink()
    (folder / "c9.json").write_text("{", encoding="utf-8")
    (folder / "c11.json").write_text("[]", encoding="utf-8")
    for key in ("loop", "c12"):
        (folder / f"{key}.json").unlink(missing_ok=True)
        (folder / f"{key}.json").symlink_to(f"{key}.json")
    (folder / "gone.json").symlink_to("nowhere")
    await assert_same(folder, cache)
    write(folder, "elsewhere", "a cat", minutes=8).rename(folder / "nowhere")
    await assert_same(folder, cache)
    write(folder, "c9", "readable zebra", minutes=9)
    await assert_same(folder, cache)


async def test_only_changed_files_and_matches_are_read(
    folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
):
    store = JsonFileStore(folder, clock=lambda: NOW, cache=cache)
    await store.search("cat")
    write(folder, "c3", "changed")
    read: list[str] = []
    read_bytes = type(store._folder).read_bytes

    def count(self: Any, key: str) -> Any:
        read.append(key)
        return read_bytes(self, key)

    monkeypatch.setattr(type(store._folder), "read_bytes", count)
    hits = await store.search("number5")
    assert [hit.conversation for hit in hits.items] == ["c5"]
    assert read == ["c3", "c5"]
    read.clear()
    assert len((await store.list_conversations(limit=10**6)).items) == COUNT
    assert read == []


async def test_a_deleted_conversation_leaves_the_index_at_once(folder: Path, cache: Path):
    store = JsonFileStore(folder, clock=lambda: NOW, cache=cache)
    await store.search("cat")

    await store.delete("c5")

    (index,) = (cache / "search").glob("*.sqlite3")
    with closing(sqlite3.connect(index)) as connection, connection:
        keys = {key for (key,) in connection.execute("SELECT key FROM files")}
        found = connection.execute("SELECT rowid FROM texts WHERE texts MATCH 'number5'").fetchall()
    assert "c4" in keys
    assert "c5" not in keys
    assert found == []


@pytest.mark.parametrize("reason", ["a file is in the way", "full"])
async def test_without_a_usable_cache_folder_all_files_are_read(
    folder: Path, cache: Path, reason: str, monkeypatch: pytest.MonkeyPatch
):
    if reason == "full":
        connect = sqlite3.connect

        def connect_limited(name: str, **options: Any) -> sqlite3.Connection:
            connection: sqlite3.Connection = connect(name, **options)
            connection.execute("PRAGMA max_page_count = 20")
            return connection

        monkeypatch.setattr("cllm.stores.json.file_index.sqlite3.connect", connect_limited)
    else:
        cache.write_text(reason, encoding="utf-8")
    await assert_same(folder, cache)
    store = JsonFileStore(folder, clock=lambda: NOW, cache=cache)
    await store.delete("c5")
    assert (await store.search("number5")).items == ()


async def test_a_small_folder_has_no_index(tmp_path: Path, cache: Path):
    write(tmp_path / "small", "a", "cat")
    store = JsonFileStore(tmp_path / "small", clock=lambda: NOW, cache=cache)

    assert len((await store.search("cat")).items) == 1
    await store.delete("a")
    assert not cache.exists()


async def test_the_newest_matches_are_ranked(folder: Path, cache: Path):
    for number in range(30):
        texts = ["many words"] * 40
        write(folder, f"m{number}", *texts, minutes=number)
    store = JsonFileStore(folder, clock=lambda: NOW, cache=cache)

    hits = await store.search("word", limit=1000)

    scanned = await JsonFileStore(folder, clock=lambda: NOW).search("word", limit=1000)
    assert hits == scanned
    assert (hits.total, hits.more) == (MAX_RANKED, True)


async def test_the_newest_matching_files_are_searched(
    folder: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("cllm.stores.json.texts.MAX_SEARCHED_FILES", 3)
    store = JsonFileStore(folder, clock=lambda: NOW, cache=cache)

    hits = await store.search("cat")
    few = await store.search("number5")

    assert {hit.conversation for hit in hits.items} == {f"c{COUNT - n}" for n in (1, 2, 3)}
    assert (hits.total, hits.more, few.more) == (3, True, False)


def test_an_index_in_use_is_shared(folder: Path, cache: Path):
    stores = [JsonFileStore(folder, clock=lambda: NOW, cache=cache) for _ in range(2)]
    texts = [JsonTexts(store._folder, cache=cache) for store in stores]

    assert [len(each.list_summaries()[0]) for each in texts] == [COUNT, COUNT]
    for each in texts:
        each.close()
