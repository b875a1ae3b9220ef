"""`cllm doctor`: prints a line for each finding."""

import sys
from collections.abc import Iterator

import click
import msgspec

from cllm.app import DEFAULT_MODEL, App, now
from cllm.cli import output
from cllm.cli.inputs import current_environment
from cllm.cli.progress import show_progress
from cllm.core.errors import CllmError
from cllm.doctor import Finding, problem
from cllm.doctor.provider import check_machine, check_provider
from cllm.doctor.settings import check_settings
from cllm.doctor.store import HistoryCheck, check_store
from cllm.provider_factory import ProviderFactory
from cllm.settings.load import CommandLine

HELP = """Look whether everything is in order: settings, keys, provider, conversations.

Each line says ok, warning or problem, and what to do. Keys are never shown, nothing is asked of
a model, and without --fix nothing is changed. With --fix, what others could read becomes yours
alone, and half-written files older than an hour are removed.

\b
Examples:
  cllm doctor
  cllm doctor --fix
  cllm doctor --json

Exit codes: 0 no problem, 1 at least one."""

EXIT_PROBLEM = 1


@click.command(name="doctor", help=HELP)
@click.option("--fix", is_flag=True, help="Mend what can be mended, and say what was.")
@click.option("--json", "as_json", is_flag=True, help="Print the findings as JSON.")
def command(*, fix: bool, as_json: bool) -> int:
    found: list[Finding] = []
    for finding in _findings(fix=fix):
        found.append(finding)
        if not as_json:
            level = "fixed" if finding.fixed else finding.level
            output.print_line(f"{level:8} {finding.check}: {finding.message}")
    fine = all(finding.level != "problem" for finding in found)
    if as_json:
        encoded = msgspec.json.encode({"ok": fine, "findings": found})
        output.print_exactly(msgspec.json.format(encoded, indent=2).decode())
    return 0 if fine else EXIT_PROBLEM


def _findings(*, fix: bool) -> Iterator[Finding]:
    yield from check_machine()
    findings, settings = check_settings(current_environment(), CommandLine(), fix=fix)
    yield from findings
    if settings is None:
        return
    try:
        model = settings.model or DEFAULT_MODEL
        opener = ProviderFactory(settings, model=model, report=None, single_turn=True)
        yield from check_provider(settings, opener, model)
        yield from check_store(settings.store, fix=fix, now=now())
        app = App(settings)
        page = app.run(app.store.list_conversations(archive_filter="all", limit=sys.maxsize))
        histories = HistoryCheck(opener, model=model, store=settings.store)
        summaries = show_progress(page.items, "Looking at conversations", total=len(page.items))
        yield from histories.check(page, summaries, lambda ref: app.run(app.store.load(ref)))
    except CllmError as error:
        yield problem("store", str(error))
