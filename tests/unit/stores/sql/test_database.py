import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa
from sqlalchemy.exc import NoSuchModuleError

from cllm.core.errors import StoreUnavailableError, UsageError
from cllm.stores.sql.database import Database
from cllm.stores.sql.rows import UnreadableRowError


def fail_with(error: Exception):
    def work(_bind: sa.Connection) -> None:
        raise error

    return work


def test_a_json_store_is_not_a_database():
    with pytest.raises(UsageError, match="'json:' is not a database"):
        Database("json:conversations")


def test_a_missing_file_is_created_only_on_request(tmp_path: Path):
    database = Database(f"sqlite:{tmp_path}/a.db")
    with pytest.raises(StoreUnavailableError, match="does not exist"):
        database.run(lambda _bind: None)
    assert database.run(lambda bind: bind.dialect.name, create=True) == "sqlite"
    assert (tmp_path / "a.db").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (sqlite3.OperationalError("no such table"), "no such table"),
        (OSError(), "OSError"),
        (NoSuchModuleError("x"), "NoSuchModuleError"),
        (UnreadableRowError("not a number"), r"\(not a number\).*was not changed"),
    ],
)
def test_errors_of_the_engine_are_store_errors(tmp_path: Path, error: Exception, message: str):
    database = Database(f"sqlite:{tmp_path}/a.db")
    with pytest.raises(StoreUnavailableError, match=message):
        database.run(fail_with(error), create=True)


def test_erasing_deleted_rows_shrinks_the_file(tmp_path: Path):
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE t (text)")
        connection.executemany("INSERT INTO t VALUES (?)", [("x" * 4000,)] * 50)
        connection.execute("DELETE FROM t")
    connection.close()
    before = path.stat().st_size
    Database(f"sqlite:{path}").erase_deleted_rows()
    assert path.stat().st_size < before
