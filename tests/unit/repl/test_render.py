"""The screen and its scrollback after an answer."""

import io
import os
import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cllm.repl.render import (
    LivePrinter,
    ScreenRegion,
    markdown_lines,
    split_finished_blocks,
    strip_ansi,
    thinking_lines,
)
from cllm.terminal import PlainPrinter

SEQUENCE = re.compile(r"\x1b\[(\??[0-9;]*)([A-Za-z])|(\n)|(\r)|([^\x1b\n\r])")

ANSWER = """# Rivers

Three *rivers* of **Europe**,
and one <div> tag:

- Rhine
- Danube
  - with a delta

1. one
2. two

```python
for river in rivers:

    print(river)
```

| river | km |
|---|---|
| Rhine | 1233 |

> said by somebody

#hashtag, ***not*** a heading, `code` and a [link](https://example.org).
"""


class Terminal(io.StringIO):
    """A terminal with a fixed number of lines; scrolled lines cannot change."""

    def __init__(self, *, columns: int = 60, lines: int = 12) -> None:
        super().__init__()
        self.size = os.terminal_size((columns, lines))
        self.rows: list[str] = [""]
        self.row = self.column = 0
        self.cursor_is_shown = True

    def write(self, text: str) -> int:
        for found in SEQUENCE.finditer(text):
            arguments, code, newline, back, sign = found.groups()
            if code is not None:
                self._obey(arguments, code)
            elif newline:
                self.row, self.column = self.row + 1, 0
                if self.row == len(self.rows):
                    self.rows.append("")
            elif back:
                self.column = 0
            else:
                self._print(sign)
        return len(text)

    def _obey(self, arguments: str, code: str) -> None:
        if code == "A":
            top = max(0, len(self.rows) - self.size.lines)
            assert self.row - int(arguments) >= top, "the cursor leaves the screen"
            self.row -= int(arguments)
        elif code == "K":
            self.rows[self.row] = self.rows[self.row][: self.column]
        elif code == "J":
            self.rows[self.row] = self.rows[self.row][: self.column]
            del self.rows[self.row + 1 :]
        elif arguments == "?25":
            self.cursor_is_shown = code == "h"

    def _print(self, sign: str) -> None:
        row = self.rows[self.row].ljust(self.column)
        self.rows[self.row] = row[: self.column] + sign + row[self.column + 1 :]
        self.column += 1
        assert self.column <= self.size.columns, "the line is wrapped"

    @property
    def shown(self) -> str:
        return "\n".join(row.rstrip() for row in self.rows).rstrip("\n")


def live(terminal: io.StringIO, *pieces: str) -> LivePrinter:
    ticks = iter(range(10**6))
    size = getattr(terminal, "size", os.terminal_size((60, 20)))
    answer = LivePrinter(terminal, size=lambda: size, clock=lambda: float(next(ticks)))
    for piece in pieces:
        answer.write(piece)
    return answer


def wait(answer: LivePrinter) -> None:
    """Until what has come is shown."""
    for _ in range(9):
        answer.refresh()


def whole(text: str, columns: int = 60) -> str:
    return "\n".join(strip_ansi(line).rstrip() for line in markdown_lines(text, columns - 1))


@given(cuts=st.lists(st.integers(0, len(ANSWER)), max_size=30), lines=st.integers(2, 40))
def test_the_screen_does_not_depend_on_the_chunks(cuts, lines):
    terminal = Terminal(lines=lines)
    places = [0, *sorted(cuts), len(ANSWER)]
    pieces = [ANSWER[a:b] for a, b in pairwise(places)]

    live(terminal, *pieces).end()

    assert terminal.shown == whole(ANSWER)
    assert terminal.cursor_is_shown


def test_single_characters_give_the_same_screen():
    terminal = Terminal(lines=5)

    live(terminal, *ANSWER).end()

    assert terminal.shown == whole(ANSWER)


@pytest.mark.parametrize(
    "pieces",
    [("one\n#", "two"), ("one\n***", "bold***"), ("one\n```", " two ```"), ("a | b\n--", "|--\n")],
)
def test_half_a_line_does_not_end_a_block(pieces):
    terminal = Terminal()

    live(terminal, *pieces).end()

    assert terminal.shown == whole("".join(pieces))


def test_a_block_longer_than_the_screen_is_complete_at_the_end():
    code = "```\n" + "".join(f"line {number}\n" for number in range(100)) + "```\n"
    terminal = Terminal(lines=10)

    answer = live(terminal, *code.splitlines(keepends=True))

    assert len(terminal.rows) <= 10
    answer.end()
    assert terminal.shown.splitlines() == [f"line {number}" for number in range(100)]


def test_a_note_during_an_answer_appears_below_the_text_so_far():
    terminal = Terminal()

    answer = live(terminal, "Before")
    answer.settle()
    terminal.write("a note\n")
    answer.write("After")
    answer.end()

    assert terminal.shown.splitlines() == ["Before", "a note", "", "After"]


def test_an_unchanged_line_is_not_redrawn():
    out = io.StringIO()
    region = ScreenRegion(out)
    region.draw(["one", "two"], 80)
    out.truncate(0)
    out.seek(0)

    region.draw(["one", "two", "three"], 80)

    assert "one" not in out.getvalue()
    assert "two" not in out.getvalue()
    assert "three" in out.getvalue()


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("Use <b>this</b> & that.", ["Use <b>this</b> & that."]),
        ("one\ntwo", ["one", "two"]),
        ("[1]: https://example.org", ["[1]: https://example.org"]),
        ("# Title", ["Title"]),
        ("[text](https://example.org/a)", ["text (https://example.org/a)"]),
        ("", []),
        ("   \n\n", []),
    ],
)
def test_markdown_loses_no_text(text, shown):
    assert [strip_ansi(line) for line in markdown_lines(text, 60)] == shown


def test_control_characters_of_a_model_do_not_reach_the_terminal():
    out = io.StringIO()
    answer = LivePrinter(out, size=lambda: os.terminal_size((60, 20)))

    answer.write("a\x1b]0;title\x07b\x1b[2J\x9b31m")
    answer.end()

    assert "\x1b]" not in out.getvalue()
    assert "\x1b[2J" not in out.getvalue()
    assert "\x9b" not in out.getvalue()
    assert r"a\x1b]0;title\x07b\x1b[2J\x9b31m" in out.getvalue()


@pytest.mark.parametrize("text", ["&#x202e;", "&rlm;", "&#27;[2J", "&#xe0041;", "[a](x&#x202e;)"])
def test_a_markdown_entity_cannot_bypass_the_escaping(text):
    out = io.StringIO()
    answer = LivePrinter(out, size=lambda: os.terminal_size((60, 20)))

    answer.write(f"before {text} after\n\n- {text}\n\n| {text} |\n|-|\n| {text} |\n")
    answer.end()

    assert not re.search("[\u200f\u202e\U000e0041]|\x1b\\[2J", out.getvalue())


def test_a_line_end_in_two_chunks_is_one_line_end():
    terminal = Terminal()

    live(terminal, "one\r", "\ntwo\r\n", "\r", "\n", "three\rfour").end()

    assert terminal.shown == "one\ntwo\n\nthree\\rfour"


@given(text=st.text(alphabet="ab \n#-*`>|1.~", max_size=60))
def test_finished_blocks_are_a_part_of_the_text(text):
    done, growing = split_finished_blocks(text)

    assert done + growing == text


@pytest.mark.parametrize("width", [1, 2, 5, 19, 20, 300])
def test_any_width_can_be_rendered(width):
    assert markdown_lines(ANSWER, width)


def test_thinking_is_dim_and_disappears():
    terminal = Terminal()
    answer = live(terminal)

    answer.think("First I look at it,\n\n")
    answer.think("then \x1b[2Jagain.")
    wait(answer)

    assert terminal.shown == "First I look at it,\nthen \\x1b[2Jagain."
    assert thinking_lines("Hm.", 40) == ["\x1b[2mHm.\x1b[0m"]
    answer.write("It is a cat.")
    answer.end()
    assert terminal.shown == "It is a cat."


def test_the_last_lines_of_long_thinking_are_shown_below_the_text():
    terminal = Terminal(columns=30)
    answer = live(terminal, "Said before.\n\nAnd this.\n\n")
    answer.settle()

    answer.think("".join(f"thought {number}\n" for number in range(1000)))
    wait(answer)

    assert terminal.shown.split("\n")[-6:] == [f"thought {number}" for number in range(994, 1000)]
    answer.end()
    assert terminal.shown == "Said before.\n\nAnd this."


def without_sequences(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]|\r", "", text)


@pytest.mark.parametrize("piece", ["x" * 2_000_000, "*a* line\n" * 200_000])
def test_text_too_long_for_layout_is_printed_unformatted(piece):
    out = io.StringIO()
    answer = live(out, "Look:\n\nthis", " is\n\n", piece, "*more*\n")
    answer.settle()
    answer.write("*after* a tool")
    answer.end()

    shown = without_sequences(out.getvalue())
    assert shown.endswith(f"{piece}*more*\n\nafter a tool\n")


def test_a_long_answer_in_one_chunk_is_printed_unformatted():
    out = io.StringIO()
    answer = LivePrinter(out, size=lambda: os.terminal_size((60, 20)), clock=lambda: 0.0)
    answer.write("")
    answer.write("*a* line\n" * 200_000)
    answer.end()

    assert without_sequences(out.getvalue()).endswith("*a* line\n" * 200_000)


def test_plain_text_is_unchanged_and_ends_with_one_line_break():
    out = io.StringIO()
    answer = PlainPrinter(out)

    for piece in ("# Not ", "*rendered*\n", "\n"):
        answer.think("Hm.")
        answer.write(piece)
    answer.end()

    assert out.getvalue() == "# Not *rendered*\n"


class Broken(io.StringIO):
    def write(self, _text: str) -> int:
        raise BrokenPipeError


@pytest.mark.parametrize("kind", ["plain", "live"])
def test_a_failing_output_is_recorded_and_not_raised(kind):
    answer = PlainPrinter(Broken()) if kind == "plain" else LivePrinter(Broken())

    answer.write("text")
    answer.end()

    assert isinstance(answer.failure, BrokenPipeError)
