import asyncio
import json
import os
import resource
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cllm.core.conversation import Turn
from cllm.core.errors import (
    BrokenConversationError,
    CllmError,
    ConversationBusyError,
    ConversationExistsError,
    ConversationNotFoundError,
    StaleLeaseError,
    StoreUnavailableError,
    UsageError,
)
from cllm.core.message import plain_message
from cllm.core.ports import Changes, Lease, NewConversation, TurnStart
from cllm.stores.json.store import JsonFileStore
from cllm.stores.memory import MemoryStore

NOW = datetime(2026, 1, 1, tzinfo=UTC)
DEMO = NewConversation(id="demo", model="m")


def start(turn_id: str, *, visible: bool = False) -> TurnStart:
    return TurnStart(id=turn_id, messages=(plain_message("user", turn_id),), visible=visible)


def answered(lease: Lease, text: str = "yes") -> Turn:
    messages = (*lease.turn.messages, plain_message("assistant", text))
    return msgspec.structs.replace(lease.turn, state="complete", messages=messages)


async def say(store: JsonFileStore, turn_id: str, text: str = "yes") -> None:
    lease = await store.begin_turn("demo", start(turn_id), create=DEMO)
    await store.finish_turn(lease, answered(lease, text))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "conversations"


@pytest.fixture
async def store(folder: Path):
    store = JsonFileStore(folder, clock=lambda: NOW, patience=0.01)
    yield store
    await store.close()


def edit(path: Path, change) -> None:
    """What an editor does: no lock, no questions."""
    document = json.loads(path.read_bytes())
    change(document)
    path.write_text(json.dumps(document), encoding="utf-8")


def stored_texts(path: Path) -> list[str]:
    return [message["content"] for message in json.loads(path.read_bytes())["messages"]]


async def test_files_and_folders_are_private(store: JsonFileStore, folder: Path):
    await say(store, "t1")
    assert (folder / "demo.json").stat().st_mode & 0o777 == 0o600
    for made in (folder, folder.parent, folder / ".locks"):
        assert made.stat().st_mode & 0o777 == 0o700


async def test_reading_creates_nothing(store: JsonFileStore, folder: Path):
    assert (await store.list_conversations()).items == ()
    for attempt in (
        store.load("demo"),
        store.begin_turn("demo", start("t1")),
        store.delete("demo"),
    ):
        with pytest.raises(ConversationNotFoundError):
            await attempt
    assert not folder.parent.exists()


async def test_a_dropped_first_turn_leaves_no_file(store: JsonFileStore, folder: Path):
    for visible in (True, False):
        lease = await store.begin_turn("demo", start("t1", visible=visible), create=DEMO)
        assert (folder / "demo.json").exists() == visible
        await store.drop_turn(lease)
        assert [path.name for path in folder.rglob("*")] == [".locks"]


async def test_a_deleted_conversation_leaves_nothing(store: JsonFileStore, folder: Path):
    await say(store, "t1")
    (folder / ".demo.json.tmp").write_bytes(b"half")
    await store.delete("demo")
    assert [path.name for path in folder.rglob("*")] == [".locks"]


async def test_the_temporary_file_of_a_killed_process_is_replaced(
    store: JsonFileStore, folder: Path
):
    await say(store, "t1")
    (folder / ".demo.json.tmp").write_bytes(b"half")
    await say(store, "t2")
    assert not (folder / ".demo.json.tmp").exists()
    assert len((await store.load("demo")).turns) == 2


BROKEN = {
    "empty": b"",
    "cut": b'{"id": "demo", "messages": [',
    "foreign": b'{"name": "package", "version": "1.0"}',
    "renamed": b'{"id": "other", "messages": []}',
    "list": b"[]",
}


@pytest.mark.parametrize("content", BROKEN.values(), ids=BROKEN)
async def test_a_broken_file_is_never_overwritten(
    store: JsonFileStore, folder: Path, content: bytes
):
    folder.mkdir(parents=True)
    path = folder / "demo.json"
    path.write_bytes(content)
    for attempt in (
        store.load("demo"),
        store.begin_turn("demo", start("t1", visible=True), create=DEMO),
        store.update("demo", Changes(title="x")),
        store.delete("demo"),
        store.delete_from("demo", 1),
        store.choose_variant("demo", "t1"),
        store.branch("demo", NewConversation(id="copy")),
    ):
        with pytest.raises(BrokenConversationError):
            await attempt
    with pytest.raises(ConversationExistsError):
        await store.create(DEMO)
    assert path.read_bytes() == content


async def test_a_file_that_broke_during_a_turn_is_not_overwritten(
    store: JsonFileStore, folder: Path
):
    await say(store, "t1")
    lease = await store.begin_turn("demo", start("t2"))
    (folder / "demo.json").write_bytes(b"half an ed")
    with pytest.raises(BrokenConversationError):
        await store.finish_turn(lease, answered(lease))
    assert (folder / "demo.json").read_bytes() == b"half an ed"


async def test_lists_skip_other_files_with_a_notice(store: JsonFileStore, folder: Path):
    await say(store, "t1")
    (folder / "package.json").write_text('{"name": "x"}', encoding="utf-8")
    os.mkfifo(folder / "pipe.json")
    (folder / "loop.json").symlink_to("loop.json")
    (folder / "gone.json").symlink_to("nowhere")
    (folder / "folder.json").mkdir()
    for ignored in (".hidden.json", "notes.txt", "a b.json", "demo.json.bak", "json"):
        (folder / ignored).write_text("{}", encoding="utf-8")
    page = await store.list_conversations()
    assert [item.id for item in page.items] == ["demo"]
    assert [Path(notice.path).name for notice in page.notices] == [
        "gone.json",
        "loop.json",
        "package.json",
        "pipe.json",
    ]
    assert {notice.code for notice in page.notices} == {"conversation_skipped"}
    assert "the target of the symbolic link does not exist" in page.notices[0].message
    assert "package.json" in page.notices[2].message


async def test_every_unreadable_file_is_listed_and_has_an_error(store: JsonFileStore, folder: Path):
    await say(store, "t1")
    (folder / "loop.json").symlink_to("loop.json")
    (folder / "gone.json").symlink_to("nowhere")
    assert sorted(await store.list_files()) == ["demo", "gone", "loop"]
    with pytest.raises(StoreUnavailableError, match="symbolic link"):
        await store.read_file("loop")
    with pytest.raises(BrokenConversationError, match="symbolic link"):
        await store.read_file("gone")


async def test_a_pipe_or_folder_is_a_broken_conversation(store: JsonFileStore, folder: Path):
    folder.mkdir(parents=True)
    os.mkfifo(folder / "pipe.json")
    (folder / "folder.json").mkdir()
    for name in ("pipe", "folder"):
        with pytest.raises(BrokenConversationError, match="not a regular file"):
            await store.load(name)


async def test_a_file_over_the_limit_is_a_broken_conversation(store: JsonFileStore, folder: Path):
    folder.mkdir(parents=True)
    with (folder / "demo.json").open("wb") as file:
        file.truncate((1 << 30) + 1)
    with pytest.raises(BrokenConversationError, match="larger than 1 GiB"):
        await store.load("demo")


async def test_a_symbolic_link_is_read_and_never_written(
    store: JsonFileStore, folder: Path, tmp_path: Path
):
    await say(store, "t1")
    target = tmp_path / "elsewhere.json"
    (folder / "demo.json").rename(target)
    (folder / "demo.json").symlink_to(target)
    before = target.read_bytes()
    assert len((await store.load("demo")).turns) == 1
    for attempt in (
        store.begin_turn("demo", start("t2")),
        store.update("demo", Changes(title="x")),
    ):
        with pytest.raises(StoreUnavailableError, match="symbolic link"):
            await attempt
    assert target.read_bytes() == before
    assert (folder / "demo.json").is_symlink()


async def test_a_dangling_symbolic_link_is_not_written(
    store: JsonFileStore, folder: Path, tmp_path: Path
):
    folder.mkdir(parents=True)
    (folder / "demo.json").symlink_to(tmp_path / "new.json")
    with pytest.raises(StoreUnavailableError, match="symbolic link"):
        await store.begin_turn("demo", start("t1", visible=True), create=DEMO)
    assert not (tmp_path / "new.json").exists()


@pytest.mark.parametrize("visible", [True, False])
async def test_a_manual_edit_during_a_turn_is_preserved(
    store: JsonFileStore, folder: Path, visible: bool
):
    path = folder / "demo.json"
    await say(store, "t1", "first")
    lease = await store.begin_turn("demo", start("t2", visible=visible))

    def change(document: dict[str, Any]) -> None:
        document["messages"][1]["content"] = "corrected"
        document["messages"] += [
            {"role": "user", "content": "noted"},
            {"role": "assistant", "content": "ok"},
        ]
        document["mine"] = 1

    edit(path, change)
    await store.finish_turn(lease, answered(lease))
    assert stored_texts(path) == ["t1", "corrected", "noted", "ok", "t2", "yes"]
    assert json.loads(path.read_bytes())["mine"] == 1


async def test_a_reply_is_saved_if_the_file_was_deleted_during_the_turn(
    store: JsonFileStore, folder: Path
):
    await say(store, "t1")
    edit(folder / "demo.json", lambda document: document.update(mine=1))
    lease = await store.begin_turn("demo", start("t2"))
    (folder / "demo.json").unlink()
    await store.finish_turn(lease, answered(lease))
    assert stored_texts(folder / "demo.json") == ["t1", "yes", "t2", "yes"]
    assert json.loads((folder / "demo.json").read_bytes())["mine"] == 1


async def test_dropping_a_turn_preserves_a_manual_edit(store: JsonFileStore, folder: Path):
    lease = await store.begin_turn("demo", start("t1", visible=True), create=DEMO)
    message = {"role": "user", "content": "mine"}
    edit(folder / "demo.json", lambda document: document.update(messages=[message]))
    await store.drop_turn(lease)
    assert stored_texts(folder / "demo.json") == ["mine"]


async def test_dropping_a_turn_works_if_the_file_was_deleted(store: JsonFileStore, folder: Path):
    lease = await store.begin_turn("demo", start("t1", visible=True), create=DEMO)
    (folder / "demo.json").unlink()
    await store.drop_turn(lease)
    assert not (folder / "demo.json").exists()


async def test_an_old_file_can_be_continued(store: JsonFileStore, folder: Path):
    folder.mkdir(parents=True)
    path = folder / "demo.json"
    path.write_text(
        '{"id": "demo", "model": "gpt-4", "messages": [{"role": "user", "content": "a"},'
        '{"role": "assistant", "content": "b"}], "created_at": "2025-10-31T12:00:00Z",'
        '"updated_at": "2025-10-31T12:00:00", "metadata": {"total_tokens": 150, "tag": 1}}',
        encoding="utf-8",
    )
    lease = await store.begin_turn("demo", start("t1"))
    await store.finish_turn(lease, answered(lease))
    document = json.loads(path.read_bytes())
    assert list(document) == ["id", "model", "messages", "created_at", "updated_at", "metadata"]
    assert document["metadata"]["total_tokens"] == 150
    assert document["metadata"]["tag"] == 1
    assert document["updated_at"] == "2026-01-01T00:00:00.000000Z"
    assert stored_texts(path) == ["a", "b", "t1", "yes"]


async def test_an_update_that_changes_nothing_writes_nothing(store: JsonFileStore, folder: Path):
    await say(store, "t1")
    before = (folder / "demo.json").stat()
    await store.choose_variant("demo", "t1")
    assert (folder / "demo.json").stat().st_ino == before.st_ino


async def test_a_folder_has_one_owner(store: JsonFileStore):
    with pytest.raises(UsageError, match="local"):
        await store.create(NewConversation(id="demo"), owner="ann")


async def test_a_lease_of_one_store_is_stale_in_another(store: JsonFileStore, folder: Path):
    lease = await store.begin_turn("demo", start("t1"), create=DEMO)
    other = JsonFileStore(folder, clock=lambda: NOW)
    with pytest.raises(StaleLeaseError):
        await other.finish_turn(lease, answered(lease))
    await store.finish_turn(lease, answered(lease))


@contextmanager
def files_no_larger_than(size: int) -> Iterator[None]:
    """What a full disk does, as a limit of this process: a write goes in part, the next fails."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


async def test_a_failed_write_leaves_the_old_file(store: JsonFileStore, folder: Path):
    await say(store, "t1")
    before = (folder / "demo.json").read_bytes()
    lease = await store.begin_turn("demo", start("t2"))
    caught: CllmError | None = None
    with files_no_larger_than(4096):
        try:
            await store.finish_turn(lease, answered(lease, "x" * 10_000))
        except StoreUnavailableError as error:
            caught = error
    assert caught is not None
    assert str(caught).endswith("larger than allowed here; start another conversation.")
    assert (folder / "demo.json").read_bytes() == before
    assert sorted(path.name for path in folder.iterdir()) == [".locks", "demo.json"]
    await say(store, "t3")


async def test_a_folder_that_cannot_be_created_is_reported(tmp_path: Path):
    (tmp_path / "file").write_text("", encoding="utf-8")
    store = JsonFileStore(tmp_path / "file" / "conversations", clock=lambda: NOW)
    with pytest.raises(StoreUnavailableError, match="--conversations-path"):
        await store.begin_turn("demo", start("t1"), create=DEMO)
    with pytest.raises(StoreUnavailableError):
        await store.list_conversations()


async def test_a_lock_that_cannot_be_created_is_reported(store: JsonFileStore, folder: Path):
    folder.mkdir(parents=True)
    (folder / ".locks").write_text("", encoding="utf-8")
    with pytest.raises(StoreUnavailableError, match="Cannot lock"):
        await store.create(DEMO)


async def test_a_file_without_read_permission_is_reported(store: JsonFileStore, folder: Path):
    folder.mkdir(parents=True)
    (folder / "demo.json").symlink_to("demo.json")
    with pytest.raises(StoreUnavailableError, match="Cannot read"):
        await store.load("demo")


async def test_work_in_a_thread_keeps_its_lock_when_its_task_is_cancelled(folder: Path):
    """Else a second writer could begin while the first is still writing."""
    go = threading.Event()
    inside = threading.Event()

    async def slowly(function, /, *args, **kwargs):
        def held_up():
            inside.set()
            with args[0]:
                go.wait()
                return function(*args, **kwargs)

        return await asyncio.to_thread(held_up)

    slow = JsonFileStore(folder, clock=lambda: NOW, offload=slowly)
    quick = JsonFileStore(folder, clock=lambda: NOW)
    task = asyncio.create_task(slow.begin_turn("demo", start("t1", visible=True), create=DEMO))
    await asyncio.to_thread(inside.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ConversationBusyError):
        await quick.begin_turn("demo", start("t2"), create=DEMO)
    go.set()
    lease = await quick.begin_turn("demo", start("t2"), create=DEMO, wait=None)
    assert [(turn.id, turn.state) for turn in lease.conversation.turns] == [("t1", "failed")]
    await quick.drop_turn(lease)


LIGHT = """
import sys
from datetime import UTC, datetime
from cllm.stores.json.store import JsonFileStore
store = JsonFileStore(sys.argv[1], clock=lambda: datetime.now(UTC))
try:
    store.list_conversations().send(None)
except StopIteration as stop:
    print(len(stop.value.items))
print(*sorted({"asyncio", "tempfile", "dataclasses", "logging", "json"} & set(sys.modules)))
"""


async def test_a_list_needs_neither_an_event_loop_nor_heavy_modules(
    store: JsonFileStore, folder: Path
):
    await say(store, "t1")
    done = subprocess.run(
        [sys.executable, "-c", LIGHT, str(folder)],
        capture_output=True,
        text=True,
        check=True,
        env={},  # without the variables of `make coverage`, whose modules would count
    )
    assert done.stdout == "1\n\n"


async def test_two_paths_of_one_folder_are_the_same_store(tmp_path: Path):
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    store, link, other = (
        JsonFileStore(tmp_path / name, clock=lambda: NOW) for name in ("folder", "link", "other")
    )
    assert await store.is_same_store(link)
    assert not await store.is_same_store(other)
    assert not await store.is_same_store(MemoryStore(clock=lambda: NOW))
    await store.create(DEMO)
    await other.create(DEMO)
    assert await store.is_same_store(link)
    assert not await store.is_same_store(other)
