"""One turn, the same for every interface; here, functions that run a coroutine."""

from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run_coroutine(coroutine: Coroutine[Any, Any, T]) -> T:
    import asyncio  # noqa: PLC0415 - a command that never waits does not import it

    return asyncio.run(coroutine)


def run_without_loop(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends, without an event loop."""
    try:
        coroutine.send(None)
    except StopIteration as finished:
        result: T = finished.value
        return result
    coroutine.close()
    raise RuntimeError("this coroutine waits for something; use run()")
