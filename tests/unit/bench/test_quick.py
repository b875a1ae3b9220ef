"""The quick run of the benchmarks finds ratios that are worse than the committed ones."""

import math
import sys
from pathlib import Path

import msgspec
import pytest

sys.path.append(str(Path(__file__).parents[3] / "bench"))

from quick import (
    COMMITTED,
    GROUPS,
    SMALLEST,
    TOLERANCES,
    compare_groups,
    find_differing,
    find_worse,
    run_group,
)
from results import CPU, Comparison, Results, read_results

TURN = Comparison(quantity="turn", value=1.5, kind="floor", baseline="sqlite3", baseline_value=1)


def change(value: float) -> Comparison:
    return msgspec.structs.replace(TURN, value=value)


def test_a_ratio_within_the_tolerance_is_no_problem():
    assert find_worse([change(1.5 * TOLERANCES[CPU] * 0.99)], [TURN]) == []
    assert find_worse([change(0.5)], [TURN]) == []


def test_a_worse_ratio_is_a_problem():
    (problem,) = find_worse([change(3)], [TURN])

    assert problem == "turn, CPU time: 3 x sqlite3, committed 1.5 x, tolerance 1.3"


def test_a_missing_and_an_unknown_ratio_are_problems():
    other = msgspec.structs.replace(TURN, quantity="list")

    assert find_differing([other], [TURN]) == [
        "turn, CPU time, sqlite3: not measured",
        "list, CPU time, sqlite3: not committed",
    ]
    assert find_differing([TURN], [TURN]) == []


def run_with(*ratios: float) -> tuple[list[str], int]:
    """Return the problems and how many times the group was measured."""
    runs = iter(ratios)
    count = 0

    def measure(results: Results, _sizes: object) -> None:
        nonlocal count
        count += 1
        results.compare("turn", next(runs), 1, floor="sqlite3")

    return compare_groups([measure], SMALLEST, [TURN]), count


def test_a_good_ratio_is_measured_once():
    assert run_with(1.4) == ([], 1)


def test_a_suspicious_ratio_is_measured_again():
    assert run_with(3, 1.6) == ([], 2)


def test_a_ratio_that_is_worse_twice_fails():
    problems, count = run_with(3, 2.9)

    assert count == 2
    assert problems == ["turn, CPU time: 2.9 x sqlite3, committed 1.5 x, tolerance 1.3"]


@pytest.mark.skipif(sys.platform != "linux", reason="the CPU time of a server is read from /proc")
@pytest.mark.long
def test_every_committed_ratio_is_measured_and_finite():
    measured = [one for group in GROUPS for one in run_group(group, SMALLEST)]

    assert find_differing(measured, read_results(COMMITTED).comparisons) == []
    assert all(math.isfinite(one.ratio) for one in measured)
    assert {one.measure for one in measured} <= set(TOLERANCES)
