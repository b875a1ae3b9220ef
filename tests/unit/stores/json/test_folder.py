import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cllm.core.conversation import StoredConversation
from cllm.core.errors import (
    BrokenConversationError,
    ConversationExistsError,
    ConversationNotFoundError,
    StoreUnavailableError,
)
from cllm.core.notice import Notice
from cllm.stores.json.folder import JsonFolder, _to_datetime
from cllm.stores.locks import Lock
from cllm.testing.store_harness import OPENING, answered, start

NOW = datetime(2026, 11, 16, tzinfo=UTC)
DEMO = StoredConversation(id="demo", created_at=NOW, updated_at=NOW)


@pytest.fixture
def folder(tmp_path: Path) -> JsonFolder:
    return JsonFolder(tmp_path / "c", clock=lambda: NOW)


def lock(folder: JsonFolder, key: str = "demo") -> Lock:
    taken = folder.try_lock(key)
    assert taken is not None
    return taken


def test_a_conversation_is_created_once(folder: JsonFolder):
    folder.create(lock(folder), DEMO)
    assert folder.has("demo")
    assert folder.read("demo").conversation.id == "demo"
    with pytest.raises(ConversationExistsError):
        folder.create(lock(folder, "other"), DEMO)


def test_a_taken_lock_is_none_for_others(folder: JsonFolder):
    held = lock(folder)
    assert folder.try_lock("demo") is None
    held.release()


def test_a_turn_is_finished_in_the_file(folder: JsonFolder):
    folder.create(lock(folder), DEMO)
    lease, before = folder.begin(lock(folder, "x"), "demo", start("t1"), None)
    folder.finish(lock(folder, "y"), lease, before.remainder, answered(lease), OPENING)
    stored = folder.read("demo").conversation
    assert [message.text for message in stored.messages] == ["Be brief.", "Hello", "Hi"]


def test_a_dropped_turn_leaves_the_file_as_it_was(folder: JsonFolder, tmp_path: Path):
    folder.create(lock(folder), DEMO)
    path = tmp_path / "c" / "demo.json"
    path.write_bytes(path.read_bytes().replace(b"  ", b"    "))
    data = path.read_bytes()
    lease, before = folder.begin(lock(folder, "x"), "demo", start("t1"), None)
    assert path.read_bytes() != data
    folder.drop(lock(folder, "y"), lease, before)
    assert path.read_bytes() == data


def test_a_running_turn_without_a_lock_is_of_a_dead_process(folder: JsonFolder):
    folder.create(lock(folder, "x"), DEMO)
    held = lock(folder)
    folder.begin(held, "demo", start("t1"), None)
    assert [turn.state for turn in folder.read_settled("demo").turns] == ["running"]
    held.release()
    assert [turn.state for turn in folder.read_settled("demo").turns] == ["failed"]
    assert [turn.state for turn in folder.read("demo").conversation.turns] == ["running"]


def test_deleting_removes_the_file_and_its_lock(folder: JsonFolder, tmp_path: Path):
    folder.create(lock(folder, "x"), DEMO)
    held = lock(folder)
    folder.delete(held, "demo")
    held.release()
    assert not folder.has("demo")
    assert not (tmp_path / "c" / ".locks" / "demo.lock").exists()
    with pytest.raises(ConversationNotFoundError):
        folder.read("demo")


def test_an_edit_without_a_change_writes_nothing(folder: JsonFolder, tmp_path: Path):
    folder.create(lock(folder, "x"), DEMO)
    before = (tmp_path / "c" / "demo.json").stat().st_mtime_ns
    folder.edit(lock(folder), "demo", lambda conversation: conversation)
    assert (tmp_path / "c" / "demo.json").stat().st_mtime_ns == before


def test_unreadable_files_are_notices(folder: JsonFolder, tmp_path: Path):
    folder.create(lock(folder), DEMO)
    (tmp_path / "c" / "bad.json").write_text("no JSON", encoding="utf-8")
    os.mkfifo(tmp_path / "c" / "pipe.json")
    notices: list[Notice] = []
    assert [each.id for each in folder.read_all(notices)] == ["demo"]
    assert [Path(notice.path).name for notice in notices] == ["bad.json", "pipe.json"]
    summaries, skipped = folder.summaries()
    assert [each.id for each in summaries] == ["demo"]
    assert skipped == tuple(notices)
    with pytest.raises(BrokenConversationError):
        folder.read("pipe")


def test_a_missing_folder_is_empty(folder: JsonFolder):
    assert folder.summaries() == ([], ())


def test_a_symbolic_link_is_not_written(folder: JsonFolder, tmp_path: Path):
    folder.create(lock(folder, "x"), DEMO)
    (tmp_path / "c" / "demo.json").rename(tmp_path / "target.json")
    (tmp_path / "c" / "demo.json").symlink_to(tmp_path / "target.json")
    with pytest.raises(StoreUnavailableError, match="symbolic link"):
        folder.begin(lock(folder), "demo", start("t1"), None)


def test_a_modification_time_is_limited_to_the_last_datetime():
    assert _to_datetime(0) == datetime(1970, 1, 1, tzinfo=UTC)
    assert _to_datetime(1e20) == datetime.max.replace(tzinfo=UTC)
