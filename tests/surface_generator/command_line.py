"""Describes the commands: the text of every `--help`, and every argument and option."""

from collections.abc import Iterator
from typing import Any

import click
from click.testing import CliRunner
from tests.surface_generator import internals
from tests.surface_generator.text import document, join_rows, section


def surface() -> dict[str, str]:
    return {"help.txt": _format_help(), "options.txt": _format_options()}


def _read_help(words: tuple[str, ...]) -> list[str]:
    """Return the lines of a command's `--help`. Click's runner has 80 columns."""
    arguments = (*words, "--help")
    result = CliRunner().invoke(internals.root_command(), arguments, prog_name="cllm")
    return result.output.split("\n")


def list_commands() -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield every command with its name as words, `cllm PROMPT` first."""
    yield (), internals.main_command()
    root = internals.root_command()
    yield from _list_subcommands(root, click.Context(root), ())


def _list_subcommands(
    group: click.Group, context: click.Context, words: tuple[str, ...]
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name in sorted(group.list_commands(context)):
        command = group.get_command(context, name)
        assert command is not None, name
        yield (*words, name), command
        if isinstance(command, click.Group):
            inner = click.Context(command, info_name=name, parent=context)
            yield from _list_subcommands(command, inner, (*words, name))


def _format_help() -> str:
    return document(
        "The text of --help of every command, in a terminal of 80 columns.",
        *(
            section(f"$ {' '.join(('cllm', *words, '--help'))}", _read_help(words))
            for words, _ in list_commands()
        ),
    )


def _format_options() -> str:
    aliases = [(short, name) for short, name in sorted(internals.command_aliases().items())]
    return document(
        "Every argument and option of every command: type, default, whether it can be repeated.",
        section("other names of commands", join_rows(aliases)),
        *(
            section(" ".join(("cllm", *words)), sorted(_parameters(command)))
            for words, command in list_commands()
        ),
    )


def _parameters(command: click.Command) -> Iterator[str]:
    context = click.Context(
        command, info_name="cllm", parent=click.Context(internals.root_command())
    )
    for parameter in command.get_params(context):
        yield f"  {_names(parameter)}: {', '.join(_describe(parameter))}"


def _names(parameter: click.Parameter) -> str:
    if isinstance(parameter, click.Argument):
        return parameter.make_metavar(click.Context(click.Command("cllm")))
    names = ", ".join(parameter.opts)
    if parameter.secondary_opts:
        names += f" / {', '.join(parameter.secondary_opts)}"
    return names


def _describe(parameter: click.Parameter) -> Iterator[str]:
    option = parameter if isinstance(parameter, click.Option) else None
    yield "flag" if option and option.is_flag else _type(parameter.type)
    if option and option.metavar:
        yield option.metavar
    if option and option._flag_needs_value:
        yield "value optional"
    if option and option.count:
        yield "counted"
    if parameter.multiple or parameter.nargs != 1:
        yield "repeatable"
    if parameter.required:
        yield "required"
    if option and option.hidden:
        yield "hidden"
    if parameter.envvar:
        yield f"variable {parameter.envvar}"
    default = _default(parameter)
    if default is not None:
        yield f"default {default}"


def _default(parameter: click.Parameter) -> Any:
    if isinstance(parameter, click.Option) and parameter.is_flag:
        return None
    is_constant = isinstance(parameter.default, str | int | float | bool)
    return parameter.default if is_constant and parameter.default != "" else None


def _type(type_: click.ParamType[Any]) -> str:
    match type_:
        case click.Choice():
            return "|".join(map(str, type_.choices))
        case click.IntRange() | click.FloatRange():
            low = "" if type_.min is None else type_.min
            high = "" if type_.max is None else type_.max
            return f"{type_.name.removesuffix(' range')} {low}..{high}"
    return type_.name
