import asyncio
from pathlib import Path

import pytest

from cllm.core.ports import Store
from cllm.stores.json.store import JsonFileStore, run_inline
from cllm.testing.store_contract import StoreContract, StoreHarness, TickingClock
from cllm.testing.store_watch import WatchedStoreContract


class JsonFileHarness:
    def __init__(self, folder: Path, *, threads: bool) -> None:
        self._folder = folder
        self._clock = TickingClock()
        self._offload = asyncio.to_thread if threads else run_inline

    async def open(self) -> JsonFileStore:
        return JsonFileStore(
            self._folder,
            clock=self._clock,
            cache=self._folder.parent / "cache",
            offload=self._offload,
            patience=0.01,
        )

    async def lose(self, store: Store, /) -> None:
        """A closed store releases its locks and writes nothing, like a dead process."""
        await store.close()


class TestJsonFileStore(StoreContract, WatchedStoreContract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> StoreHarness:
        return JsonFileHarness(tmp_path / "conversations", threads=False)


class TestJsonFileStoreInThreads(StoreContract, WatchedStoreContract):
    @pytest.fixture
    def harness(self, tmp_path: Path) -> StoreHarness:
        return JsonFileHarness(tmp_path / "conversations", threads=True)
