"""`cllm restore`."""

from pathlib import Path

import click

from cllm.app import App, now, run_coroutine
from cllm.cli import output
from cllm.cli.all_stores import open_all_stores
from cllm.cli.inputs import PATH, HelpCommand, store_options
from cllm.cli.progress import count_items
from cllm.settings.load import CommandLine
from cllm.stores.registry import store_location
from cllm.terminal import pluralize
from cllm.transfer.backup import BackupFile
from cllm.transfer.report import ImportReport
from cllm.transfer.restoration import restore_backup

HELP = """Add the conversations of a backup to a store.

Without --store, each conversation returns to the kind of store that it comes from: the folder of
conversation files, or the database of `cllm serve`, which is created if it does not exist.

cllm checks all digests of the backup first. A store with other conversations needs --merge.
Existing conversations are never changed. To continue an interrupted restore, run it again. The
other data of a server is added if the store is a database.

Exit codes: 0 everything is in the store, 1 some conversations differ from the stored ones, or data
of a server needs a database."""
EXIT_SOME_FAILED = 1


@click.command(
    cls=HelpCommand,
    name="restore",
    help=HELP,
    examples=("cllm restore cllm.zip", "cllm restore cllm.zip --store sqlite:new.db"),
)
@click.argument("file", type=PATH)
@click.option("--merge", is_flag=True, help="Restore into a store with other conversations.")
@store_options
def command(line: CommandLine, *, file: Path, merge: bool) -> int:
    backup = BackupFile(file, file)
    try:
        app = open_all_stores(line, create_database=backup.needs_database)
        report = run_coroutine(_restore(app, backup, merge=merge))
    finally:
        backup.close()
    for skipped in report.skipped:
        output.error(f"{skipped.name}: {skipped.reason}.")
    for note, count in report.notes.items():
        output.error(f"{count} {note}.")
    output.print_line(
        f"Restored {pluralize(report.imported, 'conversation')} "
        f"with {pluralize(report.messages, 'message')} "
        f"to {' and '.join(map(store_location, app.store_urls))}; "
        f"{report.unchanged} existed, {len(report.skipped)} skipped."
    )
    return EXIT_SOME_FAILED if report.skipped or report.notes else 0


async def _restore(app: App, backup: BackupFile, *, merge: bool) -> ImportReport:
    try:
        with count_items("Restoring conversations") as on_item:
            return await restore_backup(backup, app.store, clock=now, merge=merge, on_item=on_item)
    finally:
        await app.close()
