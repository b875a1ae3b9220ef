"""How work on many things looks: on a terminal how far it is, elsewhere nothing."""

import contextlib
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from typing import TypeVar

from cllm.terminal import draw_line

T = TypeVar("T")

QUIET_SECONDS = 0.5
BETWEEN_DRAWINGS = 0.1


def counted(
    items: Iterable[T],
    what: str,
    *,
    total: int,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[T]:
    """The items one by one, with a line on standard error once they take a while."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield from items
        return
    next_at = clock() + QUIET_SECONDS
    drawn = False
    try:
        for number, item in enumerate(items):
            if clock() >= next_at:
                _draw(f"{what}: {number} of {total}")
                next_at, drawn = clock() + BETWEEN_DRAWINGS, True
            yield item
    finally:
        if drawn:
            _draw("")


def _draw(text: str) -> None:
    with contextlib.suppress(OSError):
        draw_line(sys.stderr, text)
