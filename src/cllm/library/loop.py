"""One event loop per process, in its own thread, on which all code of the library runs."""

import asyncio
import atexit
import contextvars
import os
import threading
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from concurrent.futures import Future
from concurrent.futures import wait as wait_for_all
from contextlib import suppress
from functools import wraps
from importlib import import_module
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar

from cllm.core.errors import CllmError, UsageError

T = TypeVar("T")
# A thread ID and the ID of its current task, or 0. Two steps of the same caller never overlap.
CallerId = tuple[int, int]
CALLER: contextvars.ContextVar[CallerId] = contextvars.ContextVar("cllm_caller")
P = ParamSpec("P")
S = TypeVar("S")
OUTLIVING_CALLS: set[Future[Any]] = set()
"""The running calls of threads that Python waits for when the main thread ends."""
NEXT_CALL_SECONDS = 0.1
WAIT_INTERRUPTED = threading.Event()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=OUTLIVING_CALLS.clear)


class _End:
    """After the last item."""


class Job(Generic[T]):
    """A coroutine on the loop. `outcome` is set when it ends, also if it is cancelled.

    Ctrl-C can arrive inside `start`; `cancel` also ends a coroutine that is not scheduled yet.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, T]) -> None:
        self.outcome: Future[T] = Future()
        self.outcome.set_running_or_notify_cancel()
        self._loop = loop
        self._work = work
        self._task: asyncio.Task[T] | None = None

    def start(self) -> None:
        context = contextvars.copy_context()
        context.run(CALLER.set, current_caller())
        self._loop.call_soon_threadsafe(self._create_task, context=context)

    def _create_task(self) -> None:
        self._task = self._loop.create_task(self._work)
        self._task.add_done_callback(self._set_outcome)

    def _set_outcome(self, task: asyncio.Task[T]) -> None:
        if task.cancelled():
            self.outcome.set_exception(asyncio.CancelledError())
        elif (error := task.exception()) is not None:
            self.outcome.set_exception(error)
        else:
            self.outcome.set_result(task.result())

    def cancel(self) -> None:
        # After the end of the job, the loop can be closed.
        if not self.outcome.done():
            self._loop.call_soon_threadsafe(self._cancel)

    def _cancel(self) -> None:
        if self._task is not None:
            self._task.cancel()
        elif not self.outcome.done():
            self._work.close()
            self.outcome.set_exception(asyncio.CancelledError())


def current_caller() -> CallerId:
    try:
        task = asyncio.current_task()
    except RuntimeError:
        task = None
    return threading.get_ident(), 0 if task is None else id(task)


class BackgroundLoop:
    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._process = os.getpid()
        self._generators: set[AsyncGenerator[Any, None]] = set()
        self._closers: list[Callable[[], Coroutine[Any, Any, None]]] = []
        self._thread = threading.Thread(target=self._loop.run_forever, name="cllm", daemon=True)
        self._thread.start()

    def on_stop(self, close: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._closers.append(close)

    def start(self, work: Coroutine[Any, Any, T]) -> Job[T]:
        self._refuse_inherited(work)
        job = Job(self._loop, work)
        job.start()
        return job

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine and wait for it. Ctrl-C cancels it and waits until its text is saved."""
        if self._is_own_thread:
            work.close()
            raise UsageError(
                "A synchronous cllm function on cllm's own event loop would deadlock; use the "
                "asynchronous function instead, such as aask for ask."
            )
        self._refuse_inherited(work)
        job = Job(self._loop, work)
        thread = threading.current_thread()
        if not thread.daemon and thread is not threading.main_thread():
            OUTLIVING_CALLS.add(job.outcome)
            job.outcome.add_done_callback(OUTLIVING_CALLS.discard)
        try:
            job.start()
            return job.outcome.result()
        except BaseException:
            job.cancel()
            wait_for_all([job.outcome])
            raise

    async def run_async(self, work: Coroutine[Any, Any, T]) -> T:
        """Wait on the caller's loop; if cancelled, until the work has ended."""
        if self._is_own_thread:
            return await work
        job = self.start(work)
        future = asyncio.wrap_future(job.outcome)
        try:
            # Not `shield`, which reports an error of the work after a cancellation (Python 3.14).
            await asyncio.wait([future])
        except asyncio.CancelledError:
            job.cancel()
            await asyncio.wait([future])
            future.cancelled() or future.exception()
            raise
        return future.result()

    def iterate(self, events: AsyncGenerator[T, None]) -> Generator[T, None, None]:
        self._generators.add(events)
        try:
            while not isinstance(item := self.run(next_item(events)), _End):
                yield item
        finally:
            self._generators.discard(events)
            self._close(events)

    async def iterate_async(self, events: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
        self._generators.add(events)
        try:
            while not isinstance(item := await self.run_async(next_item(events)), _End):
                yield item
        finally:
            self._generators.discard(events)
            if not self._is_inherited:
                await self.run_async(close_generator(events))

    def _close(self, events: AsyncGenerator[Any, None]) -> None:
        """The garbage collector can call this, in any thread or too late."""
        if self._loop.is_closed() or self._is_inherited:
            return
        if self._is_own_thread:
            self.start(close_generator(events))
        else:
            self.run(close_generator(events))

    @property
    def _is_own_thread(self) -> bool:
        return threading.current_thread() is self._thread

    @property
    def _is_inherited(self) -> bool:
        """Whether this is a forked process, in which no thread runs the loop."""
        return os.getpid() != self._process

    def _refuse_inherited(self, work: Coroutine[Any, Any, Any]) -> None:
        if self._is_inherited:
            work.close()
            raise UsageError(
                "This stream belongs to the parent process; start another one in this process."
            )

    def stop(self) -> None:
        self.run(self._shut_down())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _shut_down(self) -> None:
        """Cancel the running turns, which save their text; then close stores and providers."""
        running = asyncio.all_tasks() - {asyncio.current_task()}
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        for events in tuple(self._generators):
            await close_generator(events)
        await self._loop.shutdown_asyncgens()
        for close in reversed(self._closers):
            with suppress(CllmError, OSError, RuntimeError):
                await close()
        await self._loop.shutdown_default_executor()


async def next_item(events: AsyncGenerator[T, None]) -> T | _End:
    return await anext(events, _End())


async def close_generator(events: AsyncGenerator[Any, None]) -> None:
    """Close a generator, unless another task runs it."""
    with suppress(RuntimeError):
        await events.aclose()


def call_at_exit(call: Callable[[], None]) -> None:
    """Call a function when the program ends, while thread pools still accept work.

    `atexit` is too late to save a turn in a store that writes in a thread: the pools have stopped.
    They use a private list of `threading`, last in first out.
    """
    register = getattr(threading, "_register_atexit", atexit.register)
    try:
        import_module("concurrent.futures.thread")  # adds the shutdown of the pools to the list
        register(call)
    except RuntimeError:  # the main thread has ended
        atexit.register(call)


def wait_for_outliving_calls() -> None:
    """Wait until threads other than the main one make no calls. A stream is one call per piece."""
    while not WAIT_INTERRUPTED.is_set() and (calls := tuple(OUTLIVING_CALLS)):
        wait_for_all(calls)
        time.sleep(NEXT_CALL_SECONDS)


class OncePerProcess(Generic[T]):
    """A value that each process creates on first use and closes at the end of the program.

    A forked process creates its own; it references the parent's value and never closes it.
    """

    def __init__(self, create: Callable[[], T], close: Callable[[T], None]) -> None:
        self._create = create
        self._close = close
        self._value: T | None = None
        self._lock = threading.Lock()
        self._is_registered = False
        self._inherited: list[T | None] = []
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._reset_in_child)

    def __call__(self) -> T:
        with self._lock:
            if self._value is None:
                self._value = self._create()
                if not self._is_registered:
                    self._is_registered = True
                    call_at_exit(self._close_at_exit)
            return self._value

    def _close_at_exit(self) -> None:
        try:
            wait_for_outliving_calls()
        except KeyboardInterrupt:
            # The calls are cancelled below; the callbacks of other values do not wait again.
            WAIT_INTERRUPTED.set()
        self.close()

    def _reset_in_child(self) -> None:
        self._inherited.append(self._value)
        self._value = None
        self._lock = threading.Lock()

    def close(self) -> None:
        with self._lock:
            value, self._value = self._value, None
        if value is not None:
            self._close(value)


background = OncePerProcess(BackgroundLoop, BackgroundLoop.stop)
Method = Callable[Concatenate[S, P], Coroutine[Any, Any, T]]


def synchronous(method: Method[S, P, T]) -> Callable[Concatenate[S, P], T]:
    @wraps(method)
    def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return background().run(method(self, *args, **kwargs))

    call.__name__ = method.__name__.removeprefix("_")
    return call


def asynchronous(method: Method[S, P, T]) -> Method[S, P, T]:
    @wraps(method)
    async def call(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await background().run_async(method(self, *args, **kwargs))

    call.__name__ = f"a{method.__name__.removeprefix('_')}"
    return call
