"""Both stores of a place, for `backup`, `restore` and `verify`: files and the server's database.

An operator saves and checks the conversations of all owners, whatever keys are configured.
"""

from collections.abc import Mapping
from typing import TYPE_CHECKING

from cllm.cli import output
from cllm.cli.trust import open_app
from cllm.core.conversation import LOCAL_OWNER
from cllm.core.errors import StoreUnavailableError
from cllm.settings.load import CommandLine, Settings, operator_store
from cllm.stores.registry import check_store_exists, store_location
from cllm.terminal import pluralize

if TYPE_CHECKING:
    from cllm.app import App


def open_all_stores(line: CommandLine, *, create_database: bool = False) -> "App":
    """Open the store that `--store` names, or both stores.

    A database of the server that does not exist is left out, unless `create_database`.
    """

    def find_other(settings: Settings) -> str | None:
        if "store" in line.values:
            return None
        url = operator_store(settings)
        if url is None or create_database or _exists(url):
            return url
        if settings.server.store is not None:
            location = store_location(url)
            output.note(f"The database of the server, {location}, does not exist and is left out.")
        return None

    return open_app(line, find_other=find_other)


async def note_left_out(app: "App") -> None:
    """Print which conversations `--all` does not select, because they belong to other owners."""
    settings = app.settings
    if settings.server.keys and not settings.is_single_store:
        url = operator_store(settings)
        if url is not None and _exists(url):
            output.note(
                f"The conversations in {store_location(url)} are left out, because server keys "
                "separate their owners; `cllm backup` saves all of them."
            )
    others = set(await app.store.list_owners()) - {LOCAL_OWNER}
    if others:
        output.note(
            f"Conversations of {pluralize(len(others), 'other owner')} are left out; `cllm backup` "
            "saves all of them."
        )


def _exists(url: str) -> bool:
    try:
        check_store_exists(url)
    except StoreUnavailableError:
        return False
    return True


def join_counts(places: Mapping[str, int]) -> str:
    """`A`, or `A (15) and B (2)` with the numbers of conversations."""
    if len(places) == 1:
        return next(iter(places))
    return " and ".join(f"{place} ({count})" for place, count in places.items())
