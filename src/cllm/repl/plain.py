"""Text in the form that the screen and the keyboard of a chat need."""

import textwrap


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
