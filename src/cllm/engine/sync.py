"""The synchronous façade: running a coroutine from code that is not asynchronous."""

from collections.abc import Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on an event loop of its own."""
    import asyncio  # noqa: PLC0415 - a command that never waits does not pay for its import

    return asyncio.run(coroutine)


def run_without_waiting(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never waits, such as reading a file, without an event loop."""
    try:
        coroutine.send(None)
    except StopIteration as finished:
        result: T = finished.value
        return result
    coroutine.close()
    raise RuntimeError("this coroutine waits for something; use run()")
