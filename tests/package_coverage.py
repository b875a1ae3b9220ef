"""Checks the test coverage of every package; `make coverage` runs it.

Argument: the file that `coverage json` writes. The limit is `fail_under` in pyproject.toml.
"""

import json
import sys
import tomllib
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path, PurePath
from typing import Any

ROOT = Path(__file__).parents[1]


def read_limit() -> float:
    """Return the lowest allowed percentage of a package."""
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    return float(settings["tool"]["coverage"]["report"]["fail_under"])


def coverage_by_package(report: Mapping[str, Any]) -> dict[str, float]:
    """Return the percentage of covered lines and branches by package."""
    totals: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for path, file_report in report["files"].items():
        parts = PurePath(path).parts
        parts = parts[parts.index("cllm") :]
        package = ".".join(parts[:2]) if len(parts) > 2 else "cllm"
        counts = file_report["summary"]
        totals[package][0] += counts["covered_lines"] + counts["covered_branches"]
        totals[package][1] += counts["num_statements"] + counts["num_branches"]
    return {name: 100 * covered / (total or 1) for name, (covered, total) in sorted(totals.items())}


def main() -> None:
    report = json.loads(Path(sys.argv[1]).read_bytes())
    limit, packages = read_limit(), coverage_by_package(report)
    for name, percentage in packages.items():
        print(f"{name:20}{percentage:6.1f} %")  # noqa: T201
    if below := [name for name, percentage in packages.items() if percentage < limit]:
        sys.exit(f"Coverage below {limit:g} % of lines and branches: {', '.join(below)}")


if __name__ == "__main__":
    main()
