import sqlite3
from collections.abc import Iterator

import pytest

from cllm.stores.json import file_index


@pytest.fixture(autouse=True)
def _close_indexes(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Close the index files after each test; most tests do not close their store."""
    opened: list[sqlite3.Connection] = []
    connect = file_index._connect

    def connect_and_remember(name: str) -> sqlite3.Connection:
        opened.append(connect(name))
        return opened[-1]

    monkeypatch.setattr(file_index, "_connect", connect_and_remember)
    yield
    for connection in opened:
        connection.close()
