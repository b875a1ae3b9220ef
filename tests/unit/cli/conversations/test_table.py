"""The table of `cllm conversations`."""

import subprocess
import sys

import click
import pytest

from cllm.cli.conversations import COMMANDS, command


@pytest.mark.parametrize("name", COMMANDS)
def test_a_row_has_the_name_and_the_first_line_of_the_help(name):
    inner = command.get_command(click.Context(command), name)

    assert inner is not None
    assert inner.name == name
    assert str(inner.help).partition("\n")[0] == COMMANDS[name][1]


def test_the_help_of_the_group_imports_no_command():
    program = (
        "import sys; from cllm.cli.main import run; run(['conversations', '--help']);"
        "print([name for name in sys.modules if name.startswith('cllm.cli.conversations.')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )

    assert "  migrate" in done.stdout
    assert done.stdout.endswith("\n[]\n")
