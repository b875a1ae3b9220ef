"""`--list-conversations --all`: the conversations of every known place.

Known are the stores of this command, `.cllm` in the current directory, its parents and the home
folder, and the stores that the shell or chat used before. Changes nothing.
"""

from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path

from cllm.app import App, open_configured_store
from cllm.core.errors import CllmError
from cllm.core.notice import Notice
from cllm.core.ports import Page, Store
from cllm.settings.load import (
    CONVERSATIONS,
    DATABASE,
    JSON,
    SQLITE,
    database_store,
    file_store,
    is_same_store,
    user_folder,
)
from cllm.stores.registry import store_location

UNAVAILABLE = "store_unavailable"


async def read_place(app: App, url: str, read: Callable[[Store], Awaitable[Page]]) -> Page:
    """Read the list of a store; an unavailable store is a notice."""
    try:
        store = open_configured_store(url, app.settings)
        try:
            return await read(store)
        finally:
            await store.close()
    except CllmError as error:
        message = f"The conversations in {store_location(url)} are left out: {error}"
        notice = Notice(code=UNAVAILABLE, path=store_location(url), message=message)
        return Page(items=(), notices=(notice,))


def list_places(app: App) -> list[str]:
    """Return the URLs of the known stores, each once."""
    env = app.settings.env
    folders = [env.directory, *env.directory.parents]
    found = [
        *app.store_urls,
        *(url for folder in folders for url in _find_stores(folder / ".cllm")),
        *_find_stores(user_folder(env)),
        *filter(_exists, app.list_used_stores()),
    ]
    places: list[str] = []
    for url in found:
        if not any(is_same_store(url, other) for other in places):
            places.append(url)
    return places


def _find_stores(folder: Path) -> Iterator[str]:
    """Yield the stores in a folder; a link can lead anywhere and is not followed."""
    with suppress(OSError):
        files, database = folder / CONVERSATIONS, folder / DATABASE
        if files.is_dir() and not files.is_symlink():
            yield file_store(folder)
        if database.is_file() and not database.is_symlink():
            yield database_store(folder)


def _exists(url: str) -> bool:
    path = Path(url.partition(":")[2].partition("?")[0])
    with suppress(OSError):
        if url.startswith(JSON):
            return path.is_dir()
        return url.startswith(SQLITE) and path.is_file()
    return False
