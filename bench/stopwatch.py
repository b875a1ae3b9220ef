"""Measures the cost of a request until it reaches the transport, for `wire.py`.

`Stopwatch.time` runs a call. The transport, which replaces the network and responds from memory,
calls `stop` with the request body. Processing of the response is not measured.
"""

import time
from collections.abc import Callable

from measurement import Cost


class Stopwatch:
    """Times one request at a time. Each call must send exactly one request."""

    def __init__(self, clock: Callable[[], Cost] | None = None) -> None:
        self.body = b""
        self._now = clock or _now
        self._start = Cost(cpu=0, wall=0)
        self._costs: list[Cost] = []

    def time(self, call: Callable[[], object]) -> Cost:
        """Return the cost of a call until its request was sent."""
        self._costs = []
        self._start = self._now()
        call()
        assert len(self._costs) == 1, f"sent {len(self._costs)} times"
        return self._costs[0]

    def restart(self) -> None:
        """Restart the clock, to exclude the set-up before the request."""
        self._start = self._now()

    def stop(self, body: bytes) -> None:
        """Record the cost. The transport calls this with the request body."""
        now, start = self._now(), self._start
        self.body = body
        self._costs.append(Cost(cpu=now.cpu - start.cpu, wall=now.wall - start.wall))


def _now() -> Cost:
    return Cost(cpu=time.process_time(), wall=time.perf_counter())
