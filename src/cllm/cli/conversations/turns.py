"""`cllm conversations undo`, `regenerate` and `edit`."""

import sys

import click
import msgspec

from cllm.app import App, build_new_conversation, new_conversation_id, new_id, now, run_coroutine
from cllm.cli import completion, output
from cllm.cli.confirmation import confirm_change
from cllm.cli.inputs import HelpCommand, OptionError, read_piped_text, store_options, yes_option
from cllm.cli.main import EXIT_ERROR
from cllm.cli.trust import open_app
from cllm.core.errors import UsageError
from cllm.engine.edits import (
    EditedMessage,
    check_editable,
    delete_last_turn,
    edit_message,
    require_last_turn,
)
from cllm.settings.load import CommandLine
from cllm.terminal import one_line

UNDO_HELP = """Delete the last turn permanently.

The turn is the last user message and everything after it. On a terminal the command asks first.
Without one it needs --yes."""
REGENERATE_HELP = """Regenerate the last reply; the old one becomes a variant.

The reply is printed as it arrives. With --model, another model replies, also to later messages."""
EDIT_HELP = """Replace a message, in a variant or a branch.

N is the number of the message, as `show` prints it. Without TEXT, the command reads standard input,
or on a terminal opens $VISUAL or $EDITOR. Nothing is deleted. An edited user message is sent to the
model. In the last turn, the message and its reply become a variant, which becomes the default. In
an earlier turn, they become a branch with the messages before them. An edited reply is saved
without calling the model."""
MAX_SHOWN = 60
MAX_INPUT_BYTES = 16 * 1024 * 1024

_model_option = click.option(
    "-m",
    "--model",
    metavar="MODEL",
    shell_complete=completion.complete_models,
    help="Model that replies, from this turn on.",
)


@click.command(
    cls=HelpCommand,
    name="undo",
    help=UNDO_HELP,
    examples=("cllm conversations undo cats --yes",),
)
@completion.ref_argument
@yes_option
@store_options
def undo(line: CommandLine, *, ref: str, yes: bool) -> int:
    app = open_app(line)
    return run_coroutine(_undo(app, ref, yes=yes))


async def _undo(app: App, ref: str, *, yes: bool) -> int:
    shown = await app.store.load(ref)
    last = require_last_turn(shown)
    text = one_line(" ".join(message.text for message in last.input), max_length=MAX_SHOWN)
    if not confirm_change(f"Delete the last turn of '{shown.ref}' ({text})?", yes=yes):
        return EXIT_ERROR
    stored = await app.store.load(ref)
    if require_last_turn(stored) != last or stored.message_count != shown.message_count:
        raise UsageError(f"Another process changed '{shown.ref}'; nothing was deleted, try again.")
    await delete_last_turn(app.store, stored)
    output.print_line(f"Deleted the last turn: {text}")
    return 0


@click.command(
    cls=HelpCommand,
    name="regenerate",
    help=REGENERATE_HELP,
    examples=(
        "cllm conversations regenerate cats",
        "cllm conversations regenerate cats --model openai/gpt-4o",
    ),
)
@completion.ref_argument
@_model_option
@store_options
def regenerate(line: CommandLine, *, ref: str, model: str | None) -> None:
    from cllm.cli.turn import open_turn_app, run_stored_turn

    app = open_turn_app(_with_model(line, model))

    async def choose_turn() -> EditedMessage:
        last = require_last_turn(await app.store.load(ref))
        return EditedMessage(conversation=ref, input=last.input, place=last.turn.place)

    run_stored_turn(app, choose_turn)


@click.command(
    cls=HelpCommand,
    name="edit",
    help=EDIT_HELP,
    examples=('cllm conversations edit cats 1 "My dog is called Rex."',),
)
@completion.ref_argument
@click.argument("number", metavar="N", type=click.IntRange(min=1))
@click.argument("text", required=False)
@click.option("--to", "new", metavar="ID", help="ID of the branch (default: automatic).")
@_model_option
@store_options
def edit(
    line: CommandLine,
    *,
    ref: str,
    number: int,
    text: str | None,
    new: str | None,
    model: str | None,
) -> None:
    from cllm.cli.turn import open_turn_app, run_stored_turn

    app = open_turn_app(_with_model(line, model))
    branch = build_new_conversation(new or new_conversation_id(now(), new_id()))

    async def save_edit() -> EditedMessage:
        message = check_editable(await app.store.load(ref), number)
        new_text = _read_text(text, message.text)
        edited = await edit_message(
            app.store, ref, number, new_text, branch=branch, turn_id=new_id()
        )
        if edited.is_branch:
            summary = await app.store.summary(edited.conversation)
            output.note(f"Conversation: {summary.ref}")
        return edited

    run_stored_turn(app, save_edit)


def _with_model(line: CommandLine, model: str | None) -> CommandLine:
    if model is None:
        return line
    if not model:
        raise OptionError("-m needs the name of a model, such as openai/gpt-4o.")
    return msgspec.structs.replace(line, values={**line.values, "model": model})


def _read_text(text: str | None, old: str) -> str:
    """Return the new text: the argument, standard input, or what the user writes in an editor."""
    new = read_piped_text() or None if text is None else text
    if new is None and sys.stdin is not None and sys.stdin.isatty() and sys.stdout.isatty():
        try:
            new = click.edit(old, extension=".md")
        except click.ClickException as error:
            raise UsageError(f"{error.message}; pass the text as an argument.") from error
        if new is None or new.rstrip("\n") == old.rstrip("\n"):
            raise UsageError("The text is unchanged; nothing was done.")
    if new is None or not new.strip():
        raise OptionError("The new text is missing; write it after the number of the message.")
    return new.rstrip("\n")
