"""The thread in which an SQLite file is worked on."""

import asyncio
import gc
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import pytest
from tests.waits import wait_until, wait_until_async

from cllm.stores.sqlite.connection import MAX_BATCH, Outcome, WorkerThread


def one_by_one(pieces: Sequence[Callable[[], Any]]) -> list[Outcome]:
    outcomes: list[Outcome] = []
    for piece in pieces:
        try:
            outcomes.append((piece(), None))
        except ArithmeticError as error:
            outcomes.append((None, error))
    return outcomes


def threads(name: str) -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == name]


def wait_for_end(name: str) -> None:
    assert wait_until(lambda: not threads(name))


async def test_work_is_done_in_one_thread_in_the_order_in_which_it_came():
    worker, done = WorkerThread("in-order", one_by_one), []

    def work(number: int) -> int:
        done.append((number, threading.current_thread().name))
        return number

    found = await asyncio.gather(*(worker.run(partial(work, n)) for n in range(20)))
    assert found == list(range(20))
    assert done == [(number, "in-order") for number in range(20)]
    worker.end()
    wait_for_end("in-order")


async def test_what_the_work_raises_is_raised_where_it_is_awaited():
    worker = WorkerThread("raising", one_by_one)
    with pytest.raises(ZeroDivisionError):
        await worker.run(lambda: 1 // 0)
    assert await worker.run(lambda: 1) == 1
    worker.end()


async def test_an_ended_worker_starts_again_when_there_is_work():
    worker = WorkerThread("again", one_by_one)
    worker.end()
    await worker.run(lambda: None)
    worker.end()
    worker.end()
    assert await worker.run(lambda: 2) == 2
    worker.end()
    wait_for_end("again")


async def test_a_worker_that_is_forgotten_ends_its_thread():
    worker = WorkerThread("forgotten", one_by_one)
    await worker.run(lambda: None)
    assert threads("forgotten")
    del worker
    gc.collect()
    wait_for_end("forgotten")


def test_work_whose_loop_is_gone_is_finished_and_the_next_is_done():
    worker, done = WorkerThread("loops", one_by_one), threading.Event()
    loop_is_gone = threading.Event()

    def slowly() -> None:
        loop_is_gone.wait(5)
        done.set()

    async def leave() -> None:
        worker.run(slowly)

    asyncio.run(leave())
    loop_is_gone.set()
    assert done.wait(5)

    async def again() -> int:
        found: int = await worker.run(lambda: 3)
        return found

    assert asyncio.run(again()) == 3
    worker.end()


async def test_what_waits_at_one_time_is_done_together_but_never_without_end():
    begun, together = threading.Event(), []

    def note(pieces: Sequence[int]) -> list[Outcome]:
        together.append(list(pieces))
        begun.wait(5)
        return [(piece, None) for piece in pieces]

    worker = WorkerThread("together", note)
    first = worker.run(0)
    await wait_until_async(lambda: together)
    rest = [worker.run(n) for n in range(1, MAX_BATCH + 3)]
    begun.set()
    assert await asyncio.gather(first, *rest) == list(range(MAX_BATCH + 3))
    last = [MAX_BATCH + 1, MAX_BATCH + 2]
    assert together == [[0], list(range(1, MAX_BATCH + 1)), last]
    worker.end()
    wait_for_end("together")


async def test_others_are_waited_for_only_after_several_came_together():
    """The worker is held in its pauses and at its work until it is told to go on."""
    together: list[list[int]] = []
    pausing, go_on = threading.Semaphore(0), threading.Semaphore(0)
    at_work = threading.Semaphore(0)

    def note(pieces: Sequence[int]) -> list[Outcome]:
        together.append(list(pieces))
        at_work.acquire(timeout=5)
        return [(piece, None) for piece in pieces]

    def pause() -> None:
        pausing.release()
        go_on.acquire(timeout=5)

    worker = WorkerThread("gathering", note, pause=pause)
    alone = worker.run(0)
    await wait_until_async(lambda: together)
    several = [worker.run(1), worker.run(2)]
    at_work.release(2)
    await asyncio.gather(alone, *several)
    assert not pausing.acquire(blocking=False)

    waited_for = [worker.run(3)]
    await asyncio.to_thread(pausing.acquire, timeout=5)
    waited_for.append(worker.run(4))
    go_on.release()
    at_work.release()
    await asyncio.gather(*waited_for)

    in_vain = worker.run(5)
    await asyncio.to_thread(pausing.acquire, timeout=5)
    go_on.release()
    at_work.release(2)
    await in_vain
    await worker.run(6)

    assert together == [[0], [1, 2], [3, 4], [5], [6]]
    assert not pausing.acquire(blocking=False)
    worker.end()
    wait_for_end("gathering")
