"""The turns that run in this process, each in a task of its own: a client's leaving ends none."""

import asyncio
from collections.abc import Coroutine
from typing import Any

from cllm.server.refusal import RefusedError


class RunningTurns:
    """Starts turns, and sees them to their end when the server stops."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._stopping = False

    def __len__(self) -> int:
        return len(self._tasks)

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a turn; RefusedError when no more are taken."""
        if self._stopping:
            work.close()
            raise RefusedError(
                "shutting_down", "The server is stopping; ask again in a moment.", retry_after=1
            )
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def stop(self, *, within: float) -> None:
        """Take no more turns, let those that run end, and break off what runs after so long.

        What is broken off is kept as incomplete before this returns.
        """
        self._stopping = True
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=within)
        left = list(self._tasks)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)
