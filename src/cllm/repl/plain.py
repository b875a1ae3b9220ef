"""Text that a terminal can be given, whoever wrote it."""

import re

# Control characters could move the cursor, set the title or answer for the person.
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f]")


def plain(text: str) -> str:
    """The text without what a terminal would obey; line breaks and tabs stay."""
    return CONTROL.sub("", text)


def one_line(text: str, *, longest: int | None = None) -> str:
    """The text on one line, cut if it is longer than that."""
    line = plain(" ".join(text.split()))
    return line if longest is None or len(line) <= longest else f"{line[: longest - 1]}…"


def whole_text(text: str) -> str:
    """The text with whole characters only: bytes that were none become replacement characters."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
