"""What a benchmark measured: samples, comparisons with their limits, and growth curves, as JSON.

A comparison divides a value of cllm by that of a peer (another tool that does the same), of a floor
(the least work that the task needs, such as plain sqlite3) or of cllm itself under another
condition. Times are in seconds and sizes in bytes.
"""

import argparse
import math
import os
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal

import msgspec

from machine import Machine, cllm_version, describe_machine
from measurement import Sample

Kind = Literal["peer", "floor", "self"]
SeriesKind = Literal["cllm", "peer", "floor"]
CPU, WALL, SIZE = "CPU time", "wall time", "size"
RESULTS = Path(__file__).parent / "results"


class Check(msgspec.Struct, frozen=True, kw_only=True):
    """A value of cllm with an upper limit."""

    quantity: str
    value: float
    unit: str
    limit: float

    @property
    def is_met(self) -> bool:
        return self.value <= self.limit


class Comparison(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A value of cllm and the value that it is compared with. `limit` is that of the ratio."""

    quantity: str
    measure: str = CPU
    unit: str = "s"
    value: float
    kind: Kind
    baseline: str
    baseline_value: float
    limit: float | None = None

    @property
    def ratio(self) -> float:
        return self.value / self.baseline_value if self.baseline_value else math.inf

    @property
    def is_met(self) -> bool:
        return self.limit is None or self.ratio <= self.limit

    @property
    def is_lost(self) -> bool:
        """Whether a peer is better than cllm."""
        return self.kind == "peer" and self.ratio > 1


class Series(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One line of a curve. `note` says why it ends before the others."""

    name: str
    kind: SeriesKind
    points: Sequence[tuple[float, float]]
    note: str = ""


class Curve(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A quantity by another, on logarithmic axes. `description` says what is measured."""

    id: str
    title: str
    description: str
    x_label: str
    y_label: str
    unit: str = "s"
    series: list[Series]


class SampleMedian(msgspec.Struct, frozen=True, kw_only=True):
    """The medians of one variant, in seconds."""

    group: str
    name: str
    rounds: int
    cpu: float
    wall: float


class ResultFile(msgspec.Struct, frozen=True, kw_only=True):
    """The file of one benchmark in `bench/results`."""

    benchmark: str
    date: str
    seconds: int
    load: float
    """The load average of one minute before the run."""
    machine: Machine
    versions: dict[str, str]
    comparisons: list[Comparison]
    checks: list[Check]
    curves: list[Curve]
    samples: list[SampleMedian]


class Results:
    """Collects what a benchmark measures and prints a line for each limit."""

    def __init__(self, benchmark: str) -> None:
        self.benchmark = benchmark
        self.versions = {"cllm": cllm_version()}
        self.comparisons: list[Comparison] = []
        self.checks: list[Check] = []
        self.curves: list[Curve] = []
        self.samples: list[SampleMedian] = []
        self._start = time.monotonic()
        self._load = round(os.getloadavg()[0], 2)

    def check(self, quantity: str, value: float, limit: float, *, unit: str) -> None:
        """Record a value and print whether it is within its limit."""
        check = Check(quantity=quantity, value=value, unit=unit, limit=limit)
        self.checks.append(check)
        status = "met   " if check.is_met else "MISSED"
        print(f"{status}  {quantity}: {value:.3g} {unit} (limit {limit:.3g} {unit})")

    def compare(
        self,
        quantity: str,
        value: Sample | float,
        baseline: Sample | float,
        limit: float | None = None,
        *,
        peer: str = "",
        floor: str = "",
        itself: str = "",
        measure: str = CPU,
        unit: str = "s",
    ) -> None:
        """Record a ratio and print it. One of `peer`, `floor` and `itself` names the baseline."""
        names: dict[Kind, str] = {"peer": peer, "floor": floor, "self": itself}
        ((kind, name),) = ((kind, name) for kind, name in names.items() if name)
        comparison = Comparison(
            quantity=quantity,
            measure=measure,
            unit=unit,
            value=_select(value, measure),
            kind=kind,
            baseline=name,
            baseline_value=_select(baseline, measure),
            limit=limit,
        )
        self.comparisons.append(comparison)
        print(describe_comparison(comparison))

    def add_samples(self, group: str, samples: Mapping[str, Sample]) -> None:
        """Record the medians of variants that were measured alternately."""
        self.samples += [
            SampleMedian(
                group=group,
                name=name,
                rounds=len(sample.costs),
                cpu=_round(sample.cpu),
                wall=_round(sample.wall),
            )
            for name, sample in samples.items()
        ]

    def add_curve(self, curve: Curve) -> None:
        rounded = [
            msgspec.structs.replace(one, points=[(x, _round(y)) for x, y in one.points])
            for one in curve.series
        ]
        self.curves.append(msgspec.structs.replace(curve, series=rounded))

    @property
    def exit_code(self) -> int:
        """1 if a limit was exceeded."""
        met = [one.is_met for one in self.comparisons] + [one.is_met for one in self.checks]
        return int(not all(met))

    def finish(self, path: Path | None) -> int:
        """Write the results if a path is given, and return the exit code."""
        if path is not None:
            write_results(path, self.build_file())
        return self.exit_code

    def build_file(self) -> ResultFile:
        return ResultFile(
            benchmark=self.benchmark,
            date=datetime.now(UTC).date().isoformat(),
            seconds=round(time.monotonic() - self._start),
            load=self._load,
            machine=describe_machine(),
            versions=self.versions,
            comparisons=self.comparisons,
            checks=self.checks,
            curves=self.curves,
            samples=self.samples,
        )


def make_parser(description: str | None, *, rounds: int | None = None) -> argparse.ArgumentParser:
    """Return a parser with the options of every benchmark; `rounds` is a default."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--json", type=Path, help="file for the results")
    if rounds is not None:
        parser.add_argument("--rounds", type=int, default=rounds, help="measured rounds")
    return parser


def program(text: str) -> Path:
    """Parse the path of a program that runs in another folder. Links are not resolved."""
    return Path(text).absolute()


def describe_comparison(one: Comparison) -> str:
    status = "MISSED" if not one.is_met else "LOST  " if one.is_lost else "met   "
    limit = "no limit" if one.limit is None else f"limit {one.limit:.3g} x"
    return f"{status}  {one.quantity}, {one.measure}: {one.ratio:.3g} x {one.baseline} ({limit})"


def write_results(path: Path, results: ResultFile) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    encoded = msgspec.json.format(msgspec.json.encode(results), indent=1)
    path.write_bytes(encoded + b"\n")


def read_results(path: Path) -> ResultFile:
    return msgspec.json.decode(path.read_bytes(), type=ResultFile)


def _select(value: Sample | float, measure: str) -> float:
    """Return the median that a measure names."""
    if isinstance(value, Sample):
        value = value.wall if measure == WALL else value.cpu
    return _round(value)


def _round(value: float) -> float:
    """Return four significant digits, which is more than the noise leaves."""
    return float(f"{value:.4g}")
