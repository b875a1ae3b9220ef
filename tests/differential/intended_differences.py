"""Reads `intended.md`, the list of intended differences with their reasons."""

import fnmatch
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from tests.differential.comparison import Difference

FILE = Path(__file__).with_name("intended.md")
COLUMNS = 4


@dataclass(frozen=True, kw_only=True)
class Rule:
    """Changed lines that match are intended, in matching cases and aspects."""

    cases: str
    aspect: str
    line: re.Pattern[str]
    reason: str

    def allows(self, difference: Difference, line: str) -> bool:
        return (
            fnmatch.fnmatchcase(difference.case, self.cases)
            and fnmatch.fnmatchcase(difference.aspect, self.aspect)
            and self.line.search(line) is not None
        )


def read_rules(path: Path = FILE) -> list[Rule]:
    """Return the rules of the table."""
    rows = [line for line in path.read_text(encoding="utf-8").splitlines() if line[:1] == "|"]
    return [_parse_rule(row) for row in rows[2:]]


def _parse_rule(row: str) -> Rule:
    cells = [cell.strip().strip("`") for cell in re.split(r"(?<!\\)\|", row)[1:-1]]
    if len(cells) != COLUMNS or not cells[3]:
        raise ValueError(f"A row of intended.md needs cases, aspect, line and reason: {row}")
    cases, aspect, line, reason = cells
    pattern = re.compile(line.replace("\\|", "|"))
    return Rule(cases=cases, aspect=aspect, line=pattern, reason=reason)


def find_reasons(difference: Difference, rules: Iterable[Rule]) -> list[str] | None:
    """Return the reasons for all changed lines, or None if one of them has none."""
    rules = list(rules)
    reasons: list[str] = []
    for line in difference.changed:
        rule = next((rule for rule in rules if rule.allows(difference, line)), None)
        if rule is None:
            return None
        if rule.reason not in reasons:
            reasons.append(rule.reason)
    return reasons
