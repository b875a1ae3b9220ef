"""`cllm conversations` as a process on conversation files, SQLite and PostgreSQL."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.command import Result
from tests.server_process import open_empty_store

FILES, DATABASES = ("json",), ("sqlite", "postgresql")


@pytest.fixture(params=(*FILES, *DATABASES))
def store(request, home) -> Iterator[str]:
    if request.param == "json":
        yield f"json:{home.path / 'store'}"
        return
    with open_empty_store(request.param, home.path, request) as url:
        yield url


@pytest.fixture
def run(cllm, store, settings):
    """Runs `cllm conversations` on the store of the test."""

    def run(*arguments: str, **options):
        return cllm("conversations", *arguments, "--store", store, **options)

    return run


@pytest.fixture
def ask(cllm, store, settings):
    def ask(text: str, ref: str = "cats", *arguments: str):
        return cllm(text, "--conversation", ref, "--store", store, *arguments).succeeded()

    return ask


def read_json(result: Result) -> Any:
    return json.loads(result.succeeded().out)


def messages(run, ref: str = "cats") -> list[str]:
    return [one["content"] for one in read_json(run("show", ref, "--json"))["messages"]]


class TestList:
    def test_filters_and_json(self, run, ask):
        ask("My cat is Luna.")
        ask("My dog is Rex.", "dogs", "-m", "openai/gpt-other")

        rows = read_json(run("list", "--json"))
        assert [(row["name"] or row["id"]) for row in rows] == ["dogs", "cats"]
        assert rows[0]["model"] == "openai/gpt-other"
        assert rows[0]["title"] == "My dog is Rex."
        assert rows[0]["message_count"] == 2
        assert rows[0]["updated_at"].endswith("Z")
        assert set(rows[0]) == {
            *("id", "name", "title", "model", "message_count", "created_at", "updated_at"),
            *("archived_at", "source", "side", "parent", "metadata"),
        }
        assert run("list", "-n", "1").succeeded().out.startswith("dogs ")
        assert run("list", "--model", "gpt-TEST").succeeded().out.startswith("cats ")
        assert len(run("list", "--since", "1h").succeeded().out.splitlines()) == 2
        assert (
            run("list", "--since", "2999-01-01").err == "No conversation matches these options.\n"
        )
        assert read_json(run("list", "--since", "2999-01-01", "--json")) == []

    def test_options_before_the_name_have_the_same_effect(self, cllm, store, ask):
        ask("My cat is Luna.")

        after = cllm("conversations", "list", "--store", store, "--json").succeeded()
        before = cllm("c", "--store", store, "--json", "list").succeeded()

        assert before.out == after.out

    def test_a_wrong_time_is_one_sentence(self, run):
        run("list", "--since", "soon").failed_with_one_sentence("--since", "7d", code=2)


class TestOrganise:
    def test_rename_archive_and_pins(self, run, ask):
        ask("My cat is Luna.")

        out = run("rename", "cats", "Names", "of cats").succeeded().out
        assert out == "The title of 'cats' is: Names of cats\n"
        assert read_json(run("list", "--json"))[0]["title"] == "Names of cats"
        assert run("archive", "cats").succeeded().out == "Archived conversation 'cats'.\n"
        assert read_json(run("list", "--json")) == []
        assert [row["title"] for row in read_json(run("list", "--archived", "--json"))] == [
            "Names of cats"
        ]
        assert run("unarchive", "cats").succeeded().out == "Unarchived conversation 'cats'.\n"
        assert "1 user: My cat is Luna." in run("pin", "cats", "1").succeeded().out
        assert read_json(run("pin", "cats", "--json")) == [
            {"sequence_number": 1, "role": "user", "text": "My cat is Luna."}
        ]
        run("unpin", "cats", "2").failed_with_one_sentence("Message 2", "Pinned: 1", code=2)
        assert run("unpin", "cats", "1").succeeded().out == "Message 1 is no longer pinned.\n"
        run("pin", "cats", "9").failed_with_one_sentence("no message 9")

    def test_delete_needs_yes_without_a_terminal(self, run, ask):
        ask("My cat is Luna.")
        ask("My dog is Rex.", "dogs")

        run("delete", "cats").failed_with_one_sentence("--yes", "'cats'", code=2)
        run("delete", "cats", "none", "--yes").failed_with_one_sentence("'none' does not exist")
        assert len(read_json(run("list", "--json"))) == 2
        assert run("delete", "cats", "dogs", "--yes").succeeded().out == (
            "Deleted conversation 'cats'.\nDeleted conversation 'dogs'.\n"
        )
        assert read_json(run("list", "--json")) == []

    def test_the_flag_deletes_without_a_question(self, cllm, store, ask):
        ask("My cat is Luna.")

        out = cllm("--delete-conversation", "cats", "--store", store).succeeded().out
        assert out == "Deleted conversation 'cats'.\n"


class TestTurns:
    def test_undo(self, run, ask):
        ask("One.")
        ask("Two.")

        run("undo", "cats").failed_with_one_sentence("--yes", "Two.", code=2)
        assert run("undo", "cats", "--yes").succeeded().out == "Deleted the last turn: Two.\n"
        assert messages(run) == ["One.", "echo: One."]
        run("undo", "cats", "--yes").succeeded()
        run("undo", "cats", "--yes").failed_with_one_sentence("no messages yet")

    def test_regenerate_keeps_the_old_reply_as_a_variant(self, run, ask, provider):
        ask("One.")

        assert run("regenerate", "cats").succeeded().out == "echo: One.\n"
        assert run("regenerate", "cats", "-m", "openai/gpt-other").succeeded().out
        assert [request.json["model"] for request in provider.requests] == [
            *("gpt-test", "gpt-test", "gpt-other")
        ]
        assert messages(run) == ["One.", "echo: One."]
        assert read_json(run("list", "--json"))[0]["model"] == "openai/gpt-other"
        assert "cats@1.2  variant" in run("tree", "cats").succeeded().out

    def test_an_edited_last_question_is_a_variant(self, run, ask):
        ask("One.")

        assert run("edit", "cats", "1", "New.").succeeded().out == "echo: New.\n"
        assert messages(run) == ["New.", "echo: New."]
        assert len(read_json(run("tree", "cats", "--json"))[0]["variants"]) == 1

    def test_an_edited_earlier_question_is_a_branch(self, run, ask):
        ask("One.")
        ask("Two.")

        done = run("edit", "cats", "1", "--to", "other", stdin=b"New.\n").succeeded()
        assert (done.out, done.err) == ("echo: New.\n", "Conversation: other\n")
        assert messages(run) == ["One.", "echo: One.", "Two.", "echo: Two."]
        assert messages(run, "other") == ["New.", "echo: New."]

    def test_an_edited_reply_is_saved_without_a_call(self, run, ask, provider):
        ask("One.")

        assert run("edit", "cats", "2", "A better reply.").succeeded().out == ""
        assert messages(run) == ["One.", "A better reply."]
        assert len(provider.requests) == 1
        run("edit", "cats", "2").failed_with_one_sentence("text is missing", code=2)
        run("edit", "cats", "7", "New.").failed_with_one_sentence("no message 7")


class TestBranches:
    def test_branch_tree_and_diff(self, run, ask):
        ask("One.")
        ask("Two.")
        run("branch", "cats", "--at", "2", "--to", "vet", "--model", "openai/gpt-vet").succeeded()
        ask("Three.", "vet")
        run("regenerate", "vet").succeeded()

        lines = run("tree", "vet").succeeded().out.splitlines()
        assert lines[0].startswith("cats  4 messages, ")
        assert lines[1].startswith("└─ * vet  after 2  4 messages, ")
        assert lines[2] == "   └─ vet@3.1  variant, openai/gpt-vet: echo: Three."
        (tree,) = read_json(run("tree", "--json"))
        assert [one["name"] or one["id"] for one in tree["branches"]] == ["vet"]
        difference = read_json(run("diff", "vet", "--json"))
        assert difference["common"] == 2
        assert [one["text"] for one in difference["a"]["messages"]] == ["Two.", "echo: Two."]
        assert [one["text"] for one in difference["b"]["messages"]] == ["Three.", "echo: Three."]
        text = run("diff", "cats", "vet@3.1").succeeded().out
        assert "2 common messages, up to: 2 [assistant] echo: One." in text
        assert "- 3 [user]\n-   Two.\n" in text
        assert "+ 4 [assistant]\n+   echo: Three.\n" in text
        run("diff", "cats", "vet@9.9").failed_with_one_sentence("no variant 9.9")
        run("diff", "cats").failed_with_one_sentence("no parent")

    def test_a_branch_with_another_prompt_and_model(self, run, ask, provider):
        ask("One.")
        run("branch", "cats", "--system", "Be brief.", "-m", "openai/vet", "--to", "vet")
        ask("Two.", "vet")

        assert provider.requests[1].json["model"] == "vet"
        assert provider.requests[1].message_pairs[0] == ("system", "Be brief.")
        difference = read_json(run("diff", "cats", "vet", "--json"))
        assert difference["same_system_prompt"] is False


class TestSearch:
    def test_words_forms_and_titles(self, cllm, run, ask, store):
        ask("My cat is running in the garden.")
        ask("猫の名前はルナです。", "neko")
        run("rename", "neko", "Garden in Japan").succeeded()

        short = cllm("search", "run", "garden", "--store", store).succeeded().out
        assert short.splitlines()[0].startswith("cats  ")
        assert "    1 user: My cat is running in the garden." in short.splitlines()
        assert short == run("search", "run", "garden").succeeded().out
        (found,) = read_json(run("search", "名前", "--json"))
        assert (found["name"] or found["id"]) == "neko"
        assert found["matches"][0]["sequence_number"] in (1, 2)
        garden = read_json(run("search", "garden", "--json"))
        assert [(one["name"] or one["id"], one["in_title"]) for one in garden] == [
            *(("neko", True), ("cats", True))
        ]
        assert run("search", "zebra").succeeded().err == "No conversation contains 'zebra'.\n"
        run("search", "...").failed_with_one_sentence("no words")

    def test_deleted_changed_and_archived_conversations(self, run, ask):
        ask("My cat is Luna.")
        ask("My dog is Rex.", "dogs")
        assert len(read_json(run("search", "my", "--json"))) == 2

        run("delete", "cats", "--yes").succeeded()
        run("edit", "dogs", "1", "My fish is Bob.").succeeded()
        assert read_json(run("search", "luna", "--json")) == []
        assert len(read_json(run("search", "fish", "--json"))) == 1
        run("archive", "dogs").succeeded()
        assert read_json(run("search", "fish", "--json")) == []
        assert len(read_json(run("search", "fish", "--archived", "--json"))) == 1


class TestShow:
    def test_json_is_the_conversation_file(self, run, ask):
        ask("One.")

        file = read_json(run("show", "cats", "--json"))
        assert [one["role"] for one in file["messages"]] == ["user", "assistant"]
        assert file["metadata"]["cllm"]["turns"]

    def test_the_prompt_of_a_turn(self, run, ask, settings):
        settings(window={"strategy": "turns", "max_turns": 1})
        ask("One.", "cats", "--system", "Be brief.")
        ask("Two.")
        ask("Three.")

        text = run("show", "cats", "--as-sent").succeeded().out
        assert "Left out: 1 to 2 (before the start of the window)\n" in text
        assert "system prompt [system, about " in text
        assert "Be brief." in text
        assert "\nmessage 3 [user, about " in text
        assert "One." not in text
        assert run("show", "--as-sent", "cats").succeeded().out == text
        first = read_json(run("show", "cats", "--as-sent", "1", "--json"))
        assert [one["content"] for one in first["sent"]] == ["Be brief.", "One."]
        assert first["exact"] is True
        run("show", "cats", "--as-sent", "9").failed_with_one_sentence("no message 9")
        run("show", "--as-sent").failed_with_one_sentence("needs the ID", code=2)


def test_the_prompt_of_a_turn_in_an_old_file(cllm, home, settings):
    settings(default_system_message="You are a vet.")
    said = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello"}]
    home.write_conversation("old", {"id": "old", "messages": said})
    assert "so the configured one" not in cllm("conversations", "show", "old").succeeded().err
    cllm("One.", "--conversation", "old").succeeded()

    text = cllm("conversations", "show", "old", "--as-sent").succeeded().out

    assert "\nsystem prompt: not stored (the configured one is used and not saved)\n" in text


class TestStats:
    def test_the_usage_of_days_and_models(self, run, ask):
        ask("One.")
        ask("Two.", "dogs", "-m", "openai/gpt-other")
        run("branch", "cats", "--to", "copy").succeeded()

        figures = read_json(run("stats", "--json"))
        assert figures["answers"] == 2
        assert [one["answers"] for one in figures["by_day"]] == [2]
        assert {one["model"]: one["answers"] for one in figures["by_model"]} == {
            "openai/gpt-test": 1,
            "openai/gpt-other": 1,
        }
        text = run("stats").succeeded().out
        assert "By day\n" in text
        assert "By model\n" in text
        assert "█" in text


@pytest.mark.usefixtures("settings")
class TestTerminal:
    @pytest.fixture
    def store(self, home) -> str:
        return f"json:{home.conversations}"

    def test_delete_asks(self, cllm, home, ask):
        ask("My cat is Luna.")

        no = cllm.on_terminal("conversations", "delete", "cats", typed=b"n\n")
        assert (no.code, "Nothing was changed." in no.out) == (1, True)
        assert home.file("cats").exists()
        yes = cllm.on_terminal("conversations", "delete", "cats", typed=b"y\n")
        assert yes.code == 0
        assert "Delete conversation 'cats'? This cannot be undone. [y/N]" in yes.out
        assert not home.file("cats").exists()

    def test_undo_asks(self, cllm, home, ask):
        ask("My cat is Luna.")

        cllm.on_terminal("conversations", "undo", "cats", typed=b"y\n").succeeded()
        assert home.messages("cats") == []

    def test_markdown_is_rendered(self, cllm, ask):
        ask("This is **bold**.")

        shown = cllm.on_terminal("conversations", "show", "cats").succeeded().out
        assert "This is **bold**." not in shown.partition("[user]")[2]
        assert "\x1b[1mbold\x1b[0m" in shown

    def test_the_list_fits_the_terminal(self, cllm, ask):
        ask("word " * 40, "a-long-name-of-a-conversation")

        for columns in (80, 120):
            result = cllm.on_terminal("conversations", "list", env={"COLUMNS": str(columns)})
            lines = result.succeeded().out.replace("\r", "").splitlines()
            assert lines[1].startswith("a-long-name-of-a-conversation  ")
            assert all(len(line) <= columns for line in lines[1:])

    def test_an_edit_opens_the_editor(self, cllm, home, ask):
        ask("My cat is Luna.")
        editor = home.work / "editor"
        editor.write_text('#!/bin/sh\nsed -i s/cat/dog/ "$1"\n', encoding="utf-8")
        editor.chmod(0o700)

        done = cllm.on_terminal("conversations", "edit", "cats", "1", env={"EDITOR": str(editor)})
        assert "echo: My dog is Luna." in done.succeeded().out
        assert home.messages("cats")[0] == ("user", "My dog is Luna.")

    def test_an_unchanged_text_is_not_sent(self, cllm, provider, ask):
        ask("My cat is Luna.")

        done = cllm.on_terminal("conversations", "edit", "cats", "1", env={"EDITOR": "true"})
        assert (done.code, "unchanged" in done.out) == (1, True)
        assert len(provider.requests) == 1


def test_ls_and_rm_are_aliases_of_list_and_delete(home, settings, cllm):
    cllm("Hello", "--conversation", "cats").succeeded()

    assert cllm("c", "ls").succeeded().out == cllm("conversations", "list").succeeded().out
    cllm("c", "rm", "cats", "--yes").succeeded()

    assert not home.file("cats").exists()


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        ("conversations lst -n 3", "cllm conversations list -n 3"),
        ("c remove cats", "cllm conversations delete cats"),
        ("models lsit", "cllm models list"),
        ("keys add openai", "cllm keys set openai"),
        ("templates cat debug", "cllm templates show debug"),
        ("db status", "cllm db current"),
    ],
)
def test_an_unknown_sub_command_is_an_error_with_a_suggestion(arguments, command, settings, cllm):
    result = cllm(*arguments.split())

    result.failed_with_one_sentence(f"did you mean: {command}", code=2)


@pytest.mark.parametrize("ref", ["a" * 10_000, "a b " * 2_500], ids=["word", "words"])
@pytest.mark.parametrize(
    "arguments",
    [("conversations", "show"), ("Hello", "-m"), ("restore",), ("Hello", "-t"), ("conversations",)],
)
def test_an_error_quotes_a_long_argument_shortened(arguments, ref, settings, cllm):
    result = cllm(*arguments, ref)

    assert result.code in (1, 2)
    assert len(result.err) < 1_500
    assert "…" in result.err
    assert result.warnings[-1].endswith((".", ")"))
