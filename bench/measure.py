"""Measuring commands and functions side by side: interleaved rounds, processor time, medians.

Machines are noisy; ratios of medians from one run are what can be compared.
"""

import resource
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field


@dataclass(frozen=True, kw_only=True)
class Cost:
    """Seconds of one run: of the processor (the process and all its children), and of the wall."""

    cpu: float
    wall: float


@dataclass(kw_only=True)
class Sample:
    """The costs of the same thing, run again and again."""

    name: str
    costs: list[Cost] = field(default_factory=list)

    @property
    def cpu(self) -> float:
        return statistics.median(cost.cpu for cost in self.costs)

    @property
    def wall(self) -> float:
        return statistics.median(cost.wall for cost in self.costs)


def run_command(command: Sequence[str], environment: Mapping[str, str], cwd: str) -> Cost:
    """Run a command to its end and count the processor time of it and all that it waited for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    finished = subprocess.run(
        command,
        env=dict(environment),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    wall = time.perf_counter() - began
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if finished.returncode != 0:
        said = finished.stderr.decode(errors="replace")
        raise SystemExit(f"{' '.join(command)} ended with {finished.returncode}: {said}")
    spent = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(cpu=spent, wall=wall)


def interleave(runs: Mapping[str, Callable[[], Cost]], *, rounds: int) -> dict[str, Sample]:
    """Run each once to warm up, then all of them in turn, so many times."""
    samples = {name: Sample(name=name) for name in runs}
    for run in runs.values():
        run()
    for done in range(rounds):
        for name, run in runs.items():
            samples[name].costs.append(run())
        if sys.stderr.isatty():
            print(f"\rround {done + 1} of {rounds}", end="", file=sys.stderr)
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr)
    return samples


def counted(function: Callable[[], object]) -> Cost:
    """The cost of a function in this process."""
    wall, cpu = time.perf_counter(), time.process_time()
    function()
    return Cost(cpu=time.process_time() - cpu, wall=time.perf_counter() - wall)


def print_table(samples: Mapping[str, Sample], *, against: str) -> None:
    """The medians, and each as a multiple of one of them."""
    floor = samples[against]
    width = max(len(name) for name in samples)
    print(f"{'':{width}}  {'cpu ms':>9}  {'wall ms':>9}  {'cpu x':>7}  {'wall x':>7}")
    for name, sample in samples.items():
        print(
            f"{name:{width}}  {sample.cpu * 1000:9.2f}  {sample.wall * 1000:9.2f}  "
            f"{sample.cpu / floor.cpu:7.2f}  {sample.wall / floor.wall:7.2f}"
        )


@dataclass(kw_only=True)
class Targets:
    """Collects what was promised and what was seen; `finish` is the exit code."""

    missed: int = 0

    def at_most(self, what: str, seen: float, limit: float) -> None:
        met = seen <= limit
        self.missed += not met
        print(f"{'met   ' if met else 'MISSED'}  {what}: {seen:.3g} (at most {limit:.3g})")

    def finish(self) -> int:
        return 1 if self.missed else 0
