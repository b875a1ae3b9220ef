"""Where conversations are: the folder that has this place's history, and the stores in it.

A history is where its conversations are, never where a settings file is. Creates nothing.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from cllm.core.errors import UsageError
from cllm.settings.layers import CommandLine, Place, chosen_folder, user_folder

if TYPE_CHECKING:
    from cllm.settings.load import Settings

LOCAL = ".cllm"
CONVERSATIONS = "conversations"
DATABASE = "cllm.db"
JSON = "json:"
SQLITE = "sqlite:"
MEMORY = "memory:"


def local_folder(place: Place) -> Path:
    return place.directory / LOCAL


def has_history(folder: Path) -> bool:
    """Whether conversations are kept in this folder: it has their folder or a database."""
    files = folder / CONVERSATIONS
    return files.is_dir() or files.is_symlink() or (folder / DATABASE).exists()


def history_folder(place: Place, line: CommandLine) -> Path:
    """The folder that the person named, the current directory's if it has a history, or theirs."""
    named = chosen_folder(place, line)
    if named is not None:
        return named
    local = local_folder(place)
    return local if has_history(local) else user_folder(place)


def file_store(folder: Path) -> str:
    return f"{JSON}{folder / CONVERSATIONS}"


def database_store(folder: Path) -> str:
    return f"{SQLITE}{folder / DATABASE}"


def usual_stores(place: Place) -> Iterator[str]:
    """The stores of the person's own folder and of the current directory's that exist."""
    for folder in dict.fromkeys((user_folder(place), local_folder(place))):
        if leads_away(folder / CONVERSATIONS, place):
            continue
        if (folder / CONVERSATIONS).is_dir():
            yield file_store(folder)
        if (folder / DATABASE).is_file() and not (folder / DATABASE).is_symlink():
            yield database_store(folder)


def is_same_store(url: str, other: str) -> bool:
    """Whether two URLs of stores in files name the same one."""
    scheme, _, path = url.partition(":")
    other_scheme, _, other_path = other.partition(":")
    if scheme != other_scheme:
        return False
    return Path(path).resolve() == Path(other_path.partition("?")[0]).resolve()


def leads_away(folder: Path, place: Place) -> bool:
    """Whether a project's folder is really elsewhere: a project can be somebody else's."""
    if folder.parent.resolve() == user_folder(place).resolve():
        return False
    return not folder.resolve().is_relative_to(place.directory.resolve())


def server_store(settings: "Settings") -> str:
    """The store of `cllm serve`: the one that was named, else the database of this history."""
    named = settings.server.store
    if named is None and not settings.store.startswith(JSON):
        named = settings.store
    url = database_store(settings.history_folder) if named is None else named
    if url.startswith(JSON):
        raise UsageError(
            "`cllm serve` needs a store that several can use at once; write --store sqlite:PATH. "
            "The folder of conversation files is served beside it."
        )
    if url.startswith(MEMORY) and settings.server.workers > 1:
        raise UsageError("memory: belongs to one process; use --workers 1, or another store.")
    return url
