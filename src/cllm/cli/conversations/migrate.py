"""`cllm conversations migrate`."""

import sys
from pathlib import Path

import click

from cllm.app import App, run_coroutine
from cllm.cli import output
from cllm.cli.inputs import HelpCommand, OptionError, store_options
from cllm.cli.trust import open_app
from cllm.core.conversation import Summary, SystemRecord
from cllm.core.errors import (
    BrokenConversationError,
    StoreError,
    UsageError,
)
from cllm.core.ports import Opening
from cllm.history.system_prompt import GivenPrompt
from cllm.settings.load import CommandLine
from cllm.stores.edits import is_old
from cllm.stores.json.folder import check_is_no_link

HELP = """Add data to conversations that an older version of cllm created.

Conversations without a stored system prompt are sent with the configured system prompt in every
turn. --add-system-prompt stores the currently configured prompt as their first message. It skips
unreadable files, conversations with a stored prompt, and conversations that record how their prompt
is chosen (for example `dynamic`, or no prompt configured)."""
EXIT_SOME_FAILED = 1


@click.command(
    cls=HelpCommand,
    name="migrate",
    help=HELP,
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
@store_options
def command(line: CommandLine, *, add_system_prompt: bool, dry_run: bool) -> int:
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
        result = f"{count} would receive {name}; nothing was changed."
    else:
        result = f"{count} received {name}; the others were not changed."
    output.print_line(result)
    return EXIT_SOME_FAILED if failed else 0


def _check_is_file(store: str, ref: str) -> None:
    """Refuse a link, as the store does when it writes."""
    scheme, _, folder = store.partition(":")
    if scheme == "json":
        check_is_no_link(Path(folder) / f"{ref}.json")


async def _migrate_one(app: App, summary: Summary, opening: Opening, *, dry_run: bool) -> bool:
    """Add the prompt to an old conversation; return whether it is one."""
    if dry_run:
        old = is_old(await app.store.load(summary.id))
        if old:
            _check_is_file(app.settings.store, summary.id)
    else:
        old = await app.store.capture(summary.id, opening) is not None
    if old:
        gets = "would receive" if dry_run else "received"
        output.print_line(f"{summary.ref}: {gets} the system prompt.")
    return old
