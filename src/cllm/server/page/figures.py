"""Numbers and times as text: costs, tokens, days."""

from datetime import datetime

UNKNOWN = "\N{EN DASH}"
THOUSAND, MILLION = 1000, 1_000_000
SMALL, CENT = 0.001, 0.01


def format_cost(cost: float | None) -> str:
    """Return dollars with at least two digits; an unknown cost is a dash, never zero."""
    if cost is None:
        return UNKNOWN
    if cost == 0:
        return "$0"
    if cost < SMALL:
        return "<$0.001"
    return f"${cost:.3f}" if cost < CENT else f"${cost:,.2f}"


def format_tokens(tokens: int | None) -> str:
    """Return a short number of at most four characters and its unit: 950, 1.2k, 31k, 1.2M."""
    if tokens is None:
        return UNKNOWN
    if tokens < THOUSAND:
        return str(tokens)
    if tokens < MILLION:
        return _shorten(tokens / THOUSAND, "k")
    return _shorten(tokens / MILLION, "M")


def _shorten(number: float, unit: str) -> str:
    digits = 1 if number < 10 else 0  # noqa: PLR2004
    return f"{number:.{digits}f}".removesuffix(".0") + unit


def format_time(time: datetime) -> str:
    """Return hours and minutes in UTC, which the scripts replace by local ones."""
    return f"{time:%H:%M}"


def format_day(time: datetime) -> str:
    return f"{time:%a} {time.day} {time:%b %Y}"
