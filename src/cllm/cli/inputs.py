"""The input of a command: environment, standard input, options that several commands have."""

import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import wraps
from importlib import import_module
from pathlib import Path
from typing import Any, BinaryIO, TypeVar

import click

from cllm.core.errors import UsageError
from cllm.files import FileTooLargeError, NotRegularFileError, read_regular_file
from cllm.history.system_prompt import GivenPrompt
from cllm.settings.load import CommandLine, Environment

NO_PROMPT = "No prompt provided. Use 'cllm --help' for usage."
MAX_INPUT_BYTES = 64 * 1024 * 1024
MAX_SYSTEM_BYTES = 16 * 1024 * 1024
WIDE_HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
T = TypeVar("T")


class _Text(click.types.StringParamType):
    """A text that is not empty: a script with an unset variable must not select the default."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text: str = super().convert(value, param, ctx)
        return text or self.fail("it is empty.", param, ctx)


class _Path(click.Path):
    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return super().convert(TEXT.convert(value, param, ctx), param, ctx)


TEXT = _Text()
PATH = _Path(path_type=Path)
PATH_TEXT = _Path()

system_file_option = click.option(
    "--system-file", metavar="PATH", type=PATH, help="Read the system prompt from a file."
)
store_option = click.option(
    "--store",
    metavar="URL",
    type=TEXT,
    help="Store: json:PATH, sqlite:PATH or postgresql://…",
)
conversations_path_option = click.option(
    "--conversations-path", metavar="PATH", type=TEXT, help="Folder of the conversation files."
)
cllm_path_option = click.option(
    "--cllm-path",
    metavar="PATH",
    type=PATH,
    help="Folder for settings and conversations.",
)
trust_option = click.option(
    "--trust", is_flag=True, help="Trust the Cllmfiles of the current directory."
)

json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
yes_option = click.option("--yes", is_flag=True, help="Do not ask for confirmation.")


# Names that a group also accepts for the command that it has.
SUB_COMMAND_ALIASES = {"ls": ("list",), "rm": ("delete", "remove")}


def resolve_alias(name: str, commands: Iterable[str]) -> str:
    """Return the command of this name or alias; the name itself if there is none."""
    known = set(commands)
    return next((one for one in SUB_COMMAND_ALIASES.get(name, ()) if one in known), name)


class OptionError(UsageError):
    """An invalid value of an option, or options that exclude each other; exit code 2."""


class HelpCommand(click.Command):
    """A command with examples; `cllm.cli.help` lays out its help."""

    def __init__(self, *args: Any, examples: Sequence[str] = (), **options: Any) -> None:
        super().__init__(*args, **options)
        self.examples = examples

    def format_help(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        from cllm.cli.help import write_help

        write_help(self, ctx, formatter)


class HelpGroup(HelpCommand, click.Group):
    """A group that accepts `ls` and `rm`, and suggests a command for an unknown name."""

    command_class = HelpCommand

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        names = self.list_commands(ctx)
        name = resolve_alias(args[0], names)
        if name not in names and not name.startswith("-") and not ctx.resilient_parsing:
            from cllm.cli.command_words import unknown_sub_command

            raise unknown_sub_command(self.name or "", names, args)
        return super().resolve_command(ctx, [name, *args[1:]])


class LazyGroup(HelpGroup):
    """A group whose commands are imported when they are used.

    `rows`: the name of each command, its `module:attribute` and its description. The commands also
    accept their options before their name.
    """

    def __init__(self, *args: Any, rows: Mapping[str, tuple[str, str]], **options: Any) -> None:
        super().__init__(*args, **options)
        self.rows = rows

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(self.rows)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        if cmd_name not in self.rows:
            return None
        module, _, attribute = self.rows[cmd_name][0].partition(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        at = self._find_name(args)
        moved = args if at is None else [args[at], *args[:at], *args[at + 1 :]]
        return super().parse_args(ctx, moved)

    def _find_name(self, args: Sequence[str]) -> int | None:
        """Return the index of the command's name: the first word that is no option or its value."""
        with_value = {
            name
            for option in self.params
            if isinstance(option, click.Option) and not option.is_flag
            for name in option.opts
        }
        before = ("", *args)
        for at, (previous, word) in enumerate(zip(before, args, strict=False)):
            if resolve_alias(word, self.rows) in self.rows and previous not in with_value:
                return at
        return None


def current_environment() -> Environment:
    try:
        directory = Path.cwd()
    except OSError as error:
        raise UsageError(
            "The current directory no longer exists; change to another one."
        ) from error
    home = os.environ.get("HOME")
    if not home:
        import pwd

        try:
            home = pwd.getpwuid(os.getuid()).pw_dir
        except KeyError as error:
            raise UsageError(
                "The user has no home folder; set the environment variable HOME."
            ) from error
    environment = {name: decode_argument(value) for name, value in os.environ.items()}
    return Environment(home=Path(home), directory=directory, environment=environment)


def decode_argument(word: str) -> str:
    """Decode an argument or variable; bytes that are not UTF-8 are replaced."""
    return os.fsencode(word).decode("utf-8", "replace")


def is_interactive() -> bool:
    """Whether the user can answer a question."""
    return sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()


def piped_input() -> BinaryIO | None:
    """Standard input, unless it is closed or a terminal."""
    if sys.stdin is None or sys.stdin.closed or sys.stdin.isatty():
        return None
    return sys.stdin.buffer


def read_piped_text() -> str | None:
    """Return the text of standard input; None if it is a terminal."""
    from cllm.cli import output
    from cllm.terminal import decode_input

    piped = piped_input()
    if piped is None:
        return None
    try:
        data = piped.read(MAX_INPUT_BYTES + 1)
    except OSError:
        return None
    if len(data) > MAX_INPUT_BYTES:
        raise UsageError(f"Standard input is larger than {MAX_INPUT_BYTES} bytes; send less.")
    text, warning = decode_input(data)
    if "\0" in text:
        raise UsageError(
            "Standard input is not text; send text, or attach an image or a PDF with --attach -."
        )
    if warning is not None:
        output.note(warning)
    return text.removesuffix("\n")


def command_line(options: Mapping[str, Any], values: Mapping[str, Any], **more: Any) -> CommandLine:
    """Return the settings of the command line, which override all files."""
    return CommandLine(
        values={name: value for name, value in values.items() if value is not None},
        system=read_system_option(options.get("system"), options.get("system_file")),
        cllm_path=options["cllm_path"],
        trust=options["trust"],
        **more,
    )


def read_system_option(text: str | None, file: Path | None) -> GivenPrompt | None:
    if text is not None and file is not None:
        raise OptionError("Use either --system or --system-file, not both.")
    if text is not None:
        return GivenPrompt(text=text, source="--system", explicit=True)
    if file is None:
        return None
    try:
        content = read_regular_file(file, limit=MAX_SYSTEM_BYTES).decode()
    except (OSError, UnicodeDecodeError) as error:
        reasons = {
            NotRegularFileError: "not a regular file",
            FileTooLargeError: f"larger than {MAX_SYSTEM_BYTES} bytes",
            UnicodeDecodeError: "not UTF-8 text",
        }
        reason = reasons.get(type(error)) or getattr(error, "strerror", None)
        raise UsageError(
            f"Cannot read --system-file {file}: {reason}; choose another file."
        ) from error
    if not content.strip():
        raise UsageError(f"--system-file {file} is empty; write the system prompt into it.")
    return GivenPrompt(text=content.strip("\n"), source="--system-file", explicit=True)


def store_options(function: Callable[..., T]) -> Callable[..., T]:
    """Add the options that select a store; the function receives them as `line`."""

    @store_option
    @conversations_path_option
    @cllm_path_option
    @trust_option
    @wraps(function)
    def run(**options: Any) -> T:
        names = ("store", "conversations_path")
        line = command_line(options, {name: options.pop(name) for name in names})
        del options["cllm_path"], options["trust"]
        return function(line, **options)

    return run
