"""Any series of operations has the same outcome in the SQLite store as in memory."""

import shutil
import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

from hypothesis import settings
from tests.store_machine import LEASE_SECONDS, StoreMachine
from tests.torture import choose_size

from cllm.core.ports import Clock, Store
from cllm.stores.sqlite.store import SqliteStore

UNUSED_MESSAGES = """SELECT count(*) FROM messages m WHERE NOT EXISTS (
    SELECT 1 FROM turns t WHERE t.owner = m.owner AND t.message_group = m.message_group)"""
WRONG_ENTRIES = """WITH indexed AS (
    SELECT DISTINCT m.number FROM messages m
    JOIN turns t ON t.owner = m.owner AND t.message_group = m.message_group
    WHERE t.state IN ('complete', 'incomplete'))
SELECT (SELECT count(*) FROM message_search_docsize WHERE id NOT IN (SELECT number FROM indexed)),
    (SELECT count(*) FROM indexed WHERE number NOT IN (SELECT id FROM message_search_docsize))"""


class SqliteAgrees(StoreMachine):
    def prepare(self) -> None:
        self.folder = Path(tempfile.mkdtemp())

    def open_store(self, clock: Clock) -> Store:
        return SqliteStore(
            self.folder / "c.db",
            clock=clock,
            synchronous="NORMAL",
            lease_seconds=LEASE_SECONDS,
            patience=0,
        )

    def check_rows(self) -> None:
        with closing(sqlite3.connect(self.folder / "c.db")) as db:
            assert db.execute(UNUSED_MESSAGES).fetchone() == (0,)
            assert db.execute(WRONG_ENTRIES).fetchone() == (0, 0)

    def clean_up(self) -> None:
        shutil.rmtree(self.folder)


TestSqliteAgrees = SqliteAgrees.TestCase
TestSqliteAgrees.settings = settings(
    max_examples=choose_size(8, full=300), stateful_step_count=25, deadline=None
)
