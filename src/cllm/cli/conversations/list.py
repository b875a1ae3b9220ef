"""`cllm conversations list`."""

import re
import sys
from datetime import datetime, timedelta
from typing import Any

import click
import msgspec

from cllm.app import App, now, run_coroutine
from cllm.cli import completion, output
from cllm.cli.conversations.views import print_summaries, summary_fields
from cllm.cli.inputs import HelpCommand, OptionError, json_option, store_options
from cllm.cli.trust import open_app
from cllm.core.conversation import LOCAL_OWNER
from cllm.core.ports import Page, Store
from cllm.settings.load import CommandLine
from cllm.stores.filters import ListFilter
from cllm.stores.registry import store_location
from cllm.terminal import one_line, pluralize

HELP = """List the conversations, newest first.

On a terminal the list is a table that fits its width. --json prints an array of objects, whose
fields are in docs/reference/cli.md."""
EXAMPLES = (
    "cllm conversations list -n 20",
    "cllm conversations list --since 7d --model gpt-4o",
    "cllm conversations list --since 2026-11-01 --json",
    "cllm conversations list --source claude-code:compaction --side",
)
LIST_COMMAND = "list them with: cllm conversations list --store"
INDENT = "  "
UNITS = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
AGE = re.compile(r"(\d{1,6})([mhdw])")


class ListOptions(ListFilter, frozen=True, kw_only=True):
    """What to list; `limit` counts the conversations that match."""

    limit: int | None = None

    @property
    def is_empty(self) -> bool:
        """Whether every conversation is listed, up to the limit."""
        return self == ListOptions(limit=self.limit, side=self.side)


EVERYTHING = ListOptions()


@click.command(cls=HelpCommand, name="list", help=HELP, examples=EXAMPLES)
@click.option("-n", "--limit", type=click.IntRange(min=1), help="List at most N conversations.")
@click.option(
    "--model",
    metavar="TEXT",
    shell_complete=completion.complete_models,
    help="List only those whose model contains this text.",
)
@click.option("--source", metavar="NAME", help="List only those recorded from this client.")
@click.option(
    "--since",
    metavar="TIME",
    help="List only those updated since: 30m, 24h, 7d, 2w, today, 2026-11-01 or an ISO time.",
)
@click.option("--archived", is_flag=True, help="List the archived conversations.")
@click.option("--side", is_flag=True, help="List side conversations of agents too.")
@click.option(
    "--all", "every_place", is_flag=True, help="List the conversations of every known location."
)
@json_option
@store_options
def command(
    line: CommandLine, *, as_json: bool, archived: bool, every_place: bool, **options: Any
) -> None:
    options["since"] = parse_since(options["since"], now())
    chosen = ListOptions(archive_filter="archived" if archived else "active", **options)
    print_conversations(line, chosen, as_json=as_json, every_place=every_place)


def print_conversations(
    line: CommandLine,
    chosen: ListOptions = EVERYTHING,
    *,
    as_json: bool = False,
    every_place: bool = False,
) -> None:
    app = open_app(line)
    if every_place:
        _print_places(app, chosen, as_json=as_json)
        return
    page, other_owners = app.run(_read_page(app.store, chosen))
    for notice in page.notices:
        output.warn(notice)
    if as_json:
        output.print_json(list(map(summary_fields, page.items)))
        return
    print_summaries(page.items)
    if not page.items:
        _explain_empty_list(app, chosen, other_owners)


async def _read_page(store: Store, chosen: ListOptions) -> tuple[Page, int]:
    """Return the conversations, and the number of other owners if there are none."""
    page = await read_list(store, chosen)
    if page.items or not chosen.is_empty:
        return page, 0
    return page, len({*await store.list_owners()} - {LOCAL_OWNER})


def _print_places(app: App, chosen: ListOptions, *, as_json: bool) -> None:
    """Print each place with its conversations; a place without any is not printed."""
    from cllm.cli.places import list_places, read_place

    places = list_places(app)
    rows = []
    for url in places:
        page = run_coroutine(read_place(app, url, lambda store: read_list(store, chosen)))
        for notice in page.notices:
            output.warn(notice)
        location = store_location(url)
        rows += [{**summary_fields(item), "place": location} for item in page.items]
        if page.items and not as_json:
            output.print_line(f"{location}:")
            print_summaries(page.items, indent=INDENT)
    if as_json:
        output.print_json(rows)
    elif not rows:
        output.note(f"No conversations in {', '.join(map(store_location, places))}.")


async def read_list(store: Store, chosen: ListOptions) -> Page:
    """Read the conversations that match, newest first."""
    limit = sys.maxsize if chosen.limit is None else chosen.limit
    return await store.list_conversations(**{**msgspec.structs.asdict(chosen), "limit": limit})


def _explain_empty_list(app: App, chosen: ListOptions, other_owners: int) -> None:
    if chosen.source is not None and chosen == ListOptions(
        source=chosen.source, limit=chosen.limit, side=chosen.side
    ):
        output.note(f"No conversation was recorded from '{one_line(chosen.source)}'.")
    elif not chosen.is_empty:
        output.note("No conversation matches these options.")
    else:
        from cllm.repl.format import empty_list_lines

        others = run_coroutine(app.count_other_stores())
        for text in empty_list_lines(app.store_urls, others, advice=LIST_COMMAND):
            output.note(text)
        if other_owners:
            output.note(
                f"The conversations of {pluralize(other_owners, 'other owner')} are not listed: "
                "clients with their keys see them, and `cllm backup` saves them."
            )
        output.note('Start one with: cllm "Hello" --conversation ID')


def parse_since(text: str | None, moment: datetime) -> datetime | None:
    """Return a time before `moment`, or a time in the local time zone."""
    if text is None:
        return None
    match = AGE.fullmatch(text.strip().lower())
    try:
        if match is not None:
            return moment - timedelta(**{UNITS[match[2]]: int(match[1])})
        if text in ("today", "yesterday"):
            day = moment.astimezone() - timedelta(days=text == "yesterday")
            return day.replace(hour=0, minute=0, second=0, microsecond=0)
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        raise OptionError(
            f"--since needs a time such as 24h, 7d, today or 2026-11-01, not '{one_line(text)}'."
        ) from None
