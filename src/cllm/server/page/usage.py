"""The usage view: costs and tokens by day and model, as plots and tables."""

from collections.abc import Iterable, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta
from typing import Literal

import msgspec
from markupsafe import Markup

from cllm.app import App
from cllm.core.errors import CllmError
from cllm.core.ports import UsageSum
from cllm.core.reply import Usage
from cllm.server.api.usage import read_usage
from cllm.server.http.parameters import read_query
from cllm.server.page.figures import format_cost, format_tokens
from cllm.server.page.layout import render
from cllm.server.page.plot import Series, build_plot
from cllm.server.page.texts import TEXTS
from cllm.server.state import ApiRequest
from cllm.stores.merged_lists import merge_usage
from cllm.window.cache_report import count_saved_dollars

MAX_SERIES = 6
"""Models with their own colour; the plot shows the others as one."""
PERIODS = ("7", "30", "90", "365")


class Period(msgspec.Struct, frozen=True, kw_only=True):
    """The query of `/usage`."""

    days: Literal["7", "30", "90", "365"] = "30"


class ModelUsage(msgspec.Struct, frozen=True, kw_only=True):
    """The sums of one model. `cached` is the share of the prompt that the provider had cached."""

    total: UsageSum
    cached: str
    savings: float | None


async def render_usage(request: ApiRequest) -> Markup:
    period = read_query(request, Period)
    today = request.server.clock().astimezone(UTC).date()
    first = today - timedelta(days=int(period.days) - 1)
    since = datetime(first.year, first.month, first.day, tzinfo=UTC)
    sums, notices = await read_usage(request, since=since, until=None, by="day_model")
    by_day, by_model = group_sums(sums)
    models = sorted(by_model, key=lambda one: (-(one.cost or 0), -one.usage.total, one.key))
    app = request.server.app
    rows = [
        ModelUsage(
            total=one, cached=format_share(one.usage), savings=count_savings(app, one, today=today)
        )
        for one in models
    ]
    days = [first + timedelta(days=number) for number in range(int(period.days))]
    return render(
        "usage.html",
        period=period.days,
        periods=PERIODS,
        days=sorted(by_day, key=lambda one: one.key, reverse=True),
        models=rows,
        total=add_sums(sums),
        savings=_add_known(row.savings for row in rows),
        cost_plot=build_plot(
            build_series(sums, models, days, cost=True), days, format_value=format_cost
        ),
        token_plot=build_plot(
            build_series(sums, models, days, cost=False), days, format_value=_format_count
        ),
        format_cost=format_cost,
        format_tokens=format_tokens,
        notices=notices,
    )


def group_sums(sums: Iterable[UsageSum]) -> tuple[Sequence[UsageSum], Sequence[UsageSum]]:
    """Return the sums by day and by model of sums by day and model."""
    keyed = [(one, *split_key(one.key)) for one in sums]
    by_day = merge_usage(msgspec.structs.replace(one, key=day) for one, day, _ in keyed)
    by_model = merge_usage(msgspec.structs.replace(one, key=model) for one, _, model in keyed)
    return by_day, by_model


def split_key(key: str) -> tuple[str, str]:
    day, _, model = key.partition(" ")
    return day, model


def add_sums(sums: Sequence[UsageSum]) -> UsageSum:
    (total,) = merge_usage(msgspec.structs.replace(one, key="total") for one in sums) or (
        UsageSum(key="total", calls=0, usage=Usage(), cost=None),
    )
    return total


def build_series(
    sums: Iterable[UsageSum], models: Sequence[UsageSum], days: Sequence[date], *, cost: bool
) -> list[Series]:
    """Return the values of each day of the first models, and of all others together.

    A model without values, or without a known price, has no series.
    """
    names = [one.key for one in models[:MAX_SERIES]]
    index = {f"{day}": number for number, day in enumerate(days)}
    values = {name: [0.0] * len(days) for name in (*names, "")}
    for one in sums:
        day, model = split_key(one.key)
        if day in index:
            value = (one.cost or 0.0) if cost else float(one.usage.total)
            values[model if model in names else ""][index[day]] += value
    labels = {**{name: name for name in names}, "": TEXTS["usage_other_models"]}
    return [
        Series(color, label, tuple(values[name]))
        for color, (name, label) in enumerate(labels.items())
        if any(values[name])
    ]


def count_savings(app: App, total: UsageSum, *, today: date) -> float | None:
    """Return how much less the prompt cost than without a cache; None if the price is unknown."""
    usage, model = total.usage, total.key
    if not usage.cache_read and not usage.cache_write:
        return 0.0 if total.cost is not None else None
    at = datetime(today.year, today.month, today.day, tzinfo=UTC)
    with suppress(CllmError):
        provider = app.model_context(model).provider
        return count_saved_dollars(
            usage, lambda one: app.prices.price_turn(provider, model, one, at)
        )
    return None


def format_share(usage: Usage) -> str:
    return f"{usage.cache_read / usage.prompt:.0%}" if usage.prompt else "0%"


def _add_known(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _format_count(value: float) -> str:
    return format_tokens(round(value))
