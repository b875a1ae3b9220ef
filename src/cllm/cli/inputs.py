"""What a command gets from the process and its options: place, standard input, common options."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import click

from cllm.core.errors import UsageError
from cllm.files import FileTooLargeError, NotRegularFileError, read_regular_file
from cllm.history.system_prompt import GivenPrompt
from cllm.settings.load import CommandLine, Environment

MAX_SYSTEM_BYTES = 16 * 1024 * 1024
WIDE_HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 100}
PATH = click.Path(path_type=Path)

system_file_option = click.option(
    "--system-file", metavar="PATH", type=PATH, help="It, from a file."
)
store_option = click.option(
    "--store", metavar="URL", help="Where they are kept: json:PATH, sqlite:PATH, postgresql://…"
)
conversations_path_option = click.option(
    "--conversations-path", metavar="PATH", help="The folder of the conversation files."
)
cllm_path_option = click.option(
    "--cllm-path", metavar="PATH", type=PATH, help="The folder to use in place of .cllm."
)
trust_option = click.option("--trust", is_flag=True, help="Trust the Cllmfiles here, this time.")


def current_environment() -> Environment:
    try:
        directory = Path.cwd()
    except OSError as error:
        raise UsageError("The current directory is gone; change to another one.") from error
    home = os.environ.get("HOME")
    if not home:
        import pwd

        try:
            home = pwd.getpwuid(os.getuid()).pw_dir
        except KeyError as error:
            raise UsageError("There is no home folder; set the variable HOME to one.") from error
    environment = {name: decode_argument(value) for name, value in os.environ.items()}
    return Environment(home=Path(home), directory=directory, environment=environment)


def decode_argument(word: str) -> str:
    """Decode an argument or variable; bytes that are not UTF-8 are replaced."""
    return os.fsencode(word).decode("utf-8", "replace")


def piped_input() -> BinaryIO | None:
    """Standard input, unless it is closed or a terminal."""
    if sys.stdin is None or sys.stdin.closed or sys.stdin.isatty():
        return None
    return sys.stdin.buffer


def command_line(options: Mapping[str, Any], values: Mapping[str, Any], **more: Any) -> CommandLine:
    """The layer of settings over all files."""
    return CommandLine(
        values={name: value for name, value in values.items() if value is not None},
        system=read_system_option(options.get("system"), options.get("system_file")),
        cllm_path=options["cllm_path"],
        trust=options["trust"],
        **more,
    )


def read_system_option(text: str | None, file: Path | None) -> GivenPrompt | None:
    if text is not None and file is not None:
        raise UsageError("Give either --system or --system-file, not both.")
    if text is not None:
        return GivenPrompt(text=text, source="--system", explicit=True)
    if file is None:
        return None
    try:
        content = read_regular_file(file, limit=MAX_SYSTEM_BYTES).decode()
    except (OSError, UnicodeDecodeError) as error:
        reasons = {
            NotRegularFileError: "not an ordinary file",
            FileTooLargeError: f"over {MAX_SYSTEM_BYTES} bytes",
            UnicodeDecodeError: "it is not UTF-8 text",
        }
        reason = reasons.get(type(error)) or getattr(error, "strerror", None)
        raise UsageError(f"Cannot read --system-file {file}: {reason}.") from error
    return GivenPrompt(text=content.strip("\n"), source="--system-file", explicit=True)
