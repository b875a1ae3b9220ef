"""The cost of a request until it is sent, for `wire.py`: a clock that stops when the bytes are out.

A run is given to `Stopwatch.time`; whatever stands in for the network calls `sent` with the body
and answers from memory. What is done with the answer is after that, and is not counted.
"""

import time
from collections.abc import Callable

from measure import Cost


class Stopwatch:
    """Times one request after the other, each of which is sent exactly once."""

    def __init__(self, clock: Callable[[], Cost] | None = None) -> None:
        self.body = b""
        self._now = clock or _now
        self._began = Cost(cpu=0, wall=0)
        self._costs: list[Cost] = []

    def time(self, ask: Callable[[], object]) -> Cost:
        """What asking cost until the request was sent."""
        self._costs = []
        self._began = self._now()
        ask()
        assert len(self._costs) == 1, f"sent {len(self._costs)} times"
        return self._costs[0]

    def begin(self) -> None:
        """Called where the request begins, if something went before that is not to be counted."""
        self._began = self._now()

    def sent(self, body: bytes) -> None:
        """Called with the body where the network would be."""
        now, began = self._now(), self._began
        self.body = body
        self._costs.append(Cost(cpu=now.cpu - began.cpu, wall=now.wall - began.wall))


def _now() -> Cost:
    return Cost(cpu=time.process_time(), wall=time.perf_counter())
