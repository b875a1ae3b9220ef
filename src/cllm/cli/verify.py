"""`cllm verify`."""

from pathlib import Path

import click
import msgspec

from cllm.app import App, run_coroutine
from cllm.cli import output
from cllm.cli.all_stores import join_counts, open_all_stores
from cllm.cli.inputs import HelpCommand, store_options
from cllm.cli.progress import count_items
from cllm.settings.load import CommandLine
from cllm.stores.registry import check_store_exists, store_location
from cllm.terminal import pluralize
from cllm.transfer.backup import BackupFile
from cllm.transfer.verification import StoreCheck

HELP = """Check that conversations are complete.

Without --store, the command checks the conversation files and the database of `cllm serve`, with
all owners. It reads every message, including those of archived and side conversations. It checks
turns, sequence numbers and path digests, and that a copy can be read. With FILE it checks the
digests of a backup. It prints one line for each damaged conversation and changes nothing.

Exit codes: 0 everything is complete, 1 at least one conversation is damaged."""
EXIT_DAMAGED = 1


class Checked(msgspec.Struct, frozen=True, kw_only=True):
    """The result: the number of conversations in each of the places, which are stores or a file."""

    places: dict[str, int]
    messages: int
    problems: list[str]

    @property
    def conversations(self) -> int:
        return sum(self.places.values())


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
        app = open_all_stores(line)
        check_store_exists(app.settings.store)
        checked = run_coroutine(_check_stores(app))
    else:
        checked = _check_backup(file)
    if as_json:
        _print_json(checked)
    else:
        for problem in checked.problems:
            output.error(problem)
        output.print_line(_describe(checked))
    return EXIT_DAMAGED if checked.problems else 0


def _print_json(checked: Checked) -> None:
    fields = {
        "ok": not checked.problems,
        "conversations": checked.conversations,
        "messages": checked.messages,
        "stores": [
            {"location": place, "conversations": count} for place, count in checked.places.items()
        ],
        "problems": checked.problems,
    }
    output.print_exactly(msgspec.json.encode(fields).decode())


def _describe(checked: Checked) -> str:
    places, problems = checked.places, checked.problems
    if not checked.conversations and not problems:
        return f"Checked 0 conversations: there are none in {' and '.join(places)}."
    return (
        f"Checked {pluralize(checked.conversations, 'conversation')} "
        f"with {pluralize(checked.messages, 'message')} in {join_counts(places)}: "
        f"{f'{len(problems)} damaged' if problems else 'all complete'}."
    )


async def _check_stores(app: App) -> Checked:
    try:
        with count_items("Checking conversations") as on_item:
            check = StoreCheck(app.store, on_item=on_item)
            await check.run()
    finally:
        await app.close()
    return Checked(
        places=dict(zip(map(store_location, app.store_urls), check.counts, strict=True)),
        messages=check.messages,
        problems=check.problems,
    )


def _check_backup(path: Path) -> Checked:
    backup = BackupFile(path, path)
    try:
        with count_items("Checking the backup") as on_item:
            problems = list(backup.find_problems(on_item))
    finally:
        backup.close()
    manifest = backup.manifest
    return Checked(
        places={str(path): len(manifest.conversations)},
        messages=manifest.message_count,
        problems=problems,
    )
