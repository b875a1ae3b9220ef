"""Deadlines for many things that may all take equally long, watched by one timer.

A timer for each would cost more than most of what it watches. They are met a moment late, never
early.
"""

import asyncio
from collections.abc import Callable

import msgspec

from cllm.settings.server import ServerSettings

LATENESS = 0.1
LEAVING_SECONDS = 0.5


class Deadline:
    """One thing that has to be over in time; `passed` says that it was not."""

    __slots__ = ("_all", "at", "passed", "when_passed")

    def __init__(
        self, at: float, when_passed: Callable[[], object], among: dict["Deadline", None]
    ) -> None:
        self.at = at
        self.when_passed = when_passed
        self.passed = False
        self._all = among

    def met(self) -> None:
        """It is over."""
        self._all.pop(self, None)


class Deadlines:
    """Calls back what is not over within so many seconds."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._waiting: dict[Deadline, None] = {}
        self._timer: asyncio.TimerHandle | None = None

    def set(self, when_passed: Callable[[], object]) -> Deadline:
        """Begin to watch something."""
        loop = asyncio.get_running_loop()
        deadline = Deadline(loop.time() + self._seconds, when_passed, self._waiting)
        self._waiting[deadline] = None
        if self._timer is None:
            self._timer = loop.call_later(min(self._seconds, LATENESS), self._look)
        return deadline

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        now = loop.time()
        for deadline in list(self._waiting):
            if deadline.at > now:
                break
            deadline.met()
            deadline.passed = True
            deadline.when_passed()
        self._timer = loop.call_later(LATENESS, self._look) if self._waiting else None


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How long the server waits: for a body, for a turn, in silence, and before it looks whether
    a client has left.
    """

    bodies: Deadlines
    turns: Deadlines
    silence: Deadlines
    leaving: Deadlines


def patience_by(settings: ServerSettings) -> Patience:
    """The deadlines of one server."""
    return Patience(
        bodies=Deadlines(settings.limits.body_seconds),
        turns=Deadlines(settings.limits.turn_seconds),
        silence=Deadlines(settings.silence_seconds),
        leaving=Deadlines(LEAVING_SECONDS),
    )
