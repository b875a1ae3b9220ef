"""`cllm doctor`: prints one line per finding."""

import asyncio
import sys
from collections.abc import Iterator

import click
import msgspec

from cllm.app import App, now
from cllm.cli import output
from cllm.cli.inputs import HelpCommand, current_environment
from cllm.cli.progress import show_progress
from cllm.core.errors import CllmError
from cllm.doctor import Finding, problem
from cllm.doctor.provider import check_machine, check_provider
from cllm.doctor.settings import check_settings
from cllm.doctor.store import HistoryCheck, check_store
from cllm.provider_factory import ProviderFactory
from cllm.settings.load import CommandLine

HELP = """Check the settings, the provider and the conversations.

Each line of the report starts with ok, warning or problem and includes advice where needed. The
command prints no keys and calls no model. Without --fix it changes nothing. With --fix it removes
other users' access to the conversation files, their folder and Cllmfiles that contain a key, and
deletes temporary files older than an hour.

Exit codes: 0 no problem, 1 at least one problem."""

EXIT_PROBLEM = 1


@click.command(
    cls=HelpCommand,
    name="doctor",
    help=HELP,
    examples=("cllm doctor", "cllm doctor --fix", "cllm doctor --json"),
)
@click.option(
    "--fix", is_flag=True, help="Correct file permissions and delete leftover temporary files."
)
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def command(*, fix: bool, as_json: bool) -> int:
    findings: list[Finding] = []
    for finding in _list_findings(fix=fix):
        findings.append(finding)
        if not as_json:
            level = "fixed" if finding.fixed else finding.level
            output.print_line(f"{level:8} {finding.check}: {finding.message}")
    is_ok = all(finding.level != "problem" for finding in findings)
    if as_json:
        encoded = msgspec.json.encode({"ok": is_ok, "findings": findings})
        output.print_exactly(msgspec.json.format(encoded, indent=2).decode())
    return 0 if is_ok else EXIT_PROBLEM


def _list_findings(*, fix: bool) -> Iterator[Finding]:
    yield from check_machine()
    findings, settings = check_settings(current_environment(), CommandLine(), fix=fix)
    yield from findings
    if settings is None:
        return
    try:
        app = App(settings)
        model = app.model
        reason = "" if settings.model else f" (the default, because {app.model_choice.reason})"
        opener = ProviderFactory(settings, model=lambda: model, report=None, single_turn=True)
        yield from check_provider(settings, opener, model, reason=reason)
        for url in app.store_urls:
            yield from check_store(url, fix=fix, now=now())
        histories = HistoryCheck(opener, model=model)
        # Connections belong to one event loop.
        with asyncio.Runner() as runner:
            listing = app.store.list_conversations(
                archive_filter="all", side=True, limit=sys.maxsize
            )
            page = runner.run(listing)
            summaries = show_progress(page.items, "Checking conversations", total=len(page.items))
            yield from histories.check(page, summaries, lambda ref: runner.run(app.store.load(ref)))
            runner.run(app.close())
    except CllmError as error:
        yield problem("store", str(error))
