"""`cllm conversations import`."""

import click
import msgspec

from cllm.app import App, now, run_coroutine
from cllm.cli import output
from cllm.cli.inputs import PATH_TEXT, HelpCommand, store_options
from cllm.cli.trust import open_app
from cllm.settings.load import CommandLine
from cllm.terminal import one_line
from cllm.transfer.detection import FORMATS
from cllm.transfer.import_source import import_source
from cllm.transfer.report import ImportReport
from cllm.transfer.writer import ImportWriter

HELP = """Import conversations of other programs, or of another cllm.

SOURCE is the archive or `conversations.json` of ChatGPT or Claude.ai, the `logs.db` of `llm`,
sessions of Claude Code or Codex (a file or a folder), the export or database of Open WebUI, or a
folder, database, export or backup of cllm. A store can also be a URL such as sqlite:PATH. cllm
detects the format from the content.

Other versions of a reply become variants, other paths become branches. Importing again adds only
what is new in the source. Conversations that you changed in cllm are not changed."""
EXAMPLES = (
    "cllm conversations import chatgpt-export.zip --dry-run",
    "cllm conversations import logs.db",
    "cllm conversations import ../other/.cllm/conversations",
)
MAX_LINES = 20
EXIT_SOME_FAILED = 1


@click.command(cls=HelpCommand, name="import", help=HELP, examples=EXAMPLES)
@click.argument("sources", metavar="SOURCE...", nargs=-1, required=True, type=PATH_TEXT)
@click.option(
    "--from",
    "source_format",
    type=click.Choice(tuple(FORMATS)),
    help="Format of the source (default: recognised by its content).",
)
@click.option("--dry-run", is_flag=True, help="Print the report without importing anything.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as one JSON object.")
@store_options
def command(
    line: CommandLine,
    *,
    sources: tuple[str, ...],
    source_format: str | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    app = open_app(line)
    report = ImportReport()
    writer = ImportWriter(app.store, report, clock=now, dry_run=dry_run)
    try:
        run_coroutine(_import_all(app, sources, writer, source_format))
    except BaseException:
        # Nothing was read from a source that cannot be opened.
        if as_json or report != ImportReport():
            _print_report(report, as_json=as_json, dry_run=dry_run)
        raise
    _print_report(report, as_json=as_json, dry_run=dry_run)
    return EXIT_SOME_FAILED if any(skipped.damaged for skipped in report.skipped) else 0


async def _import_all(
    app: App, sources: tuple[str, ...], writer: ImportWriter, source_format: str | None
) -> None:
    from cllm.cli.progress import count_items

    try:
        with count_items("Importing conversations") as on_item:
            for source in sources:
                await import_source(source, writer, name=source_format, clock=now, on_item=on_item)
    finally:
        await app.close()


def _print_report(report: ImportReport, *, as_json: bool, dry_run: bool) -> None:
    if as_json:
        fields = {**report.fields(), "dry_run": dry_run}
        output.print_exactly(msgspec.json.encode(fields).decode())
        return
    for skipped in report.skipped[:MAX_LINES]:
        output.note(f"Skipped {one_line(skipped.name) or 'a conversation'}: {skipped.reason}.")
    if len(report.skipped) > MAX_LINES:
        output.note(f"Skipped {len(report.skipped) - MAX_LINES} more; list them with --json.")
    for reason, count in report.skipped_messages.items():
        output.note(f"Skipped {_count(count, 'message')}: {reason}.")
    for text, count in report.notes.items():
        output.note(f"Note: {text} ({count} times)." if count > 1 else f"Note: {text}.")
    verb = "Would import" if dry_run else "Imported"
    branches = f" and {_count(report.branches, 'branch', 'branches')}" if report.branches else ""
    output.print_line(
        f"{verb} {_count(report.imported, 'conversation')}{branches} "
        f"({_count(report.messages, 'message')}); {report.continued} continued, "
        f"{report.unchanged} unchanged, {len(report.skipped)} skipped."
    )


def _count(number: int, noun: str, plural: str | None = None) -> str:
    return f"{number} {noun if number == 1 else plural or noun + 's'}"
