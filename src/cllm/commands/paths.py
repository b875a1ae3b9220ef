"""The programs, wildcards and paths of a command."""

import os
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path, PurePath

from cllm.commands.command_line import CommandEnvironment, CommandRefusedError, Word

MAX_VISITED = 10_000
# Unlike the methods of Path, these return False for a path that cannot be read.
exists, is_folder, is_file = os.path.exists, os.path.isdir, os.path.isfile


def require_visible(word: str, directory: Path) -> None:
    if not is_visible(word, directory):
        raise CommandRefusedError(
            f"`{word}` is outside this folder or hidden; only visible files in this folder are "
            "allowed."
        )


def is_visible(word: str, directory: Path) -> bool:
    """Whether a path, with links resolved, is in the folder and no part of it is hidden."""
    if any(_is_hidden(part) for part in PurePath(word).parts):
        return False
    inside = directory.resolve()
    path = _resolve(word, inside)
    if path is None or not path.is_relative_to(inside):
        return False
    return not any(_is_hidden(part) for part in path.relative_to(inside).parts)


def _resolve(word: str, directory: Path) -> Path | None:
    try:
        return (directory / word).resolve()
    except (OSError, ValueError, RuntimeError):
        return None


def _is_hidden(part: str) -> bool:
    return part.startswith(".") and part not in (".", "..")


def spellings(word: str, directory: Path) -> frozenset[str]:
    value = word.partition("=")[2] if word.startswith("-") and "=" in word else word
    found = {word, value, os.path.normpath(value)}
    inside = directory.resolve()
    if path := _resolve(value, inside):
        found |= {str(path), os.path.relpath(path, inside)}
    return frozenset(found)


def expand(word: Word, directory: Path) -> tuple[str, ...]:
    """Return the visible files that a wildcard matches; the word itself if there are none.

    `./` before a name that starts with `-`, so that no program reads it as an option.
    """
    if word.pattern is None:
        return (word.text,)
    segments = word.pattern.split("/")
    if segments[0] == "" or ".." in segments:
        raise CommandRefusedError(f"the wildcard `{word.text}` must not leave this folder.")
    names = [""]
    visited = 0
    for number, segment in enumerate(segments, start=1):
        is_last = number == len(segments)
        found: list[str] = []
        for name in names:
            for entry in _list_folder(directory / name, segment):
                visited += 1
                if visited > MAX_VISITED:
                    raise CommandRefusedError(f"the wildcard `{word.text}` matches too many files.")
                path = f"{name}/{entry}" if name else entry
                if is_visible(path, directory) and (is_last or is_folder(directory / path)):
                    found.append(path)
        names = found
    return tuple(f"./{name}" if name.startswith("-") else name for name in sorted(names)) or (
        word.text,
    )


def _list_folder(folder: Path, segment: str) -> Iterator[str]:
    if segment in ("", "."):
        yield segment
        return
    try:
        with os.scandir(folder) as entries:
            for entry in entries:
                if not _is_hidden(entry.name) and fnmatchcase(entry.name, segment):
                    yield entry.name
    except OSError:
        return


def find_program(name: str, env: CommandEnvironment) -> Path | None:
    """Ignores relative entries of PATH."""
    if "/" in name:
        path = env.directory / name
        return path if _is_executable(path) else None
    for folder in env.environment.get("PATH", os.defpath).split(os.pathsep):
        if folder.startswith(os.sep) and _is_executable(path := Path(folder) / name):
            return path
    return None


def _is_executable(path: Path) -> bool:
    return is_file(path) and os.access(path, os.X_OK)
