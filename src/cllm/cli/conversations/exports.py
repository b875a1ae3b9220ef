"""`cllm conversations export`."""

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import BinaryIO

import click

from cllm.app import App, run_coroutine
from cllm.cli import completion, output
from cllm.cli.all_stores import note_left_out
from cllm.cli.inputs import HelpCommand, OptionError, store_options
from cllm.cli.trust import open_app
from cllm.core.errors import StoreError, StoreUnavailableError
from cllm.settings.load import CommandLine
from cllm.stores.registry import store_location
from cllm.transfer.export_formats import ENCODERS, EXTENSIONS
from cllm.transfer.output_file import make_output_folder, write_atomically
from cllm.transfer.store_reader import list_summaries

HELP = """Write conversations to files or to standard output.

`json` and `jsonl` contain everything and can be imported again; `jsonl` has one conversation per
line. `markdown` and `html` contain the messages of the default path to read. With --all, also
archived and side conversations are exported."""
EXAMPLES = (
    "cllm conversations export cats > cats.json",
    "cllm conversations export cats --format html -o cats.html",
    "cllm conversations export --all -o backup/",
)
EXIT_SOME_FAILED = 1


@click.command(cls=HelpCommand, name="export", help=HELP, examples=EXAMPLES)
@click.argument(
    "refs", metavar="[ID]...", nargs=-1, shell_complete=completion.complete_conversations
)
@click.option("--all", "export_all", is_flag=True, help="Export all conversations.")
@click.option(
    "--format",
    "export_format",
    type=click.Choice(tuple(ENCODERS)),
    default="json",
    help="Format (default: json).",
)
@click.option(
    "-o",
    "--output",
    "target",
    metavar="PATH",
    type=click.Path(path_type=Path),
    help="File or, for several conversations, folder (default: standard output).",
)
@click.option("--force", is_flag=True, help="Replace existing files.")
@store_options
def command(
    line: CommandLine,
    *,
    refs: tuple[str, ...],
    export_all: bool,
    export_format: str,
    target: Path | None,
    force: bool,
) -> int:
    if bool(refs) == export_all:
        raise OptionError("Name the conversations to export, or use --all.")
    several = export_all or len(refs) > 1
    if several and target is None and export_format != "jsonl":
        raise OptionError("Several conversations need a folder; add -o FOLDER or --format jsonl.")
    app = open_app(line)
    if several and target is not None and export_format != "jsonl":
        make_output_folder(target)
    return run_coroutine(_export(app, refs, export_format, target, force=force))


def _write_line(file: BinaryIO, _ref: str, data: bytes) -> None:
    file.write(data)


class _Target:
    """Writes each conversation to standard output, to its file, or as a line of one file."""

    def __init__(self, path: Path | None, export_format: str, *, force: bool) -> None:
        self._path = path
        self._format = export_format
        self._force = force

    def write(self, ref: str, data: bytes) -> None:
        if self._path is None:
            output.print_exactly(data.decode().removesuffix("\n"))
            return
        path = self._path
        if path.is_dir():
            path /= f"{ref}.{EXTENSIONS[self._format]}"
        with write_atomically(path, force=self._force) as file:
            file.write(data)


async def _export(
    app: App, refs: Sequence[str], export_format: str, target: Path | None, *, force: bool
) -> int:
    from cllm.cli.progress import show_progress

    encode = ENCODERS[export_format]
    failed = 0
    if not refs:
        summaries, notices = await list_summaries(app.store)
        for notice in notices:
            output.warn(notice)
        failed = len(notices)
        refs = [summary.ref for summary in summaries]
        if not refs:
            locations = " and ".join(map(store_location, app.store_urls))
            output.note(f"There are no conversations in {locations}.")
        await note_left_out(app)
    with ExitStack() as stack:
        write: Callable[[str, bytes], object] = _Target(target, export_format, force=force).write
        if target is not None and export_format == "jsonl":
            file = stack.enter_context(write_atomically(target, force=force))
            write = partial(_write_line, file)
        for ref in show_progress(refs, "Exporting conversations", total=len(refs)):
            try:
                conversation = await app.store.load(ref)
            except StoreUnavailableError:
                raise
            except StoreError as error:
                if len(refs) == 1:
                    raise
                output.error(str(error))
                failed += 1
                continue
            write(conversation.ref, encode(conversation))
    await app.close()
    return EXIT_SOME_FAILED if failed else 0
