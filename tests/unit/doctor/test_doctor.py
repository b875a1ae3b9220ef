"""The findings of `cllm doctor`."""

import errno

import pytest

from cllm.doctor import join_names, ok, os_error_reason, problem, report_fix, warning


@pytest.mark.parametrize(
    ("names", "text"),
    [
        ([], ""),
        (["a", "b"], "a, b"),
        (list("abcde"), "a, b, c, d, e"),
        (list("abcdefg"), "a, b, c, d, e and 2 more"),
    ],
)
def test_a_long_list_of_names_is_shortened(names, text):
    assert join_names(names) == text


def test_a_fixed_problem_is_ok():
    levels = [(one("check", "text").level, one("check", "text").fixed) for one in (ok, report_fix)]

    assert levels == [("ok", False), ("ok", True)]
    assert [warning("c", "t").level, problem("c", "t").level] == ["warning", "problem"]


def test_the_reason_of_an_error():
    assert os_error_reason(OSError(errno.EACCES, "x")) == "permission denied"
