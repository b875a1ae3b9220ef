"""Renders a streamed Markdown reply on a terminal.

Finished blocks are printed once; only the growing block is redrawn, at most one screen of it.
Thinking disappears when text follows. Text that is too long for layout is printed unformatted.
"""

import os
import re
import shutil
import time
from collections.abc import Callable
from itertools import pairwise, takewhile
from typing import ClassVar, TextIO

from markdown_it import MarkdownIt
from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderResult
from rich.markdown import CodeBlock, Heading, Markdown, MarkdownElement
from rich.syntax import Syntax
from rich.text import Text

from cllm.terminal import Escaper, PlainPrinter, escape, escape_styled, write_control

REDRAW_SECONDS = 0.05
DRAWING_SHARE = 4
MIN_WIDTH = 20
TRAILING = re.compile(r" +((?:\x1b\[[0-9;]*m)*)$")
# Synchronized output: the terminal shows everything between the two in one step.
BEGIN_UPDATE, END_UPDATE = "\x1b[?2026h", "\x1b[?2026l"
HIDE_CURSOR, SHOW_CURSOR = "\x1b[?25l", "\x1b[?25h"
DIM, PLAIN = "\x1b[2m", "\x1b[0m"
WAITING = f"{DIM}…{PLAIN}"
THINKING_LINES = 6
# In characters: enough for those lines.
MAX_THINKING = 4000
# In characters: the layout of a longer text takes seconds, in which Ctrl-C has no effect.
MAX_LAYOUT = 60_000


class ScreenRegion:
    """The last lines on the screen."""

    def __init__(self, out: TextIO) -> None:
        self.failure: OSError | None = None
        self._out = out
        self._lines: list[str] = []
        self._columns = 0

    def draw(self, lines: list[str], columns: int) -> None:
        lines = [escape_styled(line) for line in lines]
        if lines == self._lines:
            return
        same = 0
        if columns == self._columns:
            pairs = zip(self._lines, lines, strict=False)
            same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
        up = count_rows(self._lines[same:], columns)
        moved = f"\x1b[{up}A\r" if up else "\r"
        new = "".join(f"{line}\x1b[K\n" for line in lines[same:])
        self.put(f"{BEGIN_UPDATE}{moved}{new}\x1b[J{END_UPDATE}")
        self._lines, self._columns = lines, columns

    def release(self) -> None:
        self._lines = []

    def put(self, text: str) -> None:
        if self.failure is not None:
            return
        try:
            write_control(self._out, text)
            self._out.flush()
        except OSError as error:
            self.failure = error


class LivePrinter:
    def __init__(
        self,
        out: TextIO,
        *,
        size: Callable[[], os.terminal_size] = shutil.get_terminal_size,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._region = ScreenRegion(out)
        self._plain = PlainPrinter(out)
        self._escaper = Escaper()
        self._is_plain = False
        self._size = size
        self._clock = clock
        self._growing = ""
        self._thinking = ""
        self._has_output = False
        self._needs_redraw = True
        self._next_at = 0.0
        self._region.put(HIDE_CURSOR)

    @property
    def failure(self) -> OSError | None:
        return self._region.failure or self._plain.failure

    def write(self, text: str) -> None:
        if self._is_plain:
            self._plain.write(text)
            return
        self._growing += self._escaper.feed(text)
        if self._growing.strip():
            self._thinking = ""
        self._needs_redraw = True
        self.refresh()

    def think(self, text: str) -> None:
        self._thinking = (self._thinking + escape(text))[-MAX_THINKING:]
        self._needs_redraw = not self._is_plain
        self.refresh()

    def refresh(self) -> None:
        started = self._clock()
        if not self._needs_redraw or started < self._next_at:
            return
        self._needs_redraw = False
        if len(self._growing) > MAX_LAYOUT:
            self._switch_to_plain()
            return
        done, self._growing = split_finished_blocks(self._growing)
        if done.strip():
            self._print(done)
        size = self._size()
        lines = (
            self._lines(self._growing, size)
            if self._growing.strip()
            else self._thinking_or_waiting(size)
        )
        self._region.draw(lines[-max(size.lines - 1, 1) :], size.columns)
        ended = self._clock()
        # Drawing a long block is slow: leave most of the time for other work.
        self._next_at = ended + max(REDRAW_SECONDS, DRAWING_SHARE * (ended - started))

    def settle(self) -> None:
        if len(self._growing) > MAX_LAYOUT:
            self._switch_to_plain()
        if self._is_plain:
            self._plain.settle()
            self._is_plain = False
        elif self._growing.strip():
            self._print(self._growing)
        else:
            self._region.draw([], self._size().columns)
        self._growing, self._thinking, self._needs_redraw = "", "", False

    def end(self) -> None:
        self.settle()
        self._region.put(SHOW_CURSOR)

    def _print(self, text: str) -> None:
        size = self._size()
        self._region.draw(self._lines(text, size), size.columns)
        self._region.release()
        self._has_output = True

    def _switch_to_plain(self) -> None:
        self._region.draw([""] if self._has_output else [], self._size().columns)
        self._region.release()
        self._plain.write(self._growing)
        self._growing, self._thinking, self._needs_redraw = "", "", False
        self._is_plain = self._has_output = True

    def _thinking_or_waiting(self, size: os.terminal_size) -> list[str]:
        lines = thinking_lines(self._thinking, size.columns - 1)
        above = [""] if self._has_output and lines else []
        return [*above, *lines] or [WAITING]

    def _lines(self, text: str, size: os.terminal_size) -> list[str]:
        above = [""] if self._has_output else []
        return above + markdown_lines(text, size.columns - 1)


def thinking_lines(text: str, width: int) -> list[str]:
    console = Console(width=max(width, MIN_WIDTH), legacy_windows=False)
    wrapped = Text(text.strip()).wrap(console, console.width)
    lines = [line.plain.rstrip() for line in wrapped]
    return [f"{DIM}{line}{PLAIN}" for line in lines if line][-THINKING_LINES:]


def split_finished_blocks(text: str) -> tuple[str, str]:
    """Split off the last block, which may grow: the rest of its line can change its meaning."""
    whole, end, half = text.rpartition("\n")
    parsed_blocks = split_blocks(whole + end)
    if not parsed_blocks:
        return "", text
    last = parsed_blocks[-1]
    return (whole + end)[: -len(last)], last + half


def split_blocks(text: str) -> list[str]:
    """Split the text at the start of each block."""
    starts = [token.map[0] for token in _parser.parse(text) if token.level == 0 and token.map]
    lines = text.split("\n")
    cuts = [0, *sorted(set(starts))[1:], len(lines)] if starts else []
    return [
        "\n".join(lines[cut:following]) + ("\n" if following < len(lines) else "")
        for cut, following in pairwise(cuts)
    ]


class LeftHeading(Heading):
    """A heading that is not centred."""

    LEVEL_ALIGN: ClassVar[dict[str, JustifyMethod]] = {}


class CompactCode(CodeBlock):
    """Code without padding, so that it can be copied."""

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        code = str(self.text).rstrip()
        yield Syntax(code, self.lexer_name, theme=self.theme, word_wrap=True)


class ChatMarkdown(Markdown):
    """Markdown as models write it: line breaks are preserved, and HTML is text."""

    elements: ClassVar[dict[str, type[MarkdownElement]]] = {
        **Markdown.elements,
        "heading_open": LeftHeading,
        "fence": CompactCode,
        "code_block": CompactCode,
    }

    def __init__(self, text: str) -> None:
        super().__init__("", code_theme="ansi_dark", hyperlinks=False)
        self.markup = text
        self.parsed = _parser.parse(text)
        for token in self.parsed:
            for child in token.children or ():
                if child.type == "softbreak":
                    child.type = "hardbreak"


def markdown_lines(text: str, width: int) -> list[str]:
    console = Console(
        width=max(width, MIN_WIDTH), force_terminal=True, legacy_windows=False, highlight=False
    )
    blocks = [lines for block in split_blocks(text) if (lines := _block_lines(console, block))]
    return [line for lines in blocks for line in ("", *lines)][1:]


def _block_lines(console: Console, block: str) -> list[str]:
    with console.capture() as captured:
        console.print(ChatMarkdown(block))
    lines = [TRAILING.sub(r"\1", line) for line in captured.get().split("\n")]
    filled = [index for index, line in enumerate(lines) if strip_ansi(line).strip()]
    return lines[filled[0] : filled[-1] + 1] if filled else []


def strip_ansi(line: str) -> str:
    return Text.from_ansi(line).plain if "\x1b" in line else line


def count_rows(lines: list[str], columns: int) -> int:
    return sum(max(1, -(-cell_len(strip_ansi(line)) // max(columns, 1))) for line in lines)


# Without "reference", which would hide the definitions of links.
_parser = (
    MarkdownIt("commonmark", {"html": False})
    .enable(["strikethrough", "table"])
    .disable("reference")
)
