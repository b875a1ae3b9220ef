"""Waiting until somebody opens a file, by inotify where there is one."""

import contextlib
import ctypes
import os
import select
import time
from collections.abc import Callable, Iterator
from pathlib import Path

IN_OPEN = 0x20


def _two_seconds(_: float) -> bool:
    time.sleep(2)
    return False


@contextlib.contextmanager
def opened_files(folder: Path) -> Iterator[Callable[[float], bool]]:
    """A way to wait until somebody opens a file below the folder; says whether somebody did."""
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "inotify_init1"):
        yield _two_seconds
        return
    watch = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    for watched in (folder, *(path for path in folder.rglob("*") if path.is_dir())):
        added = libc.inotify_add_watch(watch, os.fsencode(watched), IN_OPEN)
        assert added >= 0, os.strerror(ctypes.get_errno())

    def wait(timeout: float) -> bool:
        ready, _, _ = select.select([watch], [], [], timeout)
        return bool(ready and os.read(watch, 65536))

    try:
        yield wait
    finally:
        os.close(watch)
