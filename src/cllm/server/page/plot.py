"""Stacked bars by day as SVG. Colours are CSS classes, since the page has no inline styles."""

import math
from collections.abc import Callable, Sequence
from datetime import date

import msgspec
from markupsafe import Markup

from cllm.server.page.layout import EMPTY, render

WIDTH, HEIGHT = 720, 200
LEFT, TOP, BOTTOM = 56, 16, 24
GRID_LINES = 2
MAX_GAP = 4


class Series(msgspec.Struct, frozen=True):
    """The values of one model, one per day. `color` is the number of its CSS class."""

    color: int
    name: str
    values: tuple[float, ...]


class Bar(msgspec.Struct, frozen=True, kw_only=True):
    x: float
    y: float
    width: float
    height: float
    series: int
    label: str


def build_plot(
    series: Sequence[Series], days: Sequence[date], *, format_value: Callable[[float], str]
) -> Markup:
    """Return the plot; empty if all values are zero."""
    highest = max(
        (sum(values) for values in zip(*(one.values for one in series), strict=True)), default=0
    )
    if highest <= 0:
        return EMPTY
    top = round_up(highest)
    lines = [
        (scale(top * step / GRID_LINES, top), format_value(top * step / GRID_LINES))
        for step in range(GRID_LINES + 1)
    ]
    shown = [0, len(days) // 2, len(days) - 1]
    step = (WIDTH - LEFT) / len(days)
    ticks = [(LEFT + step * (index + 0.5), _format_day(days[index])) for index in shown]
    legend = [(one.color, one.name, format_value(sum(one.values))) for one in series]
    return render(
        "plot.html",
        width=WIDTH,
        height=HEIGHT,
        left=LEFT,
        bars=list(build_bars(series, days, top=top, format_value=format_value)),
        lines=lines,
        ticks=ticks,
        legend=legend,
    )


def build_bars(
    series: Sequence[Series],
    days: Sequence[date],
    *,
    top: float,
    format_value: Callable[[float], str],
) -> list[Bar]:
    """Return the rectangles of each day from the bottom up."""
    step = (WIDTH - LEFT) / len(days)
    gap = min(step / 4, MAX_GAP)
    bars = []
    for index, day in enumerate(days):
        base = 0.0
        for one in series:
            value = one.values[index]
            if value <= 0:
                continue
            bars.append(
                Bar(
                    x=round(LEFT + step * index + gap / 2, 2),
                    y=round(scale(base + value, top), 2),
                    width=round(step - gap, 2),
                    height=round(scale(base, top) - scale(base + value, top), 2),
                    series=one.color,
                    label=f"{_format_day(day)}, {one.name}: {format_value(value)}",
                )
            )
            base += value
    return bars


def scale(value: float, top: float) -> float:
    """Return the y coordinate of a value."""
    return HEIGHT - BOTTOM - (HEIGHT - BOTTOM - TOP) * value / top


def round_up(value: float) -> float:
    """Return the next of 1, 2, 5, 10, 20, 50 …"""
    power = 10.0 ** math.floor(math.log10(value))
    return next(step * power for step in (1, 2, 5, 10) if step * power >= value * (1 - 1e-9))


def _format_day(day: date) -> str:
    return f"{day:%b} {day.day}"
