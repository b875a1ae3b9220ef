"""The limit of a reply, and blocking work in a thread."""

import asyncio
import threading
from typing import Any

import pytest

from cllm.core.errors import DownloadError
from cllm.core.message import plain_message
from cllm.core.prompt import Prompt
from cllm.providers.local.provider import limit_reply, run_in_thread


@pytest.mark.parametrize(
    ("parameters", "expected"),
    [
        ({}, {"max_tokens": 512}),
        ({"temperature": 1}, {"max_tokens": 512, "temperature": 1}),
        ({"temperature": 1, "max_tokens": 5}, {"temperature": 1, "max_tokens": 5}),
        ({"max_completion_tokens": 5}, {"max_completion_tokens": 5}),
    ],
)
def test_a_reply_is_limited_unless_the_caller_limits_it(
    parameters: dict[str, Any], expected: dict[str, Any]
):
    prompt = Prompt(model="m", messages=(plain_message("user", "Hello"),), parameters=parameters)

    assert limit_reply(prompt).parameters == expected


async def test_the_result_of_the_work_is_returned():
    assert await run_in_thread(lambda: 5, stop=threading.Event()) == 5


async def test_an_error_of_the_work_is_raised_in_the_task():
    def work() -> None:
        raise DownloadError("no")

    with pytest.raises(DownloadError, match="no"):
        await run_in_thread(work, stop=threading.Event())


async def test_a_cancelled_task_stops_the_work_and_does_not_wait_for_it():
    stop, started, release = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        started.set()
        release.wait(30)

    task = asyncio.create_task(run_in_thread(work, stop=stop))
    assert await asyncio.to_thread(started.wait, 30)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert stop.is_set()
    release.set()
