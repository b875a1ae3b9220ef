"""Prints the results of the benchmarks and writes `docs/benchmarks.md` from `bench/results`.

The page depends only on these files, as the table of the README does (`readme_table.py`).
`plots.py` writes the pictures.
"""

import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

import msgspec

from machine import Machine
from readme_table import README, replace_comparison
from results import CPU, SIZE, WALL, Check, Comparison, Curve, ResultFile, Series, read_results
from suite import BENCHMARKS, TOOLS, Benchmark
from tables import format_number, format_value, print_columns, render_table

PAGE = Path(__file__).parents[1] / "docs" / "benchmarks.md"
NONE = ""
LEVEL_FACTOR = 1.5
WORSE = {CPU: "slower", WALL: "slower", SIZE: "larger", "resident memory": "larger"}

HEADING = """\
<!-- Written by `make bench` from the files in bench/results; do not edit. -->

# Benchmarks
"""
METHOD = """\
`make bench` measures cllm, other tools and lower bounds on one machine, and writes this page. It
takes up to 40 minutes. `CONTRIBUTING.md` describes the targets.

## Method

- A **peer** is another tool that does the same work, in the configuration that its documentation
  recommends ([other tools](#other-tools)). A **floor** is the least work that the task needs, such
  as plain `sqlite3` or a proxy that only forwards. The floor of a list or search in a database is
  the SQL statement of the store, run without the store.
- Each gateway, cllm too, has one worker, so that CPU times and memory are those of one process.
  More workers or processes divide the load, with each of these gateways.
- A ratio is the value of cllm divided by that of the peer or floor. Below 1, cllm needs less.
- The variants of a comparison run alternately, in rounds, after one round to warm up. Each figure
  is the median of its rounds. Some are measured once: the first search, branches, local turns
  without slot files, memory, and counts such as sizes and files.
- CPU time includes the kernel and child processes. Other processes disturb it less than wall time,
  which includes the disk and the time that other processes take.
- All requests go to a provider on loopback that responds at once, or sends a stream of 40 words in
  two seconds. No model is called, except the local one.
- One run is one sample. Differences below 10 % are noise, and absolute times differ between
  machines.
- A curve is level if its last value differs from the first by less than a factor of 1.5.
- A limit is the greatest value or ratio that the project accepts. `make bench` fails if a limit is
  exceeded.
"""


class Row(msgspec.Struct, frozen=True, kw_only=True):
    """A value of cllm with its comparisons, as one row of a table."""

    name: str
    cllm: str
    peers: tuple[Comparison, ...] = ()
    floor: Comparison | None = None
    limits: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()


# Limits and remarks


def list_limits(comparisons: Sequence[Comparison]) -> Iterator[str]:
    """Return the limits of ratios. A baseline is named if there are several of its kind."""
    for one in comparisons:
        if one.limit is not None:
            alike = [other for other in comparisons if other.kind == one.kind]
            name = one.kind if len(alike) == 1 else one.baseline
            yield f"{name} {format_number(one.limit)}"


def list_remarks(comparisons: Iterable[Comparison]) -> Iterator[str]:
    """Say in words where cllm loses and which limits it exceeds."""
    for one in comparisons:
        if one.is_lost:
            worse = WORSE.get(one.measure, "higher")
            yield f"**{worse} than {one.baseline}** ({format_number(one.ratio)} x)"
        if not one.is_met:
            yield f"**exceeds its limit** ({format_number(one.ratio)} x {one.baseline})"


# Rows


def make_rows(results: ResultFile) -> list[Row]:
    """Return the rows with peers and floors, then the values with a limit."""
    groups: dict[tuple[str, str, float], list[Comparison]] = {}
    for one in results.comparisons:
        if one.kind != "self":
            groups.setdefault((one.quantity, one.measure, one.value), []).append(one)
    rows = [row for group in groups.values() for row in _make_compared(group)]
    return rows + [_make_checked(check) for check in results.checks]


def _make_compared(group: Sequence[Comparison]) -> Iterator[Row]:
    """Yield a row with the peers, best first, and the first floor; then one for each more floor."""
    first = group[0]
    name, value = f"{first.quantity}, {first.measure}", format_value(first.value, first.unit)
    peers = sorted((one for one in group if one.kind == "peer"), key=lambda one: -one.ratio)
    floors = [one for one in group if one.kind == "floor"]
    yield Row(
        name=name,
        cllm=value,
        peers=tuple(peers),
        floor=floors[0] if floors else None,
        limits=tuple(list_limits([*peers, *floors[:1]])),
        remarks=tuple(list_remarks([*peers, *floors[:1]])),
    )
    for floor in floors[1:]:
        limits = tuple(list_limits([floor]))
        remarks = tuple(list_remarks([floor]))
        yield Row(name=name, cllm=value, floor=floor, limits=limits, remarks=remarks)


def _make_checked(check: Check) -> Row:
    remarks = () if check.is_met else ("**exceeds its limit**",)
    limit = format_value(check.limit, check.unit)
    value = format_value(check.value, check.unit)
    return Row(name=check.quantity, cllm=value, limits=(limit,), remarks=remarks)


def describe_baselines(*baselines: Comparison) -> tuple[str, str]:
    """Return the cells of peers or a floor: their names and values, and the ratios."""
    return (
        "; ".join(
            f"{one.baseline}: {format_value(one.baseline_value, one.unit)}" for one in baselines
        ),
        "; ".join(format_number(one.ratio) for one in baselines),
    )


def make_cells(row: Row) -> list[str]:
    floor = () if row.floor is None else (row.floor,)
    return [
        *(row.name, row.cllm, *describe_baselines(*row.peers), *describe_baselines(*floor)),
        *("; ".join(row.limits) or NONE, "; ".join(row.remarks)),
    ]


HEADINGS = ["quantity", "cllm", "peers, best first", "ratio", "floor", "ratio", "limit", "remark"]
SELF_HEADINGS = ["quantity", "cllm", "compared with", "ratio", "limit", "remark"]


def make_self_cells(one: Comparison) -> list[str]:
    limit = NONE if one.limit is None else format_number(one.limit)
    return [
        f"{one.quantity}, {one.measure}",
        format_value(one.value, one.unit),
        *describe_baselines(one),
        limit,
        "; ".join(list_remarks([one])),
    ]


# Page


def wrap(text: str, indent: str = "") -> str:
    return textwrap.fill(
        text, 100, subsequent_indent=indent, break_on_hyphens=False, break_long_words=False
    )


def render_page(files: Sequence[ResultFile]) -> str:
    by_name = {one.benchmark: one for one in files}
    sections = [
        render_section(benchmark, by_name[benchmark.name])
        for benchmark in BENCHMARKS
        if benchmark.name in by_name
    ]
    return "\n".join(
        [
            f"{HEADING}\n{METHOD}",
            render_losses(files),
            render_tools(),
            render_machine(files),
            *sections,
        ]
    )


def render_tools() -> str:
    rows = [
        [f"[{tool.name}]({tool.url})" if tool.url else tool.name, tool.configuration]
        for tool in TOOLS
    ]
    return "## Other tools\n\n" + render_table(["tool", "how it is measured"], rows)


def render_machine(files: Sequence[ResultFile]) -> str:
    lines = ["## Machine and versions\n"]
    machines = dict.fromkeys(describe_machine(one.machine) for one in files)
    dates = sorted({one.date for one in files})
    versions: dict[str, set[str]] = {}
    for one in files:
        for name, version in one.versions.items():
            versions.setdefault(name, set()).add(version)
    listed = (
        f"{name} {', '.join(sorted(each))}" for name, each in sorted(versions.items(), key=_by_name)
    )
    loads = [one.load for one in files]
    seconds = sum(one.seconds for one in files)
    lines += [
        f"- Machine: {'; '.join(machines)}.",
        f"- Date: {' to '.join(dict.fromkeys((dates[0], dates[-1])))}.",
        wrap(f"- Versions: {'; '.join(listed)}.", indent="  "),
        "- `source` is the measured version of the folder `src`: `git rev-parse COMMIT:src`.",
        f"- Duration: {seconds / 60:.0f} minutes.",
        f"- Load average before each benchmark: {min(loads):.1f} to {max(loads):.1f}.\n",
    ]
    return "\n".join(lines)


def describe_machine(machine: Machine) -> str:
    return (
        f"{machine.cpu}, {machine.cores} cores, {machine.memory_gib} GiB of memory, "
        f"{machine.system}, Python {machine.python}"
    )


def _by_name(item: tuple[str, object]) -> tuple[bool, str]:
    return item[0] != "cllm", item[0].lower()


def render_losses(files: Sequence[ResultFile]) -> str:
    """List what is slower than a peer, and what exceeds a limit."""
    lost: dict[tuple[str, str], Comparison] = {}
    for one in (one for file in files for one in file.comparisons if one.is_lost):
        best = lost.setdefault((one.quantity, one.measure), one)
        lost[one.quantity, one.measure] = max(best, one, key=lambda each: each.ratio)
    missed = [one for file in files for one in file.comparisons if not one.is_met]
    checks = [one for file in files for one in file.checks if not one.is_met]
    text = "## Where cllm loses\n\n"
    if lost:
        text += "A peer needs less than cllm for:\n\n" + render_table(
            ["quantity", "cllm", "peer", "ratio"],
            [make_self_cells(one)[:4] for one in lost.values()],
        )
    else:
        text += "No measured peer needs less than cllm.\n"
    if missed or checks:
        rows = [[*make_self_cells(one)[:4], format_number(one.limit or 0)] for one in missed]
        rows += [
            [
                one.quantity,
                format_value(one.value, one.unit),
                *(NONE, NONE, format_value(one.limit, one.unit)),
            ]
            for one in checks
        ]
        text += "\nThese limits are exceeded:\n\n" + render_table(
            ["quantity", "cllm", "compared with", "ratio", "limit"], rows
        )
    else:
        text += "\nAll limits are met.\n"
    return text


def render_section(benchmark: Benchmark, results: ResultFile) -> str:
    parts = [f"## {benchmark.title}\n\n{wrap(benchmark.intro)}\n"]
    if rows := make_rows(results):
        parts.append(render_table(HEADINGS, map(make_cells, rows)))
    if own := [one for one in results.comparisons if one.kind == "self"]:
        parts.append("cllm compared with itself:\n")
        parts.append(render_table(SELF_HEADINGS, map(make_self_cells, own)))
    parts += [render_curve(curve) for curve in results.curves]
    return "\n".join(parts)


def render_curve(curve: Curve) -> str:
    xs = sorted({x for series in curve.series for x, _ in series.points})
    rows = [
        [series.name, *(_find_point(series, x, curve.unit) for x in xs), format_growth(series)]
        for series in curve.series
    ]
    headings = [curve.x_label, *(f"{x:,.0f}" for x in xs), "growth"]
    notes = [f"{series.name}: {series.note}." for series in curve.series if series.note]
    note = f"\n{wrap(' '.join(notes))}\n" if notes else ""
    return (
        f"### {curve.title}\n\n![{curve.title}](images/bench-{curve.id}.svg)\n\n"
        f"{wrap(f'{curve.description} {describe_growth(curve)}')}\n\n"
        f"{render_table(headings, rows)}{note}"
    )


def _find_point(series: Series, x: float, unit: str) -> str:
    return next((format_value(y, unit) for at, y in series.points if at == x), NONE)


def format_growth(series: Series) -> str:
    (_, first), (_, last) = series.points[0], series.points[-1]
    return f"{format_number(last / first)} x" if first else NONE


def describe_growth(curve: Curve) -> str:
    """Say which lines are level, which fall and which grow, and by how much."""
    groups: dict[str, list[str]] = {"Level": [], "Falling": [], "Growing": []}
    longest = max(x for series in curve.series for x, _ in series.points)
    for series in curve.series:
        (_, first), (end, last) = series.points[0], series.points[-1]
        name = series.name if end == longest else f"{series.name} up to {end:,.0f}"
        if is_level(series):
            groups["Level"].append(name)
        else:
            group = "Growing" if last > first else "Falling"
            groups[group].append(f"{name} ({format_growth(series)})")
    return " ".join(f"{name}: {'; '.join(each)}." for name, each in groups.items() if each)


def is_level(series: Series) -> bool:
    (_, first), (_, last) = series.points[0], series.points[-1]
    return first / LEVEL_FACTOR <= last <= first * LEVEL_FACTOR


# Terminal


def print_report(files: Sequence[ResultFile]) -> None:
    """Print the tables without Markdown."""
    for benchmark in BENCHMARKS:
        for results in files:
            if results.benchmark == benchmark.name:
                print(f"\n{benchmark.title}")
                rows = [[*make_cells(row)] for row in make_rows(results)]
                own = [one for one in results.comparisons if one.kind == "self"]
                for one in own:
                    name, value, baseline, *rest = make_self_cells(one)
                    rows.append([name, value, NONE, NONE, f"itself, {baseline}", *rest])
                print_columns([HEADINGS, *rows])


def read_all() -> list[ResultFile]:
    """Return the results that exist, in the order of the report."""
    return [read_results(one.result) for one in BENCHMARKS if one.result.exists()]


def main() -> int:
    files = read_all()
    if not files:
        raise SystemExit("bench/results has no results; run `make bench`.")
    print_report(files)
    PAGE.write_text(render_page(files), encoding="utf-8")
    readme = README.read_text(encoding="utf-8")
    README.write_text(replace_comparison(readme, files), encoding="utf-8")
    print("\nWrote docs/benchmarks.md and the table of README.md.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
