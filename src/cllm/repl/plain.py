"""Text that a terminal can be given, whoever wrote it."""

import re
import textwrap

# Control characters could move the cursor, set the title or answer for the person.
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")
# What turns the direction of writing around could show another line than the one that is meant.
TURNING = re.compile("[\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def plain(text: str) -> str:
    """The text without what a terminal would obey; line breaks and tabs stay."""
    return CONTROL.sub("", text)


def one_line(text: str, *, longest: int | None = None) -> str:
    """The text on one line, cut if it is longer than that."""
    line = TURNING.sub("", plain(" ".join(text.split())))
    return line if longest is None or len(line) <= longest else f"{line[: longest - 1]}…"


def wrapped(line: str, columns: int | None, *, indent: str = "") -> list[str]:
    """The line cut between words for a terminal so wide; what is one word stays whole."""
    if columns is None:
        return [line]
    cut = textwrap.wrap(
        line, columns, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )
    return cut or [line]


def whole_text(text: str) -> str:
    """The text with whole characters only: bytes that were none become replacement characters."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
