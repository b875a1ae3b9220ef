"""What an empty list of conversations says: where it looked, and where there are some."""

from collections.abc import Iterable, Iterator
from shlex import quote

from cllm.app import OtherHistory
from cllm.stores.registry import without_password

PATHS = ("json", "sqlite")


def empty_list_lines(store: str, others: Iterable[OtherHistory], *, advice: str) -> Iterator[str]:
    """A line for the store that is empty, and one for each that is not.

    `advice` is the command that shows another store, up to its URL.
    """
    yield f"No conversations in {location(store)}."
    for other in others:
        many = other.conversations != 1
        count = f"{other.conversations:,} conversation{'s are' if many else ' is'}"
        yield f"{count} in {location(other.store)}; {advice} {quote(other.store)}"


def location(store: str) -> str:
    """The path of a store in files, or the URL of another one without its password."""
    scheme, _, path = store.partition(":")
    return path if scheme in PATHS else without_password(store)
