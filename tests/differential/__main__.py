"""Runs an old and a new version of cllm on the same cases and lists every difference.

    python -m tests.differential --old HEAD~3
    python -m tests.differential --old dist/cllm-0.1.0-py3-none-any.whl --cases 600

The new version is the working tree by default. Exit code 1: there is a difference that is not in
`intended.md`. Exit code 2: a version cannot be installed or started.
"""

import argparse
import concurrent.futures
import multiprocessing
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path

from tests.differential.catalogue.selection import list_cases, make_groups, select_cases
from tests.differential.intended_differences import read_rules
from tests.differential.report import (
    ComparisonResult,
    format_differences,
    format_matrix,
    write_report,
)
from tests.differential.runner import run_group
from tests.differential.side import SideError
from tests.differential.versions import Version, VersionError, install

REPOSITORY = Path(__file__).parents[2]
CACHE = REPOSITORY / ".cache/differential"
DATA = REPOSITORY.parent / "shared/data"
REPORT = "report.txt"
EXIT_DIFFERENCE = 1
EXIT_PROBLEM = 2


def main() -> int:
    options = _parse_options()
    root = Path(tempfile.mkdtemp(prefix="cllm-differential-"))
    try:
        old, new = (_install(source, root) for source in (options.old, options.new))
        return _compare(options, old, new, root)
    except (SideError, VersionError) as error:
        sys.stderr.write(f"Error: {error}\n")
        return EXIT_PROBLEM
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _install(source: str, root: Path) -> Version:
    """Install a version. The copy of a folder is deleted after the run."""
    return install(source, root / "copies" if Path(source).is_dir() else CACHE, REPOSITORY)


def _parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.differential")
    parser.add_argument("--old", default="HEAD", help="wheel, folder or commit (default: HEAD)")
    parser.add_argument(
        "--new", default=str(REPOSITORY), help="the same (default: the working tree)"
    )
    parser.add_argument(
        "--only", help="cases whose ID contains this text, or matches it if it has a *"
    )
    parser.add_argument("--cases", type=int, help="about this many requests, spread over all cases")
    parser.add_argument(
        "--rows", choices=("all", "api"), default="all", help="api: compare no SQL tables"
    )
    parser.add_argument(
        "--jobs", type=int, default=len(os.sched_getaffinity(0)) + 1, help="processes"
    )
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the recorded data")
    parser.add_argument("--list", action="store_true", help="list the cases and stop")
    return parser.parse_args()


def _compare(options: argparse.Namespace, old: Version, new: Version, root: Path) -> int:
    if not options.data.is_dir():
        _print(f"{options.data} does not exist; its cases are skipped.")
    cases = select_cases(list_cases(options.data), only=options.only, requests=options.cases)
    if options.list:
        _print("\n".join(case.id for case in cases))
        return 0
    groups = make_groups(cases)
    rules = read_rules()
    title = f"Old: {old.label}, new: {new.label}."
    _print(title)
    _print(format_matrix(groups))
    runs = sum(group.runs for group in groups)
    requests = sum(group.requests for group in groups)
    _print(f"{requests:,} requests and {runs:,} runs of the command, in {len(groups)} groups.")
    result = ComparisonResult()
    start = time.monotonic()
    with concurrent.futures.ProcessPoolExecutor(
        options.jobs, mp_context=multiprocessing.get_context("fork")
    ) as pool:
        futures = [
            pool.submit(run_group, group, old, new, root, rows=options.rows == "all")
            for group in groups
        ]
        for future in concurrent.futures.as_completed(futures):
            result.add(future.result(), rules)
            seconds = time.monotonic() - start
            _print(
                f"  {result.requests:6,} requests  {result.runs:4} runs  "
                f"{len(result.unexpected):4} differences  {seconds:4.0f} s"
            )
    write_report(CACHE / REPORT, result, title)
    _print(format_differences(result))
    seconds = time.monotonic() - start
    _print(f"\n{result.summary}")
    _print(
        f"Both versions together sent {result.upstream:,} requests to providers and stored "
        f"{result.rows:,} rows in {seconds:.0f} s. All differences: "
        f"{(CACHE / REPORT).relative_to(REPOSITORY)}"
    )
    return EXIT_DIFFERENCE if result.unexpected else 0


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
