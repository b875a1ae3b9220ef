"""Leases: lease expiry, fencing numbers, waiting for a lease, and the lock of its process.

A lease lets one process change a conversation until it expires. A higher fencing number stops a
process whose lease expired. In PostgreSQL the database's clock decides (`postgres/statements.py`).
"""

import os
import re
import stat
import uuid
from collections.abc import Awaitable, Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TypeVar

from cllm.stores.locks import Lock, read_lock_state, try_lock

T = TypeVar("T")
LEASE_SECONDS = 60.0
MAX_LEASE = timedelta(hours=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FIRST_PAUSE = 0.002
_MAX_PAUSE = 0.05
PROCESS_INFIX = "-lock-"
_NAME = re.compile("[0-9a-f]{12}")


def lease_expiry(now: datetime, seconds: float) -> datetime:
    return now + timedelta(seconds=seconds)


def is_lease_valid(expires_at: datetime, now: datetime) -> bool:
    """Whether a lease has not expired.

    More than MAX_LEASE ahead, it is from before the clock was set back.
    """
    return now < expires_at <= now + MAX_LEASE


def next_fence(now: datetime, last: int | None) -> int:
    """Return a number that grows with time, also if the clock is set back."""
    fence = (now - _EPOCH) // _MICROSECOND
    return fence if last is None else max(fence, last + 1)


async def poll_sync(attempt: Callable[[], T | None], *, wait: float | None) -> T | None:
    async def attempt_async() -> T | None:
        return attempt()

    return await poll(attempt_async, wait=wait)


async def poll(
    attempt: Callable[[], Awaitable[T | None]],
    *,
    wait: float | None,
    max_pause: float = _MAX_PAUSE,
) -> T | None:
    """Call `attempt` until it returns a result or `wait` seconds pass (None: no limit).

    With `wait=0` no event loop is needed.
    """
    result = await attempt()
    if result is not None or wait == 0:
        return result
    # Most callers never wait and do not need this slow import.
    import asyncio  # noqa: PLC0415

    loop = asyncio.get_running_loop()
    deadline = None if wait is None else loop.time() + wait
    pause = _FIRST_PAUSE
    while result is None:
        left = pause if deadline is None else deadline - loop.time()
        if left <= 0:
            return None
        await asyncio.sleep(min(pause, left))
        pause = min(pause * 1.5, max_pause)
        result = await attempt()
    return result


class ProcessLock:
    """Shows whether the process of a lease is alive: a lock file next to its database.

    A store takes the lock when it is first needed and holds it until it is closed; the rows of its
    leases name it. The kernel releases it when the process ends. Files: `<database>-lock-<name>`.
    """

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
            with suppress(OSError):
                self._remove_unused_files()
            try:
                self._take()
            except OSError:
                self._lock = self._name = None
        return self._name

    def is_dead(self, name: str | None) -> bool:
        """Whether the process that took the lock has ended; unknown is False."""
        if name is None or name == self._name:
            return False
        return read_lock_state(self._path(name)) in ("free", "missing")

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
        return database.with_name(f"{database.name}{PROCESS_INFIX}{name}")

    def _remove_unused_files(self) -> None:
        """Remove the files that killed processes left, and no others."""
        first = self._path("")
        for path in first.parent.iterdir():
            prefix, name = path.name[: len(first.name)], path.name[len(first.name) :]
            if prefix == first.name and _NAME.fullmatch(name):
                # It may be another user's file, or none that can be locked.
                with suppress(OSError):
                    _remove_unused_file(path)


def _remove_unused_file(path: Path) -> None:
    if not stat.S_ISREG(path.lstat().st_mode):
        return
    lock = try_lock(path)
    if lock is not None:
        lock.remove()
        lock.release()
