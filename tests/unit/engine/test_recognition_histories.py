"""Random histories of clients: stored once per path, sent as they are, nothing lost."""

import asyncio
import shutil
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.history_machine import HISTORIES, Action, check_histories
from tests.sqlite_template import write_database
from tests.torture import choose_size

from cllm.core.ports import Store
from cllm.stores.json.store import JsonFileStore
from cllm.stores.memory import MemoryData, MemoryStore
from cllm.stores.sqlite.store import SqliteStore
from cllm.testing.store_harness import TickingClock

LIMITS = settings(
    deadline=None,
    max_examples=choose_size(20, 500),
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


@pytest.mark.parametrize("kind", ["memory", "json", "sqlite"])
@LIMITS
@given(actions=HISTORIES, keyed=st.booleans())
def test_random_histories_are_stored_once(kind: str, actions: list[Action], keyed: bool) -> None:
    folder = Path(tempfile.mkdtemp())
    clock = TickingClock()
    data = MemoryData()

    async def open_store() -> Store:
        clock.advance(1)
        if kind == "memory":
            return MemoryStore(clock=clock, data=data)
        if kind == "json":
            return JsonFileStore(str(folder / "conversations"), clock=clock)
        if not (folder / "cllm.db").exists():
            write_database(folder / "cllm.db")
        return SqliteStore(folder / "cllm.db", clock=clock, synchronous="NORMAL")

    try:
        asyncio.run(check_histories(open_store, clock, actions, keyed=keyed))
    finally:
        shutil.rmtree(folder)
