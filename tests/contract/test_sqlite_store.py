from pathlib import Path

import pytest
from tests.sqlite_template import write_database

from cllm.core.ports import Store
from cllm.stores.sqlite.store import SqliteStore
from cllm.testing.server_store_contract import ServerStoreContract
from cllm.testing.store_contract import StoreHarness, TickingClock
from cllm.testing.store_watch import WatchedStoreContract


class SqliteHarness:
    def __init__(self, path: Path) -> None:
        self.clock = TickingClock()
        self._path = path

    async def open(self) -> SqliteStore:
        return SqliteStore(self._path, clock=self.clock, synchronous="NORMAL", patience=0.01)

    async def lose(self, _store: Store, /) -> None:
        self.clock.advance(61)


class TestSqliteStore(ServerStoreContract, WatchedStoreContract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> StoreHarness:
        write_database(tmp_path / "cllm.db")
        return SqliteHarness(tmp_path / "cllm.db")
