"""The command table of a chat and the parser of its lines."""

from pathlib import Path

import pytest

from cllm.core.errors import UsageError
from cllm.repl.commands import (
    COMMANDS,
    COMMANDS_BY_NAME,
    COMMANDS_BY_WORD,
    help_lines,
    parse_command,
    unescape_message,
)


@pytest.mark.parametrize("word", ["quit", "exit", "clear", "stats", " Quit "])
def test_a_plain_word_alone_is_a_command(word):
    order = parse_command(word)

    assert order is not None
    assert order[0].is_word


@pytest.mark.parametrize("line", ["quit smoking?", "clear the table", "help", "stats please"])
def test_a_plain_word_among_others_is_sent_to_the_model(line):
    assert parse_command(line) is None


@pytest.mark.parametrize(
    ("line", "name", "rest"),
    [
        ("/open cats", "open", "cats"),
        ("/OPEN cats", "open", "cats"),
        ("  /open   cats  ", "open", "cats"),
        ("/retry", "regenerate", ""),
        ("/exit", "quit", ""),
        ("/system Be brief.\nBe kind.", "system", "Be brief.\nBe kind."),
        ("/system\nBe brief.", "system", "Be brief."),
    ],
)
def test_a_line_is_split_into_command_and_argument(line, name, rest):
    order = parse_command(line)

    assert order is not None
    assert (order[0].name, order[1]) == (name, rest)


@pytest.mark.parametrize("line", ["/usr/bin/env is what?", "//help", "/", "1/2", "/ two"])
def test_a_line_that_resembles_a_command_is_sent_to_the_model(line):
    assert parse_command(line) is None


def test_an_unknown_command_is_an_error_with_advice():
    with pytest.raises(UsageError, match="no command /nope; /help"):
        parse_command("/nope")


def test_two_slashes_are_one_slash_for_the_model():
    assert unescape_message("//nope") == "/nope"
    assert unescape_message("Hello") == "Hello"


def test_every_name_belongs_to_one_command():
    names = [name for row in COMMANDS for name in (row.name, *row.aliases)]

    assert sorted(names) == sorted(COMMANDS_BY_NAME)
    assert set(COMMANDS_BY_WORD) == {"quit", "exit", "clear", "stats"}


def test_help_has_a_line_for_each_command():
    lines = help_lines()

    for row in COMMANDS:
        assert any(line.startswith(f"/{row.name}") and row.description in line for line in lines)


@pytest.mark.parametrize("line", ["/undo 5", "/regenerate please", "/new x", "/quit now"])
def test_an_unexpected_argument_is_an_error(line):
    with pytest.raises(UsageError, match="takes no argument"):
        parse_command(line)


@pytest.mark.parametrize("columns", [40, 80])
def test_help_is_wrapped_on_a_narrow_terminal(columns):
    lines = help_lines(columns)

    assert max(map(len, lines)) <= columns
    assert " ".join(" ".join(lines).split()) == " ".join(" ".join(help_lines()).split())


@pytest.mark.parametrize("row", COMMANDS, ids=lambda row: row.name)
def test_every_command_has_its_row_in_the_reference(row):
    reference = Path(__file__).parents[3] / "docs" / "reference" / "chat.md"
    lines = reference.read_text(encoding="utf-8").splitlines()
    found = next(line for line in lines if line.startswith(f"| `/{row.name}"))

    assert row.argument in found.split("|")[1]
    assert all(f"`/{alias}`" in found for alias in row.aliases)
