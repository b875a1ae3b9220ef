"""Leases: lease expiry, fencing numbers, and waiting for a lease.

A lease lets one process change a conversation until it expires. A higher fencing number stops a
process whose lease expired. In PostgreSQL the database's clock decides (`postgres/statements.py`).
"""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import TypeVar

T = TypeVar("T")
LEASE_SECONDS = 60.0
MAX_LEASE = timedelta(hours=1)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_FIRST_PAUSE = 0.002
_MAX_PAUSE = 0.05


def lease_expiry(now: datetime, seconds: float) -> datetime:
    return now + timedelta(seconds=seconds)


def is_lease_valid(expires_at: datetime, now: datetime) -> bool:
    """Whether a lease has not expired.

    More than MAX_LEASE ahead, it is from before the clock was set back.
    """
    return now < expires_at <= now + MAX_LEASE


def next_fence(now: datetime, last: int | None) -> int:
    """A number that grows with time, also if the clock is set back."""
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
