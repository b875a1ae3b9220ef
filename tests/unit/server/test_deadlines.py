"""Deadlines that share one timer."""

import asyncio

import pytest

from cllm.server.deadlines import Deadlines
from cllm.server.limits import in_time
from cllm.server.refusal import RefusedError

LATE = RefusedError("request_timeout", "Too late.")


async def test_what_is_not_over_in_time_is_called_back_once():
    passed: list[int] = []
    deadlines = Deadlines(0.02)

    deadline = deadlines.set(lambda: passed.append(1))
    await asyncio.sleep(0.4)

    assert passed == [1]
    assert deadline.passed


async def test_what_is_over_in_time_is_not_called_back():
    passed: list[int] = []
    deadlines = Deadlines(0.05)
    kept = deadlines.set(lambda: passed.append(1))
    deadlines.set(lambda: passed.append(2))

    kept.met()
    await asyncio.sleep(0.4)

    assert passed == [2]


async def test_deadlines_that_were_met_take_no_memory():
    deadlines = Deadlines(60)
    deadlines.set(lambda: None)

    for _ in range(1000):
        deadlines.set(lambda: None).met()

    assert len(deadlines._waiting) == 1


async def test_work_that_takes_too_long_is_cancelled_and_told():
    cancelled = asyncio.Event()

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            cancelled.set()

    with pytest.raises(RefusedError) as told:
        await in_time(work(), Deadlines(0.02), LATE)

    assert told.value is LATE
    assert cancelled.is_set()
    await asyncio.sleep(0)


async def test_a_cancellation_from_outside_stays_one():
    task = asyncio.create_task(in_time(asyncio.sleep(60), Deadlines(60), LATE))
    await asyncio.sleep(0)

    task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await task
