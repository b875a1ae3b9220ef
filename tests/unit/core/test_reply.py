"""The usage of several calls."""

import pytest

from cllm.core.reply import Usage, sum_costs


@pytest.mark.parametrize(
    ("first", "second", "both"),
    [(False, False, False), (True, False, True), (False, True, True), (True, True, True)],
)
def test_a_sum_is_estimated_if_one_of_its_parts_is(first: bool, second: bool, both: bool):
    total = Usage(input=1, estimated=first) + Usage(input=2, output=3, estimated=second)

    assert total == Usage(input=3, output=3, estimated=both)


@pytest.mark.parametrize(
    ("costs", "total"),
    [([], 0.0), ([None, None], None), ([None, 0.25], 0.25), ([0.5, 0.25], 0.75), ([0.0], 0.0)],
)
def test_the_sum_of_costs_is_unknown_if_no_cost_is_known(costs, total):
    assert sum_costs(costs) == total
