"""The table of commands, their errors and exit codes. A command is imported when it is used."""

import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module

import click

from cllm.cli import output
from cllm.cli.inputs import decode_argument
from cllm.core.errors import CllmError
from cllm.terminal import TerminationSignal

ASK = "ask"
COMMANDS = {
    ASK: ("cllm.cli.ask", "Ask once: what `cllm` does when no command is named."),
    "chat": ("cllm.cli.chat", "Talk with a model in the terminal."),
    "completion": ("cllm.cli.completion", "Print what a shell needs to complete cllm's words."),
    "conversations": ("cllm.cli.conversations", "List, show, branch and delete conversations."),
    "db": ("cllm.cli.db", "Look at a store's database, and bring it up to date."),
    "doctor": ("cllm.cli.doctor", "Look whether everything is in order."),
    "init": ("cllm.cli.init", "Write a first Cllmfile, from a template if you like."),
    "models": ("cllm.cli.models", "Fetch, list and remove local models."),
    "serve": ("cllm.cli.serve", "Serve conversations over HTTP, to any OpenAI client."),
    "trust": ("cllm.cli.trust", "Trust a Cllmfile that can run or redirect things."),
}
ALIASES = {"c": "conversations"}

EXIT_ERROR = 1
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143
DASH_HINT = "A prompt that begins with '-' is written after --, as in: cllm -- '-5 + 3'"


class CommandTable(click.Group):
    """Words that are no command go to `ask`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name in COMMANDS if name != ASK]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        row = COMMANDS.get(ALIASES.get(cmd_name, cmd_name))
        if row is None:
            return None
        command: click.Command = import_module(row[0]).command
        return command

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        first = args[0] if args else ""
        named = first in ALIASES or (first in COMMANDS and first != ASK)
        return super().parse_args(ctx, args if named else [ASK, *args])


root = CommandTable(
    name="cllm",
    add_help_option=False,
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def run(arguments: Sequence[str]) -> int:
    try:
        output.prepare_streams()
        result = root.main(
            args=[decode_argument(word) for word in arguments],
            prog_name="cllm",
            standalone_mode=False,
        )
        sys.stdout.flush()
    except (click.exceptions.Abort, KeyboardInterrupt):
        # A second Ctrl-C must not kill the process while it exits.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        return EXIT_INTERRUPTED
    except TerminationSignal:
        return EXIT_TERMINATED
    except click.ClickException as error:
        output.usage_error(error)
        context = error.ctx if isinstance(error, click.NoSuchOption) else None
        if context is not None and context.command.name == root.name:
            output.note(DASH_HINT)
        return error.exit_code
    except CllmError as error:
        output.error(str(error))
        logs = sys.modules.get("cllm.logs")
        if logs is not None:
            logs.log("command", logs.logging.ERROR, str(error), kind=type(error).__name__)
        return EXIT_ERROR
    except OSError as error:
        output.redirect_stdout_to_null()
        if not isinstance(error, BrokenPipeError):
            where = f" ({error.filename})" if error.filename else " while writing the output"
            output.error(f"{os.strerror(error.errno or 0)}{where}.")
        return EXIT_ERROR
    return result if isinstance(result, int) else 0
