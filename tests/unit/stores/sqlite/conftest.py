"""An SQLite database with the tables and no rows."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.sqlite_template import write_database


@pytest.fixture
def db(tmp_path: Path) -> Iterator[sqlite3.Connection]:
    path = tmp_path / "cllm.db"
    write_database(path)
    connection = sqlite3.connect(path, isolation_level=None)
    yield connection
    connection.close()
