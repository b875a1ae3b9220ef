"""Whether what a command reads lies in the folder it runs in, links followed."""

from pathlib import Path

from cllm.commands.permission import READ_ONLY
from cllm.commands.shell_words import simple_commands


def stays_inside(line: str, directory: Path) -> bool:
    """Whether every file that the line's commands show is inside the folder, and not hidden.

    A link can lead to keys, and hidden files often hold them.
    """
    inside = directory.resolve()
    for command in simple_commands(line) or ():
        known = READ_ONLY.get(command.words[0])
        if known is None or not known.content:
            continue
        words = (word for word in command.words[1:] if not word.startswith("-"))
        if not all(_is_inside(word, inside) for word in words):
            return False
    return True


def _is_inside(word: str, inside: Path) -> bool:
    """Whether the word, if it is a path, ends inside; a word that names no file harms nobody."""
    try:
        path = (inside / word).resolve()
    except (OSError, ValueError, RuntimeError):
        return False
    if not path.is_relative_to(inside):
        return False
    return not any(part.startswith(".") for part in path.relative_to(inside).parts)
