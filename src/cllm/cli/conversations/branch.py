"""`cllm conversations branch`."""

from typing import Any

import click

from cllm.app import build_new_conversation, new_conversation_id, new_id, now, run_coroutine
from cllm.cli import completion, output
from cllm.cli.inputs import PATH, HelpCommand, read_system_option, store_options
from cllm.cli.trust import open_app
from cllm.history.system_prompt import build_branch_opening
from cllm.settings.load import CommandLine

HELP = """Copy a conversation into a new one.

With --at, the branch ends with that message. Without --system and --system-file, it has the system
prompt of the original conversation. The command prints the ID of the branch."""
EXAMPLES = ('cllm conversations branch cats --system "You are a vet." --to cats-vet',)


@click.command(cls=HelpCommand, name="branch", help=HELP, examples=EXAMPLES)
@completion.ref_argument
@click.option("--to", "new", metavar="ID", help="ID of the branch (default: automatic).")
@click.option("--at", type=click.IntRange(min=1), help="Number of the last message to copy.")
@click.option("--system", metavar="TEXT", help="System prompt of the branch.")
@click.option("--system-file", type=PATH, help="Read the system prompt from a file.")
@store_options
def command(line: CommandLine, *, ref: str, **options: Any) -> None:
    prompt = read_system_option(options["system"], options["system_file"])
    app = open_app(line)
    created = build_new_conversation(options["new"] or new_conversation_id(now(), new_id()))
    opening = None
    if prompt is not None:
        opening = build_branch_opening(app.run(app.store.load(ref, tail=0)), prompt, now=now())
    branched = run_coroutine(app.store.branch(ref, created, at=options["at"], opening=opening))
    output.print_line(branched.ref)
