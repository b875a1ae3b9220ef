"""The usage of several calls."""

import pytest

from cllm.core.reply import Usage


@pytest.mark.parametrize(
    ("first", "second", "both"),
    [(False, False, False), (True, False, True), (False, True, True), (True, True, True)],
)
def test_a_sum_is_estimated_if_one_of_its_parts_is(first: bool, second: bool, both: bool):
    total = Usage(input=1, estimated=first) + Usage(input=2, output=3, estimated=second)

    assert total == Usage(input=3, output=3, estimated=both)
