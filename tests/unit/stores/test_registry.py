import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import pytest
from tests.sqlite_template import write_database

from cllm.core.errors import SettingsError, StoreUnavailableError
from cllm.core.ports import NewConversation
from cllm.stores import registry
from cllm.stores.json.store import JsonFileStore
from cllm.stores.memory import MemoryStore
from cllm.stores.registry import (
    is_synchronous,
    list_passwords,
    normalize_url,
    open_store,
    redact_password,
)
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


@pytest.mark.parametrize(
    ("url", "normalized"),
    [
        ("sqlite:~/a.db?synchronous=normal", "sqlite:/home/ann/a.db?synchronous=normal"),
        ("json:~/c", "json:/home/ann/c"),
        ("json:~", "json:/home/ann"),
        ("json:a~/c", "json:a~/c"),
        ("sqlite:///data/a.db", "sqlite:///data/a.db"),
        ("postgresql://~/x", "postgresql://~/x"),
        ("memory:", "memory:"),
        ("/home/c", "/home/c"),
    ],
)
def test_the_home_folder_is_part_of_a_normalized_url(
    url: str, normalized: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("HOME", "/home/ann")
    assert normalize_url(url) == normalized


@pytest.mark.parametrize("url", ["sqlite://cats.db", "sqlite://localhost/a.db", "json://c"])
def test_a_path_with_a_host_is_refused(url: str):
    with pytest.raises(SettingsError, match="has a host"):
        normalize_url(url)
    with pytest.raises(SettingsError, match="has a host"):
        open_store(url, clock=now)


def test_the_home_folder_of_an_unknown_user_is_refused():
    with pytest.raises(SettingsError, match="home folder"):
        normalize_url("sqlite:~no-such-user-here/a.db")


def test_json_needs_a_folder():
    with pytest.raises(SettingsError, match="needs the path of a folder"):
        open_store("json:", clock=now)


@pytest.mark.parametrize("url", ["${CLLM_DATABASE}", "postgresql://ann:${CLLM_DATABASE}@host/db"])
def test_a_variable_that_is_not_set_is_named(url: str):
    with pytest.raises(SettingsError, match=r"\$\{CLLM_DATABASE\}, but that .* is not set"):
        open_store(url, clock=now)


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("postgresql://ann:secret@host/db", "postgresql://ann:***@host/db"),
        ("postgresql://ann:p@ss@host/db", "postgresql://ann:***@host/db"),
        ("postgresql://ann@host/db", "postgresql://ann@host/db"),
        ("postgresql://host/db", "postgresql://host/db"),
        ("json:/home/a@b", "json:/home/a@b"),
        ("postgresql://h/db?user=a&password=s3cret", "postgresql://h/db?user=a&password=***"),
        ("postgresql://h/db?password=s&user=a", "postgresql://h/db?password=***&user=a"),
        ("postgresql://h/db?sslpassword=s%26t", "postgresql://h/db?sslpassword=***"),
        ("postgresql:///db?pass%77ord=s&host=h", "postgresql:///db?pass%77ord=***&host=h"),
        ("postgresql:db?oauth_client_secret=s", "postgresql:db?oauth_client_secret=***"),
        ("postgresql://a:b@h/db?password=s:t@u?v#w", "postgresql://a:***@h/db?password=***"),
        ("postgresql://h/db?password=", "postgresql://h/db?password=***"),
        ("postgresql://a:s?cret@h/db", "postgresql://a:***@h/db"),
        ("postgresql://h/db?passfile=/pw&sslmode=a", "postgresql://h/db?passfile=/pw&sslmode=a"),
        ("json:/a?password=b", "json:/a?password=b"),
    ],
)
def test_a_password_is_never_shown(url: str, shown: str):
    assert redact_password(url) == shown


@pytest.mark.parametrize(
    ("url", "passwords"),
    [
        (
            "postgresql://ann:one@host/db?password=t%26wo&sslpassword=3",
            ["one", "t%26wo", "3", "t&wo"],
        ),
        ("postgresql://ann:p%40s+s@host/db", ["p%40s+s", "p@s+s", "p@s s"]),
        ("postgresql://host/db?user=ann", []),
        ("postgresql://[host/db", []),
    ],
)
def test_logs_can_remove_every_password_of_a_url(url: str, passwords: list[str]):
    assert list_passwords(url) == passwords


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


async def test_reads_of_the_other_store_do_not_wait_for_a_locked_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """The usual wait would be 30 seconds."""
    monkeypatch.setattr(registry, "LOCKED_SECONDS", 0.0)
    path = tmp_path / "a.db"
    write_database(path)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA locking_mode = EXCLUSIVE")
    connection.execute("DELETE FROM conversations")
    store = registry.open_other_store(f"sqlite:{path}", clock=now, cache=None)
    with pytest.raises(StoreUnavailableError, match="is locked by another program"):
        await store.list_conversations()
    connection.close()
    assert (await store.list_conversations()).items == ()
    await store.close()
    assert isinstance(registry.open_other_store("memory:", clock=now, cache=None), MemoryStore)


def test_a_missing_database_is_reported(tmp_path: Path):
    url = f"sqlite:{tmp_path / 'a.db'}?synchronous=normal"
    with pytest.raises(StoreUnavailableError, match=r"a\.db does not exist"):
        registry.check_store_exists(url)
    write_database(tmp_path / "a.db")
    registry.check_store_exists(url)
    registry.check_store_exists(f"json:{tmp_path / 'missing'}")
