"""The layout of every `--help`: purpose, options, commands, examples."""

import textwrap
from collections.abc import Iterator, Sequence

import click

from cllm.cli.inputs import SUB_COMMAND_ALIASES, LazyGroup, resolve_alias
from cllm.cli.main import ALIASES, ASK, COMMANDS

INDENT = "  "
METAVARS = {"choice": "CHOICE", "float range": "NUMBER", "integer range": "N"}
EXIT_CODES = "Exit codes: 0 success, 1 error, 2 wrong option, 130 Ctrl-C, 143 SIGTERM/SIGHUP."
COLUMN = 26
# The options of `cllm PROMPT` by subject.
SECTIONS: dict[str, tuple[str, ...]] = {
    "Model and output": (
        *("--model", "--temperature", "--max-tokens", "--stream", "--extract", "--raw"),
        *(
            "--schema",
            "--json-schema",
            "--json-schema-file",
            "--validate-schema",
            "--clear-schema-cache",
        ),
    ),
    "Conversation": (
        *("--conversation", "--continue", "--read-only"),
        *("--list-conversations", "--all", "--show-conversation", "--delete-conversation"),
    ),
    "Input, system prompt and context": (
        *("--attach", "--template", "--system", "--system-file", "--system-policy"),
        *("--exec", "--no-context-exec", "--var"),
    ),
    "Commands that the model runs": (
        *("--allow-commands", "--confirm-commands", "--command-allow", "--command-deny"),
    ),
    "Settings, storage and logs": (
        *("--config", "--show-config", "--list-models"),
        *("--store", "--conversations-path", "--cllm-path", "--trust"),
        *("-v", "--debug", "--json-logs", "--log-file", "--version", "--help"),
    ),
}


def write_help(command: click.Command, ctx: click.Context, formatter: click.HelpFormatter) -> None:
    """Write the help of a command that has a name."""
    command.format_usage(ctx, formatter)
    _write_description(command, formatter)
    options = [
        (option_names(option, ctx), option.help or "") for option in _list_options(command, ctx)
    ]
    with formatter.section("Options"):
        formatter.write_dl(options)
    if isinstance(command, click.Group):
        with formatter.section("Commands"):
            formatter.write_dl(list(_list_subcommands(command, ctx)))
    with formatter.section("Examples"):
        for example in command_examples(command):
            formatter.write(f"{INDENT}{example}\n")


def write_main_help(
    command: click.Command, ctx: click.Context, formatter: click.HelpFormatter
) -> None:
    """Write the help of `cllm`: every command and every option, in at most 84 lines."""
    command.format_usage(ctx, formatter)
    _write_description(command, formatter)
    formatter.write("\nCommands (cllm COMMAND --help shows their options):\n")
    width = max(map(len, COMMANDS))
    for name, description in command_rows():
        _write_row(formatter, name, description, width)
    options = {flag: option for option in _list_options(command, ctx) for flag in option.opts}
    for title, flags in SECTIONS.items():
        formatter.write(f"\n{title}:\n")
        for flag in flags:
            option = options[flag]
            _write_row(formatter, option_names(option, ctx), option.help or "", COLUMN)
    formatter.write("\nExamples:\n")
    formatter.write("".join(f"{INDENT}{example}\n" for example in command_examples(command)))
    formatter.write(f"\n{EXIT_CODES}\n")


def command_examples(command: click.Command) -> Sequence[str]:
    examples: Sequence[str] = getattr(command, "examples", ())
    return examples


def command_rows() -> Iterator[tuple[str, str]]:
    """Yield the name and description of every command."""
    short_names = {name: alias for alias, name in ALIASES.items()}
    for name, (_, description) in COMMANDS.items():
        if name != ASK:
            alias = f" Alias: {short_names[name]}." if name in short_names else ""
            yield name, f"{description}{alias}"


def option_names(option: click.Option, ctx: click.Context) -> str:
    """Return the names of an option and its value, such as `-m, --model MODEL`."""
    names = ", ".join(option.opts)
    if option.secondary_opts:
        return f"{names} / {', '.join(option.secondary_opts)}"
    if option.is_flag or option.count:
        return names
    metavar = option.metavar or METAVARS.get(option.type.name) or option.make_metavar(ctx)
    return f"{names} {metavar}"


def _list_options(command: click.Command, ctx: click.Context) -> list[click.Option]:
    return [param for param in command.get_params(ctx) if isinstance(param, click.Option)]


def _list_subcommands(group: click.Group, ctx: click.Context) -> Iterator[tuple[str, str]]:
    """Yield the name and description of every command of a group; a name with its alias."""
    names = group.list_commands(ctx)
    aliases = {resolve_alias(alias, names): alias for alias in SUB_COMMAND_ALIASES}
    for name in names:
        alias = f" Alias: {aliases[name]}." if name in aliases else ""
        yield name, f"{_describe_command(group, ctx, name)}{alias}"


def _describe_command(group: click.Group, ctx: click.Context, name: str) -> str:
    if isinstance(group, LazyGroup):
        return group.rows[name][1]
    command = group.get_command(ctx, name)
    return "" if command is None else (command.help or "").partition("\n")[0]


def _write_description(command: click.Command, formatter: click.HelpFormatter) -> None:
    for paragraph in (command.help or "").split("\n\n"):
        formatter.write("\n")
        _write_wrapped(formatter, paragraph, formatter.width, first=INDENT, other=INDENT)


def _write_row(formatter: click.HelpFormatter, head: str, text: str, width: int) -> None:
    first = f"{INDENT}{head:<{width}}  "
    # A formatter is two columns narrower than the terminal.
    _write_wrapped(formatter, text, formatter.width + 2, first=first, other=" " * len(first))


def _write_wrapped(
    formatter: click.HelpFormatter, text: str, width: int, *, first: str, other: str
) -> None:
    """Wrap at spaces only, so that the name of an option stays on one line."""
    lines = textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=other,
        break_long_words=False,
        break_on_hyphens=False,
    )
    formatter.write("".join(f"{line}\n" for line in lines))
