"""One thread that does what it is given, in the order in which it came.

An executor of the standard library costs twice as much for each hop, with a lock and a second
future. Nothing here knows what the work is about.
"""

import asyncio
import contextlib
import threading
import weakref
from collections.abc import Callable
from queue import SimpleQueue
from typing import Any, TypeVar

T = TypeVar("T")
_Job = tuple["asyncio.Future[Any]", Callable[[], Any]]
_Jobs = SimpleQueue[_Job | None]


class Worker:
    """The thread. It starts with the first piece of work, and ends when it is told or forgotten."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: _Jobs | None = None

    def run(self, work: Callable[[], T]) -> "asyncio.Future[T]":
        """Have it done; the future belongs to the running loop."""
        if self._jobs is None:
            self._jobs = self._start()
        future: asyncio.Future[T] = asyncio.get_running_loop().create_future()
        self._jobs.put((future, work))
        return future

    def end(self) -> None:
        """Let the thread go after what it has been given so far."""
        jobs, self._jobs = self._jobs, None
        if jobs is not None:
            jobs.put(None)

    def _start(self) -> _Jobs:
        jobs: _Jobs = SimpleQueue()
        threading.Thread(target=_serve, args=(jobs,), name=self._name, daemon=True).start()
        weakref.finalize(self, jobs.put, None).atexit = False
        return jobs


def _serve(jobs: _Jobs) -> None:
    """Work until None comes."""
    while (job := jobs.get()) is not None:
        _do(*job)
        del job


def _do(future: "asyncio.Future[Any]", work: Callable[[], Any]) -> None:
    result, failure = None, None
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 - it is raised where somebody waits for it
        failure = error
    with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
        future.get_loop().call_soon_threadsafe(_settle, future, result, failure)


def _settle(future: "asyncio.Future[Any]", result: object, failure: BaseException | None) -> None:
    if future.cancelled():
        return
    if failure is None:
        future.set_result(result)
    else:
        future.set_exception(failure)
