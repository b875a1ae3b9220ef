"""Slot files: they save time or they are not there."""

import os
from pathlib import Path

import pytest

from cllm.providers.local.slots import SlotFiles


@pytest.fixture
def slots(tmp_path: Path) -> SlotFiles:
    made = SlotFiles(folder=tmp_path / "slots")
    made.create_folder()
    return made


def commit(slots: SlotFiles, cache_key: str, content: bytes, *, model: str = "model") -> Path:
    name = slots.new_name()
    (slots.folder / name).write_bytes(content)
    kept = slots.commit(name, cache_key, model)
    assert kept is not None
    return kept


def used_at(path: Path, moment: int) -> None:
    os.utime(path, (moment, moment))


def test_what_was_kept_is_found_under_the_same_conversation_and_model(slots: SlotFiles):
    kept = commit(slots, "a", b"state")
    assert slots.find("a", "model") == kept
    assert slots.find("b", "model") is None
    assert slots.find("a", "another model") is None


def test_a_conversation_keeps_its_newest_state_only(slots: SlotFiles):
    commit(slots, "a", b"first")
    second = commit(slots, "a", b"second")
    assert slots.find("a", "model") == second
    assert list(slots.folder.iterdir()) == [second]


def test_the_folder_and_the_files_are_for_the_person_alone(slots: SlotFiles):
    kept = commit(slots, "a", b"state")
    assert slots.folder.stat().st_mode & 0o777 == 0o700
    assert kept.stat().st_mode & 0o777 == 0o600


def test_names_of_conversations_do_not_show(slots: SlotFiles):
    assert "secret" not in commit(slots, "secret", b"state").name


@pytest.mark.parametrize("damage", [b"stat", b"stale", b"", b"state and more"])
def test_a_damaged_file_is_ignored_and_deleted(damage: bytes, slots: SlotFiles):
    kept = commit(slots, "a", b"state")
    kept.write_bytes(damage)
    assert slots.find("a", "model") is None
    assert not kept.exists()


def test_forgetting_a_conversation_deletes_it_for_every_model(slots: SlotFiles):
    commit(slots, "a", b"state", model="one")
    commit(slots, "a", b"state", model="two")
    other = commit(slots, "b", b"state")
    slots.forget("a")
    assert list(slots.folder.iterdir()) == [other]


def test_forgetting_where_nothing_was_kept_is_no_error(tmp_path: Path):
    SlotFiles(folder=tmp_path / "nowhere").forget("a")


def test_the_least_recently_used_goes_first_when_there_is_too_much(slots: SlotFiles):
    small = SlotFiles(folder=slots.folder, max_bytes=25)
    oldest, older = commit(small, "a", b"x" * 10), commit(small, "b", b"x" * 10)
    used_at(oldest, 1000)
    used_at(older, 2000)
    assert small.find("a", "model") == oldest  # used again, so b is now the oldest
    commit(small, "c", b"x" * 10)
    assert oldest.exists()
    assert not older.exists()


def test_the_count_of_files_is_bounded(slots: SlotFiles):
    few = SlotFiles(folder=slots.folder, max_files=2)
    for moment, name in enumerate("abc"):
        used_at(commit(few, name, b"state"), 1000 + moment)
    commit(few, "d", b"state")
    assert few.find("d", "model") is not None
    assert len(list(few.folder.iterdir())) == 2


def test_a_file_that_was_never_finished_is_cleared_away_later(slots: SlotFiles):
    abandoned, recent = slots.folder / slots.new_name(), slots.folder / slots.new_name()
    abandoned.write_bytes(b"half")
    recent.write_bytes(b"half")
    used_at(abandoned, 1000)
    commit(slots, "a", b"state")
    assert not abandoned.exists()
    assert recent.exists()


def test_keeping_what_was_not_written_keeps_nothing(slots: SlotFiles):
    assert slots.commit(slots.new_name(), "a", "model") is None
