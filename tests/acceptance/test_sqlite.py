"""The command with a store in SQLite: turns, the terminal chat, and `cllm db`."""

import json
import sqlite3
import uuid
from pathlib import Path

import pytest

from cllm.stores.sql import migrate
from cllm.stores.sqlite.connection import run_in_sqlite

PROMPT = "Answer as the pirate Zzyzzx would."


@pytest.fixture
def database(home):
    return home.conversations.parent / "cats.db"


@pytest.fixture
def store(database) -> str:
    return f"sqlite:{database}"


def fill_older(path: Path, count: int) -> None:
    """A database as an older deployment left it, with a system message in each conversation."""

    def fill(bind):
        migrate.upgrade(bind, "0001")
        for _ in range(count):
            key = uuid.uuid4().hex
            bind.exec_driver_sql(
                "INSERT INTO conversations (id, system_message) VALUES (?, ?)", (key, PROMPT)
            )
            bind.exec_driver_sql(
                "INSERT INTO messages (id, conversation_id, role, content, sequence_number)"
                " VALUES (?, ?, 'user', 'Ahoy', 1)",
                (uuid.uuid4().hex, key),
            )

    path.parent.mkdir(exist_ok=True)
    run_in_sqlite(path, fill)


@pytest.mark.usefixtures("settings")
class TestTurns:
    def test_a_conversation_continues_in_the_next_command(self, home, provider, cllm, store, mode):
        cllm("My cat is Luna.", "--store", store, "--conversation", "demo").succeeded()
        cllm("Who is my cat?", "--store", store, "--conversation", "demo").succeeded()
        assert provider.requests[1].message_pairs == [
            ("user", "My cat is Luna."),
            ("assistant", "echo: My cat is Luna."),
            ("user", "Who is my cat?"),
        ]
        assert not home.conversations.exists()
        assert mode(Path(store.removeprefix("sqlite:"))) == 0o600

    def test_the_chat_and_the_command_share_a_conversation(self, provider, cllm, store):
        cllm("chat", "demo", "--store", store, stdin=b"One\nTwo\n/undo\n").succeeded()
        cllm("Three", "--store", store, "--conversation", "demo").succeeded()
        assert provider.requests[-1].message_pairs == [
            ("user", "One"),
            ("assistant", "echo: One"),
            ("user", "Three"),
        ]

    def test_conversations_are_listed_shown_branched_and_deleted(self, cllm, store):
        cllm("My cat is Luna.", "--store", store, "--conversation", "demo").succeeded()
        where = ("conversations", "--store", store)
        assert "demo" in cllm(*where, "list").succeeded().out
        assert "echo: My cat is Luna." in cllm(*where, "show", "demo").succeeded().out
        cllm(*where, "branch", "demo", "--to", "copy").succeeded()
        cllm(*where, "delete", "demo", "--yes").succeeded()
        assert "echo: My cat is Luna." in cllm(*where, "show", "copy").succeeded().out
        cllm(*where, "show", "demo").failed_with_one_sentence("conversation 'demo' does not exist")

    def test_a_file_that_is_not_a_database_is_not_changed(self, cllm, database, store):
        database.parent.mkdir(exist_ok=True)
        database.write_text("My shopping list: milk, bread.\n" * 100, encoding="utf-8")
        before = database.read_bytes()
        result = cllm("Hello", "--store", store, "--conversation", "demo")
        result.failed_with_one_sentence("is not an SQLite database")
        assert database.read_bytes() == before


class TestDatabase:
    def test_an_older_database_is_upgraded_only_by_command(self, cllm, database, store):
        fill_older(database, 3)
        refused = cllm("--list-conversations", "--store", store)
        refused.failed_with_one_sentence("revision 0001", "cllm db upgrade")
        done = cllm("db", "upgrade", "--store", store, "--yes").succeeded()
        assert "The upgrade will delete 3 system prompts" in done.err
        assert "--save-system-prompts" in done.err
        assert "0008" in done.out
        assert len(cllm("--list-conversations", "--store", store).succeeded().out.split("\n")) == 4

    def test_without_a_terminal_stored_prompts_are_deleted_only_on_request(
        self, cllm, database, store
    ):
        fill_older(database, 3)
        before = database.read_bytes()
        refused = cllm("db", "upgrade", "--store", store)
        refused.failed_with_one_sentence("3 system prompts", "--yes", "--save-system-prompts")
        assert database.read_bytes() == before
        cllm("db", "upgrade", "--store", store, "--yes").succeeded()

    def test_removed_system_prompts_are_not_in_the_file(self, cllm, database, store, home):
        fill_older(database, 50)
        assert b"Zzyzzx" in database.read_bytes()
        saved = home.conversations.parent / "prompts.jsonl"
        cllm("db", "upgrade", "--store", store, "--save-system-prompts", str(saved)).succeeded()
        for path in database.parent.glob("cats.db*"):
            assert b"Zzyzzx" not in path.read_bytes()
        lines = saved.read_text(encoding="utf-8").splitlines()
        assert [json.loads(line)["system_message"] for line in lines] == [PROMPT] * 50
        assert saved.stat().st_mode & 0o777 == 0o600

    def test_a_file_with_saved_prompts_is_never_overwritten(self, cllm, database, store, home):
        fill_older(database, 1)
        saved = home.conversations.parent / "prompts.jsonl"
        saved.write_text("mine", encoding="utf-8")
        done = cllm("db", "upgrade", "--store", store, "--save-system-prompts", str(saved))
        done.failed_with_one_sentence("already exists")
        assert saved.read_text(encoding="utf-8") == "mine"
        assert "0001" in cllm("db", "current", "--store", store).succeeded().out

    def test_the_database_of_an_older_deployment_is_adopted(self, cllm, database, store):
        fill_older(database, 2)
        own = sqlite3.connect(database)
        own.executescript(
            "DROP TABLE cllm_revision; CREATE TABLE alembic_version (version_num VARCHAR(32));"
            "INSERT INTO alembic_version VALUES ('3f2a9c');"
        )
        own.close()
        cllm("--list-conversations", "--store", store).failed_with_one_sentence("cllm db adopt")
        cllm("db", "upgrade", "--store", store).failed_with_one_sentence("cllm db adopt")
        adopted = cllm("db", "adopt", "--store", store).succeeded()
        assert "2 conversations, 2 of them without a user" in adopted.out
        checked = cllm("db", "check", "--store", store).succeeded()
        assert checked.out == "The tables match revision 0001; the newest is 0008.\n"
        assert "cllm db upgrade" in checked.err
        cllm("db", "upgrade", "--store", store, "--yes").succeeded()
        assert len(cllm("--list-conversations", "--store", store).succeeded().out.split("\n")) == 3
        checked = cllm("db", "check", "--store", store).succeeded()
        assert checked.out == "The tables match the newest revision.\n"

    def test_a_foreign_database_is_not_adopted(self, cllm, database, store):
        database.parent.mkdir(exist_ok=True)
        own = sqlite3.connect(database)
        own.execute("CREATE TABLE conversations (id TEXT)")
        own.close()
        refused = cllm("db", "adopt", "--store", store)
        refused.failed_with_one_sentence("does not have the tables", "not changed")

    def test_downgrade_and_upgrade_print_the_revision(self, cllm, store):
        cllm("db", "upgrade", "--store", store).succeeded()
        cllm("db", "downgrade", "0001", "--store", store).succeeded()
        current = cllm("db", "current", "--store", store).succeeded()
        assert current.out == "The database is at revision 0001; the newest revision is 0008.\n"
        cllm("db", "check", "--store", store)
        cllm("db", "upgrade", "--store", store).succeeded()
        assert "match the newest revision" in cllm("db", "check", "--store", store).succeeded().out

    @pytest.mark.usefixtures("settings")
    def test_a_downgrade_that_deletes_data_needs_yes(self, cllm, store):
        cllm("Hello", "--conversation", "cats", "--store", store).succeeded()
        refused = cllm("db", "downgrade", "0002", "--store", store)
        refused.failed_with_one_sentence("usage, costs and windows of turns: 1", "--yes")
        assert "revision 0008;" in cllm("db", "current", "--store", store).succeeded().out
        cllm("db", "downgrade", "0007", "--store", store).succeeded()
        done = cllm("db", "downgrade", "0002", "--store", store, "--yes").succeeded()
        assert "The downgrade will delete" in done.err
        assert done.out == "The database is at revision 0002.\n"

    @pytest.mark.usefixtures("settings")
    @pytest.mark.parametrize(("typed", "revision"), [(b"n\n", "0008"), (b"y\n", "0002")])
    def test_on_a_terminal_a_downgrade_asks(self, cllm, store, typed, revision):
        cllm("Hello", "--conversation", "cats", "--store", store).succeeded()
        shown = cllm.on_terminal("db", "downgrade", "0002", "--store", store, typed=typed)
        assert "Delete it? [y/N]" in shown.out
        assert f"revision {revision};" in cllm("db", "current", "--store", store).succeeded().out

    def test_a_check_reports_missing_tables(self, cllm, database, store):
        cllm("db", "upgrade", "--store", store).succeeded()
        own = sqlite3.connect(database)
        own.execute("DROP INDEX turns_by_end")
        own.close()
        checked = cllm("db", "check", "--store", store)
        assert checked.code == 1
        assert "turns_by_end" in checked.out

    def test_db_commands_refuse_a_json_store(self, cllm):
        refused = cllm("db", "current", "--store", "json:conversations")
        refused.failed_with_one_sentence("not a database", "--store sqlite:PATH")

    def test_without_a_url_the_server_database_is_used(self, home, cllm):
        cllm("db", "current").failed_with_one_sentence("does not exist", "cllm.db")
        cllm("db", "upgrade").succeeded()
        assert (home.conversations.parent / "cllm.db").exists()
