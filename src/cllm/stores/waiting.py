"""Waiting for something that another process or task holds, without holding up anybody."""

from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")

_FIRST_PAUSE = 0.002
_LONGEST_PAUSE = 0.05


async def wait_for(attempt: Callable[[], T | None], *, wait: float | None) -> T | None:
    """The same as `wait_until`, with an attempt that never waits itself."""

    async def at_once() -> T | None:
        return attempt()

    return await wait_until(at_once, wait=wait)


async def wait_until(
    attempt: Callable[[], Awaitable[T | None]],
    *,
    wait: float | None,
    longest_pause: float = _LONGEST_PAUSE,
) -> T | None:
    """Try until it gives something or `wait` seconds are over (None: for ever).

    The first attempt is made at once; without waiting, no event loop is needed.
    """
    found = await attempt()
    if found is not None or wait == 0:
        return found
    # Most callers never wait, and a command that lists files should not pay for this import.
    import asyncio  # noqa: PLC0415

    loop = asyncio.get_running_loop()
    deadline = None if wait is None else loop.time() + wait
    pause = _FIRST_PAUSE
    while found is None:
        left = pause if deadline is None else deadline - loop.time()
        if left <= 0:
            return None
        await asyncio.sleep(min(pause, left))
        pause = min(pause * 1.5, longest_pause)
        found = await attempt()
    return found
