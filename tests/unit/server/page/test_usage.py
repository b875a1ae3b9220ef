from datetime import date

import msgspec
import pytest

from cllm.app import App
from cllm.core.ports import UsageSum
from cllm.core.reply import Usage
from cllm.server.page.texts import TEXTS
from cllm.server.page.usage import add_sums, build_series, count_savings, format_share, group_sums
from cllm.settings.load import CommandLine, Environment, load_settings

TODAY = date(2026, 11, 16)
DAYS = [date(2026, 11, 15), TODAY]


def usage_sum(key: str, cost: float | None = 1.0, **tokens: int) -> UsageSum:
    usage = msgspec.structs.replace(Usage(), **(tokens or {"input": 10}))
    return UsageSum(key=key, calls=1, usage=usage, cost=cost, unpriced=int(cost is None))


def test_sums_are_grouped_by_day_and_by_model():
    sums = [
        usage_sum("2026-11-15 gpt 5"),
        usage_sum("2026-11-16 gpt 5"),
        usage_sum("2026-11-16 local", cost=None),
    ]
    by_day, by_model = group_sums(sums)
    assert [(one.key, one.calls) for one in by_day] == [("2026-11-15", 1), ("2026-11-16", 2)]
    assert [(one.key, one.cost) for one in by_model] == [("gpt 5", 2.0), ("local", None)]
    assert (add_sums(sums).calls, add_sums(sums).unpriced) == (3, 1)
    assert add_sums([]).cost is None


def test_the_most_used_models_have_a_series_and_the_others_share_one():
    models = [usage_sum(f"m{number}") for number in range(8)]
    sums = [usage_sum(f"2026-11-16 m{number}", cost=float(number)) for number in range(8)]
    series = build_series(sums, models, DAYS, cost=True)
    assert [one.name for one in series] == [
        "m1",
        "m2",
        "m3",
        "m4",
        "m5",
        TEXTS["usage_other_models"],
    ]
    assert [one.color for one in series] == [1, 2, 3, 4, 5, 6]
    assert series[-1].values == (0.0, 13.0)
    tokens = build_series(sums, models, DAYS, cost=False)
    assert tokens[0].values == (0.0, 10.0)


def test_a_day_outside_of_the_period_is_left_out():
    assert build_series([usage_sum("2026-01-01 m")], [usage_sum("m")], DAYS, cost=True) == []


@pytest.fixture
def app(tmp_path) -> App:
    place = Environment(home=tmp_path, directory=tmp_path, environment={})
    return App(load_settings(place, CommandLine(values={})))


def test_savings_compare_with_a_prompt_that_is_not_cached(app):
    total = usage_sum("openai/gpt-4o", cache_read=1_000_000, input=1)
    assert (count_savings(app, total, today=TODAY) or 0) > 0


@pytest.mark.parametrize(
    ("total", "savings"),
    [
        (usage_sum("openai/gpt-4o"), 0.0),
        (usage_sum("unknown", cost=None), None),
        (usage_sum("openai/no-such-model", cache_read=5), None),
        (usage_sum("local/smollm2-135m", cache_read=5), 0.0),
    ],
)
def test_savings_without_a_cache_or_a_price(app, total, savings):
    assert count_savings(app, total, today=TODAY) == savings


def test_the_share_of_the_cache():
    assert format_share(Usage(input=1, cache_read=3)) == "75%"
    assert format_share(Usage()) == "0%"
