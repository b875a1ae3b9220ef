"""Resolves what a command names: programs, wildcards, and paths inside the folder. Runs nothing."""

import os
from collections.abc import Iterator
from glob import iglob
from itertools import islice
from pathlib import Path, PurePath

from cllm.commands.command_line import Word
from cllm.commands.plan import RefusedError, Surroundings

MAX_MATCHES = 10_000


def require_visible(word: str, directory: Path) -> None:
    """Refuse a path that leads out of the folder or to something hidden."""
    if not is_visible(word, directory):
        raise RefusedError(
            f"`{word}` is outside of this folder or hidden; only visible files in this folder "
            "may be used."
        )


def is_visible(word: str, directory: Path) -> bool:
    """Whether a path stays in the folder, with links followed, and no part of it is hidden."""
    if any(_is_hidden(part) for part in PurePath(word).parts):
        return False
    inside = directory.resolve()
    try:
        path = (inside / word).resolve()
    except (OSError, ValueError, RuntimeError):
        return False
    if not path.is_relative_to(inside):
        return False
    return not any(_is_hidden(part) for part in path.relative_to(inside).parts)


def _is_hidden(part: str) -> bool:
    return part.startswith(".") and part not in (".", "..")


def spellings(word: str, directory: Path) -> frozenset[str]:
    """Every way to write the same path: as written, normalized, relative and absolute."""
    value = word.partition("=")[2] if word.startswith("-") and "=" in word else word
    found = {word, value, os.path.normpath(value)}
    try:
        inside = directory.resolve()
        path = (inside / value).resolve()
    except (OSError, ValueError, RuntimeError):
        return frozenset(found)
    return frozenset(found | {str(path), os.path.relpath(path, inside)})


def expand(word: Word, directory: Path) -> tuple[str, ...]:
    """The files that a wildcard matches, sorted; the word itself if it has none or matches none.

    Hidden files match only a pattern that starts with a dot. A file name that starts with `-` gets
    `./` in front, so that no program reads it as an option.
    """
    if word.pattern is None:
        return (word.text,)
    if PurePath(word.text).is_absolute() or ".." in PurePath(word.text).parts:
        return (word.text,)
    found = list(islice(_matches(word.pattern, directory), MAX_MATCHES + 1))
    if len(found) > MAX_MATCHES:
        raise RefusedError(f"`{word.text}` matches more than {MAX_MATCHES} files; name fewer.")
    names = sorted(f"./{name}" if name.startswith("-") else name for name in found)
    return tuple(names) or (word.text,)


def _matches(pattern: str, directory: Path) -> Iterator[str]:
    # Path.glob matches hidden files as well.
    return iglob(pattern, root_dir=directory)  # noqa: PTH207


def find_program(name: str, surroundings: Surroundings) -> Path | None:
    """The file that a program's name stands for; relative entries of PATH do not count."""
    if "/" in name:
        path = surroundings.directory / name
        return path if _is_executable(path) else None
    for folder in surroundings.environment.get("PATH", os.defpath).split(os.pathsep):
        if folder.startswith(os.sep) and _is_executable(path := Path(folder) / name):
            return path
    return None


def _is_executable(path: Path) -> bool:
    try:
        return path.is_file() and os.access(path, os.X_OK)
    except (OSError, ValueError):
        return False
