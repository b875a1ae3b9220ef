"""How much of bodies is held while they are being read, all of them together.

Short bodies have a share of their own, so that long ones which come slowly keep nobody waiting who
has little to say. It counts and refuses, and never waits: who is refused makes room for the others.
"""

from typing import Self

from cllm.server.http.errors import RefusedError
from cllm.settings.sections import Limits

SHORT = 64 * 1024
"""The longest of the short bodies, in bytes."""
SHORT_SHARE = 4
"""A short body finds room as long as all that are short take less than one part in so many."""
RETRY_SECONDS = 5


class BodyRoom:
    """The bytes that are held, of short and of long bodies.

    The room for long ones is never less than one of them may be: alone, each can be read.
    """

    def __init__(self) -> None:
        self.short = 0
        self.long = 0

    def expect(self, size: int, limits: Limits) -> None:
        """RefusedError if a long body that is about to come would find no room as it is now."""
        if self.long + size > _most_long(limits):
            raise _full()

    def body(self, limits: Limits) -> "BodyShare":
        """A share for one body more, which has nothing yet."""
        return BodyShare(self, limits)


class BodyShare:
    """What one body takes of the room, until its reading is over."""

    def __init__(self, room: BodyRoom, limits: Limits) -> None:
        self._room = room
        self._limits = limits
        self._size = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._hold(0)

    def grow(self, size: int) -> None:
        """Hold so many bytes from now on; RefusedError if there is no room for them."""
        self._hold(size)
        if size <= SHORT:
            is_over = self._room.short > _most_short(self._limits)
        else:
            is_over = self._room.long > _most_long(self._limits)
        if is_over:
            raise _full()

    def _hold(self, size: int) -> None:
        room, before = self._room, self._size
        if before <= SHORT:
            room.short -= before
        else:
            room.long -= before
        if size <= SHORT:
            room.short += size
        else:
            room.long += size
        self._size = size


def _most_short(limits: Limits) -> int:
    return limits.bodies_bytes // SHORT_SHARE


def _most_long(limits: Limits) -> int:
    return max(limits.bodies_bytes - _most_short(limits), limits.body_bytes)


def _full() -> RefusedError:
    return RefusedError(
        "too_many_bodies",
        "The server is reading as many requests as it has room for; send this one again in a "
        "moment.",
        retry_after=RETRY_SECONDS,
    )
