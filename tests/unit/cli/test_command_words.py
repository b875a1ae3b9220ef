import click
import pytest

from cllm.cli import command_words
from cllm.cli.command_words import check_word
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
