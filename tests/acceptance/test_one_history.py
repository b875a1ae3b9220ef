"""The shell and a server without keys on loopback see the same conversations."""

import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from tests.command import Cllm, Result
from tests.home import Home
from tests.server_process import Server, open_empty_store
from tests.sqlite_template import write_database

from cllm.stores.sql import VERSION_TABLE

CONVERSATIONS = "/v1/conversations"
KEY = "sk-client-0123456789abcdef"


def listed_refs(result: Result) -> list[str]:
    return [line.split()[0] for line in result.out.splitlines()]


@pytest.fixture
def database(home: Home, settings: Callable[..., Path]) -> Path:
    """The default database of the server, which exists and is empty."""
    path = home.path / ".cllm/cllm.db"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_database(path)
    return path


@pytest.fixture(params=["sqlite", "postgresql"])
def served(
    request: pytest.FixtureRequest, home: Home, settings: Callable[..., Path], database: Path
) -> Iterator[Server]:
    """A server with its default database, or with a configured one."""
    with open_empty_store(request.param, home.path, request) as url:
        if request.param == "postgresql":
            database.unlink()
            settings(server={"store": url})
        with Server(environment=home.environment, directory=home.work, store=None) as running:
            yield running


def start_named(server: Server, name: str, text: str = "Hello from a client") -> None:
    assert server.complete(("user", text), conversation=name).status == 200


class TestBothAtOnce:
    """A real server runs while the shell works."""

    def test_both_list_the_same_conversations(self, served, cllm):
        cllm("Hello", "--conversation", "cats").succeeded()
        start_named(served, "dogs")
        unnamed = served.complete(("user", "Hello"), conversation="").conversation

        shell = listed_refs(cllm("conversations", "list").succeeded())
        server = served("GET", CONVERSATIONS).json["conversations"]

        assert shell == [unnamed, "dogs", "cats"]
        assert [one["name"] or one["id"] for one in server] == [unnamed, "dogs", "files:cats"]

    def test_conversations_of_clients_that_send_json_with_spaces_are_complete(self, served, cllm):
        model, said = "openai/gpt-test", [{"role": "user", "content": "Hello"}]
        named = {"X-Conversation-ID": "dogs"}
        first = {"model": model, "input": [{"type": "message", **said[0]}], "user": "ann"}
        response = served("POST", "/v1/responses", json.dumps(first, indent=2).encode())
        again = {**first, "previous_response_id": response.json["id"]}
        for path, body, headers in (
            ("/v1/responses", again, {}),
            ("/v1/chat/completions", {"model": model, "messages": said}, named),
            ("/v1/messages", {"model": model, "max_tokens": 9, "messages": said}, named),
        ):
            sent = served("POST", path, json.dumps(body, indent=2).encode(), headers)
            assert sent.status == 200, sent.json

        assert "all complete" in cllm("verify").succeeded().out
        cllm("backup", "saved.zip").succeeded()
        assert "; 2 existed, 0 skipped" in cllm("restore", "saved.zip").succeeded().out
        cllm("conversations", "move", "--all", "--to", "json:moved").succeeded()
        assert "all complete" in cllm("verify", "--store", "json:moved").succeeded().out

    def test_the_shell_continues_a_conversation_of_the_server(self, served, provider, cllm, home):
        start_named(served, "dogs")

        cllm("More", "--conversation", "dogs").succeeded()
        served.complete(("user", "And more"), conversation="dogs")

        assert [message["role"] for message in provider.requests[-1].messages] == [
            *("user", "assistant", "user", "assistant", "user")
        ]
        assert not home.file("dogs").exists()
        shown = cllm("conversations", "show", "dogs").succeeded().out
        assert "Hello from a client" in shown
        assert "And more" in shown

    def test_as_sent_does_not_claim_a_system_prompt_of_a_request(self, served, cllm):
        start_named(served, "rivers", "Name three rivers.")

        lines = cllm("conversations", "show", "rivers", "--as-sent").succeeded().out.splitlines()

        assert any(line.startswith("Sent: 1 message, about ") for line in lines)
        text = "system prompt: not stored (each request sends its own)"
        assert text in lines
        assert "not kept" not in lines

    def test_the_server_continues_a_conversation_of_the_shell(self, served, provider, cllm, home):
        cllm("Hello", "--conversation", "cats").succeeded()

        for name in ("cats", "files:cats"):
            response = served.complete(("user", "More"), conversation=name)
            assert response.conversation == "files:cats"

        assert len(provider.requests[-1].messages) == 5
        assert [role for role, _ in home.messages("cats")].count("user") == 3

    def test_a_name_in_both_stores_is_a_conflict_that_names_both(self, served, cllm, home):
        start_named(served, "twin")
        ref = served("GET", f"{CONVERSATIONS}/twin").json["id"]
        folder = f"json:{home.conversations}"
        cllm("Hello", "--conversation", "twin", "--store", folder).succeeded()

        conflict = served.complete(("user", "More"), conversation="twin")

        assert (conflict.status, conflict.error["code"]) == (409, "conversation_exists")
        assert conflict.error["param"] == "X-Conversation-ID"
        for name in (ref, "files:twin"):
            assert name in conflict.error["message"]
            assert served.complete(("user", "More"), conversation=name).status == 200

    def test_both_search_all_conversations(self, served, cllm):
        cllm("A tabby in the shell", "--conversation", "cats").succeeded()
        start_named(served, "dogs", "A tabby of a client")

        found = served("GET", f"{CONVERSATIONS}/search?q=tabby").json
        chat = cllm("chat", stdin=b"/search tabby\n").succeeded()

        ids = {one["conversation_id"] for one in found["results"]}
        assert "files:cats" in ids
        assert len(ids) == 2
        assert "cats" in chat.out
        assert "dogs" in chat.out

    def test_the_server_shows_and_exports_a_conversation_file_by_its_name(self, served, cllm):
        cllm("Hello", "--conversation", "cats").succeeded()

        for name in ("cats", "files:cats"):
            assert served("GET", f"{CONVERSATIONS}/{name}").json["id"] == "files:cats"
            exported = served("GET", f"{CONVERSATIONS}/{name}/export?format=markdown")
            assert b"Hello" in exported.body

    def test_the_shell_branches_and_deletes_a_conversation_of_the_server(self, served, cllm, home):
        start_named(served, "dogs")

        cllm("conversations", "branch", "dogs", "--to", "puppies", "--at", "1").succeeded()
        cllm("conversations", "delete", "dogs", "--yes").succeeded()

        (left,) = served("GET", CONVERSATIONS).json["conversations"]
        assert (left["name"], left["message_count"]) == ("puppies", 1)
        assert not home.conversations.exists() or not list(home.conversations.glob("*.json"))

    def test_the_server_deletes_a_conversation_file(self, served, cllm, home):
        cllm("Hello", "--conversation", "cats").succeeded()

        assert served("DELETE", f"{CONVERSATIONS}/cats?permanent=true").status == 204

        assert not home.file("cats").exists()
        assert listed_refs(cllm("--list-conversations").succeeded()) == []

    def test_a_chat_continues_a_conversation_of_the_server(self, served, cllm):
        start_named(served, "dogs")

        chat = cllm("chat", "dogs", stdin=b"And in the chat?\n").succeeded()

        assert "Hello from a client" in chat.out
        (one,) = served("GET", CONVERSATIONS).json["conversations"]
        assert one["message_count"] == 4

    def test_a_turn_of_the_server_makes_the_shell_wait(self, served, provider, cllm):
        start_named(served, "dogs")
        gate = provider.queue_held_reply("One ", "two.", at=1)
        body = {"model": "openai/gpt-test", "stream": True}
        messages = [{"role": "user", "content": "Count"}]
        stream = served.open(
            "POST",
            "/v1/chat/completions",
            body | {"messages": messages},
            {"X-Conversation-ID": "dogs"},
        )
        gate.wait_reached()
        waiting = cllm.start("More", "--conversation", "dogs")
        waiting.wait_for_output("Waiting for another turn", stream="err")
        gate.open()
        stream.rest()
        waiting.finish().succeeded()
        texts = [message["content"] for message in provider.requests[-1].messages]
        assert texts[-3:] == ["Count", "One two.", "More"]


def test_new_conversations_of_the_shell_are_files(database, home, cllm):
    cllm("Hello", "--conversation", "cats").succeeded()

    assert home.file("cats").exists()
    with closing(sqlite3.connect(database)) as connection, connection:
        assert connection.execute("SELECT count(*) FROM conversations").fetchone() == (0,)
    connection.close()


def test_two_processes_continue_the_same_conversation_of_the_database(database, home, cllm):
    store = ("--store", f"sqlite:{database}")
    cllm("Hello", "--conversation", "dogs", *store).succeeded()
    running = [cllm.start(f"Question {n}", "--conversation", "dogs") for n in range(3)]
    for one in running:
        one.finish().succeeded()

    shown = cllm("conversations", "show", "dogs").succeeded().out

    assert all(f"Question {number}" in shown for number in range(3))
    assert not home.file("dogs").exists()


def test_the_name_of_two_conversations_means_the_file(database, cllm):
    cllm("In the database", "--conversation", "cats", "--store", f"sqlite:{database}").succeeded()
    (path,) = (listed_refs(cllm("--list-conversations").succeeded()),)
    assert path == ["cats"]
    folder = "json:" + str(database.parent / "conversations")
    cllm("In the file", "--conversation", "cats", "--store", folder).succeeded()

    refs = listed_refs(cllm("--list-conversations").succeeded())

    assert refs[0] == "cats"
    assert len(refs) == 2
    assert "In the file" in cllm("--show-conversation", "cats").succeeded().out
    assert "In the database" in cllm("--show-conversation", refs[1]).succeeded().out


class TestUnavailable:
    """A store that cannot be read does not hide the other one."""

    def check(self, cllm: Cllm, *words: str) -> None:
        listed = cllm("--list-conversations").succeeded()
        assert listed_refs(listed) == ["cats"]
        for word in ("Warning:", "cllm.db", *words):
            assert word in listed.err
        assert "Traceback" not in listed.err
        shown = cllm("--show-conversation", "cats").succeeded()
        assert shown.err == ""
        new = cllm("Hello", "--conversation", "new").succeeded()
        assert "Warning:" in new.err
        unknown = cllm("--show-conversation", "unknown")
        assert unknown.code == 1
        assert "does not exist" in unknown.err
        assert "cllm.db" in unknown.err

    def test_a_damaged_database(self, database, cllm):
        cllm("Hello", "--conversation", "cats").succeeded()
        database.write_bytes(b"not a database, but long enough to be one" * 100)

        self.check(cllm, "is not an SQLite database")

    def test_a_locked_database(self, database, cllm):
        cllm("Hello", "--conversation", "cats").succeeded()
        connection = sqlite3.connect(database, isolation_level=None)
        connection.execute("PRAGMA locking_mode = EXCLUSIVE")
        connection.execute("DELETE FROM conversations")

        self.check(cllm, "is locked by another program")
        found = cllm("search", "hello").succeeded()
        assert "cats" in found.out
        assert "is locked by another program" in found.err

        connection.close()

    def test_a_database_of_a_newer_version(self, database, cllm):
        cllm("Hello", "--conversation", "cats").succeeded()
        with closing(sqlite3.connect(database)) as connection, connection:
            connection.execute(f"UPDATE {VERSION_TABLE} SET version_num = '9999'")  # noqa: S608
        connection.close()

        self.check(cllm)

    def test_a_damaged_file_among_the_files(self, database, home, cllm):
        cllm("Hello", "--conversation", "dogs", "--store", f"sqlite:{database}").succeeded()
        home.write_conversation("broken", b"{")

        listed = cllm("--list-conversations").succeeded()

        assert listed_refs(listed) == ["dogs"]
        assert "broken.json" in listed.err

    def test_a_folder_of_files_that_cannot_be_read(self, database, home, cllm):
        cllm("Hello", "--conversation", "dogs", "--store", f"sqlite:{database}").succeeded()
        home.conversations.write_text("not a folder", encoding="utf-8")

        listed = cllm("--list-conversations").succeeded()

        assert listed_refs(listed) == ["dogs"]
        assert "Warning:" in listed.err
        assert "dogs" in cllm("--show-conversation", "dogs").succeeded().out

    def test_an_unreachable_postgresql(self, settings, cllm):
        settings(server={"store": "postgresql://nobody:secret-word@127.0.0.1:9/none"})
        cllm("Hello", "--conversation", "cats").succeeded()

        listed = cllm("--list-conversations").succeeded()

        assert listed_refs(listed) == ["cats"]
        assert "Warning:" in listed.err
        assert "secret-word" not in listed.err


class TestOwners:
    def test_server_keys_separate_the_histories(self, database, settings, home, cllm):
        cllm("Hello", "--conversation", "dogs", "--store", f"sqlite:{database}").succeeded()
        cllm("Hello", "--conversation", "cats").succeeded()
        settings(server={"keys": [{"name": "client", "owner": "local", "key": KEY}]})
        headers = {"Authorization": f"Bearer {KEY}"}
        with Server(environment=home.environment, directory=home.work, store=None) as server:
            listed = server("GET", CONVERSATIONS, None, headers).json["conversations"]
            by_name = server("GET", f"{CONVERSATIONS}/cats", None, headers)

        assert [one["name"] for one in listed] == ["dogs"]
        assert by_name.status == 400
        assert listed_refs(cllm("--list-conversations").succeeded()) == ["cats"]

    def test_a_named_store_is_alone(self, database, home, cllm):
        cllm("Hello", "--conversation", "dogs", "--store", f"sqlite:{database}").succeeded()
        cllm("Hello", "--conversation", "cats").succeeded()

        alone = cllm("--list-conversations", "--store", f"json:{home.conversations}").succeeded()
        database_alone = cllm("--list-conversations", "--store", f"sqlite:{database}").succeeded()

        assert listed_refs(alone) == ["cats"]
        assert listed_refs(database_alone) == ["dogs"]


def test_a_turn_without_a_conversation_does_not_open_the_database(database, cllm):
    database.write_bytes(b"not a database" * 100)

    for arguments in (("Hello",), ("Hello", "--conversation")):
        done = cllm(*arguments).succeeded()
        assert "Warning" not in done.err


@pytest.mark.parametrize("has_database", [True, False])
def test_every_command_accepts_the_ids_that_a_server_lists(
    request: pytest.FixtureRequest, settings, home, cllm, has_database
):
    settings()
    if has_database:
        request.getfixturevalue("database")
    cllm("Hello", "--conversation", "files:cats").succeeded()
    assert home.file("cats").exists()
    cllm("More", "--conversation", "files:cats").succeeded()
    for arguments in (
        ("show", "files:cats"),
        ("show", "files:cats", "--json"),
        ("show", "files:cats", "--as-sent"),
        ("tree", "files:cats"),
        ("stats", "files:cats"),
        ("branch", "files:cats", "--to", "files:dogs"),
        ("diff", "files:cats", "files:dogs"),
        ("undo", "files:cats", "--yes"),
        ("regenerate", "files:cats"),
        ("pin", "files:cats", "1"),
        ("unpin", "files:cats", "1"),
        ("rename", "files:cats", "Luna"),
        ("archive", "files:cats"),
        ("unarchive", "files:cats"),
        ("export", "files:cats"),
        ("move", "files:cats", "--to", "sqlite:other.db", "--copy"),
        ("delete", "files:cats", "--yes"),
    ):
        cllm("conversations", *arguments).succeeded()
    assert not home.file("cats").exists()
    assert home.file("dogs").exists()
    cllm("--show-conversation", "files:dogs").succeeded()
    cllm("Hello", "--conversation", "files:dogs", "--raw").succeeded()
    cllm("Hello", "--conversation", "files:dogs", "--read-only").succeeded()
    missing = cllm("conversations", "show", "files:cats")
    missing.failed_with_one_sentence("cats", "does not exist")
    cllm("conversations", "show", "files:a.b").failed_with_one_sentence("not a valid")


def test_a_repeated_move_to_the_servers_database_deletes_nothing_there(database, home, cllm):
    cllm("Hello", "--conversation", "cats").succeeded()
    move = ("conversations", "move", "--all", "--to", f"sqlite:{database}")

    for report in ("Moved 1 conversation; 0 failed.\n", "Moved 0 conversations; 0 failed.\n"):
        assert cllm(*move).succeeded().out == report
        assert listed_refs(cllm("conversations", "list").succeeded()) == ["cats"]
        assert not home.file("cats").exists()

    cllm("Hello", "--conversation", "dogs").succeeded()
    own = cllm("conversations", "move", "cats", "--to", f"json:{home.conversations}")
    assert own.succeeded().out == report.replace("0 conversations", "1 conversation")
    assert sorted(listed_refs(cllm("conversations", "list").succeeded())) == ["cats", "dogs"]
