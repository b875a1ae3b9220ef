"""Work that is done to its end, whoever stops waiting for it."""

import asyncio
from collections.abc import Coroutine
from typing import Any


async def uninterrupted(work: Coroutine[Any, Any, None]) -> None:
    """Have the work done in a task of its own; who is cancelled meanwhile hears of it afterwards.

    What goes wrong with the work is raised in any case.
    """
    task = asyncio.create_task(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait((task,))
        task.result()
        raise
