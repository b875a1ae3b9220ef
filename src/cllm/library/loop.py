"""The synchronous façade of the library: one event loop in a thread of its own.

Code that is not asynchronous, or that runs inside somebody else's event loop, hands its coroutines
to it. Connections stay open between calls, because the loop does.
"""

import asyncio
import threading
from collections.abc import AsyncGenerator, Coroutine, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

T = TypeVar("T")


class BackgroundLoop:
    """An event loop that runs until the program ends, or until it is stopped."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="cllm", daemon=True)
        self._thread.start()

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Begin a coroutine; its future."""
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine to its end; Ctrl-C cancels it, so that what was said can be kept."""
        future = self.submit(work)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def iterate(self, events: AsyncGenerator[T, None]) -> Iterator[T]:
        """The items of an asynchronous generator; leaving early closes it."""
        try:
            while True:
                try:
                    yield self.run(following(events))
                except StopAsyncIteration:
                    return
        finally:
            self.run(closed(events))

    def stop(self) -> None:
        """Stop the loop and wait for its thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def following(events: AsyncGenerator[T, None]) -> T:
    """The next item, as a coroutine, which `anext` alone does not give."""
    return await anext(events)


async def closed(events: AsyncGenerator[Any, None]) -> None:
    await events.aclose()
