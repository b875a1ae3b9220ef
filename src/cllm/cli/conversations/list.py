"""`cllm conversations list`."""

import sys

import click

from cllm.app import run_coroutine
from cllm.cli import output
from cllm.cli.inputs import HelpCommand, store_options
from cllm.cli.trust import open_app
from cllm.core.conversation import Summary
from cllm.settings.load import CommandLine
from cllm.terminal import align_columns, local_time, one_line

EXAMPLES = (
    "cllm conversations list",
    "cllm conversations list --source claude-code:compaction --side",
)
LIST_COMMAND = "list them with: cllm --list-conversations --store"


@click.command(
    cls=HelpCommand, name="list", help="List the conversations, newest first.", examples=EXAMPLES
)
@click.option("--source", metavar="NAME", help="List only those recorded from this client.")
@click.option("--side", is_flag=True, help="List side conversations of agents too.")
@store_options
def command(line: CommandLine, *, source: str | None, side: bool) -> None:
    print_conversations(line, source=source, side=side)


def print_conversations(
    line: CommandLine, *, source: str | None = None, side: bool = False
) -> None:
    app = open_app(line)
    page = app.run(app.store.list_conversations(source=source, side=side, limit=sys.maxsize))
    for notice in page.notices:
        output.warn(notice)
    for text in align_columns(map(_summary_columns, page.items)):
        output.print_line(text)
    if not page.items and source is not None:
        output.note(f"No conversation was recorded from '{one_line(source)}'.")
    elif not page.items:
        from cllm.repl.format import empty_list_lines

        others = run_coroutine(app.count_other_stores())
        for text in empty_list_lines(app.settings.store, others, advice=LIST_COMMAND):
            output.note(text)
        output.note('Start one with: cllm "Hello" --conversation ID')


def _summary_columns(summary: Summary) -> tuple[str, ...]:
    when = local_time(summary.updated_at)
    count = f"{summary.message_count} message{'' if summary.message_count == 1 else 's'}"
    return summary.ref, when, count, summary.model or "-", summary.title or ""
