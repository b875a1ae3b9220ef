"""Numbers and times as text."""

from datetime import UTC, datetime

import pytest

from cllm.server.page.figures import format_cost, format_day, format_time, format_tokens


@pytest.mark.parametrize(
    ("cost", "text"),
    [
        (None, "\N{EN DASH}"),
        (0.0, "$0"),
        (0.0004, "<$0.001"),
        (0.0042, "$0.004"),
        (0.214, "$0.21"),
        (1234.5, "$1,234.50"),
    ],
)
def test_an_unknown_cost_is_never_zero(cost, text):
    assert format_cost(cost) == text


@pytest.mark.parametrize(
    ("tokens", "text"),
    [
        (None, "\N{EN DASH}"),
        (0, "0"),
        (950, "950"),
        (1000, "1k"),
        (1249, "1.2k"),
        (31_400, "31k"),
        (1_250_000, "1.2M"),
    ],
)
def test_tokens_are_short(tokens, text):
    assert format_tokens(tokens) == text


def test_times_are_in_utc():
    time = datetime(2026, 11, 6, 4, 5, tzinfo=UTC)

    assert format_time(time) == "04:05"
    assert format_day(time) == "Fri 6 Nov 2026"
