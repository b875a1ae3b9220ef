"""Small writes made in the event loop's own thread, many at a time, of which only the commit waits.

Two threads that work at once take the interpreter's lock from each other at every statement, which
costs more than the statements of a small turn do. So these are made where they come from as long
as nothing has to be waited for, and the other thread does what takes long: it waits for the disk.
What comes meanwhile is made when that is over, under one commit again. Knows no database.
"""

import asyncio
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from cllm.stores.sql.worker import Outcome, tell

Piece = TypeVar("Piece")
_Waiting = tuple["asyncio.Future[Any]", Piece]

# So many hold the loop up for a few milliseconds at most.
MOST_TOGETHER = 32


class LightWrites(Generic[Piece]):
    """The small writes of one event loop.

    `make` makes all that it is given at once, and its future says what came of each when they are
    on the disk, or fails if they never got there. It is None where they would have to wait for
    something, or one of them cannot be made; nothing has been done then. `make_behind` has one made
    by the other thread, in its own time.
    """

    def __init__(
        self,
        make: Callable[[Sequence[Piece]], "asyncio.Future[Sequence[Outcome]] | None"],
        make_behind: Callable[[Piece], "asyncio.Future[Any]"],
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self._make = make
        self._make_behind = make_behind
        self._waiting: list[_Waiting[Piece]] = []
        self._is_committing = False

    def run(self, piece: Piece) -> "asyncio.Future[Any]":
        """Have it made, together with what else comes in this round of the loop."""
        future: asyncio.Future[Any] = self.loop.create_future()
        self._waiting.append((future, piece))
        if len(self._waiting) == 1 and not self._is_committing:
            self.loop.call_soon(self._make_next)
        return future

    def hand_over(self) -> None:
        """Leave what has not been made yet to the other thread."""
        waiting, self._waiting = self._waiting, []
        for future, piece in waiting:
            self._make_behind(piece).add_done_callback(partial(_pass_on, future))

    def _make_next(self) -> None:
        if self._is_committing or not self._waiting:
            return
        together = self._waiting[:MOST_TOGETHER]
        made = self._make([piece for _, piece in together])
        if made is None:
            self.hand_over()
            return
        del self._waiting[:MOST_TOGETHER]
        self._is_committing = True
        made.add_done_callback(partial(self._end, together))

    def _end(
        self, together: Sequence[_Waiting[Piece]], made: "asyncio.Future[Sequence[Outcome]]"
    ) -> None:
        self._is_committing = False
        if made.exception() is None:
            tell(zip((future for future, _ in together), made.result(), strict=True))
        else:
            self._waiting[:0] = together
            self.hand_over()
        self._make_next()


def _pass_on(future: "asyncio.Future[Any]", done: "asyncio.Future[Any]") -> None:
    failure = done.exception()
    tell([(future, (None if failure else done.result(), failure))])
