"""A lock file next to a database that shows whether the process of a lease is alive.

A store holds one lock (flock) while it is open, and the rows of its leases name it. The kernel
releases the lock when the process ends, in whatever way.
"""

import fcntl
import os
import uuid
from pathlib import Path

from cllm.stores.locks import Lock, try_lock

INFIX = "-lock-"


class ProcessLock:
    """The lock of one store, taken on first use. Files are `<database>-lock-<name>`."""

    def __init__(self, database: Path) -> None:
        self._database = database
        self._lock: Lock | None = None
        self._name: str | None = None
        self._is_taken = False
        self._process = os.getpid()
        self.lost_turns: set[str] = set()
        """Turns of this store whose end could not be saved; their leases are not valid."""

    def name(self) -> str | None:
        """Take the lock; None if the file system has no locks."""
        if not self._is_taken:
            self._is_taken = True
            self._process = os.getpid()
            try:
                self._remove_unused_files()
                self._take()
            except OSError:
                self._lock = self._name = None
        return self._name

    def is_dead(self, name: str | None) -> bool:
        """Whether the process that took the lock has ended; unknown is False."""
        if name is None or name == self._name:
            return False
        return _is_unused(self._path(name))

    def release(self) -> None:
        if self._lock is not None:
            # A forked child has the lock too, and must not end it for its parent.
            if self._process == os.getpid():
                self._lock.remove()
            self._lock.release()
        self._lock = self._name = None
        self._is_taken = False

    def _take(self) -> None:
        while self._lock is None:
            name = uuid.uuid4().hex[:12]
            self._lock = try_lock(self._path(name))
            self._name = name

    def _path(self, name: str) -> Path:
        # As SQLite does for its own files: a symbolic link to the database has the same lock.
        database = self._database.resolve()
        return database.with_name(f"{database.name}{INFIX}{name}")

    def _remove_unused_files(self) -> None:
        """Remove the files that killed processes left."""
        first = self._path("")
        for path in first.parent.iterdir():
            lock = try_lock(path) if path.name.startswith(first.name) else None
            if lock is not None:
                lock.remove()
                lock.release()


def _is_unused(path: Path) -> bool:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        return False
    finally:
        os.close(fd)
    return True
