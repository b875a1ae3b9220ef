"""`cllm conversations delete`."""

import click

from cllm.app import App, run_coroutine
from cllm.cli import completion, output
from cllm.cli.confirmation import confirm_change
from cllm.cli.inputs import HelpCommand, store_options, yes_option
from cllm.cli.main import EXIT_ERROR
from cllm.cli.trust import open_app
from cllm.settings.load import CommandLine

HELP = """Delete conversations permanently. Their branches are not deleted.

On a terminal the command asks first. Without one it needs --yes."""
EXAMPLES = ("cllm conversations delete cats --yes",)


@click.command(cls=HelpCommand, name="delete", help=HELP, examples=EXAMPLES)
@completion.refs_argument
@yes_option
@store_options
def command(line: CommandLine, *, refs: tuple[str, ...], yes: bool) -> int:
    return run_coroutine(_delete_all(open_app(line), refs, yes=yes))


async def _delete_all(app: App, refs: tuple[str, ...], *, yes: bool) -> int:
    for ref in refs:
        await app.store.summary(ref)  # raises an error before anything is deleted
    names = ", ".join(f"'{ref}'" for ref in refs)
    noun = "conversation" if len(refs) == 1 else "conversations"
    if not confirm_change(f"Delete {noun} {names}?", yes=yes):
        return EXIT_ERROR
    for ref in refs:
        await _delete(app, ref)
    return 0


def delete_conversation(line: CommandLine, ref: str) -> None:
    """Delete a conversation without a question."""
    run_coroutine(_delete(open_app(line), ref))


async def _delete(app: App, ref: str) -> None:
    await app.delete_conversation(ref)
    output.print_line(f"Deleted conversation '{ref}'.")
