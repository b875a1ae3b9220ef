"""Slot files: saved, found, verified, limited in size and count."""

import os
from pathlib import Path

import pytest

from cllm.providers.local.slots import SlotFiles


@pytest.fixture
def slots(tmp_path: Path) -> SlotFiles:
    slots = SlotFiles(folder=tmp_path / "slots")
    slots.create_folder()
    return slots


def commit(slots: SlotFiles, cache_key: str, content: bytes, *, model: str = "model") -> Path:
    name = slots.new_name()
    (slots.folder / name).write_bytes(content)
    path = slots.commit(name, cache_key, model)
    assert path is not None
    return path


def set_time_of_use(path: Path, moment: int) -> None:
    os.utime(path, (moment, moment))


def test_a_file_is_found_for_the_same_conversation_and_model_only(slots: SlotFiles):
    path = commit(slots, "a", b"state")
    assert slots.find("a", "model") == path
    assert slots.find("b", "model") is None
    assert slots.find("a", "another model") is None


def test_only_the_newest_file_of_a_conversation_remains(slots: SlotFiles):
    commit(slots, "a", b"first")
    second = commit(slots, "a", b"second")
    assert slots.find("a", "model") == second
    assert list(slots.folder.iterdir()) == [second]


def test_only_the_owner_can_read_the_folder_and_the_files(slots: SlotFiles):
    path = commit(slots, "a", b"state")
    assert slots.folder.stat().st_mode & 0o777 == 0o700
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_file_name_does_not_contain_the_name_of_the_conversation(slots: SlotFiles):
    assert "secret" not in commit(slots, "secret", b"state").name


@pytest.mark.parametrize("damage", [b"stat", b"stale", b"", b"state and more"])
def test_a_damaged_file_is_ignored_and_deleted(damage: bytes, slots: SlotFiles):
    path = commit(slots, "a", b"state")
    path.write_bytes(damage)
    assert slots.find("a", "model") is None
    assert not path.exists()


def test_deleting_a_conversation_deletes_its_files_for_every_model(slots: SlotFiles):
    commit(slots, "a", b"state", model="one")
    commit(slots, "a", b"state", model="two")
    other = commit(slots, "b", b"state")
    slots.delete_conversation("a")
    assert list(slots.folder.iterdir()) == [other]


def test_deleting_a_conversation_without_files_is_no_error(tmp_path: Path):
    SlotFiles(folder=tmp_path / "nowhere").delete_conversation("a")


def test_the_least_recently_used_file_is_deleted_first(slots: SlotFiles):
    small = SlotFiles(folder=slots.folder, max_bytes=25)
    oldest, older = commit(small, "a", b"x" * 10), commit(small, "b", b"x" * 10)
    set_time_of_use(oldest, 1000)
    set_time_of_use(older, 2000)
    assert small.find("a", "model") == oldest  # used again, so b is now the oldest
    commit(small, "c", b"x" * 10)
    assert oldest.exists()
    assert not older.exists()


def test_the_number_of_files_is_limited(slots: SlotFiles):
    few = SlotFiles(folder=slots.folder, max_files=2)
    for moment, name in enumerate("abc"):
        set_time_of_use(commit(few, name, b"state"), 1000 + moment)
    commit(few, "d", b"state")
    assert few.find("d", "model") is not None
    assert len(list(few.folder.iterdir())) == 2


def test_an_abandoned_unfinished_file_is_deleted(slots: SlotFiles):
    abandoned, recent = slots.folder / slots.new_name(), slots.folder / slots.new_name()
    abandoned.write_bytes(b"half")
    recent.write_bytes(b"half")
    set_time_of_use(abandoned, 1000)
    commit(slots, "a", b"state")
    assert not abandoned.exists()
    assert recent.exists()


def test_committing_a_missing_file_returns_none(slots: SlotFiles):
    assert slots.commit(slots.new_name(), "a", "model") is None
