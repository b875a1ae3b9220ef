"""Measures the CPU time and wall time of commands and functions in interleaved rounds.

Other processes distort single numbers. Compare only ratios of medians from one run.
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
    """CPU seconds (process and children) and wall-clock seconds of one run."""

    cpu: float
    wall: float

    def __truediv__(self, times: int) -> "Cost":
        """Return the cost of one of several repetitions."""
        return Cost(cpu=self.cpu / times, wall=self.wall / times)


@dataclass(kw_only=True)
class Sample:
    """The costs of repeated runs, with their medians."""

    name: str
    costs: list[Cost] = field(default_factory=list)

    @property
    def cpu(self) -> float:
        return statistics.median(cost.cpu for cost in self.costs)

    @property
    def wall(self) -> float:
        return statistics.median(cost.wall for cost in self.costs)


def run_command(command: Sequence[str], environment: Mapping[str, str], cwd: str) -> Cost:
    """Run a command and return its cost, including its child processes. Exits if it fails."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    finished = subprocess.run(
        command,
        env=dict(environment),
        cwd=cwd,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        check=False,
    )
    wall = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if finished.returncode != 0:
        stderr = finished.stderr.decode(errors="replace")
        raise SystemExit(f"{' '.join(command)} exited with {finished.returncode}: {stderr}")
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(cpu=cpu, wall=wall)


def interleave(runs: Mapping[str, Callable[[], Cost]], *, rounds: int) -> dict[str, Sample]:
    """Run each variant once to warm up, then all variants alternately for this many rounds."""
    samples = {name: Sample(name=name) for name in runs}
    for run in runs.values():
        run()
    for number in range(rounds):
        for name, run in runs.items():
            samples[name].costs.append(run())
        if sys.stderr.isatty():
            print(f"\rround {number + 1} of {rounds}", end="", file=sys.stderr)
    if sys.stderr.isatty():
        print("\r\x1b[K", end="", file=sys.stderr)
    return samples


def measure_call(function: Callable[[], object]) -> Cost:
    """Call a function in this process and return its cost."""
    wall, cpu = time.perf_counter(), time.process_time()
    function()
    return Cost(cpu=time.process_time() - cpu, wall=time.perf_counter() - wall)


def measure_repeated(function: Callable[[], object], times: int) -> Cost:
    """Call a function several times and return the cost of one call."""

    def repeat() -> None:
        for _ in range(times):
            function()

    return measure_call(repeat) / times


def measure_for(function: Callable[[], object], seconds: float, *, max_times: int) -> Cost:
    """Call a function until this time has passed; return the cost of one call."""
    times = 0
    wall, cpu = time.perf_counter(), time.process_time()
    while not times or (times < max_times and time.perf_counter() - wall < seconds):
        function()
        times += 1
    return Cost(cpu=time.process_time() - cpu, wall=time.perf_counter() - wall) / times


def print_table(samples: Mapping[str, Sample], *, baseline: str) -> None:
    """Print the medians in milliseconds, and each as a multiple of the baseline."""
    base = samples[baseline]
    width = max(len(name) for name in samples)
    print(f"x = multiple of: {baseline}")
    print(f"{'median':{width}}  {'CPU ms':>9}  {'wall ms':>9}  {'CPU x':>7}  {'wall x':>7}")
    for name, sample in samples.items():
        print(
            f"{name:{width}}  {sample.cpu * 1000:9.3f}  {sample.wall * 1000:9.3f}  "
            f"{sample.cpu / base.cpu:7.2f}  {sample.wall / base.wall:7.2f}"
        )
