"""Text for terminals: escapes characters that a terminal obeys, hides or reorders.

`escape` is for texts, `one_line` for names and titles, `message_line` for errors and notes,
`make_visible` for text that a user must check before a decision. All output to a terminal also
passes `TerminalStream`.
"""

import io
import re
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import TextIO

REPLACEMENT = "\ufffd"
NOT_UTF8 = (
    "Warning: Standard input is not UTF-8; {count} invalid bytes are sent as \ufffd. Convert it, "
    "for example: iconv -f latin1 -t utf-8 FILE | cllm …"
)

# Controls except \t and \n, direction marks, separators, default-ignorable characters, surrogates.
_HIDDEN = (
    "\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u115f\u1160\u17b4\u17b5\u200e\u200f\u2028-\u202e"
    "\u2060-\u206f\u3164\ufeff\uffa0\ufff0-\ufffb\ud800-\udfff\U0001bca0-\U0001bca3"
    "\U0001d173-\U0001d17a\U000e0000-\U000e00ff\U000e01f0-\U000e0fff"
)
# Invisible characters that some scripts and emoji need: joiners after a letter of such a script or
# an emoji, selectors after the character whose form they select.
_JOINERS = "\u034f\u180e\u200b-\u200d"
_SELECTORS = "\u180b-\u180d\u180f\ufe00-\ufe0f\U000e0100-\U000e01ef"
_INVISIBLE = re.compile(f"[{_HIDDEN}{_JOINERS}{_SELECTORS}]")
_JOINER = re.compile(f"[{_JOINERS}]")
_SELECTOR = re.compile(f"[{_SELECTORS}]")
# Characters of keycap emoji, which take selectors although they are ASCII.
_KEYCAPS = frozenset("0123456789#*")
_SIGNS = frozenset("©®‼⁉")
_PUNCTUATION = ("\u2000", "\u206f")
_LAST_LATIN = "\u024f"
_BREAKS = re.compile("[ \r]*[\n\t]+[ \r\n\t]*")
_STYLE = re.compile(r"(\x1b\[[0-9;]*m)")
CLEAR_LINE = "\r\x1b[K"
# A UUID, and the start of a title.
MAX_FIRST_CELLS = 36
MIN_LAST_CELLS = 16
# In characters. Messages of providers are shorter.
MAX_MESSAGE = 1000
MAX_WORD = 300
_LONG_WORD = re.compile(rf"\S{{{MAX_WORD + 1},}}")
ERROR_PREFIXES = ("Configuration error: ", "Context error: ", "Variable error: ")


class TerminationSignal(BaseException):
    """A signal requests the end of the process."""


def escape(text: str) -> str:
    r"""Escape text, except \n, \t and the line end \r\n."""
    return _INVISIBLE.sub(_escape_match, text.replace("\r\n", "\n"))


def escape_styled(text: str) -> str:
    parts = _STYLE.split(text)
    parts[::2] = map(escape, parts[::2])
    return "".join(parts)


def one_line(text: str, *, max_length: int | None = None) -> str:
    """Escape text and join its lines; truncate to `max_length` characters."""
    is_plain = text.isascii() and text.isprintable()
    line = text if is_plain else escape(_BREAKS.sub(" ", text.strip("\r\n\t")))
    return line if max_length is None or len(line) <= max_length else f"{line[: max_length - 1]}…"


def message_line(text: str) -> str:
    """Return a message on one line, with long words shortened, such as a quoted argument."""
    line = _LONG_WORD.sub(lambda match: _cut_middle(match[0], MAX_WORD), one_line(text))
    return _cut_middle(line, MAX_MESSAGE)


def _cut_middle(text: str, limit: int) -> str:
    if len(text) <= limit:
        return text
    end = limit // 3
    return f"{text[: limit - end - 1]}…{text[-end:]}"


def error_line(text: str) -> str:
    """Return an error on one line, with `Error: ` unless the text names its kind."""
    line = message_line(text)
    return line if line.startswith(ERROR_PREFIXES) else f"Error: {line}"


def make_visible(text: str) -> str:
    """Escape line feeds, unusual spaces, and all joiners and selectors as well."""
    if text.isascii() and text.isprintable():
        return text
    return "".join(
        escape_character(character)
        if not character.isprintable() or character == "\u2800" or _INVISIBLE.match(character)
        else character
        for character in text
    )


def escape_character(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")


def hidden_characters() -> Iterator[str]:
    for first, last in re.findall("(.)(?:-(.))?", _HIDDEN, re.DOTALL):
        yield from map(chr, range(ord(first), ord(last or first) + 1))


def _escape_match(match: re.Match[str]) -> str:
    """Return the character itself where a script or an emoji needs it, else its escape."""
    character, text, start = match[0], match.string, match.start()
    before = text[start - 1 : start] if start else ""
    if _JOINER.match(character):
        two_before = text[start - 2 : start - 1] if start > 1 else ""
        is_needed = _is_carrier(before) or (
            _SELECTOR.match(before) and _can_be_selected(two_before)
        )
    else:
        is_needed = _SELECTOR.match(character) and _can_be_selected(before)
    return character if is_needed else escape_character(character)


def _is_carrier(character: str) -> bool:
    """Whether it is a visible character beyond Latin letters and punctuation, or an emoji."""
    first, last = _PUNCTUATION
    is_beyond = character > _LAST_LATIN and not first <= character <= last
    return character in _SIGNS or (is_beyond and not _INVISIBLE.match(character))


def _can_be_selected(character: str) -> bool:
    return _is_carrier(character) or character in _KEYCAPS


class Escaper:
    def __init__(self) -> None:
        # The characters that a joiner may follow, and a \r that a \n may follow, in the next piece.
        self._context = ""
        self._return = ""

    def feed(self, text: str) -> str:
        r"""Escape the next piece. A \r at its end waits for the next one."""
        joined = self._return + text
        self._return = "\r" if joined.endswith("\r") else ""
        complete = self._context + joined.removesuffix("\r")
        shown = escape(complete)[len(self._context) :]
        end = complete[-2:]
        if end and _can_be_selected(end[-1]):
            self._context = end[-1]
        else:
            is_selected = _SELECTOR.match(end[-1:]) and _can_be_selected(end[:-1])
            self._context = end if is_selected else ""
        return shown


class TerminalStream(io.TextIOWrapper):
    """Escapes text; cllm's own sequences go through `write_control`."""

    def __init__(self, stream: TextIO) -> None:
        super().__init__(
            stream.buffer, encoding=stream.encoding, errors="replace", line_buffering=True
        )
        self._escaper = Escaper()

    def write(self, text: str) -> int:
        super().write(self._escaper.feed(text))
        return len(text)

    def write_control(self, sequence: str) -> None:
        """Write unescaped. Never pass text that others wrote."""
        super().write(sequence)


def escape_stream(stream: TextIO) -> TextIO:
    if isinstance(stream, TerminalStream) or not stream.isatty():
        return stream
    return TerminalStream(stream)


def write_control(stream: TextIO, sequence: str) -> None:
    """Write unescaped. Never pass text that others wrote."""
    if isinstance(stream, TerminalStream):
        stream.write_control(sequence)
    else:
        stream.write(sequence)


def draw_line(stream: TextIO, text: str) -> None:
    write_control(stream, CLEAR_LINE)
    stream.write(text)
    stream.flush()


def local_time(moment: datetime) -> str:
    try:
        return moment.astimezone().strftime("%Y-%m-%d %H:%M")
    except (OverflowError, ValueError):
        return moment.isoformat()


def pluralize(number: int, noun: str, plural: str | None = None) -> str:
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"


def decode_input(data: bytes) -> tuple[str, str | None]:
    """Decode standard input; a warning if it is not UTF-8. Invalid bytes are replaced."""
    text = data.decode("utf-8", "replace")
    count = text.count(REPLACEMENT) - data.count(REPLACEMENT.encode())
    return text, NOT_UTF8.format(count=count) if count > 0 else None


def align_columns(
    rows: Iterable[Sequence[str]], columns: int | None = None, *, optional: Sequence[int] = ()
) -> list[str]:
    """Lines whose cells start below each other; the last cell of a line is not padded.

    `columns` is the width of a terminal. To fit it, the `optional` cells are left out in this
    order, the last cell of a line is cut, and a long first cell has a line of its own.
    """
    cells = [[one_line(cell) for cell in row] for row in rows]
    widths = [max(map(count_cells, column)) for column in zip(*cells, strict=True)]
    if columns is not None and widths:
        shown = _choose_columns(widths, columns, optional)
        cells = [[row[index] for index in shown] for row in cells]
        widths = [widths[index] for index in shown]
        room = columns - sum(widths[1:-1]) - 2 * (len(widths) - 1)
        widths[0] = max(min(widths[0], room - min(MIN_LAST_CELLS, widths[-1])), 0)
        widths[-1] = max(room - widths[0], MIN_LAST_CELLS)
    lines: list[str] = []
    for row in cells:
        if count_cells(row[0]) > widths[0]:
            lines.append(row[0])
            row[0] = ""
        lines.append("  ".join(map(_pad_cell, row, widths)).rstrip())
    return lines


def _choose_columns(widths: Sequence[int], columns: int, optional: Iterable[int]) -> list[int]:
    """Return the indexes of the columns between which the last one has enough room."""
    shown = list(range(len(widths)))
    for index in optional:
        first = min(widths[0], MAX_FIRST_CELLS)
        used = first + 2 + sum(widths[one] + 2 for one in shown[1:-1])
        if columns - used < MIN_LAST_CELLS:
            shown.remove(index)
    return shown


def _pad_cell(cell: str, width: int) -> str:
    text = cut_cells(cell, width)
    return text + " " * (width - count_cells(text))


def count_cells(text: str) -> int:
    """Return the width of a text in columns of a terminal."""
    if text.isascii():
        return len(text)
    from unicodedata import combining, east_asian_width  # noqa: PLC0415 - rarely needed

    return sum(
        0 if combining(character) else 1 + (east_asian_width(character) in "WF")
        for character in text
    )


def cut_cells(text: str, columns: int) -> str:
    """Cut a text to this number of columns, with an ellipsis."""
    if count_cells(text) <= columns:
        return text
    kept = text[: max(columns - 1, 0)]
    while kept and count_cells(kept) > columns - 1:
        kept = kept[:-1]
    return f"{kept}…"


def fits_on_screen(text: str) -> bool:
    """Whether the text fits without scrolling, with two lines left."""
    from shutil import get_terminal_size  # noqa: PLC0415 - rarely needed

    size = get_terminal_size()
    widths = (
        sum(1 if character.isascii() else 2 for character in line) for line in text.split("\n")
    )
    rows = sum(max(1, -(-width // size.columns)) for width in widths)
    return rows <= size.lines - 2


class PlainPrinter:
    """Prints text as it arrives, with one final line break. After a `failure`, prints nothing."""

    def __init__(self, out: TextIO) -> None:
        self.failure: OSError | None = None
        self._out = out
        self._breaks = ""
        self._open = False

    def write(self, text: str) -> None:
        pending = self._breaks + text
        shown = pending.rstrip("\n")
        self._breaks = pending[len(shown) :]
        if shown:
            self._put(shown)
            self._open = True

    def think(self, text: str) -> None:
        """Do nothing: printed thinking would look like a part of the reply."""

    def refresh(self) -> None:
        """Do nothing."""

    def settle(self) -> None:
        if self._open:
            self._put("\n")
        self._open, self._breaks = False, ""

    def end(self) -> None:
        self.settle()

    def _put(self, text: str) -> None:
        if self.failure is not None:
            return
        try:
            self._out.write(text)
            self._out.flush()
        except OSError as error:
            self.failure = error
