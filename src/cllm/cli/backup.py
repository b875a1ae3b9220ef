"""`cllm backup`."""

from pathlib import Path

import click

from cllm import __version__
from cllm.app import App, now, run_coroutine
from cllm.cli import output
from cllm.cli.inputs import HelpCommand, store_options
from cllm.cli.progress import count_items
from cllm.cli.trust import open_app
from cllm.core.errors import UsageError
from cllm.settings.load import CommandLine
from cllm.stores.registry import check_store_exists
from cllm.terminal import pluralize
from cllm.transfer.backup import BackupFile, BackupManifest
from cllm.transfer.backup_writer import write_backup
from cllm.transfer.output_file import write_atomically

HELP = """Save all conversations of a store to one file.

The file is a ZIP archive of conversation files with a manifest of their digests, and of the other
data of a server. It has the mode 0600 and is complete or does not exist. cllm reads it back before
it gets its name. The store can be used meanwhile; it is saved as it is at one moment.

Exit codes: 0 all conversations were saved, 1 some cannot be read; the others were saved."""
EXIT_SOME_FAILED = 1


@click.command(
    cls=HelpCommand,
    name="backup",
    help=HELP,
    examples=("cllm backup cllm.zip", "cllm backup all.zip --store sqlite:cats.db"),
)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--force", is_flag=True, help="Replace an existing file.")
@store_options
def command(line: CommandLine, *, file: Path, force: bool) -> int:
    app = open_app(line)
    check_store_exists(app.settings.store)
    manifest, problems = run_coroutine(_save(app, file, force=force))
    for problem in problems:
        output.error(problem)
    output.print_line(
        f"Saved {pluralize(len(manifest.conversations), 'conversation')} "
        f"with {pluralize(manifest.message_count, 'message')} to {file}."
    )
    return EXIT_SOME_FAILED if problems else 0


async def _save(app: App, path: Path, *, force: bool) -> tuple[BackupManifest, list[str]]:
    try:
        with write_atomically(path, force=force) as file:
            with count_items("Saving conversations") as on_item:
                result = await write_backup(
                    app.store, file, now=now(), version=__version__, on_item=on_item
                )
            file.seek(0)
            written = BackupFile(file, path)
            with count_items("Checking the backup") as on_item:
                damaged = next(written.find_problems(on_item), None)
            if damaged is not None:
                raise UsageError(f"The backup cannot be read back ({damaged.rstrip('.')}).")
            return result
    finally:
        await app.close()
