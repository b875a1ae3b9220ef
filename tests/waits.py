"""Bounded waits: for a condition, and for a file to be opened (with inotify if available)."""

import asyncio
import contextlib
import ctypes
import os
import select
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.fake_provider import WAIT

IN_OPEN = 0x20
POLL_SECONDS = 0.005


def wait_until(condition: Callable[[], object], timeout: float = WAIT) -> bool:
    """Wait until the condition is true. Returns False after the timeout."""
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


async def wait_until_async(condition: Callable[[], object], timeout: float = WAIT) -> None:
    """Wait until the condition is true, while the event loop runs."""
    async with asyncio.timeout(timeout):
        while not condition():
            await asyncio.sleep(POLL_SECONDS)


def _wait_two_seconds(_: float) -> bool:
    time.sleep(2)
    return False


@contextlib.contextmanager
def watch_file_opens(folder: Path) -> Iterator[Callable[[float], bool]]:
    """Yield a function that waits until a file below the folder is opened; it returns whether."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "inotify_init1"):
        yield _wait_two_seconds
        return
    watch = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    for path in (folder, *(item for item in folder.rglob("*") if item.is_dir())):
        added = libc.inotify_add_watch(watch, os.fsencode(path), IN_OPEN)
        assert added >= 0, os.strerror(ctypes.get_errno())

    def wait(timeout: float) -> bool:
        ready, _, _ = select.select([watch], [], [], timeout)
        return bool(ready and os.read(watch, 65536))

    try:
        yield wait
    finally:
        os.close(watch)
