"""`cllm conversations move`."""

import click

from cllm.app import App, now, open_configured_store, run_coroutine
from cllm.cli import completion, output
from cllm.cli.all_stores import note_left_out
from cllm.cli.inputs import HelpCommand, OptionError, store_options
from cllm.cli.trust import open_app
from cllm.settings.load import CommandLine
from cllm.stores.registry import store_exists
from cllm.terminal import pluralize
from cllm.transfer.move import MoveResult, move_conversations

HELP = """Move conversations to another store.

cllm adds each conversation to the other store, reads it back, and deletes it here only if both are
equal. To continue an interrupted move, run it again. With --copy nothing is deleted."""
EXAMPLES = (
    "cllm conversations move cats --to sqlite:cats.db",
    "cllm conversations move --all --to json:archive --copy",
)
EXIT_SOME_FAILED = 1


@click.command(cls=HelpCommand, name="move", help=HELP, examples=EXAMPLES)
@click.argument(
    "refs", metavar="[ID]...", nargs=-1, shell_complete=completion.complete_conversations
)
@click.option("--all", "move_all", is_flag=True, help="Move all conversations.")
@click.option("--to", "target", metavar="URL", required=True, help="The other store.")
@click.option("--copy", "is_copy", is_flag=True, help="Do not delete the conversations here.")
@store_options
def command(
    line: CommandLine, *, refs: tuple[str, ...], move_all: bool, target: str, is_copy: bool
) -> int:
    if bool(refs) == move_all:
        raise OptionError("Name the conversations to move, or use --all.")
    app = open_app(line)
    result = run_coroutine(_move(app, refs, target, is_copy=is_copy))
    for problem in result.problems:
        output.error(problem)
    verb = "Copied" if is_copy else "Moved"
    output.print_line(
        f"{verb} {pluralize(result.count, 'conversation')}; {len(result.problems)} failed."
    )
    return EXIT_SOME_FAILED if result.problems else 0


async def _move(app: App, refs: tuple[str, ...], target: str, *, is_copy: bool) -> MoveResult:
    from cllm.cli.progress import count_items

    other = open_configured_store(target, app.settings)
    try:
        with count_items("Moving conversations") as on_item:
            result = await move_conversations(
                app.store,
                other,
                refs,
                clock=now,
                is_copy=is_copy,
                is_new=not store_exists(target),
                on_item=on_item,
            )
        if not refs:
            await note_left_out(app)
        return result
    finally:
        await other.close()
        await app.close()
