from pathlib import Path

from cllm.stores.locks import try_lock
from cllm.stores.process_lock import ProcessLock


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
    (tmp_path / "a.db-lock-killed").touch()
    (tmp_path / "a.db-wal").touch()
    lock = ProcessLock(tmp_path / "a.db")
    assert lock.is_dead("killed")
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
