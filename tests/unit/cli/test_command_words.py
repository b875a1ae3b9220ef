import click
import pytest

from cllm.cli import command_words
from cllm.cli.command_words import SYNONYMS, check_arguments, check_word, unknown_sub_command
from cllm.cli.inputs import OptionError
from cllm.cli.main import ASK, COMMANDS, SUB_COMMANDS, list_command_words, root
from cllm.core.errors import UsageError


def test_the_table_has_every_sub_command():
    commands = {name: root.get_command(click.Context(root), name) for name in COMMANDS}
    assert {
        name: tuple(sorted(command.list_commands(click.Context(command))))
        for name, command in commands.items()
        if isinstance(command, click.Group)
    } == SUB_COMMANDS


def test_every_command_and_sub_command_is_a_word():
    words = list_command_words()
    assert words["chat"] == "cllm chat"
    assert words["list"] == "cllm conversations list"
    assert words["pull"] == "cllm models pull"
    assert ASK not in words
    assert {"help", "config", "logs", "migrate-conversations"} <= set(words)


def test_a_command_is_an_error_without_a_terminal(monkeypatch):
    monkeypatch.setattr(command_words, "is_interactive", lambda: False)
    with pytest.raises(UsageError, match=r"cllm conversations list.*cllm -- list"):
        check_word("list")
    check_word("lists")
    check_word("Hello")


@pytest.mark.parametrize("word", ["lists", "Conversatons"])
def test_a_close_word_is_an_error_if_the_user_declines(monkeypatch, word):
    monkeypatch.setattr(command_words, "is_interactive", lambda: True)
    monkeypatch.setattr(command_words, "_confirm", lambda _: False)
    with pytest.raises(UsageError, match="did you mean: cllm conversations"):
        check_word(word)
    monkeypatch.setattr(command_words, "_confirm", lambda _: True)
    check_word(word)
    check_word("list")


@pytest.mark.parametrize(
    ("arguments", "command"),
    [
        (["list", "-n", "3"], "cllm conversations list -n 3"),
        (["show", "my cats"], "cllm conversations show 'my cats'"),
        (["Lists", "--json"], "cllm conversations list --json"),
        (["help", "db"], "cllm db --help"),
        (["help", "me"], "cllm --help"),
    ],
)
def test_the_command_line_is_completed_with_the_arguments(arguments, command):
    with pytest.raises(OptionError) as error:
        check_arguments(arguments)
    assert f"did you mean: {command}; to send a prompt, run: cllm -- " in str(error.value)


@pytest.mark.parametrize(
    "arguments", [[], ["-n", "list"], ["What", "-n"], ["list", "the", "rivers", "of", "France"]]
)
def test_other_arguments_are_not_a_command(arguments):
    check_arguments(arguments)


@pytest.mark.parametrize(
    ("group", "arguments", "advice"),
    [
        ("conversations", ["lst", "-n", "3"], "did you mean: cllm conversations list -n 3"),
        ("conversations", ["remove", "a b"], "did you mean: cllm conversations delete 'a b'"),
        ("keys", ["add", "openai"], "did you mean: cllm keys set openai"),
        ("db", ["status"], "did you mean: cllm db current"),
        ("templates", ["xyz"], "the commands are: edit, list, show."),
    ],
)
def test_an_unknown_sub_command_has_a_suggestion(group, arguments, advice):
    error = unknown_sub_command(group, SUB_COMMANDS[group], arguments)
    assert str(error) == f"There is no command '{group} {arguments[0]}'; {advice}"


def test_every_synonym_is_a_name_of_a_sub_command():
    known = {name for names in SUB_COMMANDS.values() for name in names}
    assert {name for names in SYNONYMS.values() for name in names} <= known
