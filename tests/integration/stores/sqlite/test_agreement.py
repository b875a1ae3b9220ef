"""Any series of operations has the same outcome in the SQLite store as in memory."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from tests.store_machine import LEASE_SECONDS, StoreMachine
from tests.torture import choose_size

from cllm.core.ports import Clock, Store
from cllm.stores.sqlite.store import SqliteStore


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

    def clean_up(self) -> None:
        shutil.rmtree(self.folder)


TestSqliteAgrees = SqliteAgrees.TestCase
TestSqliteAgrees.settings = settings(
    max_examples=choose_size(15, full=300), stateful_step_count=25, deadline=None
)
