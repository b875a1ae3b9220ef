"""An event loop with virtual time, for tests of code that waits."""

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

START = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)


@pytest.fixture
async def loop_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[], datetime]:
    """Return a clock with the time of the running loop, which skips to its next timer when idle.

    Only for tests without threads and sockets: the loop does not wait for them.
    """
    loop: Any = asyncio.get_running_loop()
    select, time = loop._selector.select, loop.time
    start = time()
    skipped = 0.0

    def skip(seconds: float | None) -> Any:
        nonlocal skipped
        ready = select(seconds if seconds is None else 0)
        if not ready and seconds:
            skipped += seconds
        return ready

    monkeypatch.setattr(loop._selector, "select", skip)
    monkeypatch.setattr(loop, "time", lambda: time() + skipped)
    return lambda: START + timedelta(seconds=loop.time() - start)
