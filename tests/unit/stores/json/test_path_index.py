import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from cllm.core.conversation import StoredConversation, Turn
from cllm.core.errors import StoreUnavailableError
from cllm.core.message import plain_message
from cllm.stores.json.file_index import FILES_PER_TRANSACTION, is_damage, remove_index
from cllm.stores.json.path_index import PathIndex
from cllm.wire.path_digest import digest_path

NOW = datetime(2026, 11, 16, tzinfo=UTC)


def conversation(key: str, *texts: str, minutes: int = 0, **fields: Any) -> StoredConversation:
    messages = tuple(plain_message("user", text) for text in texts)
    turn = Turn(id="t1", place="t1", state="complete", messages=messages, started_at=NOW)
    updated_at = NOW + timedelta(minutes=minutes)
    return StoredConversation(
        id=key, created_at=NOW, updated_at=updated_at, turns=(turn,), **fields
    )


class Files:
    """Files by key with their versions, and the keys that were read."""

    def __init__(self, *conversations: StoredConversation) -> None:
        self.contents: dict[str, StoredConversation | None] = {}
        self.states: dict[str, str] = {}
        self.read_keys: list[str] = []
        for each in conversations:
            self.write(each.id, each)

    def write(self, key: str, content: StoredConversation | None) -> None:
        self.contents[key] = content
        self.states[key] = f"{len(self.states)}-{self.states.get(key)}"

    def delete(self, key: str) -> None:
        del self.contents[key], self.states[key]

    def read(self, key: str) -> StoredConversation | None:
        self.read_keys.append(key)
        return self.contents[key]

    def refresh(self, index: PathIndex) -> list[str]:
        """Bring the index up to date; return the keys that were read."""
        self.read_keys = []
        index.refresh(self.states, self.read)
        return self.read_keys


def find(index: PathIndex, *texts: str, **options: Any) -> list[str]:
    digest = digest_path([plain_message("user", text) for text in texts])[-1]
    values: dict[str, Any] = {"family": None, "side": False, "any_ids": False}
    return list(index.find_digest(digest, **(values | options)))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "cache" / "paths" / "index.sqlite3"


def test_only_new_and_changed_files_are_read(path: Path):
    files = Files(conversation("a", "one", "two"), conversation("b", "one"))
    index = PathIndex(path)
    assert files.refresh(index) == ["a", "b"]
    assert files.refresh(index) == []
    files.write("b", conversation("b", "three"))
    files.write("c", conversation("c", "four"))
    assert files.refresh(index) == ["b", "c"]
    assert (find(index, "one"), find(index, "three"), find(index, "four")) == (["a"], ["b"], ["c"])
    files.delete("a")
    assert files.refresh(index) == []
    assert find(index, "one", "two") == []
    index.close()
    assert Files.refresh(files, PathIndex(path)) == []


def test_a_build_has_several_transactions(path: Path):
    stored = [conversation(f"c{index}", "one") for index in range(FILES_PER_TRANSACTION + 1)]
    files = Files(*stored)
    index = PathIndex(path)
    unreadable = stored[-1].id

    def read(key: str) -> StoredConversation | None:
        if key == unreadable:
            raise RuntimeError
        return files.read(key)

    with pytest.raises(RuntimeError):
        index.refresh(files.states, read)
    assert files.refresh(index) == [unreadable]
    assert len(find(index, "one")) == len(stored)


def test_candidates_are_sorted_and_filtered(path: Path):
    files = Files(
        conversation("a", "one", minutes=1),
        conversation("b", "one", minutes=3, family="client:1"),
        conversation("c", "one", minutes=2, family="client:1"),
        conversation("d", "one", is_side=True, family="client:1"),
        conversation("e", "one", archived_at=NOW, family="client:1"),
    )
    index = PathIndex(path)
    files.refresh(index)
    assert find(index, "one") == ["b", "c", "a"]
    assert find(index, "one", side=True) == ["d"]
    assert find(index, "one", family="client:1") == ["b", "c"]
    assert find(index, "one", family="a") == ["a"]
    assert list(index.find_family("client:1")) == ["b", "c", "d"]
    assert list(index.find_family("e")) == []


def test_call_ids_are_compared_unless_any_are_allowed(path: Path):
    files = Files(conversation("a", "one"))
    index = PathIndex(path)
    files.refresh(index)
    (digest,) = digest_path([plain_message("user", "one")])
    other = digest[:-1] + bytes([digest[-1] ^ 1])
    options: dict[str, Any] = {"family": None, "side": False}
    assert list(index.find_digest(other, any_ids=False, **options)) == []
    assert list(index.find_digest(other, any_ids=True, **options)) == ["a"]


def test_a_file_without_a_conversation_is_not_read_again(path: Path):
    files = Files(conversation("a", "one"))
    index = PathIndex(path)
    files.refresh(index)
    files.write("a", None)
    assert files.refresh(index) == ["a"]
    assert files.refresh(index) == []
    assert find(index, "one") == []


def test_an_unavailable_file_is_read_again(path: Path):
    files = Files(conversation("a", "one"), conversation("b", "one"))
    index = PathIndex(path)

    def read(key: str) -> StoredConversation | None:
        if key == "a":
            raise StoreUnavailableError("no", path="a")
        return files.read(key)

    index.refresh(files.states, read)
    assert find(index, "one") == ["b"]
    assert files.refresh(index) == ["a"]


def test_two_processes_use_one_file(path: Path):
    files = Files(conversation("a", "one"))
    first, second = PathIndex(path), PathIndex(path)
    assert files.refresh(first) == ["a"]
    assert files.refresh(second) == []
    files.write("a", conversation("a", "two"))
    assert files.refresh(second) == ["a"]
    assert (find(first, "one"), find(first, "two")) == ([], ["a"])


def test_the_file_is_private(path: Path):
    index = PathIndex(path)
    Files(conversation("a", "one")).refresh(index)
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert {each.stat().st_mode & 0o777 for each in path.parent.iterdir()} == {0o600}


def test_an_index_of_another_version_is_refused_as_damaged(path: Path):
    PathIndex(path).close()
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("PRAGMA user_version = 9")
    with pytest.raises(sqlite3.Error) as caught:
        PathIndex(path)
    assert is_damage(caught.value)


def test_a_file_that_is_no_database_is_damaged_and_can_be_removed(path: Path):
    path.parent.mkdir(parents=True)
    path.write_bytes(b"no database " * 100)
    with pytest.raises(sqlite3.Error) as caught:
        PathIndex(path)
    assert is_damage(caught.value)
    remove_index(path)
    assert list(path.parent.iterdir()) == []
    PathIndex(path).close()


def test_an_index_in_use_is_not_damaged(path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("cllm.stores.json.file_index.BUSY_SECONDS", 0)
    index = PathIndex(path)
    writer = sqlite3.connect(path, isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    with pytest.raises(sqlite3.Error) as caught:
        Files(conversation("a", "one")).refresh(index)
    assert not is_damage(caught.value)
    writer.execute("ROLLBACK")
    Files(conversation("a", "one")).refresh(index)
    assert find(index, "one") == ["a"]
    writer.close()
