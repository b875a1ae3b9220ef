"""`cllm backup`, `restore` and `verify`, with every store."""

import asyncio
import json
import shutil
from pathlib import Path

import pytest
import yaml
from tests.command import Cllm
from tests.home import Home
from tests.import_sources import write_chatgpt, write_claude
from tests.snapshot_rows import fill_server_store, list_server_rows

from cllm.app import now
from cllm.core.conversation import StoredConversation
from cllm.core.ports import NewConversation
from cllm.core.ports.snapshot import ServerRow
from cllm.stores.registry import store_location
from cllm.stores.sqlite.store import SqliteStore

every_store = pytest.mark.parametrize("store_url", ["json", "sqlite", "postgresql"], indirect=True)


@every_store
def test_a_backup_is_restored_and_verified(
    cllm: Cllm, store_url: str, home: Home, tmp_path: Path
) -> None:
    for source in (write_chatgpt(tmp_path / "a.zip"), write_claude(tmp_path / "b.zip")):
        cllm("conversations", "import", str(source), "--store", store_url)
    saved = cllm("backup", "saved.zip", "--store", store_url).succeeded()
    location = store_location(store_url)
    result = f"Saved 5 conversations with 22 messages from {location} to saved.zip.\n"
    assert saved.out == result
    cllm("backup", "saved.zip", "--store", store_url).failed_with_one_sentence("--force")
    assert "all complete" in cllm("verify", "--store", store_url).succeeded().out
    assert "all complete" in cllm("verify", "saved.zip").succeeded().out
    for target in ("json:new", "sqlite:new.db"):
        cllm("restore", "saved.zip", "--store", target).succeeded()
        again = cllm("restore", "saved.zip", "--store", target).succeeded()
        assert "Restored 0 conversations with 0 messages" in again.out
        assert "; 5 existed" in again.out
        cllm("verify", "--store", target).succeeded()
        cllm("backup", f"{target[0]}.zip", "--store", target).succeeded()
    names = ("saved", "j", "s")
    for name in names:
        shutil.unpack_archive(home.work / f"{name}.zip", home.work / name)
    unpacked = [home.snapshot(home.work / name / "conversations") for name in names]
    assert unpacked[0] == unpacked[1] == unpacked[2]
    cllm("restore", "saved.zip", "--store", store_url).succeeded()


def test_damage_is_named(cllm: Cllm, home: Home) -> None:
    home.write_old_conversation("cats", ("user", "Hello"), ("assistant", "Hi"))
    cllm("backup", "saved.zip").succeeded()
    assert "cllm verify" in cllm("doctor").out
    home.file("cats").write_text("{", encoding="utf-8")
    verified = cllm("verify")
    assert verified.code == 1
    assert len(verified.warnings) == 1
    assert "cats.json" in verified.err
    assert json.loads(cllm("verify", "--json").out)["ok"] is False
    data = (home.work / "saved.zip").read_bytes()
    (home.work / "cut.zip").write_bytes(data[: len(data) // 2])
    cllm("verify", "cut.zip").failed_with_one_sentence("not a readable backup")
    cllm("restore", "cut.zip", "--store", "json:new").failed_with_one_sentence("not a readable")


def test_a_store_with_other_conversations_needs_an_option(cllm: Cllm, home: Home) -> None:
    home.write_old_conversation("cats", ("user", "Hello"), ("assistant", "Hi"))
    cllm("backup", "saved.zip").succeeded()
    home.file("cats").rename(home.file("dogs"))
    home.write_old_conversation("dogs", ("user", "Hello"), ("assistant", "Hi"))
    cllm("restore", "saved.zip").failed_with_one_sentence("'dogs'", "--merge")
    cllm("restore", "saved.zip", "--merge").succeeded()
    assert home.file("cats").exists()


def configure_keys(home: Home, *owners: str) -> None:
    keys = [
        {"name": one, "owner": one, "hash": f"{number:064}"} for number, one in enumerate(owners)
    ]
    path = home.path / ".cllm/Cllmfile.yml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(yaml.safe_dump({"server": {"keys": keys}}), encoding="utf-8")


def fill_database(path: Path) -> None:
    """Conversations of three owners, one with the name of a conversation file, and other rows."""

    async def fill() -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        store = SqliteStore(path, clock=now)
        await fill_server_store(store)
        await store.create(NewConversation(id="1", name="cats"), owner="bob")
        await store.create(NewConversation(id="2", name="cats", title="Other"))
        await store.close()

    asyncio.run(fill())


def read_database(path: Path) -> tuple[list[StoredConversation], list[ServerRow]]:
    async def read() -> tuple[list[StoredConversation], list[ServerRow]]:
        store = SqliteStore(path, clock=now)
        conversations = []
        async with store.open_snapshot() as snapshot:
            for owner, key in await snapshot.list_keys():
                conversations.append(await snapshot.load(key, owner=owner))
        rows = await list_server_rows(store)
        await store.close()
        return conversations, rows

    return asyncio.run(read())


@pytest.fixture
def place(home: Home) -> Home:
    """Conversation files, and a server's database with several owners, which keys separate."""
    configure_keys(home, "ann", "bob")
    home.write_old_conversation("cats", ("user", "Hello"), ("assistant", "Hi"))
    fill_database(home.path / ".cllm/cllm.db")
    return home


def test_a_backup_contains_both_stores_and_all_owners_whatever_keys_are_configured(
    cllm: Cllm, place: Home
) -> None:
    both = f"{place.conversations} (1) and {place.path}/.cllm/cllm.db (3)"
    saved = cllm("backup", "saved.zip").succeeded()
    assert saved.out == f"Saved 4 conversations with 4 messages from {both} to saved.zip.\n"
    verified = cllm("verify").succeeded()
    assert verified.out == f"Checked 4 conversations with 4 messages in {both}: all complete.\n"
    assert json.loads(cllm("verify", "--json").succeeded().out) == {
        "ok": True,
        "conversations": 4,
        "messages": 4,
        "stores": [
            {"location": str(place.conversations), "conversations": 1},
            {"location": f"{place.path}/.cllm/cllm.db", "conversations": 3},
        ],
        "problems": [],
    }
    checked = cllm("verify", "saved.zip").succeeded()
    assert checked.out == "Checked 4 conversations with 4 messages in saved.zip: all complete.\n"


@pytest.mark.parametrize(
    "arguments", [("export", "--all", "-o", "out"), ("move", "--all", "--copy", "--to", "json:out")]
)
def test_all_names_the_conversations_that_it_leaves_out(
    cllm: Cllm, place: Home, arguments: tuple[str, ...]
) -> None:
    database = f"{place.path}/.cllm/cllm.db"
    done = cllm("conversations", *arguments).succeeded()
    assert done.err == (
        f"The conversations in {database} are left out, because server keys separate their owners; "
        "`cllm backup` saves all of them.\n"
    )
    assert [path.name for path in (place.work / "out").glob("*.json")] == ["cats.json"]
    shutil.rmtree(place.work / "out")
    done = cllm("conversations", *arguments, "--store", f"sqlite:{database}").succeeded()
    assert done.err == (
        "Conversations of 2 other owners are left out; `cllm backup` saves all of them.\n"
    )


def test_an_empty_list_names_the_other_owners(cllm: Cllm, home: Home) -> None:
    async def fill() -> None:
        store = SqliteStore(home.work / "theirs.db", clock=now)
        for owner in ("ann", "bob"):
            await store.create(NewConversation(id=owner), owner=owner)
        await store.close()

    asyncio.run(fill())
    listed = cllm("conversations", "list", "--store", "sqlite:theirs.db").succeeded()
    assert "The conversations of 2 other owners are not listed" in listed.err


def test_an_export_of_nothing_says_where_it_looked(cllm: Cllm, home: Home) -> None:
    exported = cllm("conversations", "export", "--all", "--format", "jsonl").succeeded()
    assert exported.err == f"There are no conversations in {home.conversations}.\n"


@pytest.mark.parametrize("has_keys", [True, False])
def test_a_restored_place_equals_the_saved_one(
    cllm: Cllm, place: Home, tmp_path: Path, has_keys: bool
) -> None:
    cllm("backup", "saved.zip").succeeded()
    saved = place.work / "saved.zip"
    place.path.rename(tmp_path / "before")
    if has_keys:
        configure_keys(place, "ann", "bob")
    both = f"{place.conversations} and {place.path}/.cllm/cllm.db"
    restored = cllm("restore", str(saved)).succeeded()
    expected = f"Restored 4 conversations with 4 messages to {both}; 0 existed, 0 skipped.\n"
    assert restored.out == expected
    again = cllm("restore", str(saved)).succeeded()
    assert "; 4 existed, 0 skipped." in again.out
    files = (tmp_path / "before/.cllm/conversations", place.conversations)
    assert place.snapshot(files[0]) == place.snapshot(files[1])
    databases = (tmp_path / "before/.cllm/cllm.db", place.path / ".cllm/cllm.db")
    assert read_database(databases[0]) == read_database(databases[1])
    cllm("verify").succeeded()


def test_a_place_with_only_files_gets_no_database(cllm: Cllm, home: Home, tmp_path: Path) -> None:
    home.write_old_conversation("cats", ("user", "Hello"), ("assistant", "Hi"))
    saved = cllm("backup", "saved.zip").succeeded()
    assert saved.out.endswith(f" from {home.conversations} to saved.zip.\n")
    home.path.rename(tmp_path / "before")
    cllm("restore", "saved.zip").succeeded()
    assert home.file("cats").exists()
    assert not (home.path / ".cllm/cllm.db").exists()


def test_a_place_with_only_a_database_gets_no_files(cllm: Cllm, home: Home, tmp_path: Path) -> None:
    fill_database(home.path / ".cllm/cllm.db")
    cllm("backup", "saved.zip").succeeded()
    home.path.rename(tmp_path / "before")
    cllm("restore", "saved.zip").succeeded()
    assert not home.conversations.exists()
    assert len(read_database(home.path / ".cllm/cllm.db")[0]) == 3


def test_an_empty_backup_says_where_it_looked(cllm: Cllm, home: Home) -> None:
    files = home.conversations
    saved = cllm("backup", "a.zip").succeeded()
    assert saved.out == f"Saved 0 conversations to a.zip: there are none in {files}.\n"
    verified = cllm("verify").succeeded()
    assert verified.out == f"Checked 0 conversations: there are none in {files}.\n"
    verified = cllm("verify", "a.zip").succeeded()
    assert verified.out == "Checked 0 conversations: there are none in a.zip.\n"
    database = home.path / ".cllm/cllm.db"
    database.parent.mkdir(parents=True)
    asyncio.run(SqliteStore(database, clock=now).list_conversations())
    saved = cllm("backup", "b.zip").succeeded()
    assert saved.out.endswith(f": there are none in {files} and {database}.\n")


def test_a_configured_store_of_the_shell_does_not_hide_the_servers(cllm: Cllm, home: Home) -> None:
    fill_database(home.path / ".cllm/cllm.db")
    settings = home.path / ".cllm/Cllmfile.yml"
    settings.write_text(f"store: json:{home.path}/files", encoding="utf-8")
    verified = cllm("verify").succeeded()
    assert f"in {home.path}/files (0) and {home.path}/.cllm/cllm.db (3)" in verified.out
    settings.write_text(f"store: sqlite:{home.path}/.cllm/cllm.db", encoding="utf-8")
    verified = cllm("verify").succeeded()
    assert f" in {home.path}/.cllm/cllm.db: all" in verified.out


def test_a_servers_store_that_does_not_exist_is_named(cllm: Cllm, home: Home) -> None:
    home.write_old_conversation("cats", ("user", "Hello"), ("assistant", "Hi"))
    database = home.path / "server.db"
    settings = home.path / ".cllm/Cllmfile.yml"
    settings.write_text(f"server: {{store: 'sqlite:{database}'}}", encoding="utf-8")
    saved = cllm("backup", "a.zip").succeeded()
    assert saved.err == f"The database of the server, {database}, does not exist and is left out.\n"
    assert saved.out.startswith("Saved 1 conversation ")
    assert not database.exists()
