from datetime import UTC, datetime, timedelta

import pytest

from cllm.core.conversation import StoredConversation, Turn
from cllm.core.message import plain_message
from cllm.stores.memory_paths import MemoryPathIndex, TrackedConversations
from cllm.wire.path_digest import digest_path, digest_turns

NOW = datetime(2026, 11, 16, tzinfo=UTC)


def conversation(
    key: str, *texts: str, minutes: int = 0, family: str | None = None
) -> StoredConversation:
    messages = tuple(plain_message("user", text) for text in texts)
    turn = Turn(id="t1", place="t1", state="complete", messages=messages, started_at=NOW)
    updated_at = NOW + timedelta(minutes=minutes)
    return StoredConversation(
        id=key, created_at=NOW, updated_at=updated_at, turns=(turn,), family=family
    )


def find(index: MemoryPathIndex, *texts: str, owner: str = "local") -> list[str]:
    digest = digest_path([plain_message("user", text) for text in texts])[-1]
    return [found.id for found, _ in index.find_digest(digest, owner=owner)]


def test_an_index_follows_every_change():
    stored = TrackedConversations()
    index = MemoryPathIndex(stored)
    stored["local", "a"] = conversation("a", "one", "two")
    assert (find(index, "one"), find(index, "one", "two")) == (["a"], ["a"])
    stored["local", "a"] = conversation("a", "one", "three")
    assert (find(index, "one", "two"), find(index, "one", "three")) == ([], ["a"])
    del stored["local", "a"]
    assert find(index, "one") == []
    assert find(index, "one", owner="eve") == []


def test_the_newest_conversation_is_first():
    stored = TrackedConversations()
    index = MemoryPathIndex(stored)
    for minutes, key in enumerate("abc"):
        stored["local", key] = conversation(key, "one", minutes=minutes, family="f")
    stored["local", "a"] = conversation("a", "one", minutes=9, family="f")
    stored["local", "b"] = conversation("b", "one", minutes=9)
    assert find(index, "one") == ["a", "b", "c"]
    assert [each.id for each in index.find_family("f", owner="local")] == ["a", "c"]
    assert [each.id for each in index.find_family("b", owner="local")] == ["b"]
    assert index.find_family("f", owner="eve") == []


def test_a_lookup_reads_only_changed_conversations(monkeypatch: pytest.MonkeyPatch):
    stored = TrackedConversations()
    index = MemoryPathIndex(stored)
    for key in "abc":
        stored["local", key] = conversation(key, "one")
    find(index, "one")
    read: list[str] = []

    def record(changed: StoredConversation) -> dict[str, list[bytes]]:
        read.append(changed.id)
        return digest_turns(changed)

    monkeypatch.setattr("cllm.stores.memory_paths.digest_turns", record)
    stored["local", "b"] = conversation("b", "two")
    assert find(index, "two") == ["b"]
    assert find(index, "one") == ["a", "c"]
    assert read == ["b"]
