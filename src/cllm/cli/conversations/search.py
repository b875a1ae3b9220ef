"""`cllm conversations search`, and its short form `cllm search`."""

import click

from cllm.cli import output
from cllm.cli.conversations.views import summary_columns, summary_fields
from cllm.cli.inputs import HelpCommand, json_option, store_options
from cllm.cli.trust import open_app
from cllm.core.ports import ArchiveFilter, Hit
from cllm.engine.conversation_search import (
    FoundConversation,
    describe_no_results,
    search_conversations,
)
from cllm.settings.load import CommandLine
from cllm.stores.search import SearchTerm, locate_words, parse_query
from cllm.terminal import align_columns, cut_cells, one_line, pluralize

HELP = """Search the messages and titles of conversations.

A message matches if it contains all words, or other forms of English words (`run` finds `running`).
Chinese and Japanese text matches without spaces. The newest conversations are printed first."""
EXAMPLES = (
    "cllm search luna",
    "cllm conversations search my cat --json",
)
DEFAULT_LIMIT = 20
SHOWN_HITS = 3
INDENT = "    "


@click.command(cls=HelpCommand, name="search", help=HELP, examples=EXAMPLES)
@click.argument("words", nargs=-1, required=True)
@click.option(
    "-n",
    "--limit",
    type=click.IntRange(min=1),
    default=DEFAULT_LIMIT,
    help=f"Print at most N conversations (default {DEFAULT_LIMIT}).",
)
@click.option("--archived", is_flag=True, help="Search the archived conversations.")
@json_option
@store_options
def command(
    line: CommandLine, *, words: tuple[str, ...], limit: int, archived: bool, as_json: bool
) -> None:
    query = " ".join(words)
    terms = parse_query(query)
    app = open_app(line)
    archive_filter: ArchiveFilter = "archived" if archived else "active"
    found = app.run(search_conversations(app.store, query, archive_filter=archive_filter))
    for notice in found.notices:
        output.warn(notice)
    shown = found.items[:limit]
    if as_json:
        output.print_json(list(map(found_fields, shown)))
        return
    for one in shown:
        _print_found(one, terms)
    if len(found.items) > limit:
        output.note(
            f"{pluralize(len(found.items) - limit, 'older conversation')} not shown; "
            "use -n to print more."
        )
    if not found.items:
        output.note(describe_no_results(one_line(query), archive_filter, more=found.more))


def found_fields(found: FoundConversation) -> dict[str, object]:
    return {
        **summary_fields(found.summary),
        "in_title": found.is_in_title,
        "matches": [_build_hit_fields(hit) for hit in found.hits],
    }


def _build_hit_fields(hit: Hit) -> dict[str, object]:
    return {
        "sequence_number": hit.sequence,
        "role": hit.role,
        "snippet": hit.snippet,
        "relevance": hit.relevance,
        "created_at": hit.created_at,
    }


def _print_found(found: FoundConversation, terms: tuple[SearchTerm, ...]) -> None:
    columns = output.terminal_columns()
    ref, when, count, _, title = summary_columns(found.summary)
    head, *more_lines = align_columns([(ref, when, count, title)], columns, optional=(2,))
    output.print_styled(output.style(ref, output.BOLD) + head.removeprefix(one_line(ref)))
    output.print_lines(more_lines)
    for hit in found.hits[:SHOWN_HITS]:
        line = f"{hit.sequence} {hit.role}: {one_line(hit.snippet)}"
        if columns is not None:
            line = cut_cells(line, columns - len(INDENT))
        output.print_styled(INDENT + mark_words(line, terms))
    more = len(found.hits) - SHOWN_HITS
    if more > 0:
        output.print_line(f"{INDENT}… and {pluralize(more, 'more message')}")


def mark_words(line: str, terms: tuple[SearchTerm, ...]) -> str:
    """Style the words of the query."""
    parts: list[str] = []
    last = 0
    for start, end in locate_words(line, terms):
        parts += (line[last:start], output.style(line[start:end], output.BOLD))
        last = end
    return "".join((*parts, line[last:]))
