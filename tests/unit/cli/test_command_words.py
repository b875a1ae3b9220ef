import click
import pytest

from cllm.cli import command_words
from cllm.cli.command_words import check_word, list_command_words
from cllm.cli.main import ASK, COMMANDS, root
from cllm.core.errors import UsageError


def test_every_command_and_sub_command_is_a_word():
    words = list_command_words()
    for name in COMMANDS:
        if name == ASK:
            continue
        assert words[name] == f"cllm {name}"
        command = root.get_command(click.Context(root), name)
        if isinstance(command, click.Group):
            assert set(command.list_commands(click.Context(command))) <= set(words)
    assert ASK not in words
    assert {"help", "config", "logs", "migrate-conversations"} <= set(words)


def test_a_command_is_an_error_without_a_terminal(monkeypatch):
    monkeypatch.setattr(command_words, "_is_terminal", lambda: False)
    with pytest.raises(UsageError, match=r"cllm conversations list.*cllm -- list"):
        check_word("list")
    check_word("lists")
    check_word("Hello")


@pytest.mark.parametrize("word", ["lists", "Conversatons"])
def test_a_close_word_is_an_error_if_the_user_declines(monkeypatch, word):
    monkeypatch.setattr(command_words, "_is_terminal", lambda: True)
    monkeypatch.setattr(command_words, "_confirm", lambda _: False)
    with pytest.raises(UsageError, match="did you mean: cllm conversations"):
        check_word(word)
    monkeypatch.setattr(command_words, "_confirm", lambda _: True)
    check_word(word)
    check_word("list")
