"""A migration that is cut short leaves the database as it was, or as it was to become."""

import os
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest
import sqlalchemy as sa
from tests import older_deployment as older

from cllm.core.errors import StoreUnavailableError
from cllm.stores.sql import HEAD, migrate
from cllm.stores.sql.database import Database
from cllm.stores.sqlite.connection import run_in_sqlite

KILLS = 60 if os.environ.get("CLLM_TORTURE") else 6
MANY = 300
STEPS = """
import os, signal, sqlite3, sys
from pathlib import Path
import sqlalchemy as sa
from cllm.stores.sql import migrate
from cllm.stores.sqlite.connection import run_in_sqlite

left = int(sys.argv[2])

def count(*_):
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)

def work(bind):
    sa.event.listen(bind, "before_cursor_execute", count)
    sa.event.listen(bind, "commit", count)
    migrate.upgrade(bind)

run_in_sqlite(Path(sys.argv[1]), work)
print("done", left)
"""


def fill(path: Path, more: int = 0) -> None:
    def work(bind: sa.Connection) -> None:
        migrate.upgrade(bind, "0001")
        older.fill(bind)
        query = "INSERT INTO conversations (id, title) VALUES (?, ?)"
        for number in range(more):
            bind.exec_driver_sql(query, (f"{0x10000 + number:032x}", "x" * 1000))

    run_in_sqlite(path, work)


def check_whole(path: Path, conversations: int) -> str | None:
    """The revision of a database in which everything is; it can be brought up from there."""
    own = sqlite3.connect(path)
    assert own.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert own.execute("SELECT count(*) FROM conversations").fetchone() == (conversations,)
    own.close()
    at = run_in_sqlite(path, migrate.current_revision)
    run_in_sqlite(path, migrate.upgrade)
    assert run_in_sqlite(path, migrate.find_differences) == []
    return at


def steps(path: Path, stop: int) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-c", STEPS, str(path), str(stop)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_kill_9_at_any_statement_of_a_migration_changes_nothing(tmp_path):
    whole = tmp_path / "whole.db"
    fill(whole)
    never = 10**6
    done = steps(whole, never)
    total = never - int(done.stdout.split()[1])
    assert total > 20
    for kill in range(KILLS):
        path = tmp_path / f"{kill}.db"
        fill(path)
        ended = steps(path, 1 + kill * (total - 1) // (KILLS - 1))
        assert ended.returncode == -signal.SIGKILL, ended
        assert check_whole(path, 3) == "0001"


@pytest.mark.parametrize("after", [0.6, 0.9, 1.2])
def test_kill_9_of_the_command_leaves_a_database_that_can_be_upgraded(database, tmp_path, after):
    fill(database, MANY)
    command = [sys.executable, "-m", "cllm", "db", "upgrade", "--store", f"sqlite:{database}"]
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "HOME": str(tmp_path)},
    )
    time.sleep(after)
    process.kill()
    process.wait()
    assert check_whole(database, 3 + MANY) in {"0001", HEAD}
    for path in database.parent.glob("cllm.db*"):
        assert older.PROMPT.encode() not in path.read_bytes()


def test_a_full_disk_during_a_migration_changes_nothing(database):
    fill(database, MANY)
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    limit = database.stat().st_size + 20_000
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, before[1]))
    try:
        with pytest.raises(StoreUnavailableError, match="space"):
            Database(f"sqlite:{database}").run(migrate.upgrade)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert check_whole(database, 3 + MANY) == "0001"
