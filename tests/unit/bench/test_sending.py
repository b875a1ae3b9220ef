"""The clock of the benchmark stops when a request is handed to where the network would be."""

import sys
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[3] / "bench"))

from measure import Cost
from sending import Stopwatch


def test_what_comes_after_the_sending_is_not_counted():
    now = Cost(cpu=1.0, wall=2.0)
    watch = Stopwatch(clock=lambda: now)

    def ask() -> None:
        nonlocal now
        now = Cost(cpu=1.5, wall=3.0)
        watch.sent(b"the body")
        now = Cost(cpu=9.0, wall=9.0)

    cost = watch.time(ask)

    assert cost == Cost(cpu=0.5, wall=1.0)
    assert watch.body == b"the body"


@pytest.mark.parametrize("times", [0, 2])
def test_a_request_that_is_not_sent_exactly_once_is_no_measurement(times):
    watch = Stopwatch()

    def ask() -> None:
        for _ in range(times):
            watch.sent(b"")

    with pytest.raises(AssertionError, match=f"sent {times} times"):
        watch.time(ask)
