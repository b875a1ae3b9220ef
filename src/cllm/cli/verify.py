"""`cllm verify`."""

from pathlib import Path

import click
import msgspec

from cllm.app import App, run_coroutine
from cllm.cli import output
from cllm.cli.inputs import HelpCommand, store_options
from cllm.cli.progress import count_items
from cllm.cli.trust import open_app
from cllm.settings.load import CommandLine
from cllm.stores.registry import check_store_exists
from cllm.terminal import pluralize
from cllm.transfer.backup import BackupFile
from cllm.transfer.verification import StoreCheck

HELP = """Check that the conversations of a store are complete.

The command reads every message, also of archived and side conversations, checks its turn, its
sequence number and its path digest, and that a copy can be read. With FILE it checks the digests of
a backup. It prints one line for each damaged conversation and changes nothing.

Exit codes: 0 everything is complete, 1 at least one conversation is damaged."""
EXIT_DAMAGED = 1


@click.command(
    cls=HelpCommand,
    name="verify",
    help=HELP,
    examples=("cllm verify", "cllm verify cllm.zip", "cllm verify --store sqlite:cats.db"),
)
@click.argument("file", required=False, metavar="[FILE]", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print the result as one JSON object.")
@store_options
def command(line: CommandLine, *, file: Path | None, as_json: bool) -> int:
    if file is None:
        app = open_app(line)
        check_store_exists(app.settings.store)
        conversations, messages, problems = run_coroutine(_check_store(app))
    else:
        conversations, messages, problems = _check_backup(file)
    if as_json:
        fields = {
            "ok": not problems,
            "conversations": conversations,
            "messages": messages,
            "problems": problems,
        }
        output.print_exactly(msgspec.json.encode(fields).decode())
    else:
        for problem in problems:
            output.error(problem)
        damaged = f"{len(problems)} damaged" if problems else "all complete"
        output.print_line(
            f"Checked {pluralize(conversations, 'conversation')} "
            f"with {pluralize(messages, 'message')}: {damaged}."
        )
    return EXIT_DAMAGED if problems else 0


async def _check_store(app: App) -> tuple[int, int, list[str]]:
    try:
        with count_items("Checking conversations") as on_item:
            check = StoreCheck(app.store, on_item=on_item)
            await check.run()
    finally:
        await app.close()
    return check.count, check.messages, check.problems


def _check_backup(path: Path) -> tuple[int, int, list[str]]:
    backup = BackupFile(path, path)
    try:
        with count_items("Checking the backup") as on_item:
            problems = list(backup.find_problems(on_item))
    finally:
        backup.close()
    manifest = backup.manifest
    return len(manifest.conversations), manifest.message_count, problems
