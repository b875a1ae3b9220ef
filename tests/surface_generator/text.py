"""Text without values that differ between runs; these become placeholders."""

import re
from collections.abc import Iterable, Sequence
from pathlib import Path

PATTERNS = (
    (re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b"), "<uuid>"),
    (re.compile(r"\bc-\d{8}-\d{6}-[0-9a-f]{4}\b"), "<automatic id>"),
    (re.compile(r"\bturn_[0-9a-f]{16,}\b"), "<turn id>"),
    (
        re.compile(r"\b\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?(?:Z|[+-]\d\d:?\d\d)?"),
        "<time>",
    ),
    (re.compile(r"\b\d{4}-\d\d-\d\d\b"), "<day>"),
    (re.compile(r"\b(127\.0\.0\.1|localhost|\[::1\]):\d{4,5}\b"), r"\1:<port>"),
    (re.compile(r"\bport \d{4,5}\b"), "port <port>"),
    (re.compile(r"\b\d+\.\d+ s\b"), "<seconds> s"),
    (re.compile(r"\bcllm \d+\.\d+\.\d+\S*"), "cllm <version>"),
    (re.compile(r"\bseconds=\d+\.\d+"), "seconds=<seconds>"),
)

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


class Normaliser:
    """Replaces folders, IDs, times and ports by placeholders."""

    def __init__(self, folders: dict[str, Path]) -> None:
        longest_first = sorted(folders.items(), key=lambda item: -len(str(item[1])))
        self._folders = [(str(path), f"<{name}>") for name, path in longest_first]

    def __call__(self, text: str) -> str:
        for path, name in self._folders:
            text = text.replace(path, name)
        for pattern, name in PATTERNS:
            text = pattern.sub(name, text)
        return CONTROL.sub(lambda match: repr(match[0])[1:-1], text)


def join_rows(rows: Iterable[Sequence[str]], *, indent: str = "  ") -> list[str]:
    """Return rows as lines. Columns have no common width, so that a new row changes no other."""
    return [indent + "  ".join(cell for cell in row if cell) for row in rows]


def section(title: str, lines: Iterable[str]) -> list[str]:
    """Return a heading, its lines and a blank line."""
    return [title, *lines, ""]


def document(about: str, *sections: Iterable[str]) -> str:
    """Return the text of a file: its description, then its sections."""
    lines = [f"# {about}", ""]
    for one in sections:
        lines.extend(line.rstrip() for line in one)
    while lines and not lines[-1]:
        lines.pop()
    return "\n".join(lines) + "\n"
