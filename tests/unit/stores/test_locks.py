import errno
import fcntl
import os
from pathlib import Path

import pytest

from cllm.stores.locks import Lock, is_locked, read_lock_state, try_lock


def take(path: Path) -> Lock:
    lock = try_lock(path)
    assert lock is not None
    return lock


def test_a_lock_has_one_holder(tmp_path: Path):
    first = take(tmp_path / "a.lock")
    assert try_lock(tmp_path / "a.lock") is None
    first.release()
    second = take(tmp_path / "a.lock")
    assert second.number == first.number + 1
    second.release()


def test_checking_a_lock_creates_and_takes_nothing(tmp_path: Path):
    path = tmp_path / "a.lock"
    assert not is_locked(path)
    assert list(tmp_path.iterdir()) == []
    lock = take(path)
    assert is_locked(path)
    lock.release()
    assert not is_locked(path)
    take(path).release()


def test_a_lock_lasts_until_its_last_holder_releases_it(tmp_path: Path):
    lock = take(tmp_path / "a.lock")
    with lock:
        lock.release()
        assert try_lock(tmp_path / "a.lock") is None
    take(tmp_path / "a.lock").release()
    with pytest.raises(ValueError, match="released"), lock:
        pass


def test_a_removed_lock_file_does_not_allow_two_holders(tmp_path: Path):
    path = tmp_path / "a.lock"
    old = take(path)
    old.remove()
    old.remove()
    new = take(path)
    assert try_lock(path) is None
    old.release()
    assert try_lock(path) is None
    new.release()


def test_a_lock_file_removed_between_open_and_flock_is_retried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    path = tmp_path / "a.lock"
    real, times = fcntl.flock, iter([True, False])

    def removed_once(fd: int, operation: int) -> None:
        if next(times):
            path.unlink()
        real(fd, operation)

    monkeypatch.setattr(fcntl, "flock", removed_once)
    lock = take(path)
    monkeypatch.undo()
    assert try_lock(path) is None
    lock.release()


def test_a_file_system_without_locks_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def refuse(fd: int, operation: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    with pytest.raises(OSError, match="locks"):
        try_lock(tmp_path / "a.lock")


def test_a_lock_file_with_other_content_counts_from_one(tmp_path: Path):
    (tmp_path / "a.lock").write_text("what?", encoding="utf-8")
    lock = take(tmp_path / "a.lock")
    assert lock.number == 1
    lock.release()


def test_a_symbolic_link_as_a_lock_file_is_refused(tmp_path: Path):
    (tmp_path / "a.lock").symlink_to(tmp_path / "target")
    with pytest.raises(OSError, match="symbolic"):
        try_lock(tmp_path / "a.lock")
    assert not (tmp_path / "target").exists()


def test_the_state_of_a_lock_is_read_without_taking_it(tmp_path):
    path = tmp_path / "a.lock"
    states = [read_lock_state(path)]
    lock = try_lock(path)
    assert lock is not None
    states.append(read_lock_state(path))
    lock.release()
    states.append(read_lock_state(path))
    (tmp_path / "link").symlink_to(path)

    assert states == ["missing", "locked", "free"]
    assert read_lock_state(tmp_path / "link") == "unknown"
