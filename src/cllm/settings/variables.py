"""The variables of a Cllmfile and their substitution in commands."""

import re
import shlex
from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from cllm.core.errors import UsageError, VariableError
from cllm.core.notice import Notice
from cllm.history.context import ContextCommand
from cllm.settings.layers import COMMAND_LINE, LayeredSettings

NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
WHOLE_NUMBER = re.compile(r"[-+]?[0-9]{1,18}")
NUMBER = re.compile(r"[-+]?[0-9]{1,18}\.[0-9]{1,18}")
MARKS = ("{{", "{%", "{#")
EXPRESSION = re.compile(r"\{\{(.*?)\}\}", re.DOTALL)
# A template of another program, such as `docker ps --format '{{.Names}}'`, is none of ours.
NAMED_VALUE = re.compile(r"-?\s*[A-Za-z_][A-Za-z0-9_]*\s*(\|.*)?-?", re.DOTALL)
BOOLEAN_WORDS = {"true": True, "false": False}
# Frequent names in a template that are no variables.
TEMPLATE_WORDS = frozenset({"else", "endfor", "endif", "for", "if", "in", "input", "shellquote"})
MAX_TEMPLATE = 64 * 1024
MAX_RESULT = 128 * 1024
MAX_INPUTS = 4
"""How often a prompt can contain the whole input."""
INPUT = "input"
BRACES = re.compile(r"\{[{%](.*?)[%}]\}", re.DOTALL)
MAX_SHOWN = 80

Value = str | int | float | bool


class Variable(msgspec.Struct, frozen=True, kw_only=True):
    """`value` None: required, and not set."""

    value: Value | None
    source: str


class Variables(msgspec.Struct, frozen=True, kw_only=True):
    by_name: dict[str, Variable] = msgspec.field(default_factory=dict)

    def values(self) -> dict[str, Value]:
        """Raises VariableError if a required variable is not set."""
        values: dict[str, Value] = {}
        for name, variable in self.by_name.items():
            if variable.value is None:
                raise VariableError(
                    f"`{name}` is required and not set; set it with --var {name}=VALUE or the "
                    f"environment variable {name}.",
                    variable=name,
                )
            values[name] = variable.value
        return values

    def exec_command(self, template: str) -> ContextCommand:
        """Return the command of `--exec`, filled in at once: an error comes before anything runs.

        Without variables, only a command whose braces all contain names is a template.
        """
        expressions = EXPRESSION.findall(template)
        has_names = bool(expressions) and all(map(NAMED_VALUE.fullmatch, expressions))
        is_template = has_names or (self.by_name and any(mark in template for mark in MARKS))
        command = fill_template(template, self.values()) if is_template else template
        return ContextCommand(name=command, command=command, template=template, kind="exec")

    def fill_prompt(self, template: str, text: str) -> str:
        """Return the prompt of a template; `text` replaces `input`, or follows the prompt."""
        values = self.values() | {INPUT: text}
        prompt = fill_template(
            template, values, noun="prompt", limit=MAX_RESULT + MAX_INPUTS * len(text)
        )
        if any(re.search(rf"\b{INPUT}\b", found) for found in BRACES.findall(template)):
            return prompt
        return "\n".join(part for part in (prompt.rstrip("\n"), text) if part)

    def fill_commands(self, commands: Sequence[ContextCommand]) -> tuple[ContextCommand, ...]:
        """Substitute the variables; `exec` commands are filled in already."""
        if not self.by_name or all(command.kind == "exec" for command in commands):
            return tuple(commands)
        values = self.values()
        return tuple(
            command
            if command.kind == "exec"
            else msgspec.structs.replace(command, command=fill_template(command.command, values))
            for command in commands
        )


def read_variables(
    layered: LayeredSettings, command_line: Mapping[str, Value], environment: Mapping[str, str]
) -> Variables:
    """The command line overrides the environment (declared names only), which overrides files."""
    declared = layered.values.get("variables")
    if declared is None:
        declared = {}
    if not isinstance(declared, dict):
        raise layered.expectation_error(
            "variables", "a mapping such as {NAME: default}, with null for a required variable"
        )
    variables: dict[str, Variable] = {}
    for name, default in declared.items():
        key = f"variables.{name}"
        if not NAME.fullmatch(name):
            raise layered.expectation_error(key, "a name of letters, digits and _")
        if not isinstance(default, str | int | float | bool | None):
            raise layered.expectation_error(key, "a string, a number, true, false or null")
        source = layered.source_of(key) or "variables"
        variables[name] = Variable(value=default, source=source)
        if environment.get(name):
            variables[name] = Variable(
                value=environment[name], source=f"environment variable {name}"
            )
    for name, value in command_line.items():
        variables[name] = Variable(value=value, source=COMMAND_LINE)
    return Variables(by_name=variables)


def find_unused_variables(
    command_line: Collection[str], declared: Collection[str], templates: Iterable[str]
) -> tuple[Notice, ...]:
    """Return a warning for each variable that only resembles a declared one or one in a template.

    `--exec` can use a variable that resembles none.
    """
    expressions = [text for template in templates for text in BRACES.findall(template)]
    used = {name for text in expressions for name in NAME.findall(text)}
    unused = [name for name in command_line if name not in used and name not in declared]
    if not unused:
        return ()
    from difflib import get_close_matches  # noqa: PLC0415 - rarely needed

    known = {name.lower(): name for name in sorted({*declared, *used} - TEMPLATE_WORDS)}
    near = {name: get_close_matches(name.lower(), known, n=1, cutoff=0.8) for name in unused}
    return tuple(
        Notice(
            code="unused_variable",
            path=name,
            message=f"No command or prompt of the settings uses the variable `{name}`; did you "
            f"mean `{known[match[0]]}`?",
        )
        for name, match in near.items()
        if match
    )


def parse_variable(text: str) -> tuple[str, Value]:
    name, equals, value = text.partition("=")
    if not equals or not NAME.fullmatch(name):
        raise UsageError(f"--var {text!r} is not KEY=VALUE; KEY may contain letters, digits and _.")
    if value.lower() in BOOLEAN_WORDS:
        return name, BOOLEAN_WORDS[value.lower()]
    # A value that would change as a number, such as 007, is a string.
    if WHOLE_NUMBER.fullmatch(value) and str(int(value)) == value:
        return name, int(value)
    if NUMBER.fullmatch(value) and repr(float(value)) == value:
        return name, float(value)
    return name, value


def fill_template(
    template: str, values: Mapping[str, Value], *, noun: str = "command", limit: int = MAX_RESULT
) -> str:
    if len(template) > MAX_TEMPLATE:
        raise VariableError(f"a {noun} is longer than {MAX_TEMPLATE} characters; shorten it.")
    if not any(mark in template for mark in MARKS):
        return template
    from cllm.settings.templates import TemplateProblemError, render  # noqa: PLC0415 - imports Jinja2

    try:
        return render(template, values, filters={"shellquote": _shellquote}, limit=limit)
    except TemplateProblemError as error:
        line = " ".join(template.split())
        shown = line if len(line) <= MAX_SHOWN else f"{line[: MAX_SHOWN - 1]}…"
        raise VariableError(f"{error} (in the {noun} {shown!r})") from error


def _shellquote(value: object) -> str:
    return shlex.quote(str(value))
