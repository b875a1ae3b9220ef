"""Words that are probably a command: `cllm list`, `cllm logs -n 3`, `cllm conversations lst`."""

from collections.abc import Iterable, Sequence
from difflib import get_close_matches
from itertools import takewhile
from shlex import join, quote

from cllm.cli.inputs import OptionError, is_interactive
from cllm.cli.main import COMMANDS, HELP_WORD, list_command_words
from cllm.core.errors import UsageError

CLOSE = 0.8
CLOSE_SUB_COMMAND = 0.6
# The name of a command and its arguments; more words are a prompt without quotes.
MAX_WORDS = 3
# Names in other programs, and ours; a group suggests the first one that it has.
SYNONYMS = {
    "add": ("set", "import"),
    "cat": ("show",),
    "copy": ("branch",),
    "cp": ("branch",),
    "del": ("delete", "remove"),
    "download": ("pull",),
    "find": ("search",),
    "fork": ("branch",),
    "get": ("show", "pull", "list"),
    "grep": ("search",),
    "history": ("list", "current"),
    "install": ("pull",),
    "log": ("list",),
    "logs": ("list",),
    "migrate": ("upgrade",),
    "mv": ("rename", "move"),
    "new": ("set", "edit", "branch"),
    "remove": ("delete",),
    "delete": ("remove",),
    "retry": ("regenerate",),
    "save": ("set", "export"),
    "status": ("current", "stats", "list"),
    "title": ("rename",),
    "unset": ("remove",),
    "use": ("default",),
    "view": ("show",),
    "version": ("current",),
}


def check_word(word: str) -> None:
    """Raise UsageError for a command's name, unless the user confirms it as a prompt.

    A word that only resembles one needs the confirmation on a terminal only.
    """
    commands = list_command_words()
    name = word if word in commands else _find_close(word, commands) if is_interactive() else None
    if name is None:
        return
    question = f"{_describe(word)}; did you mean: {commands[name]}"
    if not _confirm(f"{question}\nSend it to the model as a prompt? [y/N] "):
        raise UsageError(_build_message([word], commands[name]))


def check_arguments(arguments: Sequence[str]) -> None:
    """Raise OptionError if invalid arguments start with the name of a command or a similar word.

    Arguments that start with several words are probably a prompt without quotes.
    """
    commands = list_command_words()
    words = list(takewhile(lambda word: not word.startswith("-"), arguments))
    if not words or len(words) > MAX_WORDS:
        return
    name = words[0] if words[0] in commands else _find_close(words[0], commands)
    if name is not None:
        raise OptionError(_build_message(words, _complete_command(name, arguments[1:])))


def unknown_sub_command(group: str, names: Iterable[str], arguments: Sequence[str]) -> OptionError:
    """Return the error for a sub-command that does not exist, with the most similar one."""
    word, *rest = arguments
    known = sorted(names)
    synonyms = [name for name in SYNONYMS.get(word, ()) if name in known]
    close = synonyms or get_close_matches(word.lower(), known, n=1, cutoff=CLOSE_SUB_COMMAND)
    advice = (
        f"did you mean: {join(['cllm', group, close[0], *rest])}"
        if close
        else f"the commands are: {', '.join(known)}."
    )
    return OptionError(f"There is no command '{group} {word}'; {advice}")


def _describe(word: str) -> str:
    return f"'{word}' is a command" if word in COMMANDS else f"There is no command '{word}'"


def _build_message(words: Sequence[str], command: str) -> str:
    prompt = quote(" ".join(words))
    return (
        f"{_describe(words[0])}; did you mean: {command}; to send a prompt, run: cllm -- {prompt}"
    )


def _complete_command(name: str, arguments: Sequence[str]) -> str:
    """Return the command line of a word, with the arguments if it accepts any."""
    if name == HELP_WORD and arguments and arguments[0] in COMMANDS:
        return f"cllm {join(arguments)} --help"
    command = list_command_words()[name]
    accepts_arguments = " --" not in command
    return " ".join([command, *map(quote, arguments)]) if accepts_arguments else command


def _find_close(word: str, commands: dict[str, str]) -> str | None:
    matches = get_close_matches(word.lower(), commands, n=1, cutoff=CLOSE)
    return matches[0] if matches else None


def _confirm(question: str) -> bool:
    if not is_interactive():
        return False
    from cllm.cli.confirmation import ask_on_terminal

    return ask_on_terminal(question)
