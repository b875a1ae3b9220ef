"""The background event loop: waiting, cancellation and shutdown."""

import asyncio
import threading
import time
from collections.abc import AsyncGenerator

import pytest

from cllm.core.errors import UsageError
from cllm.library.loop import BackgroundLoop, Job, OncePerProcess


@pytest.fixture
def loop():
    running = BackgroundLoop()
    yield running
    if running._thread.is_alive():
        running.stop()


async def value(number: int) -> int:
    await asyncio.sleep(0)
    return number


def test_a_coroutine_is_run_to_its_end(loop):
    assert loop.run(value(7)) == 7


def test_an_error_is_raised_in_the_caller(loop):
    async def fail() -> None:
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        loop.run(fail())


async def test_another_loop_waits_without_blocking(loop):
    assert await asyncio.gather(*(loop.run_async(value(n)) for n in range(5))) == [0, 1, 2, 3, 4]


async def test_a_cancelled_caller_waits_until_the_work_has_ended(loop):
    began, cleaned = threading.Event(), []

    async def work() -> None:
        try:
            began.set()
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.05)
            cleaned.append(True)

    task = asyncio.create_task(loop.run_async(work()))
    await asyncio.to_thread(began.wait)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task

    assert cleaned == [True]


@pytest.mark.parametrize("is_scheduled", [False, True])
def test_ctrl_c_while_a_job_is_scheduled_ends_the_wait(loop, is_scheduled, monkeypatch):
    schedule = loop._loop.call_soon_threadsafe

    def interrupted(*given, **named):
        monkeypatch.undo()
        if is_scheduled:
            schedule(*given, **named)
        raise KeyboardInterrupt

    monkeypatch.setattr(loop._loop, "call_soon_threadsafe", interrupted)

    with pytest.raises(KeyboardInterrupt):
        loop.run(asyncio.sleep(60))

    assert loop.run(value(3)) == 3


def test_a_job_cancelled_before_its_start_has_an_outcome(loop):
    job = Job(loop._loop, asyncio.sleep(60))

    job.cancel()
    job.cancel()

    with pytest.raises(asyncio.CancelledError):
        job.outcome.result(5)
    assert loop.run(value(3)) == 3


def test_a_call_on_the_loops_own_thread_is_refused(loop):
    async def wait_for_oneself() -> None:
        loop.run(value(1))

    with pytest.raises(UsageError, match="aask"):
        loop.run(wait_for_oneself())


def test_stopping_an_iteration_closes_its_generator(loop):
    closed = []

    async def count() -> AsyncGenerator[int, None]:
        try:
            for number in range(10):
                yield number
        finally:
            await asyncio.sleep(0)
            closed.append(True)

    for number in loop.iterate(count()):
        if number == 3:
            break

    assert closed == [True]


def test_stop_ends_tasks_generators_and_closers_in_order(loop):
    ended = []

    async def work() -> None:
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.01)
            ended.append("work")

    async def close() -> None:
        ended.append("closed")

    loop.on_stop(close)
    loop.start(work())
    loop.run(value(1))
    loop.stop()

    assert ended == ["work", "closed"]
    assert not loop._thread.is_alive()


def test_a_value_is_created_by_one_thread_only():
    made = []

    def make() -> object:
        time.sleep(0.02)
        made.append(object())
        return made[-1]

    shared = OncePerProcess(make, lambda _: None)
    threads = [threading.Thread(target=shared) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(made) == 1
    shared.close()
    assert shared() is made[1]
    shared.close()
