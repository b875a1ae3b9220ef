import os
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from cllm.stores.leases import (
    MAX_LEASE,
    ProcessLock,
    is_lease_valid,
    lease_expiry,
    next_fence,
    poll,
    poll_sync,
)
from cllm.stores.locks import try_lock

NOW = datetime(2026, 11, 16, tzinfo=UTC)


def test_a_lease_expires_after_its_seconds():
    expires_at = lease_expiry(NOW, 60)
    assert is_lease_valid(expires_at, NOW + timedelta(seconds=59))
    assert not is_lease_valid(expires_at, NOW + timedelta(seconds=60))


def test_a_lease_from_before_the_clock_was_set_back_is_not_valid():
    expires_at = NOW + MAX_LEASE
    assert is_lease_valid(expires_at, NOW)
    assert not is_lease_valid(expires_at, NOW - timedelta(seconds=1))


def test_fencing_numbers_grow_even_if_the_clock_is_set_back():
    first = next_fence(NOW, None)
    assert next_fence(NOW + timedelta(seconds=1), first) > first + 1
    assert next_fence(NOW - timedelta(days=1), first) == first + 1


def test_polling_without_waiting_needs_no_event_loop():
    coroutine = poll_sync(lambda: None, wait=0)
    with pytest.raises(StopIteration) as stopped:
        coroutine.send(None)
    assert stopped.value.value is None


async def test_polling_ends_with_the_first_result():
    results = iter([None, None, "result", "not reached"])
    assert await poll_sync(lambda: next(results), wait=None) == "result"


async def test_polling_ends_after_its_time():
    attempts = 0

    async def attempt() -> str | None:
        nonlocal attempts
        attempts += 1
        return None

    assert await poll(attempt, wait=0.01) is None
    assert attempts > 1


def lock_files(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_lock_shows_that_its_store_is_open(tmp_path: Path):
    one, other = ProcessLock(tmp_path / "a.db"), ProcessLock(tmp_path / "a.db")
    name = one.name()
    assert name is not None
    assert one.name() == name
    assert lock_files(tmp_path) == [f"a.db-lock-{name}"]
    assert not one.is_dead(name)
    assert not other.is_dead(name)
    one.release()
    assert other.is_dead(name)
    assert lock_files(tmp_path) == []


def test_a_file_that_nobody_locks_is_of_a_dead_process(tmp_path: Path):
    (tmp_path / "a.db-lock-0123456789ab").touch()
    (tmp_path / "a.db-wal").touch()
    lock = ProcessLock(tmp_path / "a.db")
    assert lock.is_dead("0123456789ab")
    name = lock.name()
    assert lock_files(tmp_path) == [f"a.db-lock-{name}", "a.db-wal"]


def test_a_lock_of_another_store_stays(tmp_path: Path):
    held = try_lock(tmp_path / "a.db-lock-held")
    lock = ProcessLock(tmp_path / "a.db")
    lock.name()
    assert held is not None
    assert not lock.is_dead("held")
    held.release()


def test_a_link_to_the_database_has_the_same_lock(tmp_path: Path):
    (tmp_path / "real").mkdir()
    (tmp_path / "real" / "a.db").touch()
    (tmp_path / "link.db").symlink_to(tmp_path / "real" / "a.db")
    one, other = ProcessLock(tmp_path / "real" / "a.db"), ProcessLock(tmp_path / "link.db")
    assert not other.is_dead(one.name())


def test_without_a_lock_nothing_is_known(tmp_path: Path):
    lock = ProcessLock(tmp_path / "missing" / "a.db")
    assert lock.name() is None
    assert not lock.is_dead(None)
    lock.release()


def _make_folder(path: Path) -> None:
    path.mkdir()


def _make_link(path: Path) -> None:
    path.symlink_to("/etc/hostname")


def _make_fifo(path: Path) -> None:
    os.mkfifo(path)


@pytest.mark.parametrize("make", [_make_folder, _make_link, _make_fifo])
@pytest.mark.parametrize("name", ["old", "0123456789ab"])
def test_an_entry_that_cannot_be_locked_does_not_prevent_the_lock(tmp_path, make, name):
    entry = tmp_path / f"cllm.db-lock-{name}"
    make(entry)
    process = ProcessLock(tmp_path / "cllm.db")

    assert process.name() is not None

    process.release()
    assert list(tmp_path.iterdir()) == [entry]


def test_files_with_other_names_are_never_changed(tmp_path):
    notes = tmp_path / "cllm.db-lock-notes.txt"
    notes.write_text("Important", encoding="utf-8")
    process = ProcessLock(tmp_path / "cllm.db")

    process.name()
    process.release()

    assert notes.read_text(encoding="utf-8") == "Important"
