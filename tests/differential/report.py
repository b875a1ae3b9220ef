"""Formats the result of a comparison: a summary, grouped differences and a full report."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from tests.differential.comparison import Difference
from tests.differential.intended_differences import Rule, find_reasons
from tests.differential.model import Call, Case
from tests.differential.runner import Group, Result

SHOWN_GROUPS = 25
SHOWN_LINES = 14
SHOWN_CASES = 3
STATES = ("stateless", "new", "continue", "mixed", "none")
NUMBER = re.compile(r"\d+")


@dataclass
class ComparisonResult:
    """The unexpected and the intended differences of all groups."""

    requests: int = 0
    runs: int = 0
    upstream: int = 0
    rows: int = 0
    unexpected: list[Difference] = field(default_factory=list)
    intended: list[tuple[Difference, list[str]]] = field(default_factory=list)

    def add(self, result: Result, rules: Sequence[Rule]) -> None:
        self.requests += result.requests
        self.runs += result.runs
        self.upstream += result.upstream
        self.rows += result.rows
        for difference in result.differences:
            reasons = find_reasons(difference, rules)
            if reasons is None:
                self.unexpected.append(difference)
            else:
                self.intended.append((difference, reasons))

    @property
    def summary(self) -> str:
        cases = len({difference.case for difference in self.unexpected})
        return (
            f"{self.requests:,} requests and {self.runs:,} runs of the command compared: "
            f"{len(self.unexpected):,} differences in {cases:,} cases, "
            f"{len(self.intended):,} intended differences."
        )


def format_matrix(groups: Iterable[Group]) -> str:
    """Return a table of the number of requests by protocol, provider, mode and state."""
    counts: Counter[tuple[str, str, str, str]] = Counter()
    for group in groups:
        for case in group.cases:
            if isinstance(case, Case):
                for call in (step for step in case.steps if isinstance(step, Call)):
                    counts[case.protocol, case.provider, case.mode, request_state(call, case)] += 1
    rows = sorted({key[:3] for key in counts})
    states = [state for state in STATES if any(key[3] == state for key in counts)]
    lines = [f"{'protocol':14}{'provider':12}{'mode':8}" + "".join(f"{s:>11}" for s in states)]
    for row in rows:
        numbers = "".join(f"{counts[(*row, state)] or '·':>11}" for state in states)
        lines.append(f"{row[0]:14}{row[1]:12}{row[2]:8}{numbers}")
    totals = [sum(n for key, n in counts.items() if key[3] == state) for state in states]
    lines.append(f"{'all':34}" + "".join(f"{total:>11,}" for total in totals))
    return "\n".join(lines)


def request_state(call: Call, case: Case) -> str:
    """Return the state of a request: "none" if it does not call a model."""
    if "messages" not in call.path and "completions" not in call.path:
        return "none"
    conversation = call.headers.get("X-Conversation-ID")
    if conversation is None:
        return "none" if case.state == "none" or call.method != "POST" else "stateless"
    return "new" if conversation in {"", "null"} else "continue"


def group_differences(differences: Iterable[Difference]) -> list[list[Difference]]:
    """Group differences that are equal except for numbers, the largest group first."""
    groups: dict[tuple[str, ...], list[Difference]] = {}
    for difference in differences:
        changed = dict.fromkeys(NUMBER.sub("0", line) for line in difference.changed)
        groups.setdefault((difference.aspect, *changed), []).append(difference)
    return sorted(groups.values(), key=len, reverse=True)


def format_differences(result: ComparisonResult) -> str:
    """Return the differences for a terminal: one of each group, with some case IDs."""
    lines: list[str] = []
    groups = group_differences(result.unexpected)
    for group in groups[:SHOWN_GROUPS]:
        first = group[0]
        names = list(dict.fromkeys(difference.case for difference in group))
        more = f" and {len(names) - SHOWN_CASES} more" if len(names) > SHOWN_CASES else ""
        lines.append(f"\n{first.aspect} {first.step}: {', '.join(names[:SHOWN_CASES])}{more}")
        lines += [f"    {line}" for line in first.lines[:SHOWN_LINES]]
        if len(first.lines) > SHOWN_LINES:
            lines.append(f"    ({len(first.lines) - SHOWN_LINES} more lines)")
    if len(groups) > SHOWN_GROUPS:
        lines.append(f"\n({len(groups) - SHOWN_GROUPS} more groups of differences)")
    if result.intended:
        reasons = Counter(reason for _, reasons in result.intended for reason in reasons)
        lines.append("\nIntended:")
        lines += [f"    {count:6,}  {reason}" for reason, count in reasons.most_common()]
    return "\n".join(lines)


def write_report(path: Path, result: ComparisonResult, title: str) -> None:
    """Write every difference with its complete diff."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(f"{title}\n{result.summary}\n")
        for difference in result.unexpected:
            _write(file, difference, "")
        for difference, reasons in result.intended:
            _write(file, difference, f" (intended: {'; '.join(reasons)})")


def _write(file: TextIO, difference: Difference, note: str) -> None:
    file.write(f"\n== {difference.case}: {difference.aspect} {difference.step}{note}\n")
    file.writelines(f"{line}\n" for line in difference.lines)
