"""Two stores as one pass the contract of a store, with the other one empty."""

from pathlib import Path

import pytest
from tests.contract.test_json_file_store import JsonFileHarness
from tests.sqlite_template import write_database

from cllm.core.ports import Store
from cllm.stores.combined import CombinedStore
from cllm.stores.memory import MemoryData, MemoryStore
from cllm.stores.sqlite.store import SqliteStore
from cllm.testing.store_contract import StoreContract, StoreHarness, TickingClock

LOCATIONS = ("own", "other")


class FilesAndDatabase:
    """A folder of files, and an empty database."""

    def __init__(self, folder: Path) -> None:
        self._files = JsonFileHarness(folder / "conversations", threads=False)
        self._database = folder / "cllm.db"
        write_database(self._database)

    async def open(self) -> CombinedStore:
        own = await self._files.open()
        return CombinedStore(
            own, lambda: SqliteStore(self._database, clock=TickingClock()), locations=LOCATIONS
        )

    async def lose(self, store: Store, /) -> None:
        await store.close()


class TwoMemories:
    def __init__(self) -> None:
        self._clock = TickingClock()
        self._own, self._other = MemoryData(), MemoryData()

    async def open(self) -> CombinedStore:
        return CombinedStore(
            self._open(self._own), lambda: self._open(self._other), locations=LOCATIONS
        )

    def _open(self, data: MemoryData) -> MemoryStore:
        return MemoryStore(clock=self._clock, data=data, patience=0.01)

    async def lose(self, _store: Store, /) -> None:
        self._clock.advance(61)


class TestFilesAndDatabase(StoreContract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> StoreHarness:
        return FilesAndDatabase(tmp_path)


class TestTwoMemories(StoreContract):
    @pytest.fixture
    def harness(self) -> StoreHarness:
        return TwoMemories()
