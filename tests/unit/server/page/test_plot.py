from datetime import date, timedelta

import pytest

from cllm.server.page.plot import HEIGHT, LEFT, TOP, WIDTH, Series, build_bars, build_plot, round_up

DAYS = [date(2026, 11, 1) + timedelta(days=number) for number in range(4)]
SERIES = [Series(0, "big", (1.0, 0.0, 2.0, 0.0)), Series(3, "<b>", (1.0, 3.0, 0.0, 0.0))]


def test_bars_are_stacked_and_stay_inside():
    bars = build_bars(SERIES, DAYS, top=5, format_value=str)
    assert [(bar.series, bar.label) for bar in bars] == [
        (0, "Nov 1, big: 1.0"),
        (3, "Nov 1, <b>: 1.0"),
        (3, "Nov 2, <b>: 3.0"),
        (0, "Nov 3, big: 2.0"),
    ]
    lower, upper = bars[:2]
    assert upper.y + upper.height == pytest.approx(lower.y)
    assert bars[2].height == pytest.approx(3 * lower.height, abs=0.05)
    for bar in bars:
        assert bar.x >= LEFT
        assert bar.x + bar.width <= WIDTH
        assert bar.y >= TOP
        assert bar.y + bar.height <= HEIGHT


def test_the_plot_escapes_names_and_has_no_inline_style():
    plot = build_plot(SERIES, DAYS, format_value=str)
    assert "&lt;b&gt;" in plot
    assert "<b>" not in plot
    assert "style=" not in plot
    assert 'class="series-3"' in plot


def test_without_values_the_plot_is_empty():
    assert build_plot([], DAYS, format_value=str) == ""
    assert build_plot([Series(0, "big", (0.0,) * 4)], DAYS, format_value=str) == ""


@pytest.mark.parametrize(
    ("value", "top"), [(0.13, 0.2), (1, 1), (1.01, 2), (4.2, 5), (730_000, 1_000_000), (1e-5, 1e-5)]
)
def test_the_axis_ends_at_a_round_number(value, top):
    assert round_up(value) == pytest.approx(top)
