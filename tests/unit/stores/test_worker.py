"""The thread in which an SQLite file is worked on."""

import asyncio
import gc
import threading
import time
from functools import partial

import pytest

from cllm.stores.sql.worker import Worker


def threads(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == name]


def wait_for_end(name: str) -> None:
    until = time.monotonic() + 5
    while threads(name):
        assert time.monotonic() < until
        time.sleep(0.01)


async def test_work_is_done_in_one_thread_in_the_order_in_which_it_came():
    worker, done = Worker("in-order"), []

    def work(number: int) -> int:
        done.append((number, threading.current_thread().name))
        return number

    found = await asyncio.gather(*(worker.run(partial(work, n)) for n in range(20)))
    assert found == list(range(20))
    assert done == [(number, "in-order") for number in range(20)]
    worker.end()
    wait_for_end("in-order")


async def test_what_the_work_raises_is_raised_where_it_is_awaited():
    worker = Worker("raising")
    with pytest.raises(ZeroDivisionError):
        await worker.run(lambda: 1 // 0)
    assert await worker.run(lambda: 1) == 1
    worker.end()


async def test_an_ended_worker_starts_again_when_there_is_work():
    worker = Worker("again")
    worker.end()
    await worker.run(lambda: None)
    worker.end()
    worker.end()
    assert await worker.run(lambda: 2) == 2
    worker.end()
    wait_for_end("again")


async def test_a_worker_that_is_forgotten_ends_its_thread():
    worker = Worker("forgotten")
    await worker.run(lambda: None)
    assert threads("forgotten")
    del worker
    gc.collect()
    wait_for_end("forgotten")


def test_work_whose_loop_is_gone_is_finished_and_the_next_is_done():
    worker, done = Worker("loops"), threading.Event()

    def slowly() -> None:
        time.sleep(0.1)
        done.set()

    async def leave() -> None:
        worker.run(slowly)

    asyncio.run(leave())
    assert done.wait(5)

    async def again() -> int:
        return await worker.run(lambda: 3)

    assert asyncio.run(again()) == 3
    worker.end()
