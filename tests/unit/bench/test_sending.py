"""The clock of the benchmark stops when a request is handed to where the network would be."""

import sys
import time
from pathlib import Path

import pytest

sys.path.append(str(Path(__file__).parents[3] / "bench"))

from sending import Stopwatch


def test_what_comes_after_the_sending_is_not_counted():
    watch = Stopwatch()

    def ask() -> None:
        time.sleep(0.01)
        watch.sent(b"the body")
        time.sleep(0.2)

    cost = watch.time(ask)

    assert 0.01 <= cost.wall < 0.2
    assert watch.body == b"the body"


@pytest.mark.parametrize("times", [0, 2])
def test_a_request_that_is_not_sent_exactly_once_is_no_measurement(times):
    watch = Stopwatch()

    def ask() -> None:
        for _ in range(times):
            watch.sent(b"")

    with pytest.raises(AssertionError, match=f"sent {times} times"):
        watch.time(ask)
