"""SQLite files at the newest revision: a copy takes a tenth of the time of a migration."""

import tempfile
from functools import cache
from pathlib import Path

from cllm.stores.sql import migrate
from cllm.stores.sql.database import Database


@cache
def _empty_database() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "empty.db"
        Database(f"sqlite:{path}").run(migrate.prepare, create=True)
        return path.read_bytes()


def write_database(path: Path) -> None:
    """Write a database with our tables and no rows."""
    path.write_bytes(_empty_database())
    path.chmod(0o600)
