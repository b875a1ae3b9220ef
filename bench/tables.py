"""Values with units, and tables in Markdown and in columns."""

import math
from collections.abc import Iterable, Sequence

SPACE = "\N{NO-BREAK SPACE}"
TIME_UNITS = ((1.0, "s"), (1e-3, "ms"), (1e-6, "µs"))
SIZE_UNITS = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"))


def format_number(value: float) -> str:
    """Return three significant digits, without an exponent."""
    if not math.isfinite(value) or value == 0:
        return f"{value:g}"
    digits = max(0, 2 - math.floor(math.log10(abs(value))))
    return f"{value:,.{digits}f}"


def format_value(value: float, unit: str) -> str:
    units = {"s": TIME_UNITS, "bytes": SIZE_UNITS}.get(unit, ())
    for factor, name in units:
        if value >= factor:
            return f"{format_number(value / factor)}{SPACE}{name}"
    if unit == "s" and value:
        return f"{format_number(value / 1e-6)}{SPACE}µs"
    number = f"{value:,.0f}" if value == int(value) or value >= 1000 else format_number(value)
    return f"{number}{SPACE}{unit}"


def render_table(headings: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [headings, ["---"] * len(headings), *rows]
    return "".join(
        f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in line)} |\n" for line in lines
    )


def print_columns(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for row in rows:
        cells = (f"{cell:{width}}" for cell, width in zip(row, widths, strict=True))
        print("  " + "  ".join(cells).rstrip().replace("**", ""))
