"""Waiting for something that another process or task holds, without holding up anybody."""

from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_FIRST_PAUSE = 0.002
_LONGEST_PAUSE = 0.05


async def wait_for(attempt: Callable[[], T | None], *, wait: float | None) -> T | None:
    """Try until it gives something or `wait` seconds are over (None: for ever).

    The first attempt is made at once; without waiting, no event loop is needed.
    """
    found = attempt()
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
        pause = min(pause * 1.5, _LONGEST_PAUSE)
        found = attempt()
    return found
