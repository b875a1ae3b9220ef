"""Conversations as JSON, with the field names of the server's API, and as lines of a list."""

from collections.abc import Iterable, Sequence
from typing import Any

from cllm.cli import output
from cllm.core.conversation import Branch, Summary
from cllm.terminal import align_columns, cut_cells, local_time, one_line, pluralize

HEADINGS = ("ID", "UPDATED", "MESSAGES", "MODEL", "TITLE")
MAX_MODEL_CELLS = 24


def summary_fields(summary: Summary) -> dict[str, Any]:
    return {
        "id": summary.id,
        "name": summary.name,
        "title": summary.title,
        "model": summary.model,
        "message_count": summary.message_count,
        "created_at": summary.created_at,
        "updated_at": summary.updated_at,
        "archived_at": summary.archived_at,
        "source": summary.source,
        "side": summary.is_side,
        "parent": None if summary.parent is None else parent_fields(summary.parent),
        "metadata": summary.metadata,
    }


def parent_fields(parent: Branch) -> dict[str, Any]:
    return {
        "conversation_id": parent.conversation,
        "sequence_number": parent.sequence,
        "kind": parent.kind,
    }


def print_summaries(summaries: Sequence[Summary], *, indent: str = "") -> None:
    """Print a list: on a terminal a table that fits its width, elsewhere whole lines."""
    columns = output.terminal_columns()
    if columns is None or not summaries:
        lines = align_columns(map(summary_columns, summaries))
        output.print_lines(f"{indent}{line}" for line in lines)
        return
    heading, *rows = table_lines(summaries, columns - len(indent))
    output.print_styled(output.style(f"{indent}{heading}", output.DIM))
    output.print_lines(f"{indent}{row}" for row in rows)


def summary_columns(summary: Summary) -> tuple[str, ...]:
    when, count = local_time(summary.updated_at), pluralize(summary.message_count, "message")
    return summary.ref, when, count, summary.model or "-", summary.title or ""


def table_lines(summaries: Iterable[Summary], columns: int) -> list[str]:
    """Return the lines with headings.

    A narrow terminal shows no models, a narrower one no counts.
    """
    return align_columns([HEADINGS, *map(_build_table_row, summaries)], columns, optional=(3, 2))


def _build_table_row(summary: Summary) -> tuple[str, ...]:
    model = one_line((summary.model or "-").rpartition("/")[2])
    return (
        one_line(summary.ref),
        local_time(summary.updated_at),
        f"{summary.message_count:,}",
        cut_cells(model, MAX_MODEL_CELLS),
        one_line(summary.title or ""),
    )
