"""Runs an old and a new version of cllm side by side and lists every difference.

    python -m tests.differential --old HEAD~3
    python -m tests.differential --old dist/cllm-0.1.0-py3-none-any.whl --cases 600

The new version is the working tree unless it is named. Exit code 1 if there is a difference that
is not in `intended.md`, 2 if a version cannot be installed or started.
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

from tests.differential.catalogue.everything import all_cases, chosen, groups_of
from tests.differential.execute import run_group
from tests.differential.intended import read_rules
from tests.differential.report import Verdict, matrix, shown, write_report
from tests.differential.side import SideError
from tests.differential.versions import Version, VersionError, install

REPOSITORY = Path(__file__).parents[2]
CACHE = REPOSITORY / ".cache/differential"
DATA = REPOSITORY.parent / "shared/data"
REPORT = "report.txt"
EXIT_DIFFERENCE = 1
EXIT_PROBLEM = 2


def main() -> int:
    options = _options()
    root = Path(tempfile.mkdtemp(prefix="cllm-differential-"))
    try:
        old, new = (_installed(wanted, root) for wanted in (options.old, options.new))
        return _compare(options, old, new, root)
    except (SideError, VersionError) as error:
        sys.stderr.write(f"Error: {error}\n")
        return EXIT_PROBLEM
    finally:
        shutil.rmtree(root, ignore_errors=True)


def _installed(wanted: str, root: Path) -> Version:
    """Install a version; a copy of a folder is of no use after the run."""
    return install(wanted, root / "copies" if Path(wanted).is_dir() else CACHE, REPOSITORY)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.differential")
    parser.add_argument("--old", default="HEAD", help="wheel, folder or commit (HEAD)")
    parser.add_argument("--new", default=str(REPOSITORY), help="the same (the working tree)")
    parser.add_argument("--only", help="cases whose id contains this, or matches it if it has a *")
    parser.add_argument("--cases", type=int, help="about this many requests, spread over all")
    parser.add_argument("--rows", choices=("all", "api"), default="all", help="api: no SQL tables")
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)) + 1)
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the recorded data")
    parser.add_argument("--list", action="store_true", help="list the cases and stop")
    return parser.parse_args()


def _compare(options: argparse.Namespace, old: Version, new: Version, root: Path) -> int:
    if not options.data.is_dir():
        _say(f"The recorded data is not at {options.data}; its cases are left out.")
    cases = chosen(all_cases(options.data), only=options.only, requests=options.cases)
    if options.list:
        _say("\n".join(case.id for case in cases))
        return 0
    groups = groups_of(cases)
    rules = read_rules()
    title = f"Old: {old.label}, new: {new.label}."
    _say(title)
    _say(matrix(groups))
    runs = sum(group.runs for group in groups)
    requests = sum(group.requests for group in groups)
    _say(f"{requests:,} requests and {runs:,} runs of the command, in {len(groups)} groups.")
    verdict = Verdict()
    started = time.monotonic()
    with concurrent.futures.ProcessPoolExecutor(
        options.jobs, mp_context=multiprocessing.get_context("fork")
    ) as pool:
        waiting = [
            pool.submit(run_group, group, old, new, root, rows=options.rows == "all")
            for group in groups
        ]
        for done in concurrent.futures.as_completed(waiting):
            verdict.add(done.result(), rules)
            seconds = time.monotonic() - started
            _say(
                f"  {verdict.requests:6,} requests  {verdict.runs:4} runs  "
                f"{len(verdict.unexpected):4} differences  {seconds:4.0f} s"
            )
    write_report(CACHE / REPORT, verdict, title)
    _say(shown(verdict))
    seconds = time.monotonic() - started
    _say(f"\n{verdict.summary}")
    _say(
        f"The providers received {verdict.upstream:,} requests, and {verdict.rows:,} rows were "
        f"stored, by both versions together. {seconds:.0f} s; all differences are in "
        f"{(CACHE / REPORT).relative_to(REPOSITORY)}."
    )
    return EXIT_DIFFERENCE if verdict.unexpected else 0


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
