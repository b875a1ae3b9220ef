"""`cllm backup`."""

from collections.abc import Sequence
from pathlib import Path

import click

from cllm import __version__
from cllm.app import App, now, run_coroutine
from cllm.cli import output
from cllm.cli.all_stores import join_counts, open_all_stores
from cllm.cli.inputs import HelpCommand, store_options
from cllm.cli.progress import count_items
from cllm.core.errors import UsageError
from cllm.settings.load import CommandLine
from cllm.stores.registry import check_store_exists, store_location
from cllm.terminal import pluralize
from cllm.transfer.backup import BackupFile
from cllm.transfer.backup_writer import BackupResult, write_backup
from cllm.transfer.output_file import write_atomically

HELP = """Save all conversations to one file.

Without --store, the backup contains the conversation files and the database of `cllm serve`, with
all owners.

The file is a ZIP archive of conversation files with a manifest of their digests, and of the other
data of a server. It has the mode 0600. cllm writes it under a temporary name, reads it back and
renames it. You can use the store during the backup, which is a snapshot of the store.

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
    app = open_all_stores(line)
    check_store_exists(app.settings.store)
    result = run_coroutine(_save(app, file, force=force))
    for problem in result.problems:
        output.error(problem)
    output.print_line(_describe(result, [*map(store_location, app.store_urls)], file))
    return EXIT_SOME_FAILED if result.problems else 0


def _describe(result: BackupResult, places: Sequence[str], file: Path) -> str:
    manifest = result.manifest
    if not manifest.conversations and not result.problems:
        return f"Saved 0 conversations to {file}: there are none in {' and '.join(places)}."
    return (
        f"Saved {pluralize(len(manifest.conversations), 'conversation')} "
        f"with {pluralize(manifest.message_count, 'message')} "
        f"from {join_counts(dict(zip(places, result.counts, strict=True)))} to {file}."
    )


async def _save(app: App, path: Path, *, force: bool) -> BackupResult:
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
