"""`cllm conversations`: list, show, branch, delete, count and bring up to date what was said."""

import sys
from pathlib import Path

import click

from cllm.app import App
from cllm.assembly.system import GivenPrompt
from cllm.cli import completion, listing, printing
from cllm.cli.inputs import given_prompt
from cllm.cli.listing import open_app
from cllm.cli.progress import counted
from cllm.core.conversation import Summary, SystemRecord
from cllm.core.errors import BrokenConversationError, StoreError, UsageError
from cllm.core.ports import Opening
from cllm.engine import run
from cllm.settings.load import CommandLine
from cllm.stores.edits import is_old

HELP = """List, show, branch and delete conversations.

\b
Examples:
  cllm conversations list
  cllm conversations show cats
  cllm conversations branch cats --system "You are a vet." --to cats-vet"""


@click.group(name="conversations", help=HELP)
@click.option(
    "--store", metavar="URL", help="Where they are kept: json:PATH, sqlite:PATH, postgresql://…"
)
@click.option("--conversations-path", metavar="PATH", help="The folder of the conversation files.")
@click.option("--cllm-path", type=click.Path(path_type=Path), help="In place of .cllm.")
@click.option("--trust", is_flag=True, help="Trust the Cllmfiles here, this time.")
@click.pass_context
def command(
    ctx: click.Context,
    store: str | None,
    conversations_path: str | None,
    cllm_path: Path | None,
    trust: bool,
) -> None:
    """Note where the conversations are for the command that follows."""
    values = {"store": store, "conversations_path": conversations_path}
    ctx.obj = CommandLine(
        values={name: value for name, value in values.items() if value is not None},
        cllm_path=cllm_path,
        trust=trust,
    )


@command.command(name="list")
@click.pass_obj
def list_all(line: CommandLine) -> None:
    """List the conversations, newest first.

    \b
    Example:
      cllm conversations list
    """  # noqa: D301 - \b keeps click from joining the lines
    listing.list_conversations(line)


@command.command(name="show")
@click.argument("ref", metavar="ID", shell_complete=completion.conversations)
@click.pass_obj
def show(line: CommandLine, ref: str) -> None:
    """Print a conversation.

    \b
    Example:
      cllm conversations show cats
    """  # noqa: D301
    listing.show_conversation(line, ref)


@command.command(name="delete")
@click.argument("ref", metavar="ID", shell_complete=completion.conversations)
@click.pass_obj
def delete(line: CommandLine, ref: str) -> None:
    """Delete a conversation for good; its branches stay.

    \b
    Example:
      cllm conversations delete cats
    """  # noqa: D301
    listing.delete_conversation(line, ref)


@command.command(name="branch")
@click.argument("ref", metavar="ID", shell_complete=completion.conversations)
@click.option("--to", "new", metavar="ID", help="The id of the branch; one is made without it.")
@click.option("--at", type=click.IntRange(min=1), help="The number of the last message to take.")
@click.option("--system", metavar="TEXT", help="The system prompt of the branch.")
@click.option("--system-file", type=click.Path(path_type=Path), help="It, from a file.")
@click.pass_obj
def branch(
    line: CommandLine,
    ref: str,
    *,
    new: str | None,
    at: int | None,
    system: str | None,
    system_file: Path | None,
) -> None:
    """Start a new conversation from what was said in another one.

    Without --system the branch keeps the system prompt of the conversation it comes from.

    \b
    Example:
      cllm conversations branch cats --system "You are a vet." --to cats-vet
    """  # noqa: D301
    listing.branch_conversation(line, ref, new=new, at=at, given=given_prompt(system, system_file))


@command.command(name="stats")
@click.argument("ref", metavar="[ID]", required=False, shell_complete=completion.conversations)
@click.option("--json", "as_json", is_flag=True, help="As one JSON object.")
@click.pass_obj
def stats(line: CommandLine, *, ref: str | None, as_json: bool) -> None:
    """Say what a conversation, or all of them, used and cost.

    Tokens that were read from a provider's cache, written to it, and missed: sent before, still
    kept there, and not read all the same. What the cache saved, and what was missed cost. What has
    no known price is said to be unknown.

    \b
    Examples:
      cllm conversations stats
      cllm conversations stats cats --json
    """  # noqa: D301
    from cllm.cli.stats import print_stats  # noqa: PLC0415 - listing does without prices

    print_stats(line, ref, as_json=as_json)


MIGRATE_HELP = """Bring old conversations up to what new ones have.

Conversations that were begun before cllm kept system prompts get the configured one again with
every turn. With --add-system-prompt they get the one that is configured now for good, as their
first message. Conversations that have a prompt, or whose record says that they keep none, stay
as they are, and so do files that cannot be read.

\b
Examples:
  cllm conversations migrate --add-system-prompt --dry-run
  cllm conversations migrate --add-system-prompt"""

EXIT_SOME_FAILED = 1


@command.command(name="migrate", help=MIGRATE_HELP)
@click.option(
    "--add-system-prompt", is_flag=True, help="Keep the configured system prompt in old ones."
)
@click.option("--dry-run", is_flag=True, help="Only list what would change.")
@click.pass_obj
def migrate(line: CommandLine, *, add_system_prompt: bool, dry_run: bool) -> int:
    """Check that there is something to do, and do it."""
    if not add_system_prompt:
        raise UsageError("Say what to bring up: cllm conversations migrate --add-system-prompt")
    app = open_app(line)
    given = app.settings.system
    if given.message is None:
        raise UsageError(
            "No system prompt is configured; set `default_system_message` in a Cllmfile.yml first."
        )
    return run(_migrate(app, given, dry_run=dry_run))


async def _migrate(app: App, given: GivenPrompt, *, dry_run: bool) -> int:
    """Go through all conversations, those in the archive too; the exit code."""
    page = await app.store.list_conversations(archive_filter="all", limit=sys.maxsize)
    for notice in page.notices:
        printing.warn(notice)
    record = SystemRecord(policy="captured", source=given.source)
    opening = Opening(system=given.message, system_record=record)
    changed = failed = 0
    for summary in counted(page.items, "Looking at conversations", total=len(page.items)):
        try:
            done = await _bring_up(app, summary, opening, dry_run=dry_run)
        except BrokenConversationError as error:
            printing.note(f"Warning: {error}")
        except StoreError as error:
            printing.error(str(error))
            failed += 1
        else:
            changed += done
    printing.print_line(_told(changed, len(page.items), given, dry_run=dry_run))
    return EXIT_SOME_FAILED if failed else 0


async def _bring_up(app: App, summary: Summary, opening: Opening, *, dry_run: bool) -> bool:
    """Give one conversation the prompt, if it is an old one; whether it was."""
    if dry_run:
        old = is_old(await app.store.load(summary.id))
    else:
        old = await app.store.capture(summary.id, opening) is not None
    if old:
        gets = "would get" if dry_run else "got"
        printing.print_line(f"{summary.ref}: {gets} the system prompt.")
    return old


def _told(changed: int, total: int, given: GivenPrompt, *, dry_run: bool) -> str:
    count = f"{changed} of {total} conversation{'' if total == 1 else 's'}"
    if dry_run:
        return f"{count} would get the prompt of {given.source}; nothing was changed."
    return f"{count} got the prompt of {given.source}; the others stay as they were."
