"""Ctrl-C and the signals that end a process, while a chat runs.

Ctrl-C stops what is under way, and only that. SIGTERM and SIGHUP stop it too, and then the chat.
"""

import asyncio
import signal
from collections.abc import Coroutine
from types import FrameType
from typing import Any

PATIENT_PRESSES = 2


class EndedBySignal(BaseException):
    """The process was asked to end."""


class Signals:
    """Hears the signals; made in the task that the chat is.

    Where reading a line `blocks` the event loop, only an exception ends it.
    """

    def __init__(self, *, blocks: bool) -> None:
        self.ended = False
        self._loop = asyncio.get_running_loop()
        self._chat = asyncio.current_task()
        self._blocks = blocks
        self._work: asyncio.Task[None] | None = None
        self._presses = 0

    def listen(self) -> None:
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._hear)

    async def stoppable(self, work: Coroutine[Any, Any, None]) -> None:
        """Do the work; Ctrl-C ends it early, and what it has to tidy up is waited for.

        EndedBySignal if the process is to end, also where the work was done before it heard of it.
        """
        # Whoever read the keyboard may have listened for themselves meanwhile.
        self.listen()
        self._presses = 0
        self._work = asyncio.ensure_future(work)
        try:
            await self._work
        except asyncio.CancelledError:
            if self.ended:
                raise EndedBySignal from None
            if not self._presses:
                self._work.cancel()
                raise
        finally:
            self._work = None
        if self.ended:
            raise EndedBySignal

    def _hear(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGINT:
            self._press()
            return
        self.ended = True
        if self._work is not None:
            self._loop.call_soon_threadsafe(self._work.cancel)
        elif self._blocks:
            raise EndedBySignal
        elif self._chat is not None:
            self._loop.call_soon_threadsafe(self._chat.cancel)

    def _press(self) -> None:
        if self._work is None or self._presses > PATIENT_PRESSES:
            raise KeyboardInterrupt
        self._presses += 1
        if self._presses == 1:
            self._loop.call_soon_threadsafe(self._work.cancel)
