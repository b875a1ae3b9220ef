"""The JSON of `cllm conversations stats`."""

import pytest

from cllm.cli.conversations.stats import Figures, _amount_as_json, _as_json, chart_lines
from cllm.core.ports import UsageSum
from cllm.core.reply import Usage
from cllm.window.cache_report import Amount, CacheReport


@pytest.mark.parametrize(
    ("amount", "dollars"),
    [
        (Amount(), 0),
        (Amount(dollars=0.5, known=1), 0.5),
        (Amount(dollars=0.5, known=1, unknown=2), 0.5),
        (Amount(unknown=2), None),
    ],
)
def test_dollars_are_null_only_if_no_price_is_known(amount, dollars):
    assert _amount_as_json(amount) == {"dollars": dollars, "unknown_answers": amount.unknown}


def test_only_the_report_of_one_conversation_has_its_id():
    figures = Figures(report=CacheReport())

    assert "conversation" not in _as_json(figures, None)
    assert _as_json(figures, "cats")["conversation"] == "cats"


def make_sum(key: str, tokens: int, **fields) -> UsageSum:
    return UsageSum(key=key, calls=1, usage=Usage(input=tokens), **{"cost": None, **fields})


def test_the_longest_bar_is_that_of_the_most_tokens():
    sums = [make_sum("2026-01-01", 100), make_sum("2026-01-02", 50), make_sum("2026-01-03", 0)]

    lines = list(chart_lines(sums, 100))

    assert [line.count("█") for line in lines] == [40, 20, 0]
    assert lines[1].endswith("1 reply  50 tokens   cost unknown")


@pytest.mark.parametrize("columns", [20, 60, 80])
def test_a_chart_fits_the_terminal_if_the_figures_do(columns):
    sums = [make_sum("a-model-with-a-long-name", 9, cost=0.5, unpriced=1), make_sum("b", 1)]

    lines = list(chart_lines(sums, columns))

    assert lines[0].endswith("$0.5000 and 1 unpriced")
    assert columns < 80 or all(len(line) <= columns for line in lines)


def test_without_calls_there_is_no_chart():
    assert list(chart_lines([], 80)) == []
