"""What fetching a model tells while it goes on. Prints nothing: that is the surface's work."""

from collections.abc import Callable

import msgspec


class Started(msgspec.Struct, frozen=True, kw_only=True):
    """A file is on its way; `done` bytes of it were there from an earlier run."""

    what: str
    total: int | None
    done: int = 0


class Advanced(msgspec.Struct, frozen=True, kw_only=True):
    """So many bytes of the file are there now."""

    done: int


class Finished(msgspec.Struct, frozen=True, kw_only=True):
    """The file is in its place."""

    what: str
    size: int


class Said(msgspec.Struct, frozen=True, kw_only=True):
    """One sentence that the person should read."""

    text: str


Event = Started | Advanced | Finished | Said
Report = Callable[[Event], None]


def say_nothing(_event: Event) -> None:
    """The report of a program that does not want one."""
