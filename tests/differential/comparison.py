"""Compares the observations of two versions and describes the differences as diff lines.

Sections are equal if their normalised bytes are equal. The lines are for people and for the
patterns of intended differences: JSON is printed with one field per line, unless only its layout
differs.
"""

import difflib
import json
import re
from dataclasses import dataclass

MAX_LINES = 120
MAX_COLUMNS = 240
NUMBER_TOKEN = re.compile(r"(?<=[:\[, ])<(epoch|seconds)>(?=[,}\]])")
"""Tokens that replace numbers, which have no quotes in JSON."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """One observation: `aspect` is its kind, `step` its position in the case."""

    aspect: str
    step: str
    text: str

    @property
    def name(self) -> str:
        return f"{self.aspect} {self.step}".strip()


@dataclass(frozen=True, kw_only=True)
class Difference:
    """A section that differs. `lines` is a unified diff without its header."""

    case: str
    aspect: str
    step: str
    lines: tuple[str, ...]

    @property
    def changed(self) -> tuple[str, ...]:
        return tuple(line for line in self.lines if line[:1] in {"+", "-"})


def compare(case: str, old: list[Section], new: list[Section]) -> list[Difference]:
    """Return the sections that differ, in order. A missing section counts as empty."""
    before = {section.name: section for section in old}
    after = {section.name: section for section in new}
    names = [*before, *(name for name in after if name not in before)]
    differences = []
    for name in names:
        one, other = before.get(name), after.get(name)
        if one is not None and other is not None and one.text == other.text:
            continue
        section = one or other
        assert section is not None
        lines = _diff(one.text if one else "", other.text if other else "")
        differences.append(
            Difference(case=case, aspect=section.aspect, step=section.step, lines=tuple(lines))
        )
    return differences


def _diff(old: str, new: str) -> list[str]:
    before, after = old.split("\n"), new.split("\n")
    lines: list[str] = []
    matcher = difflib.SequenceMatcher(None, before, after, autojunk=False)
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag != "equal" and len(lines) <= MAX_LINES:
            lines.append(f"@@ line {i1 + 1} @@")
            lines += _hunk(before[i1:i2], after[j1:j2])
    cut = [_cut(line) for line in _skip_common_start(lines)]
    if len(cut) > MAX_LINES:
        cut = [*cut[:MAX_LINES], " (and more)"]
    return cut


def _hunk(old: list[str], new: list[str]) -> list[str]:
    """Return the diff of replaced lines, with indented JSON unless only its layout differs."""
    before, after = _indent_json(old), _indent_json(new)
    if before == after:
        before, after = old, new
    diff = list(difflib.unified_diff(before, after, lineterm="", n=1))[2:]
    return [line for line in diff if not line.startswith("@@")]


def _indent_json(lines: list[str]) -> list[str]:
    """Indent JSON, one field per line. A word may precede it, as in a row or an event."""
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
        indented = json.dumps(value, ensure_ascii=False, indent=1).split("\n")
        result += [f"{name} {indented[0]}".strip(), *indented[1:]]
    return result


def _skip_common_start(lines: list[str]) -> list[str]:
    """Remove the common start of long replaced lines."""
    result = list(lines)
    for index in range(len(lines) - 1):
        one, other = result[index], result[index + 1]
        if one[:1] == "-" and other[:1] == "+" and max(len(one), len(other)) > MAX_COLUMNS:
            same = next(
                (at for at, (a, b) in enumerate(zip(one[1:], other[1:], strict=False)) if a != b),
                min(len(one), len(other)) - 1,
            )
            start = max(0, same - MAX_COLUMNS // 3)
            if start:
                result[index] = f"-…{one[1 + start :]}"
                result[index + 1] = f"+…{other[1 + start :]}"
    return result


def _cut(line: str) -> str:
    return line if len(line) <= MAX_COLUMNS else f"{line[:MAX_COLUMNS]}…"
