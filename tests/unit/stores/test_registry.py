from datetime import UTC, datetime
from pathlib import Path

import pytest

from cllm.core.errors import SettingsError
from cllm.core.ports import NewConversation
from cllm.stores.json.store import JsonFileStore
from cllm.stores.memory import MemoryStore
from cllm.stores.registry import is_synchronous, open_store, redact_password
from cllm.stores.sqlite.store import SqliteStore


def now() -> datetime:
    return datetime(2026, 11, 16, tzinfo=UTC)


@pytest.mark.parametrize(
    ("url", "kind"),
    [("json:{}/c", JsonFileStore), ("sqlite:{}/a.db", SqliteStore), ("memory:", MemoryStore)],
)
def test_the_scheme_selects_the_store_and_creates_nothing(url: str, kind: type, tmp_path: Path):
    assert isinstance(open_store(url.format(tmp_path), clock=now), kind)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("url", ["mysql:x", "json", "/home/c", ""])
def test_an_unknown_scheme_is_refused(url: str):
    with pytest.raises(SettingsError, match="must start with json:, memory:"):
        open_store(url, clock=now)


def test_json_needs_a_folder():
    with pytest.raises(SettingsError, match="needs the path of a folder"):
        open_store("json:", clock=now)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ann:secret@host/db", "postgresql://ann:***@host/db"),
        ("postgresql://ann:p@ss@host/db", "postgresql://ann:***@host/db"),
        ("postgresql://host/db", "postgresql://host/db"),
        ("json:/home/a@b", "json:/home/a@b"),
    ],
)
def test_a_password_is_never_shown(url: str, shown: str):
    assert redact_password(url) == shown


def test_only_files_and_memory_need_no_event_loop():
    urls = ("json:x", "memory:", "sqlite:x", "postgresql://h/d")
    assert [is_synchronous(url) for url in urls] == [True, True, False, False]


async def test_the_index_of_files_is_in_the_cache_folder(tmp_path: Path):
    store = open_store(f"json:{tmp_path}/c", clock=now, cache=tmp_path / "cache")
    assert isinstance(store, JsonFileStore)
    await store.create(NewConversation(id="demo"))
    await store.list_family("demo")
    await store.close()
    assert len(list((tmp_path / "cache" / "paths").iterdir())) == 1
