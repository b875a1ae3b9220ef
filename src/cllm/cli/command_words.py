"""Prompts of one word that are probably a command: `cllm list`, `cllm conversatons`."""

from shlex import quote

from cllm.cli.inputs import is_interactive
from cllm.cli.main import list_command_words
from cllm.core.errors import UsageError

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
    elif is_interactive() and (close := _find_close(word, commands)) is not None:
        question = f"'{word}' resembles a command: {commands[close]}"
        if not _confirm(f"{question}\nSend it to the model as a prompt? [y/N] "):
            raise UsageError(f"The prompt '{word}' was not sent; did you mean: {commands[close]}")


def _find_close(word: str, commands: dict[str, str]) -> str | None:
    from difflib import get_close_matches

    matches = get_close_matches(word.lower(), commands, n=1, cutoff=CLOSE)
    return matches[0] if matches else None


def _confirm(question: str) -> bool:
    if not is_interactive():
        return False
    from cllm.cli.confirmation import ask_on_terminal

    return ask_on_terminal(question)
