"""`cllm conversations`: lists, shows, branches, deletes, counts and migrates conversations."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from cllm.app import (
    App,
    build_new_conversation,
    new_conversation_id,
    new_id,
    now,
    run_coroutine,
)
from cllm.cli import completion, output
from cllm.cli.inputs import (
    PATH,
    HelpGroup,
    OptionError,
    cllm_path_option,
    command_line,
    conversations_path_option,
    read_system_option,
    store_option,
    trust_option,
)
from cllm.cli.trust import open_app
from cllm.core.conversation import StoredConversation, Summary, SystemRecord
from cllm.core.errors import (
    BrokenConversationError,
    StoreError,
    StoreUnavailableError,
    UsageError,
)
from cllm.core.message import Document, Image, Message
from cllm.core.ports import Opening
from cllm.history.system_prompt import GivenPrompt, build_branch_opening, find_prompt_difference
from cllm.settings.load import CommandLine
from cllm.stores.edits import is_old
from cllm.terminal import align_columns, local_time, one_line
from cllm.wire.errors import MalformedError

HELP = """List, show, branch, delete and analyse conversations.

Options such as --store go before the command name."""
EXAMPLES = (
    "cllm conversations list",
    "cllm conversations show cats",
    'cllm conversations branch cats --system "You are a vet." --to cats-vet',
)
LIST_EXAMPLES = (EXAMPLES[0], "cllm conversations list --source claude-code:compaction --side")
BRANCH_HELP = """Copy a conversation into a new one.

With --at, the branch ends with that message. Without --system and --system-file, it has the system
prompt of the original conversation. The command prints the ID of the branch."""
STATS_HELP = """Print the token usage and cost of one conversation, or of all.

The report includes the tokens read from and written to the provider's cache, the cache misses
(tokens that should still have been in the cache but were not), the money that the cache saved and
the cost of the misses. A cost is unknown if the price of the model is unknown."""
MIGRATE_HELP = """Add data to conversations that an older version of cllm created.

Conversations without a stored system prompt are sent with the configured system prompt in every
turn. --add-system-prompt stores the currently configured prompt as their first message. It skips
unreadable files, conversations with a stored prompt, and conversations that record how their prompt
is chosen (for example `dynamic`, or no prompt configured)."""
DELETE_HELP = "Delete a conversation permanently. Its branches are not deleted."

LIST_COMMAND = "list them with: cllm --list-conversations --store"
EXIT_SOME_FAILED = 1

_ref = click.argument("ref", metavar="ID", shell_complete=completion.complete_conversations)


@click.group(cls=HelpGroup, name="conversations", help=HELP, examples=EXAMPLES)
@store_option
@conversations_path_option
@cllm_path_option
@trust_option
@click.pass_context
def command(ctx: click.Context, /, **options: Any) -> None:
    names = ("store", "conversations_path")
    ctx.obj = command_line(options, {name: options[name] for name in names})


@command.command(name="list", help="List the conversations, newest first.", examples=LIST_EXAMPLES)
@click.option("--source", metavar="NAME", help="List only those recorded from this client.")
@click.option("--side", is_flag=True, help="List side conversations of agents too.")
@click.pass_obj
def list_conversations(line: CommandLine, *, source: str | None, side: bool) -> None:
    app = open_app(line)
    page = app.run(app.store.list_conversations(source=source, side=side, limit=sys.maxsize))
    for notice in page.notices:
        output.warn(notice)
    for text in align_columns(map(_summary_columns, page.items)):
        output.print_line(text)
    if not page.items and source is not None:
        output.note(f"No conversation was recorded from '{one_line(source)}'.")
    elif not page.items:
        from cllm.repl.format import empty_list_lines

        others = run_coroutine(app.count_other_stores())
        for text in empty_list_lines(app.settings.store, others, advice=LIST_COMMAND):
            output.note(text)
        output.note('Start one with: cllm "Hello" --conversation ID')


def _summary_columns(summary: Summary) -> tuple[str, ...]:
    when = local_time(summary.updated_at)
    count = f"{summary.message_count} message{'' if summary.message_count == 1 else 's'}"
    return summary.ref, when, count, summary.model or "-", summary.title or ""


@command.command(name="show", help="Print a conversation.", examples=EXAMPLES[1:2])
@_ref
@click.pass_obj
def show(line: CommandLine, ref: str) -> None:
    app = open_app(line)
    conversation = app.run(app.store.load(ref))
    output.print_line(f"Conversation: {conversation.ref}")
    output.print_line(f"Model: {conversation.model or '-'}")
    output.print_line(f"System prompt: {_system_text(conversation)}")
    output.print_line(f"Created: {local_time(conversation.created_at)}")
    output.print_line(f"Updated: {local_time(conversation.updated_at)}")
    output.print_line(f"Tokens used: {conversation.total_tokens}")
    prompt = conversation.kept_prompt
    if prompt is not None:
        _show_message("[system]", prompt.text)
    for number, turn, message in conversation.numbered_messages():
        state = "" if turn.state == "complete" else f" ({turn.state})"
        head = f"{number} [{message.role}]{state}"
        _show_message(head, "\n".join(_message_lines(message)))
    notice = find_prompt_difference(conversation, app.settings.system)
    if notice is not None:
        output.warn(notice)


def _system_text(conversation: StoredConversation) -> str:
    record = conversation.system_record
    if record is None:
        return "stored, source not recorded" if conversation.system else "not recorded"
    if record.policy != "dynamic" and conversation.kept_prompt is None:
        return "none (none was configured when the conversation started)"
    return f"{record.policy}, from {record.source}" if record.source else record.policy


def _message_lines(message: Message) -> Iterator[str]:
    """The text of a message and one line per image or file in it."""
    from cllm.wire.convert import find_media

    if message.text:
        yield message.text
    try:
        media = tuple(find_media(message))
    except MalformedError:
        media = ()
    for part in media:
        yield one_line(_media_text(part))


def _media_text(part: Image | Document) -> str:
    kind = "image" if isinstance(part, Image) else "file"
    name = part.name if isinstance(part, Document) else None
    if part.data is None:
        at_provider = part.file_id if isinstance(part, Document) else None
        return f"[{kind}: {name or part.url or at_provider or 'no name'}]"
    size = len(part.data) * 3 // 4 - part.data[-2:].count("=")
    return f"[{kind}: {name or part.media_type}, {size:,} bytes]"


def _show_message(head: str, text: str) -> None:
    output.print_line("")
    output.print_line(head)
    printer = output.AnswerPrinter()
    printer.write(text or "(no text)")
    printer.end()


@command.command(name="delete", help=DELETE_HELP, examples=("cllm conversations delete cats",))
@_ref
@click.pass_obj
def delete(line: CommandLine, ref: str) -> None:
    app = open_app(line)
    run_coroutine(app.store.delete(ref))
    app.forget(ref)
    output.print_line(f"Deleted conversation '{ref}'.")


@command.command(name="branch", help=BRANCH_HELP, examples=EXAMPLES[2:])
@_ref
@click.option("--to", "new", metavar="ID", help="ID of the branch (default: automatic).")
@click.option("--at", type=click.IntRange(min=1), help="Number of the last message to copy.")
@click.option("--system", metavar="TEXT", help="System prompt of the branch.")
@click.option("--system-file", type=PATH, help="Read the system prompt from a file.")
@click.pass_obj
def branch(line: CommandLine, /, ref: str, **options: Any) -> None:
    prompt = read_system_option(options["system"], options["system_file"])
    app = open_app(line)
    created = build_new_conversation(options["new"] or new_conversation_id(now(), new_id()))
    opening = None
    if prompt is not None:
        opening = build_branch_opening(app.run(app.store.load(ref, tail=0)), prompt, now=now())
    branched = run_coroutine(app.store.branch(ref, created, at=options["at"], opening=opening))
    output.print_line(branched.ref)


@command.command(
    name="stats",
    help=STATS_HELP,
    examples=("cllm conversations stats", "cllm conversations stats cats --json"),
)
@click.argument(
    "ref", metavar="[ID]", required=False, shell_complete=completion.complete_conversations
)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@click.pass_obj
def stats(line: CommandLine, *, ref: str | None, as_json: bool) -> None:
    from cllm.cli.stats import print_stats

    print_stats(line, ref, as_json=as_json)


@command.command(
    name="migrate",
    help=MIGRATE_HELP,
    examples=(
        "cllm conversations migrate --add-system-prompt --dry-run",
        "cllm conversations migrate --add-system-prompt",
    ),
)
@click.option(
    "--add-system-prompt",
    is_flag=True,
    help="Store the configured system prompt in these conversations.",
)
@click.option("--dry-run", is_flag=True, help="List the changes without making them.")
@click.pass_obj
def migrate(line: CommandLine, *, add_system_prompt: bool, dry_run: bool) -> int:
    if not add_system_prompt:
        raise OptionError(
            "No migration is selected; run: cllm conversations migrate --add-system-prompt"
        )
    app = open_app(line)
    prompt = app.settings.system
    if prompt.message is None:
        raise UsageError(
            "No system prompt is configured; set `default_system_message` in a Cllmfile.yml first."
        )
    return run_coroutine(_migrate(app, prompt, dry_run=dry_run))


async def _migrate(app: App, prompt: GivenPrompt, *, dry_run: bool) -> int:
    """Migrate all conversations, also archived and side ones; return the exit code."""
    from cllm.cli.progress import show_progress

    page = await app.store.list_conversations(archive_filter="all", side=True, limit=sys.maxsize)
    for notice in page.notices:
        output.warn(notice)
    record = SystemRecord(policy="captured", source=prompt.source)
    opening = Opening(system=prompt.message, system_record=record)
    changed = failed = 0
    for summary in show_progress(page.items, "Migrating conversations", total=len(page.items)):
        try:
            changed += await _migrate_one(app, summary, opening, dry_run=dry_run)
        except BrokenConversationError as error:
            output.note(f"Warning: {error}")
        except StoreError as error:
            output.error(str(error))
            failed += 1
    total = len(page.items)
    count = f"{changed} of {total} conversation{'' if total == 1 else 's'}"
    file, _, key = (prompt.source or "").partition(": ")
    name = f"the system prompt ({f'`{key}` in {file}' if key else file})"
    if dry_run:
        result = f"{count} would get {name}; nothing was changed."
    else:
        result = f"{count} got {name}; the others were not changed."
    output.print_line(result)
    return EXIT_SOME_FAILED if failed else 0


def _check_is_file(store: str, ref: str) -> None:
    """Refuse a link, as the store does when it writes."""
    scheme, _, folder = store.partition(":")
    if scheme == "json" and (path := Path(folder) / f"{ref}.json").is_symlink():
        raise StoreUnavailableError(
            f"{path} is a symbolic link, which cllm reads but never writes; replace it with "
            "the file itself.",
            path=str(path),
        )


async def _migrate_one(app: App, summary: Summary, opening: Opening, *, dry_run: bool) -> bool:
    """Add the prompt to an old conversation; return whether it is one."""
    if dry_run:
        old = is_old(await app.store.load(summary.id))
        if old:
            _check_is_file(app.settings.store, summary.id)
    else:
        old = await app.store.capture(summary.id, opening) is not None
    if old:
        gets = "would get" if dry_run else "got"
        output.print_line(f"{summary.ref}: {gets} the system prompt.")
    return old
