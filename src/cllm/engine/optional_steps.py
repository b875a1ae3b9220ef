"""The store operations of a turn that is only recorded: the reply waits for them a short time."""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Any, TypeVar

from cllm.core.errors import CllmError, StoreUnavailableError
from cllm.engine.request import OnUnrecorded

OPTIONAL_SECONDS = 2.0
"""How long the start of a reply, and its end, waits for a store that is not needed for it."""

T = TypeVar("T")
WhenLate = Callable[[T | None], Awaitable[None]]
"""Gets the result of a step that continued in the background; None if it failed."""


class OptionalSteps:
    """Runs the store operations of one turn and reports their errors to `on_unrecorded`.

    A step is not cancelled when its time is over: a store can complete it anyway. It continues in
    `background`, and the later steps of the turn follow it there, in order. Their errors are not
    reported.
    """

    def __init__(self, on_unrecorded: OnUnrecorded, *, background: set[asyncio.Task[None]]) -> None:
        self._on_unrecorded = on_unrecorded
        self._background = background
        self._seconds = OPTIONAL_SECONDS
        self._last: asyncio.Task[None] | None = None
        self.is_late = False

    def restart_limit(self) -> None:
        """Let the following steps together take OPTIONAL_SECONDS."""
        self._seconds = OPTIONAL_SECONDS

    async def run(
        self, step: Coroutine[Any, Any, T], *, when_late: WhenLate[T] | None = None
    ) -> T | None:
        """Return the result; None if the step failed or continues in the background."""
        task = asyncio.create_task(step if self._last is None else _run_after(self._last, step))
        try:
            if not self.is_late:
                await self._wait(task)
        except asyncio.CancelledError:
            self._continue_later(task, when_late)
            raise
        if self.is_late:
            self._continue_later(task, when_late)
            return None
        try:
            return task.result()
        except CllmError as error:
            self._on_unrecorded(error)
            return None

    async def _wait(self, task: asyncio.Task[T]) -> None:
        now = asyncio.get_running_loop().time
        started = now()
        await asyncio.wait((task,), timeout=self._seconds)
        self._seconds = max(self._seconds - (now() - started), 0)
        if not task.done():
            self.is_late = True
            self._on_unrecorded(
                StoreUnavailableError("The store did not respond in time; the reply does not wait.")
            )

    def _continue_later(self, task: asyncio.Task[T], when_late: WhenLate[T] | None) -> None:
        self._last = asyncio.create_task(_finish_late(task, when_late))
        self._background.add(self._last)
        self._last.add_done_callback(self._background.discard)


async def _run_after(previous: asyncio.Task[None], step: Coroutine[Any, Any, T]) -> T:
    await asyncio.wait((previous,))
    return await step


async def _finish_late(task: asyncio.Task[T], when_late: WhenLate[T] | None) -> None:
    result = None
    with suppress(CllmError):
        result = await task
    if when_late is not None:
        with suppress(CllmError):
            await when_late(result)
