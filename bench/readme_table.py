"""Writes the comparison table of the README from `bench/results`, between two comments."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from results import CPU, WALL, Comparison, ResultFile
from suite import BENCHMARKS
from tables import format_value, render_table

README = Path(__file__).parents[1] / "README.md"
START = "<!-- Written by `make bench` from the files in bench/results. -->\n"
END = "<!-- End of the comparison. -->\n"
HEADINGS = ["", "cllm", "other tools", "measurement"]


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A row of the table: a quantity of a benchmark, and its name in the README.

    `shorter`: a quantity of the same benchmark, whose best peer value is in the remark.
    """

    name: str
    benchmark: str
    quantity: str
    measure: str = CPU
    shorter: str = ""
    remark: str = ""


ROWS = (
    Row(
        name="one turn of the command, CPU time",
        benchmark="startup",
        quantity="one turn of the command",
    ),
    Row(
        name="one request through the gateway, CPU time",
        benchmark="server",
        quantity="stateless chat completion, complete",
    ),
    Row(
        name="one request, saved in SQLite, CPU time",
        benchmark="server",
        quantity="durable turn",
    ),
    Row(
        name="first word with 500 parallel streams, saved in SQLite",
        benchmark="streams",
        quantity="500 parallel streams, time until the first word, stored",
        measure=WALL,
        remark="saves nothing; needs more than one worker",
    ),
    Row(
        name="memory with 500 parallel streams, saved in SQLite",
        benchmark="streams",
        quantity="500 parallel streams, stored",
        measure="resident memory",
        remark="saves nothing",
    ),
    Row(
        name="selecting the messages of one turn after 20,000 turns, CPU time",
        benchmark="window",
        quantity="window after 20,000 turns",
        shorter="window after 200 turns",
        remark="after 200 turns {}; has no store",
    ),
    Row(
        name="saving a turn after 100,000 messages, SQLite, CPU time",
        benchmark="history_growth",
        quantity="SQLite: one more turn after 100,000 messages",
        remark="both without search and usage",
    ),
)


def render_comparison(files: Sequence[ResultFile]) -> str:
    """Return the table. The best tool is first; a tool that needs less than cllm is bold."""
    by_name = {one.benchmark: one for one in files}
    titles = {one.name: one.title for one in BENCHMARKS}
    return render_table(HEADINGS, [_make_cells(row, by_name, titles) for row in ROWS])


def _make_cells(
    row: Row, files: Mapping[str, ResultFile], titles: Mapping[str, str]
) -> Sequence[str]:
    compared = _list_peers(files[row.benchmark], row.quantity, row.measure)
    shorter = _list_peers(files[row.benchmark], row.shorter, row.measure)
    remark = row.remark.format(*(format_value(one.baseline_value, one.unit) for one in shorter))
    peers = [_describe(one) for one in compared]
    title = titles[row.benchmark]
    anchor = title.lower().replace(" ", "-")
    return [
        row.name,
        format_value(compared[0].value, compared[0].unit),
        ", ".join(peers) + (f" ({remark})" if remark else ""),
        f"[{title}](docs/benchmarks.md#{anchor})",
    ]


def _list_peers(results: ResultFile, quantity: str, measure: str) -> list[Comparison]:
    """Return the comparisons of a quantity with other tools, the best tool first."""
    named = (quantity, measure, "peer")
    found = [one for one in results.comparisons if (one.quantity, one.measure, one.kind) == named]
    return sorted(found, key=lambda one: one.baseline_value)


def _describe(one: Comparison) -> str:
    text = f"{one.baseline} {format_value(one.baseline_value, one.unit)}"
    return f"**{text}**" if one.is_lost else text


def replace_comparison(readme: str, files: Sequence[ResultFile]) -> str:
    """Return the text of the README with the table of these results.

    Raises ValueError if a comment around the table is missing.
    """
    before, rest = readme.split(START)
    _, after = rest.split(END)
    return f"{before}{START}\n{render_comparison(files)}\n{END}{after}"
