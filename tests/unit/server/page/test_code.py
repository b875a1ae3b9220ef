"""Blocks of code: highlighting, its bounds, and characters that change the direction."""

from itertools import count

import pytest

from cllm.server.page.code import (
    ALIASES,
    LANGUAGES,
    MAX_HIGHLIGHTED,
    MAX_LINE,
    _find_lexer,
    _list_tokens,
    render_code,
)


@pytest.mark.parametrize("language", sorted({*LANGUAGES, *ALIASES}))
def test_every_language_has_a_lexer(language):
    assert "</code></pre></figure>" in render_code('x = "1" # <b>\n', language)


def test_known_languages_are_highlighted():
    assert '<span class="k">return</span>' in render_code("return 1", "Python")


def test_the_language_is_a_label():
    assert '<bdi class="language">&quot;&gt;&lt;b&gt;</bdi>' in render_code("x", '"><b>')
    assert "…" not in render_code("x", "y" * 100)
    assert "y" * 31 not in render_code("x", "y" * 100)


@pytest.mark.parametrize(
    "text",
    ["return <1>\n" * (MAX_HIGHLIGHTED // 10), "return <1>" + " " * MAX_LINE],
    ids=["long", "wide"],
)
def test_long_code_is_plain(text):
    html = render_code(text, "python")

    assert "<code>return &lt;1&gt;" in html
    assert "<span" not in html


def test_unknown_languages_are_plain():
    assert "<code>return 1</code>" in render_code("return 1", "brainfuck")


def test_controls_are_visible():
    html = render_code("a\u202eb\u2066c", "python")

    assert '<span class="control">U+202E</span>' in html
    assert '<span class="control">U+2066</span>' in html
    assert "\u202e" not in html


def test_the_rest_of_slow_code_is_one_token():
    lexer = _find_lexer("csharp")
    assert lexer is not None
    ticks = count(0, 0.02)
    text = "a\n" * 5_000

    tokens = list(_list_tokens(lexer, text, clock=lambda: next(ticks)))

    assert "".join(value for _, value in tokens) == text
    assert len(tokens) == 6


def test_hostile_code_is_complete():
    text = "a\n" * (MAX_HIGHLIGHTED // 2)

    assert render_code(text, "csharp").count("a") >= MAX_HIGHLIGHTED // 2
