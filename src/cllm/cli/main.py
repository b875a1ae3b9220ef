"""The command table, errors and exit codes. A command is imported when it is used."""

import os
import signal
import sys
from collections.abc import Sequence
from importlib import import_module

import click

from cllm.cli import output
from cllm.cli.inputs import OptionError, decode_argument
from cllm.core.errors import CllmError
from cllm.terminal import TerminationSignal

ASK = "ask"
# Name: module and description. Both dispatch and help read this table.
COMMANDS = {
    ASK: ("cllm.cli.ask", "Send a prompt to a language model and print the reply."),
    "chat": ("cllm.cli.chat", "Chat with a language model in the terminal."),
    "completion": ("cllm.cli.completion", "Print a shell completion script."),
    "conversations": (
        "cllm.cli.conversations",
        "List, search, show and change conversations.",
    ),
    "backup": ("cllm.cli.backup", "Save all conversations to one file."),
    "restore": ("cllm.cli.restore", "Add the conversations of a backup to a store."),
    "verify": ("cllm.cli.verify", "Check that conversations are complete."),
    "db": ("cllm.cli.db", "Inspect, upgrade and downgrade the database of a store."),
    "demo": ("cllm.cli.demo", "Open the web page with example conversations."),
    "doctor": ("cllm.cli.doctor", "Check the settings, the provider and the conversations."),
    "init": ("cllm.cli.init", "Create a Cllmfile.yml, optionally from a template."),
    "keys": ("cllm.cli.keys", "Save, list and remove API keys."),
    "models": (
        "cllm.cli.models",
        "List, choose and download models; set aliases.",
    ),
    "search": (
        "cllm.cli.conversations.search",
        "Search the messages and titles of conversations.",
    ),
    "serve": ("cllm.cli.serve", "Start the OpenAI- and Anthropic-compatible HTTP server."),
    "templates": ("cllm.cli.templates", "List, print and edit prompt templates."),
    "trust": ("cllm.cli.trust", "Allow a Cllmfile.yml to run commands or redirect requests."),
}
ALIASES = {"c": "conversations"}
# A prompt of one word is compared with these names; importing the commands would take longer.
SUB_COMMANDS = {
    "conversations": (
        *("archive", "branch", "delete", "diff", "edit", "export", "import", "list", "migrate"),
        *("move", "pin", "regenerate", "rename", "search", "show", "stats", "tree", "unarchive"),
        *("undo", "unpin"),
    ),
    "db": ("adopt", "check", "current", "downgrade", "upgrade"),
    "keys": ("list", "remove", "set"),
    "models": ("alias", "default", "list", "pull", "remove"),
    "templates": ("edit", "list", "show"),
}
HELP_WORD = "help"
OTHER_WORDS = {
    HELP_WORD: "cllm --help",
    "aliases": "cllm models alias",
    "config": "cllm --show-config",
    "history": "cllm conversations list",
    "logs": "cllm conversations list",
    "ls": "cllm conversations list",
    "migrate-conversations": "cllm conversations migrate",
    "rm": "cllm conversations delete",
    "version": "cllm --version",
}


def list_command_words() -> dict[str, str]:
    """Return the names of commands and sub-commands, each with a command line."""
    words = {name: f"cllm {name}" for name in COMMANDS if name != ASK}
    for name, inner in SUB_COMMANDS.items():
        for word in inner:
            words.setdefault(word, f"cllm {name} {word}")
    return OTHER_WORDS | words


EXIT_ERROR = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
EXIT_TERMINATED = 143
EXTRA_ARGUMENT = "unexpected extra argument"
QUOTE_HINT = 'Put a prompt of several words in quotes: cllm "What is this?"'
DASH_HINT = "To send a prompt that starts with '-', write it after --: cllm -- '-5 + 3'"


class CommandTable(click.Group):
    """Arguments that start with no command name go to `ask`."""

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
        is_command = first in ALIASES or (first in COMMANDS and first != ASK)
        return super().parse_args(ctx, args if is_command else [ASK, *args])


root = CommandTable(
    name="cllm",
    add_help_option=False,
    no_args_is_help=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _report_click_error(error: click.ClickException) -> None:
    output.usage_error(error)
    context = error.ctx if isinstance(error, click.UsageError) else None
    if context is None or context.command.name != root.name:
        return
    if isinstance(error, click.NoSuchOption):
        output.note(DASH_HINT)
    elif EXTRA_ARGUMENT in error.message:
        output.note(QUOTE_HINT)


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
        _report_click_error(error)
        return error.exit_code
    except CllmError as error:
        output.error(str(error))
        logs = sys.modules.get("cllm.logs")
        if logs is not None:
            logs.log_error("command", error)
        return EXIT_USAGE if isinstance(error, OptionError) else EXIT_ERROR
    except OSError as error:
        output.redirect_stdout_to_null()
        if not isinstance(error, BrokenPipeError):
            source = f" ({error.filename})" if error.filename else " while writing the output"
            output.error(f"{os.strerror(error.errno or 0)}{source}.")
        return EXIT_ERROR
    return result if isinstance(result, int) else 0
