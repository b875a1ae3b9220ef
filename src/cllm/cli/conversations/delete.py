"""`cllm conversations delete`."""

import click

from cllm.app import run_coroutine
from cllm.cli import completion, output
from cllm.cli.inputs import HelpCommand, store_options
from cllm.cli.trust import open_app
from cllm.settings.load import CommandLine

HELP = "Delete a conversation permanently. Its branches are not deleted."


@click.command(
    cls=HelpCommand, name="delete", help=HELP, examples=("cllm conversations delete cats",)
)
@completion.ref_argument
@store_options
def command(line: CommandLine, *, ref: str) -> None:
    delete_conversation(line, ref)


def delete_conversation(line: CommandLine, ref: str) -> None:
    app = open_app(line)
    run_coroutine(app.store.delete(ref))
    app.forget(ref)
    output.print_line(f"Deleted conversation '{ref}'.")
