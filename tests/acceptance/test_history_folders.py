"""The folders in which conversations are stored and searched."""

import json
import re
import shlex

import pytest
from tests.server_process import Server


def listed_ids(result) -> list[str]:
    return [line.split()[0] for line in result.out.splitlines()]


@pytest.mark.parametrize("arguments", [("init",), ("init", "--template", "summarize")])
def test_a_settings_file_does_not_move_the_conversations(arguments, home, settings, cllm):
    cllm("Hello", "--conversation", "cats").succeeded()

    cllm(*arguments).succeeded()
    cllm("Again", "--conversation", "cats").succeeded()

    assert listed_ids(cllm("--list-conversations").succeeded()) == ["cats"]
    assert listed_ids(cllm("conversations", "list").succeeded()) == ["cats"]
    assert len(home.messages("cats")) in (4, 5)
    assert not (home.work / ".cllm/conversations").exists()


def test_a_settings_file_does_not_move_the_database_of_the_server(home, provider, settings, cllm):
    cllm("init").succeeded()

    with Server(environment=home.environment, directory=home.work, store=None) as server:
        server.complete(("user", "Hello"), conversation="")

    assert (home.path / ".cllm/cllm.db").is_file()
    assert not (home.work / ".cllm/cllm.db").exists()
    assert cllm("db", "current").succeeded().out.startswith("The database is at revision ")


def test_a_folder_with_conversations_keeps_its_own_history(home, settings, cllm):
    (home.work / ".cllm/conversations").mkdir(parents=True)

    cllm("Hello", "--conversation", "here").succeeded()

    assert (home.work / ".cllm/conversations/here.json").is_file()
    assert not home.file("here").exists()


def test_a_folder_with_a_database_has_its_own_database_only(home, provider, settings, cllm):
    path = home.work / ".cllm/cllm.db"
    cllm("db", "upgrade", "--store", f"sqlite:{path}").succeeded()

    cllm("Hello", "--conversation", "here").succeeded()
    with Server(environment=home.environment, directory=home.work, store=None) as server:
        server.complete(("user", "Hello"), conversation="there")

    assert home.file("here").is_file()
    assert not (home.work / ".cllm/conversations").exists()
    assert not (home.path / ".cllm/cllm.db").exists()
    assert sorted(listed_ids(cllm("--list-conversations").succeeded())) == ["here", "there"]


@pytest.mark.parametrize("command", [("--list-conversations",), ("conversations", "list")])
def test_an_empty_list_says_where_it_looked(command, home, settings, cllm):
    done = cllm(*command).succeeded()

    assert done.out == ""
    assert f"No conversations in {home.conversations}." in done.err
    assert "--conversation ID" in done.err
    assert "--store" not in done.err


@pytest.mark.parametrize("command", [("--list-conversations",), ("conversations", "list")])
def test_an_empty_list_names_the_other_stores_and_the_command(command, home, settings, cllm):
    for name in ("cats", "dogs"):
        cllm("Hello", "--conversation", name).succeeded()
    cllm("init", "--history").succeeded()

    done = cllm(*command).succeeded()

    assert f"No conversations in {home.work}/.cllm/conversations." in done.err
    assert f"2 conversations are in {home.conversations}" in done.err
    advised = re.search(r"list them with: cllm (.*)", done.err)
    assert advised is not None
    assert sorted(listed_ids(cllm(*shlex.split(advised[1])).succeeded())) == ["cats", "dogs"]


def test_an_empty_list_says_that_the_server_has_conversations(home, provider, settings, cllm):
    with Server(environment=home.environment, directory=home.work, store=None) as server:
        server.complete(("user", "Hello"), conversation="")

    done = cllm("--list-conversations", "--store", f"json:{home.conversations}").succeeded()

    assert f"1 conversation is in {home.path}/.cllm/cllm.db" in done.err
    advised = re.search(r"list them with: cllm (.*)", done.err)
    assert advised is not None
    assert len(listed_ids(cllm(*shlex.split(advised[1])).succeeded())) == 1


def test_an_empty_list_elsewhere_names_the_conversations_of_this_folder(home, settings, cllm):
    cllm("init", "--history").succeeded()
    cllm("Hello", "--conversation", "here").succeeded()

    done = cllm("--list-conversations", "--store", "sqlite:empty.db").succeeded()

    assert f"1 conversation is in {home.work}/.cllm/conversations" in done.err


def test_a_name_with_blanks_can_be_copied_from_the_advice(home, settings, cllm):
    home.work = home.work / "my $(touch pwned) work"
    home.work.mkdir()
    cllm("init", "--history").succeeded()
    cllm("Hello", "--conversation", "here").succeeded()

    done = cllm("--list-conversations", "--store", "memory:").succeeded()

    advised = re.search(r"list them with: cllm (.*)", done.err)
    assert advised is not None
    assert listed_ids(cllm(*shlex.split(advised[1])).succeeded()) == ["here"]


def test_nothing_is_created_by_looking(home, settings, cllm):
    before = home.entries()

    cllm("--list-conversations").succeeded()
    cllm("--list-conversations", "--store", "json:nowhere").succeeded()

    assert home.entries() == before


def test_unreadable_stores_are_not_counted(home, settings, cllm):
    (home.path / ".cllm/cllm.db").write_bytes(b"not a database, but long enough to be one" * 100)
    home.write_conversation("broken", b"{")
    cllm("init", "--history").succeeded()

    done = cllm("--list-conversations").succeeded()

    assert "conversation is in" not in done.err
    assert "conversations are in" not in done.err


def test_the_settings_name_the_database_that_is_listed_too(home, settings, cllm):
    path = home.path / ".cllm/cllm.db"
    assert "also listed" not in cllm("--show-config").succeeded().out
    cllm("db", "upgrade", "--store", f"sqlite:{path}").succeeded()

    assert f"also listed: sqlite:{path}" in cllm("--show-config").succeeded().out


def test_a_link_out_of_a_project_is_not_followed_by_looking(home, settings, cllm):
    elsewhere = home.path / "secret"
    elsewhere.mkdir()
    (elsewhere / "x.json").write_text(json.dumps({"id": "x", "messages": []}), encoding="utf-8")
    (home.work / ".cllm").mkdir()
    (home.work / ".cllm/conversations").symlink_to(elsewhere)

    done = cllm("--list-conversations", "--store", "memory:").succeeded()

    assert "conversation is in" not in done.err


def test_a_link_of_the_locks_out_of_a_project_is_refused(home, settings, cllm):
    elsewhere = home.path / "elsewhere"
    elsewhere.mkdir()
    (home.work / ".cllm/conversations").mkdir(parents=True)
    (home.work / ".cllm/conversations/.locks").symlink_to(elsewhere)

    result = cllm("Hello", "--conversation", "demo")

    result.failed_with_one_sentence(".locks", "symbolic link", prefix="Configuration error: ")
    assert list(elsewhere.iterdir()) == []


@pytest.mark.parametrize("name", ["cllm.db", "cllm.db-wal", "cllm.db-shm", "cllm.db-journal"])
def test_a_link_of_the_database_out_of_a_project_is_refused(home, settings, cllm, name):
    target = home.path / "elsewhere.db"
    (home.work / ".cllm/conversations").mkdir(parents=True)
    (home.work / ".cllm" / name).symlink_to(target)

    result = cllm("serve", "--port", "0")

    result.failed_with_one_sentence(name, "symbolic link", prefix="Configuration error: ")
    assert not target.exists()


def test_the_list_of_a_chat_says_the_same(home, settings, cllm):
    cllm("Hello", "--conversation", "cats").succeeded()
    cllm("init", "--history").succeeded()

    done = cllm("chat", stdin=b"/list\n").succeeded()
    unsaved = cllm("chat", "--no-save", stdin=b"/list\n").succeeded()

    assert f"No conversations in {home.work}/.cllm/conversations." in done.err
    assert f"1 conversation is in {home.conversations}" in done.err
    assert f"cllm chat --store json:{home.conversations}" in done.err
    assert "--no-save" in unsaved.err
    assert f"1 conversation is in {home.conversations}" in unsaved.err


@pytest.mark.usefixtures("settings")
@pytest.mark.parametrize("command", [("--list-conversations",), ("conversations", "list")])
class TestEveryPlace:
    def test_the_home_the_parents_and_used_places_are_listed(self, command, home, cllm):
        cllm("Hello", "--conversation", "at-home").succeeded()
        cllm("Hello", "--conversation", "served", "--store", f"sqlite:{home.path}/.cllm/cllm.db")
        for name in ("project", "project/inner", "elsewhere"):
            (home.work / name / ".cllm/conversations").mkdir(parents=True)
            cllm(
                *("Hello", "--conversation", name.replace("/", "-")), cwd=home.work / name
            ).succeeded()

        done = cllm(*command, "--all", cwd=home.work / "project/inner").succeeded()

        assert done.out.splitlines()[0] == f"{home.work}/project/inner/.cllm/conversations:"
        places = [line for line in done.out.splitlines() if not line.startswith(" ")]
        assert sorted(places) == sorted(
            [
                f"{home.work}/project/inner/.cllm/conversations:",
                f"{home.work}/project/.cllm/conversations:",
                f"{home.work}/elsewhere/.cllm/conversations:",
                f"{home.conversations}:",
                f"{home.path}/.cllm/cllm.db:",
            ]
        )
        for name in ("at-home", "served", "project", "project-inner", "elsewhere"):
            assert f"  {name} " in done.out

    def test_a_damaged_place_is_a_warning(self, command, home, cllm):
        cllm("Hello", "--conversation", "cats").succeeded()
        (home.path / ".cllm/cllm.db").write_bytes(b"not a database, but long enough" * 100)

        done = cllm(*command, "--all").succeeded()

        assert "  cats " in done.out
        assert "Warning:" in done.err
        assert "cllm.db" in done.err

    def test_nothing_is_created(self, command, home, cllm):
        before = home.entries()

        done = cllm(*command, "--all").succeeded()

        assert done.out == ""
        assert f"No conversations in {home.conversations}." in done.err
        assert home.entries() == before


def test_all_is_an_option_of_lists(settings, cllm):
    cllm("Hello", "--all").failed_with_one_sentence("--list-conversations", code=2)


@pytest.mark.parametrize("url", ["json:~/kept", "sqlite:~/kept.db"])
def test_a_store_in_the_home_folder_is_found_by_every_command(url, home, settings, cllm):
    cllm("Hello", "--conversation", "cats", "--store", url).succeeded()

    for arguments in (("verify",), ("backup", "b.zip"), ("conversations", "show", "cats")):
        cllm(*arguments, "--store", url).succeeded()
    assert (home.path / url.partition("/")[2]).exists()
    assert not (home.work / "~").exists()


@pytest.mark.parametrize("url", ["sqlite://cats.db", "json://cats"])
def test_a_store_url_with_a_host_creates_nothing(url, home, settings, cllm):
    before = home.entries()

    result = cllm("Hello", "--conversation", "cats", "--store", url)

    result.failed_with_one_sentence("has a host", prefix="Configuration error: ")
    assert home.entries() == before
