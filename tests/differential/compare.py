"""Compares what was observed of two versions, and says in lines what differs.

Equal means equal bytes after normalising. Lines are for people and for the patterns of intended
differences: JSON is laid out one field on a line, unless only its layout differs.
"""

import difflib
import json
import re
from dataclasses import dataclass

MOST_LINES = 120
MOST_COLUMNS = 240
NUMBER_TOKEN = re.compile(r"(?<=[:\[, ])<(epoch|seconds)>(?=[,}\]])")
"""Tokens that stand for numbers, where JSON has no quotes."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """One thing that was observed: `aspect` is what it is, `step` where in the case it belongs."""

    aspect: str
    step: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.aspect} {self.step}".strip()


@dataclass(frozen=True, kw_only=True)
class Difference:
    """One section that differs. `lines` is a unified diff without its head."""

    case: str
    aspect: str
    step: str
    lines: tuple[str, ...]

    @property
    def changed(self) -> tuple[str, ...]:
        return tuple(line for line in self.lines if line[:1] in {"+", "-"})


def compare(case: str, old: list[Section], new: list[Section]) -> list[Difference]:
    """The sections that differ, in order; one that only one side has differs from nothing."""
    before = {section.name: section for section in old}
    after = {section.name: section for section in new}
    names = [*before, *(name for name in after if name not in before)]
    found = []
    for name in names:
        one, other = before.get(name), after.get(name)
        if one is not None and other is not None and one.text == other.text:
            continue
        section = one or other
        assert section is not None
        lines = _diff(one.text if one else "", other.text if other else "")
        found.append(
            Difference(case=case, aspect=section.aspect, step=section.step, lines=tuple(lines))
        )
    return found


def _diff(old: str, new: str) -> list[str]:
    before, after = old.split("\n"), new.split("\n")
    lines: list[str] = []
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag != "equal" and len(lines) <= MOST_LINES:
            lines.append(f"@@ line {i1 + 1} @@")
            lines += _hunk(before[i1:i2], after[j1:j2])
    cut = [_cut(line) for line in _aligned(lines)]
    if len(cut) > MOST_LINES:
        cut = [*cut[:MOST_LINES], " (and more)"]
    return cut


def _hunk(old: list[str], new: list[str]) -> list[str]:
    """The lines that were replaced by others, laid out unless only their layout differs."""
    before, after = _laid_out(old), _laid_out(new)
    if before == after:
        before, after = old, new
    found = list(difflib.unified_diff(before, after, lineterm="", n=1))[2:]
    return [line for line in found if not line.startswith("@@")]


def _laid_out(lines: list[str]) -> list[str]:
    """JSON one field on a line; a word may stand before it, as in a row or an event."""
    result: list[str] = []
    for line in lines:
        name, text = "", line
        if not line.startswith(("{", "[")):
            name, _, text = line.partition(" ")
        try:
            value = (
                json.loads(NUMBER_TOKEN.sub(r'"<\1>"', text)) if text[:1] in {"{", "["} else None
            )
        except ValueError:
            value = None
        if value is None:
            result.append(line)
            continue
        found = json.dumps(value, ensure_ascii=False, indent=1).split("\n")
        result += [f"{name} {found[0]}".strip(), *found[1:]]
    return result


def _aligned(lines: list[str]) -> list[str]:
    """In long lines that were replaced one by one, leave out what both begin with."""
    result = list(lines)
    for place in range(len(lines) - 1):
        one, other = result[place], result[place + 1]
        if one[:1] == "-" and other[:1] == "+" and max(len(one), len(other)) > MOST_COLUMNS:
            same = next(
                (at for at, (a, b) in enumerate(zip(one[1:], other[1:], strict=False)) if a != b),
                min(len(one), len(other)) - 1,
            )
            start = max(0, same - MOST_COLUMNS // 3)
            if start:
                result[place] = f"-…{one[1 + start :]}"
                result[place + 1] = f"+…{other[1 + start :]}"
    return result


def _cut(line: str) -> str:
    return line if len(line) <= MOST_COLUMNS else f"{line[:MOST_COLUMNS]}…"
