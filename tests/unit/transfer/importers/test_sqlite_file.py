import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from cllm.transfer.archive import open_archive
from cllm.transfer.importers.sqlite_file import find_databases, open_read_only, select
from cllm.transfer.json_stream import DamagedFileError


def make(path: Path) -> Path:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE a (b)")
        database.execute("INSERT INTO a VALUES (CAST(x'ff41' AS TEXT))")
    return path


def test_a_database_is_only_read(tmp_path: Path) -> None:
    path = make(tmp_path / "a?b%.db")
    with open_read_only(path) as database:
        assert list(select(database, "SELECT b FROM a")) == [{"b": "\ufffdA"}]
        with pytest.raises(DamagedFileError, match="cannot be read"):
            list(select(database, "DELETE FROM a"))


def test_databases_are_found_by_their_content(tmp_path: Path) -> None:
    path = make(tmp_path / "logs.bin")
    (tmp_path / "other.db").write_text("no")
    assert list(find_databases(open_archive(tmp_path))) == [path]
    assert list(find_databases(open_archive(path))) == [path]
