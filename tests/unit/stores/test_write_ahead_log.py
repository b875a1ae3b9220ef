"""Several connections switch one SQLite file to write-ahead logging."""

import sqlite3
from pathlib import Path

import pytest

from cllm.stores.write_ahead_log import enable_write_ahead_log


class ReleasesAfter(sqlite3.Connection):
    """Releases the lock of another connection before a given attempt."""

    attempts = 0
    holder: sqlite3.Connection
    last = 3

    def execute(self, *arguments: str) -> sqlite3.Cursor:  # type: ignore[override]
        self.attempts += 1
        if self.attempts == self.last:
            self.holder.execute("ROLLBACK")
        return super().execute(*arguments)


@pytest.fixture
def holder(tmp_path: Path) -> sqlite3.Connection:
    """A connection that has locked the file."""
    connection = sqlite3.connect(tmp_path / "one.db", isolation_level=None)
    connection.execute("CREATE TABLE one (number)")
    connection.execute("BEGIN EXCLUSIVE")
    return connection


def test_the_mode_is_set_when_the_other_connection_has_released_its_lock(tmp_path, holder):
    connection = sqlite3.connect(tmp_path / "one.db", timeout=0, factory=ReleasesAfter)
    connection.holder = holder

    enable_write_ahead_log(connection, 30)

    assert connection.attempts == ReleasesAfter.last
    assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)
    connection.close()
    holder.close()


def test_a_file_that_stays_locked_is_an_error(tmp_path, holder):
    connection = sqlite3.connect(tmp_path / "one.db", timeout=0)

    with pytest.raises(sqlite3.OperationalError, match="locked"):
        enable_write_ahead_log(connection, -1)
    connection.close()
    holder.close()


def test_another_error_is_not_repeated(tmp_path):
    (tmp_path / "one.db").write_bytes(b"no database" * 100)
    connection = sqlite3.connect(tmp_path / "one.db", factory=ReleasesAfter)

    with pytest.raises(sqlite3.DatabaseError, match="not a database"):
        enable_write_ahead_log(connection, 30)
    assert connection.attempts == 1
    connection.close()
