"""The variables of a Cllmfile."""

import pytest

from cllm.core.errors import SettingsError, UsageError, VariableError
from cllm.history.context import ContextCommand
from cllm.settings.variables import MAX_TEMPLATE, fill_template, parse_variable


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("A=true", True),
        ("A=FALSE", False),
        ("A=12", 12),
        ("A=-1", -1),
        ("A=0.5", 0.5),
        ("A=007", "007"),
        ("A=1e3", "1e3"),
        ("A=", ""),
        ("A=b=c", "b=c"),
    ],
)
def test_a_variable_of_the_command_line(text, value):
    assert parse_variable(text) == ("A", value)


@pytest.mark.parametrize("text", ["A", "=1", "1A=2", "A-B=1"])
def test_another_text_is_not_a_variable(text):
    with pytest.raises(UsageError, match="KEY=VALUE"):
        parse_variable(text)


def test_the_command_line_overrides_the_environment_and_that_the_file(world, load):
    world.environment.update(A="env", B="env", UNDECLARED="env")

    variables = load("variables: {A: 1, B: 2, C: 3}", variables={"B": "line"}).variables

    assert variables.values() == {"A": "env", "B": "line", "C": 3}


def test_a_required_variable_without_a_value_is_an_error(load):
    with pytest.raises(VariableError, match="--var NAME=VALUE"):
        load("variables: {NAME: null}").variables.values()


@pytest.mark.parametrize("text", ["variables: [a]", "variables: {a-b: 1}", "variables: {A: [1]}"])
def test_an_invalid_declaration_is_an_error(load, text):
    with pytest.raises(SettingsError, match="variables"):
        load(text)


def test_an_exec_command_is_filled_in_exactly_once(load):
    variables = load("variables: {A: 'x {{ A }}'}").variables
    line = "ls {{ A | shellquote }}"
    template = ContextCommand(name="a", command=line, template="", kind="static")
    executed = variables.exec_command(line)

    filled = variables.fill_commands([template, executed])

    assert [command.command for command in filled] == ["ls 'x {{ A }}'"] * 2
    assert (executed.name, executed.template) == ("ls 'x {{ A }}'", line)


@pytest.mark.parametrize("line", ["echo {{ A }}", "echo {{A|shellquote}} {{- B -}}"])
def test_an_exec_command_with_an_undefined_variable_is_an_error(load, line):
    with pytest.raises(VariableError, match="undefined"):
        load("").variables.exec_command(line)


@pytest.mark.parametrize(
    "line", ["ps --format '{{.Names}}'", "get -o '{{range .items}}{{.a}}{{end}}'", "echo {{ }}"]
)
def test_braces_of_other_programs_are_sent_unchanged_without_variables(load, line):
    assert load("").variables.exec_command(line).command == line


def test_an_undefined_name_and_a_long_template_are_errors():
    with pytest.raises(VariableError, match="in the command 'ls"):
        fill_template("ls {{ MISSING }}", {})
    with pytest.raises(VariableError, match="longer than"):
        fill_template("x" * (MAX_TEMPLATE + 1), {})
