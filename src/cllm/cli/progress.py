"""Progress of a download or a long list, on standard error."""

import contextlib
import itertools
import os
import shutil
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from typing import TypeVar, assert_never

from cllm.cli import output
from cllm.providers.local.models import (
    DownloadAdvanced,
    DownloadEvent,
    DownloadFinished,
    DownloadMessage,
    DownloadStarted,
)
from cllm.terminal import draw_line

WIDTH = 30
REDRAW_SECONDS = 0.1
MEGABYTE = 1_000_000
T = TypeVar("T")
QUIET_SECONDS = 0.5


class Progress:
    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._bar = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self._total: int | None = None
        self._started_at = 0.0
        self._start_bytes = 0
        self._drawn_at = 0.0

    def __call__(self, event: DownloadEvent) -> None:
        match event:
            case DownloadStarted():
                self._start(event)
            case DownloadAdvanced():
                self._advance(event.done)
            case DownloadFinished():
                self._clear()
                output.note(f"Downloaded {event.name}.")
            case DownloadMessage():
                self._clear()
                output.note(event.text)
            case _:
                assert_never(event)

    def _start(self, event: DownloadStarted) -> None:
        self._total = event.total
        self._started_at = self._clock()
        self._start_bytes = event.done
        size = "" if event.total is None else f", {_format_megabytes(event.total)}"
        resumed = f", resuming at {_format_megabytes(event.done)}" if event.done else ""
        output.note(f"Downloading {event.name}{size}{resumed}; needed only once.")

    def _advance(self, done: int) -> None:
        now = self._clock()
        if not self._bar or now - self._drawn_at < REDRAW_SECONDS:
            return
        self._drawn_at = now
        width = shutil.get_terminal_size().columns - 1
        draw_line(sys.stderr, self._format_line(done, now)[:width])

    def _format_line(self, done: int, now: float) -> str:
        speed = (done - self._start_bytes) / max(now - self._started_at, 0.001)
        rate = f"{_format_megabytes(done)}  {speed / MEGABYTE:.1f} MB/s"
        if not self._total:
            return rate
        filled = min(WIDTH * done // self._total, WIDTH)
        bar = "#" * filled + "-" * (WIDTH - filled)
        left = (self._total - done) / speed if speed > 0 else 0
        return f"[{bar}] {100 * done // self._total:3d} %  {rate}  {left:.0f} s left"

    def _clear(self) -> None:
        if self._bar and self._drawn_at:
            draw_line(sys.stderr, "")


def _format_megabytes(size: int) -> str:
    return f"{size / MEGABYTE:.0f} MB"


def show_progress(
    items: Iterable[T],
    name: str,
    *,
    total: int | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Generator[T]:
    """Yield the items; after QUIET_SECONDS show a progress line on standard error."""
    if not sys.stderr.isatty() or os.environ.get("TERM") == "dumb":
        yield from items
        return
    next_at = clock() + QUIET_SECONDS
    is_drawn = False
    try:
        for number, item in enumerate(items):
            if clock() >= next_at:
                _draw(f"{name}: {number}" if total is None else f"{name}: {number} of {total}")
                next_at, is_drawn = clock() + REDRAW_SECONDS, True
            yield item
    finally:
        if is_drawn:
            _draw("")


@contextlib.contextmanager
def count_items(name: str) -> Iterator[Callable[[], object]]:
    """Yield a function to call for each item, which shows a progress line."""
    counter = show_progress(itertools.count(), name)
    try:
        yield lambda: next(counter)
    finally:
        counter.close()


def _draw(text: str) -> None:
    with contextlib.suppress(OSError):
        draw_line(sys.stderr, text)
