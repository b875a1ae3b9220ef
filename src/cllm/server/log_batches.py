"""Log lines written together, a moment after they came: a line for every request costs a write.

Knows nothing of what is logged; only where it goes, and when.
"""

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import IO

from cllm.logs import ROOT

WRITE_SECONDS = 0.1


class BatchedStream:
    """Stands in for a stream in a running event loop; without one it writes at once."""

    def __init__(self, stream: IO[str]) -> None:
        self._stream = stream
        self._lines: list[str] = []
        self._timer: asyncio.TimerHandle | None = None

    def write(self, text: str) -> None:
        self._lines.append(text)
        if self._timer is not None:
            return
        try:
            loop = asyncio.get_running_loop()
        except RuntimeError:
            self.write_out()
        else:
            self._timer = loop.call_later(WRITE_SECONDS, self.write_out)

    def flush(self) -> None:
        """Not yet."""

    def write_out(self) -> None:
        """Write what has come so far."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        text = "".join(self._lines)
        self._lines.clear()
        self._stream.write(text)
        self._stream.flush()


@contextmanager
def batched_logs() -> Iterator[None]:
    """Meanwhile, whatever is logged is written in batches, to where it goes otherwise.

    Handlers of other kinds are somebody else's, and what becomes of their streams is too.
    """
    handlers = [
        handler
        for handler in logging.getLogger(ROOT).handlers
        if type(handler) is logging.StreamHandler
    ]
    batches = [BatchedStream(handler.stream) for handler in handlers]
    before = [handler.setStream(batch) for handler, batch in zip(handlers, batches, strict=True)]
    try:
        yield
    finally:
        for handler, batch, stream in zip(handlers, batches, before, strict=True):
            batch.write_out()
            handler.setStream(stream)
