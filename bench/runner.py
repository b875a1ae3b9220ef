"""Runs the benchmarks one after another, stores their results and writes the report.

`runner.py NAME…` runs some of them, without names all. Continues after a benchmark that fails; its
old result stays. Exits 1 if one failed or exceeded a limit. Says what to install if a program is
missing, before it starts.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import report
from results import RESULTS, ResultFile, program, read_results
from suite import BENCHMARKS, SCRIPTS, Benchmark

# System programs are sometimes not in the path of a user.
SYSTEM_FOLDERS = "/usr/sbin:/usr/local/sbin:/opt/homebrew/bin"
INSTALLED_BY_MAKE = "run the benchmarks with `make`, which installs it"
SYSTEM_PROGRAMS = {
    "chromium": "install the package chromium",
    "nginx": "install the package nginx",
    "node": "install Node 20 or newer",
}


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """How a benchmark ended. `missed` counts its exceeded limits; None if it failed."""

    name: str
    seconds: float
    missed: int | None


def find_programs(options: argparse.Namespace) -> dict[str, Path | None]:
    """Return the path of each program that a benchmark takes as an option."""
    path = f"{os.environ.get('PATH', '')}:{SYSTEM_FOLDERS}"
    system = {name: shutil.which(name, path=path) for name in SYSTEM_PROGRAMS}
    return {
        "llm": options.llm,
        "peers": options.peers and options.peers / "python",
        "litellm": options.peers and options.peers / "litellm",
        "portkey": options.portkey,
        **{name: Path(found) if found else None for name, found in system.items()},
    }


def find_missing(benchmarks: Sequence[Benchmark], programs: Mapping[str, Path | None]) -> list[str]:
    """Return a sentence for each program that is needed and not installed."""
    needed = sorted({name for benchmark in benchmarks for name in benchmark.programs})
    return [
        f"{name} is not installed; {SYSTEM_PROGRAMS.get(name, INSTALLED_BY_MAKE)}."
        for name in needed
        if (path := programs[name]) is None or not path.exists()
    ]


def run_benchmark(benchmark: Benchmark, programs: Mapping[str, Path | None]) -> Outcome:
    arguments = [f"--{name}={programs[name]}" for name in benchmark.programs]
    # `path.py` uses the tests' fake provider.
    environment = {**os.environ, "PYTHONPATH": str(SCRIPTS.parent)}
    start = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / benchmark.result.name
        subprocess.run(
            [sys.executable, str(benchmark.script), f"--json={path}", *arguments],
            env=environment,
            check=False,
        )
        missed = None
        if path.exists():
            shutil.copyfile(path, benchmark.result)
            missed = count_missed(read_results(path))
    return Outcome(name=benchmark.name, seconds=time.monotonic() - start, missed=missed)


def count_missed(results: ResultFile) -> int:
    met = [one.is_met for one in results.comparisons] + [one.is_met for one in results.checks]
    return met.count(False)


def print_outcomes(outcomes: Sequence[Outcome]) -> None:
    print(f"\n{'benchmark':24}{'seconds':>8}  result")
    for one in outcomes:
        text = "failed" if one.missed is None else f"{one.missed} limits exceeded"
        print(f"{one.name:24}{one.seconds:8.0f}  {'limits met' if one.missed == 0 else text}")
    print(f"{'total':24}{sum(one.seconds for one in outcomes):8.0f}")


def write_report(peers: Path | None) -> None:
    """Write the page, and its pictures if the environment with matplotlib exists."""
    report.main()
    if peers is not None and (peers / "python").exists():
        subprocess.run([peers / "python", SCRIPTS / "plots.py"], check=True)
    else:
        print("The pictures are not written: run `make bench-report`.")


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    names = [benchmark.name for benchmark in BENCHMARKS]
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(names))
    parser.add_argument("--llm", type=program, help="the command `llm`")
    parser.add_argument("--peers", type=program, help="bin folder of the peers' environment")
    parser.add_argument("--portkey", type=program, help="Portkey's start-server.js")
    options = parser.parse_args()
    if unknown := set(options.names) - set(names):
        parser.error(f"there is no benchmark {min(unknown)}.")
    return options


def main() -> int:
    options = parse_options()
    selected = [one for one in BENCHMARKS if not options.names or one.name in options.names]
    programs = find_programs(options)
    if missing := find_missing(selected, programs):
        raise SystemExit("\n".join(missing))
    RESULTS.mkdir(exist_ok=True)
    start, outcomes = time.monotonic(), []
    for number, benchmark in enumerate(selected, 1):
        minutes, seconds = divmod(int(time.monotonic() - start), 60)
        print(f"\n[{minutes:02}:{seconds:02}] {number} of {len(selected)}: {benchmark.name}")
        sys.stdout.flush()
        outcomes.append(run_benchmark(benchmark, programs))
    write_report(options.peers)
    print_outcomes(outcomes)
    return int(any(one.missed != 0 for one in outcomes))


if __name__ == "__main__":
    sys.exit(main())
