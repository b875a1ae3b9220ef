"""`cllm conversations branch`."""

from typing import Any

import click

from cllm.app import build_new_conversation, new_conversation_id, new_id, now, run_coroutine
from cllm.cli import completion, output
from cllm.cli.inputs import PATH, HelpCommand, read_system_option, store_options
from cllm.cli.trust import open_app
from cllm.engine.edits import branch_conversation
from cllm.settings.load import CommandLine

HELP = """Copy a conversation into a new one.

With --at, the branch ends with that message. Without --system and --system-file, it has the system
prompt of the original conversation, and without --model its model. The command prints the ID of
the branch."""
EXAMPLES = (
    "cllm conversations branch cats --at 2",
    'cllm conversations branch cats --system "You are a vet." --to cats-vet',
    "cllm conversations branch cats --model openai/gpt-4o --to cats-gpt",
)


@click.command(cls=HelpCommand, name="branch", help=HELP, examples=EXAMPLES)
@completion.ref_argument
@click.option("--to", "new", metavar="ID", help="ID of the branch (default: automatic).")
@click.option("--at", type=click.IntRange(min=1), help="Number of the last message to copy.")
@click.option("--system", metavar="TEXT", help="System prompt of the branch.")
@click.option("--system-file", type=PATH, help="Read the system prompt from a file.")
@click.option(
    "-m",
    "--model",
    metavar="MODEL",
    shell_complete=completion.complete_models,
    help="Model of the branch.",
)
@store_options
def command(line: CommandLine, *, ref: str, **options: Any) -> None:
    prompt = read_system_option(options["system"], options["system_file"])
    app = open_app(line)
    model = options["model"]
    if model is not None:
        model = app.settings.expand_alias(model)
        app.provider_of(model)  # raises an error for an unknown model
    created = build_new_conversation(
        options["new"] or new_conversation_id(now(), new_id()), model=model
    )
    branch = run_coroutine(
        branch_conversation(app.store, ref, created, at=options["at"], prompt=prompt, now=now())
    )
    output.print_line(branch.ref)
