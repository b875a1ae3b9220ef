"""`cllm conversations pin`, `unpin`, `rename`, `archive` and `unarchive`."""

import click

from cllm.app import App, run_coroutine
from cllm.cli import completion, output
from cllm.cli.inputs import HelpCommand, OptionError, json_option, store_options
from cllm.cli.trust import open_app
from cllm.core.conversation import StoredConversation, check_title
from cllm.core.ports import Changes
from cllm.engine.edits import change_pins
from cllm.repl.format import pin_lines
from cllm.settings.load import CommandLine
from cllm.terminal import one_line

PIN_HELP = """Always send the turns of messages, or list the pins.

The turn of a pinned message stays in the window, however long the conversation is. Without N, the
command lists the pinned messages."""
RENAME_HELP = """Set the title of a conversation.

The ID does not change. Without TITLE, the command removes the title; the next turn creates one."""
ARCHIVE_HELP = """Hide conversations from lists and searches.

An archived conversation can be shown and branched. `cllm conversations list --archived` lists
them; `unarchive` restores them."""

_numbers = click.argument("numbers", metavar="[N]...", nargs=-1, type=click.IntRange(min=1))


@click.command(
    cls=HelpCommand,
    name="pin",
    help=PIN_HELP,
    examples=("cllm conversations pin cats 1", "cllm conversations pin cats"),
)
@completion.ref_argument
@_numbers
@json_option
@store_options
def pin(line: CommandLine, *, ref: str, numbers: tuple[int, ...], as_json: bool) -> None:
    conversation = run_coroutine(_pin(open_app(line), ref, numbers))
    if as_json:
        messages = conversation.numbered_messages()
        output.print_json(
            [
                {"sequence_number": number, "role": message.role, "text": message.text}
                for number, _, message in messages
                if number in conversation.pins
            ]
        )
        return
    for text in pin_lines(conversation):
        output.print_line(text)
    if not conversation.pins:
        output.note("Nothing is pinned.")


async def _pin(app: App, ref: str, numbers: tuple[int, ...]) -> StoredConversation:
    if numbers:
        await change_pins(app.store, ref, add=numbers)
    return await app.store.load(ref)


@click.command(
    cls=HelpCommand,
    name="unpin",
    help="Remove pins.\n\nWithout N, the command removes all pins.",
    examples=("cllm conversations unpin cats",),
)
@completion.ref_argument
@_numbers
@store_options
def unpin(line: CommandLine, *, ref: str, numbers: tuple[int, ...]) -> None:
    removed = run_coroutine(_unpin(open_app(line), ref, numbers))
    for number in removed:
        output.print_line(f"Message {number} is no longer pinned.")
    if not removed:
        output.note("Nothing is pinned.")


async def _unpin(app: App, ref: str, numbers: tuple[int, ...]) -> tuple[int, ...]:
    pins = (await app.store.load(ref, tail=0)).pins
    missing = [number for number in numbers if number not in pins]
    if missing:
        pinned = ", ".join(map(str, pins)) or "none"
        raise OptionError(f"Message {missing[0]} is not pinned. Pinned: {pinned}.")
    removed = numbers or pins
    await change_pins(app.store, ref, remove=removed)
    return removed


@click.command(
    cls=HelpCommand,
    name="rename",
    help=RENAME_HELP,
    examples=('cllm conversations rename cats "Names for cats"',),
)
@completion.ref_argument
@click.argument("title", nargs=-1)
@store_options
def rename(line: CommandLine, *, ref: str, title: tuple[str, ...]) -> None:
    app = open_app(line)
    new = check_title(one_line(" ".join(title)))
    summary = run_coroutine(app.store.update(ref, Changes(title=new)))
    if summary.title is None:
        output.print_line(f"Conversation '{summary.ref}' has no title now.")
    else:
        output.print_line(f"The title of '{summary.ref}' is: {summary.title}")


@click.command(
    cls=HelpCommand,
    name="archive",
    help=ARCHIVE_HELP,
    examples=("cllm conversations archive cats",),
)
@completion.refs_argument
@store_options
def archive(line: CommandLine, *, refs: tuple[str, ...]) -> None:
    _set_archived(line, refs, archived=True)


@click.command(
    cls=HelpCommand,
    name="unarchive",
    help="Undo `archive`.",
    examples=("cllm conversations unarchive cats",),
)
@completion.archived_refs_argument
@store_options
def unarchive(line: CommandLine, *, refs: tuple[str, ...]) -> None:
    _set_archived(line, refs, archived=False)


def _set_archived(line: CommandLine, refs: tuple[str, ...], *, archived: bool) -> None:
    run_coroutine(_update_all(open_app(line), refs, archived=archived))


async def _update_all(app: App, refs: tuple[str, ...], *, archived: bool) -> None:
    for ref in refs:
        summary = await app.store.update(ref, Changes(archived=archived))
        verb = "Archived" if archived else "Unarchived"
        output.print_line(f"{verb} conversation '{summary.ref}'.")
