"""The options and operands of a program."""

import pytest

from cllm.commands.command_line import CommandRefusedError
from cllm.commands.options import ParsedOptions, option_table

TABLE = option_table("-n= -f=path -q -# --lines= --color=? --date=! -I=word")


def parse(*words: str, literal: frozenset[int] = frozenset()) -> ParsedOptions:
    return ParsedOptions(words, TABLE, literal, program="head")


def test_the_kinds_of_a_table():
    assert TABLE["-n"] == "text"
    assert TABLE["-q"] == "none"
    assert (TABLE["--color"], TABLE["--date"], TABLE["-I"]) == ("optional", "attached", "separate")


@pytest.mark.parametrize(
    ("words", "options", "operands"),
    [
        (("-n", "5", "a"), ["-n", "5"], ["a"]),
        (("-n5", "a", "-q"), ["-n5", "-q"], ["a"]),
        (("-qn5",), ["-qn5"], []),
        (("-5",), ["-5"], []),
        (("--lines", "5"), ["--lines", "5"], []),
        (("--color", "--date=iso"), ["--color", "--date=iso"], []),
        (("-q", "--", "-n"), ["-q"], ["-n"]),
        (("-",), [], ["-"]),
    ],
)
def test_options_and_operands_are_separated(words, options, operands):
    parsed = parse(*words)

    assert parsed.options == options
    assert [one.text for one in parsed.operands] == operands


def test_the_paths_of_options_are_collected():
    assert [one.text for one in parse("-f", "a.txt", "-fb.txt").paths] == ["a.txt", "b.txt"]


@pytest.mark.parametrize("word", ["-x", "-qx", "--other", "-Iabc", "--date", "--quiet=1"])
def test_an_unlisted_option_is_refused(word):
    with pytest.raises(CommandRefusedError, match="does not allow the option"):
        parse(word)


def test_an_unlisted_option_of_the_settings_is_allowed():
    assert parse("-x", literal=frozenset({0})).has_unlisted_option


def test_a_missing_value_is_refused():
    with pytest.raises(CommandRefusedError, match="has no value"):
        parse("-n")
