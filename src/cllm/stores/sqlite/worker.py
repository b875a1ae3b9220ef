"""One thread that does work in order.

All waiting work is done together, so that it shares one wake-up and one commit. An executor of the
standard library costs twice as much per hop.
"""

import asyncio
import contextlib
import threading
import weakref
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any, Generic, TypeVar

Piece = TypeVar("Piece")
Outcome = tuple[Any, BaseException | None]
"""A result, or a failure."""
_Do = Callable[[Sequence[Any]], Sequence[Outcome]]
_Waiting = tuple["asyncio.Future[Any]", Any, _Do]
_Jobs = SimpleQueue[_Waiting | None]

MOST_TOGETHER = 64


class Sure(asyncio.Future[Any]):
    """A future that ignores cancel(): the waiter is cancelled after the work is done."""

    def cancel(self, msg: Any = None) -> bool:  # noqa: ARG002
        return False


class Worker(Generic[Piece]):
    """The thread; it starts with the first work and ends with `end` or with the Worker.

    `do` gets the waiting pieces and returns the outcome of each, in order; it never raises. If
    fewer wait than were done together last, `pause` waits a moment for the others.
    """

    def __init__(
        self,
        name: str,
        do: Callable[[Sequence[Piece]], Sequence[Outcome]],
        *,
        pause: Callable[[], object] | None = None,
    ) -> None:
        self._name = name
        self._do = do
        self._pause = pause
        self._jobs: _Jobs | None = None

    def run(self, piece: Piece, *, can_cancel: bool = False) -> "asyncio.Future[Any]":
        """Queue the work; the future belongs to the running loop.

        Work that `can_cancel` is skipped if its future is cancelled first, and its end is not
        waited for.
        """
        if self._jobs is None:
            self._jobs = self._start()
        loop = asyncio.get_running_loop()
        future = asyncio.Future[Any](loop=loop) if can_cancel else Sure(loop=loop)
        self._jobs.put((future, piece, self._do))
        return future

    def end(self) -> None:
        jobs, self._jobs = self._jobs, None
        if jobs is not None:
            jobs.put(None)

    def _start(self) -> _Jobs:
        jobs: _Jobs = SimpleQueue()
        given = (jobs, self._pause)
        threading.Thread(target=_serve, args=given, name=self._name, daemon=True).start()
        weakref.finalize(self, jobs.put, None).atexit = False
        return jobs


def _serve(jobs: _Jobs, pause: Callable[[], object] | None) -> None:
    """Work until None comes. Holds nothing of a job after it."""
    before = 1
    while (first := jobs.get()) is not None:
        together = [first]
        is_last = _take_waiting(jobs, together)
        if pause is not None and len(together) < before and not is_last:
            pause()
            is_last = _take_waiting(jobs, together)
        before = len(together)
        _work_off(together)
        del first, together
        if is_last:
            return


def _take_waiting(jobs: _Jobs, together: list[_Waiting]) -> bool:
    """Add what is waiting; return whether None was behind it."""
    with contextlib.suppress(Empty):
        while len(together) < MOST_TOGETHER:
            job = jobs.get_nowait()
            if job is None:
                return True
            together.append(job)
    return False


def _work_off(jobs: Sequence[_Waiting]) -> None:
    """Do the jobs and set their futures, with one call per event loop."""
    do = jobs[0][2]
    jobs = [job for job in jobs if not job[0].cancelled()]
    outcomes = do([piece for _, piece, _ in jobs])
    told: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Outcome]]] = {}
    for (future, _, _), outcome in zip(jobs, outcomes, strict=True):
        told.setdefault(future.get_loop(), []).append((future, outcome))
    for loop, settled in told.items():
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(_settle, settled)


def _settle(settled: Sequence[tuple["asyncio.Future[Any]", Outcome]]) -> None:
    for future, (result, failure) in settled:
        if future.cancelled():
            continue
        if failure is None:
            future.set_result(result)
        else:
            future.set_exception(failure)
