"""The rows of a help screen."""

import click
import pytest

from cllm.cli.help import command_rows, option_names, write_help
from cllm.cli.inputs import HelpCommand, HelpGroup
from cllm.cli.main import ALIASES, COMMANDS


@pytest.mark.parametrize(
    ("option", "expected"),
    [
        (click.Option(["-m", "--model"], metavar="MODEL"), "-m, --model MODEL"),
        (click.Option(["--raw"], is_flag=True), "--raw"),
        (click.Option(["-v"], count=True), "-v"),
        (click.Option(["--stream/--no-stream"], default=None), "--stream / --no-stream"),
        (click.Option(["--port"], type=click.IntRange(0, 9)), "--port N"),
        (click.Option(["--timeout"], type=click.FloatRange(0)), "--timeout NUMBER"),
        (click.Option(["--policy"], type=click.Choice(["a", "b"])), "--policy CHOICE"),
        (click.Option(["--file"], type=click.Path()), "--file PATH"),
    ],
)
def test_the_names_of_an_option_have_its_value(option, expected):
    assert option_names(option, click.Context(click.Command("x"))) == expected


def test_every_command_has_a_row_and_its_alias():
    rows = dict(command_rows())

    assert list(rows) == [name for name in COMMANDS if name != "ask"]
    for alias, name in ALIASES.items():
        assert rows[name] == f"{COMMANDS[name][1]} Alias: {alias}."


def written_help(command: click.Command) -> list[str]:
    formatter = click.HelpFormatter(width=80)
    write_help(command, click.Context(command, info_name="x"), formatter)
    return formatter.getvalue().split("\n")


def test_a_command_has_options_and_examples():
    lines = written_help(HelpCommand("x", help="Do it.", examples=("x now",)))

    assert lines[2] == "  Do it."
    assert lines[-3:] == ["Examples:", "  x now", ""]


def test_a_group_lists_the_first_sentence_of_its_commands():
    group = HelpGroup("x", help="Do it.", examples=("x inner",))

    @group.command(name="inner", help="Do this.\n\nNot that.", examples=("x inner",))
    def inner() -> None:
        """Do nothing."""

    lines = written_help(group)

    assert "  inner  Do this." in lines
    assert "Not that" not in "\n".join(lines)
    assert isinstance(group.commands["inner"], HelpCommand)
