"""The stopwatch of the benchmarks stops when a request reaches the transport."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[3] / "bench"))

from measurement import Cost
from stopwatch import Stopwatch


def test_work_after_the_request_was_sent_is_not_measured():
    now = Cost(cpu=1.0, wall=2.0)
    watch = Stopwatch(clock=lambda: now)

    def call() -> None:
        nonlocal now
        now = Cost(cpu=1.5, wall=3.0)
        watch.stop(b"the body")
        now = Cost(cpu=9.0, wall=9.0)

    cost = watch.time(call)

    assert cost == Cost(cpu=0.5, wall=1.0)
    assert watch.body == b"the body"


@pytest.mark.parametrize("times", [0, 2])
def test_a_call_that_does_not_send_exactly_one_request_fails(times):
    watch = Stopwatch()

    def call() -> None:
        for _ in range(times):
            watch.stop(b"")

    with pytest.raises(AssertionError, match=f"sent {times} times"):
        watch.time(call)
