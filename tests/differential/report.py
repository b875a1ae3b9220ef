"""Writes what a comparison came to: a summary, the differences in groups, and a full report."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TextIO

from tests.differential.compare import Difference
from tests.differential.execute import Group, Result
from tests.differential.intended import Rule, reasons_for
from tests.differential.model import Call, Case

SHOWN_GROUPS = 25
SHOWN_LINES = 14
SHOWN_CASES = 3
STATES = ("stateless", "new", "continue", "mixed", "none")
NUMBER = re.compile(r"\d+")


@dataclass
class Verdict:
    """The differences of all groups, those that are intended apart."""

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
            reasons = reasons_for(difference, rules)
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


def matrix(groups: Iterable[Group]) -> str:
    """How many requests there are, by protocol, provider, mode and state."""
    counts: Counter[tuple[str, str, str, str]] = Counter()
    for group in groups:
        for case in group.cases:
            if isinstance(case, Case):
                for call in (step for step in case.steps if isinstance(step, Call)):
                    counts[case.protocol, case.provider, case.mode, state_of(call, case)] += 1
    rows = sorted({key[:3] for key in counts})
    states = [state for state in STATES if any(key[3] == state for key in counts)]
    lines = [f"{'protocol':14}{'provider':12}{'mode':8}" + "".join(f"{s:>11}" for s in states)]
    for row in rows:
        numbers = "".join(f"{counts[(*row, state)] or '·':>11}" for state in states)
        lines.append(f"{row[0]:14}{row[1]:12}{row[2]:8}{numbers}")
    totals = [sum(n for key, n in counts.items() if key[3] == state) for state in states]
    lines.append(f"{'all':34}" + "".join(f"{total:>11,}" for total in totals))
    return "\n".join(lines)


def state_of(call: Call, case: Case) -> str:
    """Whether a request has no conversation, starts one or continues one; "none" asks no model."""
    if "messages" not in call.path and "completions" not in call.path:
        return "none"
    named = call.headers.get("X-Conversation-ID")
    if named is None:
        return "none" if case.state == "none" or call.method != "POST" else "stateless"
    return "new" if named in {"", "null"} else "continue"


def grouped(differences: Iterable[Difference]) -> list[list[Difference]]:
    """Differences that say the same, however often and but for numbers; the largest group first."""
    found: dict[tuple[str, ...], list[Difference]] = {}
    for difference in differences:
        changed = dict.fromkeys(NUMBER.sub("0", line) for line in difference.changed)
        found.setdefault((difference.aspect, *changed), []).append(difference)
    return sorted(found.values(), key=len, reverse=True)


def shown(verdict: Verdict) -> str:
    """The differences for a terminal: alike ones once, with some of their cases."""
    lines: list[str] = []
    groups = grouped(verdict.unexpected)
    for group in groups[:SHOWN_GROUPS]:
        first = group[0]
        names = list(dict.fromkeys(difference.case for difference in group))
        more = f" and {len(names) - SHOWN_CASES} more" if len(names) > SHOWN_CASES else ""
        lines.append(f"\n{first.aspect} {first.step}: {', '.join(names[:SHOWN_CASES])}{more}")
        lines += [f"    {line}" for line in first.lines[:SHOWN_LINES]]
        if len(first.lines) > SHOWN_LINES:
            lines.append(f"    ({len(first.lines) - SHOWN_LINES} more lines)")
    if len(groups) > SHOWN_GROUPS:
        lines.append(f"\n({len(groups) - SHOWN_GROUPS} more kinds of differences)")
    if verdict.intended:
        reasons = Counter(reason for _, reasons in verdict.intended for reason in reasons)
        lines.append("\nIntended:")
        lines += [f"    {count:6,}  {reason}" for reason, count in reasons.most_common()]
    return "\n".join(lines)


def write_report(path: Path, verdict: Verdict, title: str) -> None:
    """Every difference with its whole diff."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", encoding="utf-8", errors="surrogateescape") as file:
        file.write(f"{title}\n{verdict.summary}\n")
        for difference in verdict.unexpected:
            _write(file, difference, "")
        for difference, reasons in verdict.intended:
            _write(file, difference, f" (intended: {'; '.join(reasons)})")


def _write(file: TextIO, difference: Difference, note: str) -> None:
    file.write(f"\n== {difference.case}: {difference.aspect} {difference.step}{note}\n")
    file.writelines(f"{line}\n" for line in difference.lines)
