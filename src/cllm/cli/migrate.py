"""`cllm conversations migrate`: bring old conversations up to what new ones have, on request."""

import sys

import click

from cllm.app import App
from cllm.assembly.system import GivenPrompt
from cllm.cli import printing
from cllm.cli.counting import counted
from cllm.cli.listing import open_app
from cllm.core.conversation import Summary, SystemRecord
from cllm.core.errors import BrokenConversationError, StoreError, UsageError
from cllm.core.ports import Opening
from cllm.engine.sync import run
from cllm.settings.load import CommandLine
from cllm.stores.edits import is_old

HELP = """Bring old conversations up to what new ones have.

Conversations that were begun before cllm kept system prompts get the configured one again with
every turn. With --add-system-prompt they get the one that is configured now for good, as their
first message. Conversations that have a prompt, or whose record says that they keep none, stay
as they are, and so do files that cannot be read.

\b
Examples:
  cllm conversations migrate --add-system-prompt --dry-run
  cllm conversations migrate --add-system-prompt"""

EXIT_SOME_FAILED = 1


@click.command(name="migrate", help=HELP)
@click.option(
    "--add-system-prompt", is_flag=True, help="Keep the configured system prompt in old ones."
)
@click.option("--dry-run", is_flag=True, help="Only list what would change.")
@click.pass_obj
def command(line: CommandLine, *, add_system_prompt: bool, dry_run: bool) -> int:
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
