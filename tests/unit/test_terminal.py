"""Escaped text for terminals."""

import contextlib
import io
import os
import pty
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cllm.terminal import (
    Escaper,
    TerminalStream,
    align_columns,
    escape,
    escape_stream,
    escape_styled,
    fits_on_screen,
    hidden_characters,
    make_visible,
    message_line,
    one_line,
    write_control,
)

# Everything that a terminal obeys, reorders or does not show, whatever stands around it.
FORBIDDEN = [
    *map(chr, (*range(9), *range(0x0B, 0x20), *range(0x7F, 0xA0))),
    *"\u061c\u200e\u200f\u2028\u2029\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069",
    *"\u2060\u2061\u2064\u206a\ufeff\ufff9\u3164\u115f\xad",
    *map(chr, range(0xE0000, 0xE0080)),
]
NEEDED = {
    "Persian": "می\u200cشود",
    "Hindi": "क्\u200dष",
    "Khmer": "ភាសា\u200bខ្មែរ",
    "Mongolian": "ᠠ\u180b",
    "family": "👩\u200d👩\u200d👧",
    "heart": "❤\ufe0f",
    "burning heart": "❤\ufe0f\u200d🔥",
    "keycap": "1\ufe0f⃣",
    "copyright": "©\ufe0f",
    "variant of a character": "葛\U000e0100",
    "Arabic sign": "\u0600\u0661",
    "Hebrew": "שלום",
}


@pytest.mark.parametrize("sign", FORBIDDEN, ids=ascii)
def test_control_and_invisible_characters_are_escaped(sign):
    assert sign not in escape(f"a{sign}b")
    assert sign not in escape(f"ש{sign}ש")
    assert sign not in one_line(f"a{sign}b")
    assert sign not in make_visible(f"a{sign}b")


def test_every_control_and_separator_of_unicode_is_known():
    unescaped = [
        sign
        for sign in map(chr, range(0x110000))
        if unicodedata.category(sign) in ("Cc", "Zl", "Zp", "Cs") and escape(sign) == sign
    ]

    assert unescaped == ["\t", "\n"]


@pytest.mark.parametrize("text", NEEDED.values(), ids=NEEDED)
def test_characters_that_scripts_and_emoji_need_are_unchanged(text):
    assert escape(text) == text


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("\x1b[2J", r"\x1b[2J"),
        ("\u202etxt", r"\u202etxt"),
        ("\U000e0041", r"\U000e0041"),
        ("100%\rdone", r"100%\rdone"),
        ("one\r\ntwo\ttabs", "one\ntwo\ttabs"),
        ("exa\u200bmple.com", r"exa\u200bmple.com"),
        ("rm\u200d", r"rm\u200d"),
        ("a\ufe0f", r"a\ufe0f"),
        ("👩\u200d\u200d", "👩\u200d\\u200d"),
        ("a\ufe0f\u200b", r"a\ufe0f\u200b"),
        ("\ud800", r"\ud800"),
    ],
)
def test_a_character_is_escaped_as_in_python(text, shown):
    assert escape(text) == shown


def test_only_colours_pass_escape_styled():
    assert escape_styled("\x1b[1;31mred\x1b[0m\u202e\x1b[2J") == (
        "\x1b[1;31mred\x1b[0m\\u202e\\x1b[2J"
    )


def test_one_line_joins_and_truncates():
    assert one_line("a\n  b\x1b[2J\tc\r\n") == r"a b\x1b[2J c"
    assert one_line("level    check: aligned") == "level    check: aligned"
    assert one_line("abcdef", max_length=4) == "abc…"


def test_make_visible_escapes_every_space_and_joiner():
    assert make_visible("a\n\tb\xa0c\u3000d\u2800e❤\ufe0f") == (r"a\n\tb\xa0c\u3000d\u2800e❤\ufe0f")
    assert make_visible("grün 漢字") == "grün 漢字"


SIGNS = st.sampled_from("a1\r\n\x1b\u200d\u200b\ufe0f❤👩क\u202e")


@given(pieces=st.lists(st.text(alphabet=SIGNS, max_size=3), max_size=8))
def test_text_in_chunks_is_escaped_like_the_whole(pieces):
    escaper = Escaper()
    whole = "".join(pieces)

    shown = "".join(map(escaper.feed, [*pieces, "\n"]))

    assert shown == escape(f"{whole}\n")


@given(text=st.text())
def test_escaping_is_idempotent(text):
    assert escape(escape(text)) == escape(text)


def test_the_line_editor_escapes_all_hidden_characters():
    characters = set(hidden_characters())

    assert set(FORBIDDEN) <= characters
    assert not any(escape(sign) == sign for sign in characters)


def read_to_the_end(terminal: int) -> str:
    data = b""
    with contextlib.suppress(OSError):  # nobody has its other end any more
        while piece := os.read(terminal, 10_000):
            data += piece
    os.close(terminal)
    return data.decode()


def test_a_terminal_has_one_escaping_stream():
    ours, theirs = pty.openpty()
    with open(theirs, "w", encoding="utf-8") as opened:  # noqa: PTH123 - a descriptor
        stream = escape_stream(opened)
        assert isinstance(stream, TerminalStream)
        assert escape_stream(stream) is stream
        print("a\x1b[2J", "\u202e", file=stream)
        write_control(stream, "\x1b[1m")
        stream.flush()

    assert read_to_the_end(ours) == "a\\x1b[2J \\u202e\r\n\x1b[1m"


def test_other_streams_are_unchanged():
    stream = io.StringIO()

    assert escape_stream(stream) is stream
    write_control(stream, "\x1b[1m")
    assert stream.getvalue() == "\x1b[1m"


@pytest.mark.parametrize(
    ("text", "fits"),
    [("one\n" * 8, True), ("one\n" * 9, False), ("x" * 400, True), ("漢" * 400, False)],
)
def test_a_question_fits_if_it_does_not_scroll(text, fits, monkeypatch):
    monkeypatch.setenv("COLUMNS", "50")
    monkeypatch.setenv("LINES", "11")

    assert fits_on_screen(text) is fits


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("Short.\nIt failed.", "Short. It failed."),
        (f"'{'a' * 10_000}' is invalid.", f"'{'a' * 198}…{'a' * 99}' is invalid."),
        (f"{'a' * 300} is long.", f"{'a' * 300} is long."),
    ],
)
def test_a_message_shortens_long_words_in_the_middle(text, line):
    assert message_line(text) == line


def test_a_message_is_shortened_in_the_middle():
    line = message_line(f"'{'a b ' * 2_500}' is invalid.")

    assert len(line) == 1_000
    assert line.startswith("'a b a b")
    assert line.endswith(" a b ' is invalid.")


class TestAlignColumns:
    def test_without_a_width_nothing_is_cut(self):
        rows = [("a", "bb", "c" * 200), ("long", "b", "c")]

        assert align_columns(rows) == [f"a     bb  {'c' * 200}", "long  b   c"]
        assert align_columns([]) == align_columns([], 80) == []

    def test_the_last_cell_is_cut(self):
        assert align_columns([("a", "word " * 9), ("bc", "d")], 20) == [
            "a   word word word …",
            "bc  d",
        ]

    def test_optional_cells_are_left_out_in_their_order(self):
        rows = [("a" * 10, "b" * 10, "c" * 10, "title " * 9)]

        assert align_columns(rows, 60, optional=(2, 1))[0].startswith("aaaaaaaaaa  bbbbbbbbbb  c")
        assert align_columns(rows, 45, optional=(2, 1))[0].startswith("aaaaaaaaaa  bbbbbbbbbb  t")
        assert align_columns(rows, 35, optional=(2, 1))[0].startswith("aaaaaaaaaa  title ")

    def test_a_long_first_cell_has_a_line_of_its_own(self):
        assert align_columns([("a" * 50, "1", "2"), ("b", "3", "4")], 20) == [
            "a" * 50,
            "                1  2",
            "b               3  4",
        ]
