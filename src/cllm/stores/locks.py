"""A lock on one conversation: flock on a file. The end of the process releases it.

The lock belongs to the open file, so two stores in one process exclude each other. The file counts
how often the lock was taken: the fencing number.
"""

import fcntl
import os
import threading
from contextlib import suppress
from pathlib import Path
from typing import Literal, Self

LockState = Literal["free", "locked", "missing", "unknown"]


class Lock:
    """A lock that is released by its last holder.

    `with lock:` adds a holder, so that work in a thread keeps the lock after its task is cancelled.
    """

    def __init__(self, fd: int, path: Path, number: int) -> None:
        self._fd = fd
        self._path = path
        self._holders = 1
        self._guard = threading.Lock()
        self.number = number

    def __enter__(self) -> Self:
        with self._guard:
            if self._holders == 0:
                raise ValueError("The lock has been released.")
            self._holders += 1
        return self

    def __exit__(self, *_: object) -> None:
        self.release()

    def release(self) -> None:
        with self._guard:
            self._holders -= 1
            if self._holders == 0:
                os.close(self._fd)

    def remove(self) -> None:
        with suppress(FileNotFoundError):
            self._path.unlink()


def try_lock(path: Path) -> Lock | None:
    """Return the lock, or None while another holder has it."""
    while True:
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(fd)
            return None
        except OSError:
            os.close(fd)
            raise
        try:
            if _is_same_file(path, fd):
                return Lock(fd, path, _increment_count(fd))
        except OSError:
            os.close(fd)
            raise
        os.close(fd)


def is_locked(path: Path) -> bool:
    return read_lock_state(path) == "locked"


def read_lock_state(path: Path) -> LockState:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return "missing"
    except OSError:
        return "unknown"
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return "locked"
    except OSError:
        return "unknown"
    finally:
        os.close(fd)
    return "free"


def _is_same_file(path: Path, fd: int) -> bool:
    """Whether the path still names the open file, which its holder may have deleted."""
    try:
        return os.path.samestat(path.stat(), os.fstat(fd))
    except FileNotFoundError:
        return False


def _increment_count(fd: int) -> int:
    text = os.pread(fd, 20, 0)
    number = int(text) + 1 if text.isdigit() else 1
    os.pwrite(fd, str(number).encode(), 0)
    return number
