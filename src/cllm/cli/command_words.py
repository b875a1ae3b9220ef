"""Prompts of one word that are probably a command: `cllm list`, `cllm conversatons`."""

import sys
from shlex import quote

import click

from cllm.cli.main import ASK, COMMANDS, root
from cllm.core.errors import UsageError

OTHER_WORDS = {
    "help": "cllm --help",
    "config": "cllm --show-config",
    "logs": "cllm conversations list",
    "migrate-conversations": "cllm conversations migrate",
}
CLOSE = 0.8


def check_word(word: str) -> None:
    """Raise UsageError for a command's name, unless the user confirms it as a prompt.

    A word that only resembles one needs the confirmation on a terminal only.
    """
    commands = list_command_words()
    command = commands.get(word)
    if command is not None:
        question = f"'{word}' is a command: {command}"
        if not _confirm(f"{question}\nSend it to the model as a prompt? [y/N] "):
            raise UsageError(
                f"'{word}' is a command ({command}); to send it as a prompt, run: "
                f"cllm -- {quote(word)}"
            )
    elif _is_terminal() and (close := _find_close(word, commands)) is not None:
        question = f"'{word}' resembles a command: {commands[close]}"
        if not _confirm(f"{question}\nSend it to the model as a prompt? [y/N] "):
            raise UsageError(f"The prompt '{word}' was not sent; did you mean: {commands[close]}")


def list_command_words() -> dict[str, str]:
    """The names of commands and sub-commands, each with a command line."""
    words: dict[str, str] = {}
    groups: dict[str, click.Group] = {}
    context = click.Context(root)
    for name in COMMANDS:
        if name != ASK:
            words[name] = f"cllm {name}"
            command = root.get_command(context, name)
            if isinstance(command, click.Group):
                groups[name] = command
    for name, group in groups.items():
        for inner in group.list_commands(context):
            words.setdefault(inner, f"cllm {name} {inner}")
    return OTHER_WORDS | words


def _find_close(word: str, commands: dict[str, str]) -> str | None:
    from difflib import get_close_matches

    matches = get_close_matches(word.lower(), commands, n=1, cutoff=CLOSE)
    return matches[0] if matches else None


def _confirm(question: str) -> bool:
    if not _is_terminal():
        return False
    from cllm.cli.confirmation import ask_on_terminal

    return ask_on_terminal(question)


def _is_terminal() -> bool:
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()
