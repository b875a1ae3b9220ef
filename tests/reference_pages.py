"""Reads docs/reference: its sections, its rows, and the names that a text defines.

A name is defined by a code span in the first cell of a row, or before a colon at the start of a
list item or a sentence: "`--to ID`: the ID of the branch." A mention elsewhere defines nothing.
"""

import re
from itertools import pairwise
from pathlib import Path

REFERENCE = Path(__file__).parents[1] / "docs" / "reference"
CODE_SPAN = re.compile(r"`([^`\n]+)`")
SPANS_BEFORE_COLON = re.compile(
    r"(?:^|^ *- |\. )(`[^`\n]+`(?:,? (?:/ |or |and )?`[^`\n]+`)*):", re.MULTILINE
)


def read_page(name: str) -> str:
    return (REFERENCE / name).read_text(encoding="utf-8")


def read_section(address: str) -> str:
    """Return a section of a page: `server.md: Settings`."""
    page, _, heading = address.partition(": ")
    return find_section(read_page(page), heading)


def find_section(page: str, heading: str) -> str:
    """Return a section of a page with its subsections. `heading` is a regular expression."""
    start = re.search(rf"^(#+) {heading}.*$", page, re.MULTILINE)
    assert start is not None, heading
    # A line of a code block can start with one `#`.
    end = re.compile(rf"^#{{2,{len(start[1])}}} ", re.MULTILINE).search(page, start.end())
    return page[start.start() : end.start() if end else len(page)]


def list_rows(text: str) -> list[str]:
    """Return the rows of all tables in a text, without the heads."""
    lines = [line.strip() for line in text.splitlines()]
    return [
        line
        for line, following in pairwise([*lines, ""])
        if line.startswith("|") and not line.startswith("|--") and not following.startswith("|--")
    ]


def get_first_cell(row: str) -> str:
    return re.split(r"(?<!\\)\|", row)[1].strip()


def find_rows(text: str, name: str) -> list[str]:
    """Return the rows whose first cell has a code span that starts with the name."""
    pattern = re.compile(rf"`{re.escape(name)}(?![\w-])")
    return [row for row in list_rows(text) if pattern.search(get_first_cell(row))]


def find_definitions(text: str) -> list[str]:
    """Return the code spans that define names, such as `--to ID` or `GET /health`."""
    places = [*map(get_first_cell, list_rows(text)), *SPANS_BEFORE_COLON.findall(text)]
    return [span for place in places for span in CODE_SPAN.findall(place)]
