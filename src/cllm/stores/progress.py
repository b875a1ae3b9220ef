"""Shows the progress of slow work of a store, if the interface can show it."""

from collections.abc import Callable, Iterable
from contextvars import ContextVar
from functools import partial

ShowProgress = Callable[[Iterable[str], str, int], Iterable[str]]
"""Yields the items; gets them, the name of the work and the number of items."""

show_progress: ContextVar[ShowProgress | None] = ContextVar("show_progress", default=None)


def current_track(task: str) -> Callable[[Iterable[str], int], Iterable[str]] | None:
    """Return a function that yields items and shows the progress; None if nothing shows it."""
    show = show_progress.get()
    return None if show is None else partial(_track, show, task)


def _track(show: ShowProgress, task: str, items: Iterable[str], total: int) -> Iterable[str]:
    return show(items, task, total)
