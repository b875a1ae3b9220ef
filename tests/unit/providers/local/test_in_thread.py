"""Blocking work beside the event loop."""

import asyncio
import threading

import pytest

from cllm.core.errors import DownloadError
from cllm.providers.local.provider import run_in_thread


async def test_the_result_of_the_work_comes_back():
    assert await run_in_thread(lambda: 5, stop=threading.Event()) == 5


async def test_an_error_in_the_work_is_raised_in_the_task():
    def work() -> None:
        raise DownloadError("no")

    with pytest.raises(DownloadError, match="no"):
        await run_in_thread(work, stop=threading.Event())


async def test_a_cancelled_task_stops_the_work_and_does_not_wait_for_it():
    stop, begun, free = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        begun.set()
        free.wait(30)

    task = asyncio.create_task(run_in_thread(work, stop=stop))
    assert await asyncio.to_thread(begun.wait, 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert stop.is_set()
    free.set()
