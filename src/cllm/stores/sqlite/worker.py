"""One thread that does what it is given, in the order in which it came.

What waits for it at one time is done together, so that one wake-up, and whatever else can be
shared, serves all of it. An executor of the standard library costs twice as much for each hop,
with a lock and a second future. Nothing here knows what the work is about.
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
"""What came of a piece of work: a result, or a failure."""
_Do = Callable[[Sequence[Any]], Sequence[Outcome]]
_Waiting = tuple["asyncio.Future[Any]", Any, _Do]
_Jobs = SimpleQueue[_Waiting | None]

MOST_TOGETHER = 64


class Sure(asyncio.Future[Any]):
    """A future of work that is done in any case: who is cancelled meanwhile hears of it then."""

    def cancel(self, msg: Any = None) -> bool:  # noqa: ARG002 - as its parent has it
        return False


class Worker(Generic[Piece]):
    """The thread. It starts with the first piece of work, and ends when it is told or forgotten.

    `do` is given the pieces that wait and says what came of each, in their order; it never raises.
    If fewer wait than were done together last, it is for `pause` to wait a moment for the others.
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
        """Have it done; the future belongs to the running loop.

        Work that can be cancelled is not begun once its future is, and nobody waits for its end.
        """
        if self._jobs is None:
            self._jobs = self._start()
        loop = asyncio.get_running_loop()
        future = asyncio.Future[Any](loop=loop) if can_cancel else Sure(loop=loop)
        self._jobs.put((future, piece, self._do))
        return future

    def end(self) -> None:
        """Let the thread go after what it has been given so far."""
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
    """Work until None comes. Between two jobs nothing of the first is held."""
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
    """Add what waits already; whether None was behind it."""
    with contextlib.suppress(Empty):
        while len(together) < MOST_TOGETHER:
            job = jobs.get_nowait()
            if job is None:
                return True
            together.append(job)
    return False


def _work_off(jobs: Sequence[_Waiting]) -> None:
    """Do the jobs, and tell those who wait: one call for each loop that they wait in."""
    do = jobs[0][2]
    jobs = [job for job in jobs if not job[0].cancelled()]
    outcomes = do([piece for _, piece, _ in jobs])
    told: dict[asyncio.AbstractEventLoop, list[tuple[asyncio.Future[Any], Outcome]]] = {}
    for (future, _, _), outcome in zip(jobs, outcomes, strict=True):
        told.setdefault(future.get_loop(), []).append((future, outcome))
    for loop, settled in told.items():
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
            loop.call_soon_threadsafe(_settle, settled)


def _settle(settled: Sequence[tuple["asyncio.Future[Any]", Outcome]]) -> None:
    for future, (result, failure) in settled:
        if future.cancelled():
            continue
        if failure is None:
            future.set_result(result)
        else:
            future.set_exception(failure)
