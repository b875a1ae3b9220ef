"""`cllm conversations stats`: usage, cost and cache figures, as lines or JSON."""

import sys
from collections.abc import Iterator, Sequence
from math import ceil
from typing import Any

import click
import msgspec

from cllm.app import App
from cllm.cli import completion, output
from cllm.cli.inputs import HelpCommand, json_option, store_options
from cllm.cli.progress import show_progress
from cllm.cli.trust import open_app
from cllm.core.conversation import StoredConversation, Summary
from cllm.core.errors import (
    BrokenConversationError,
    ConversationNotFoundError,
    StoreUnavailableError,
)
from cllm.core.ports import CallRecord, UsageSum
from cllm.repl.format import format_dollars, report_lines
from cllm.settings.load import CommandLine
from cllm.stores.usage import list_calls, sum_usage
from cllm.terminal import align_columns, count_cells, cut_cells, one_line, pluralize
from cllm.window.cache_report import Amount, CacheReport, add_conversation, build_cache_report

HELP = """Print the token usage and cost of one conversation, or of all.

The report includes the tokens read from and written to the provider's cache, the cache misses
(tokens that should still have been in the cache but were not), the money that the cache saved and
the cost of the misses. A cost is unknown if the price of the model is unknown. Charts show the
tokens of the last 30 days, in UTC, and of each model. --json prints one object."""
MAX_DAYS = 30
MAX_BAR = 40
MAX_KEY_CELLS = 36
DEFAULT_COLUMNS = 100


@click.command(
    cls=HelpCommand,
    name="stats",
    help=HELP,
    examples=("cllm conversations stats", "cllm conversations stats cats --json"),
)
@completion.optional_ref_argument
@json_option
@store_options
def command(line: CommandLine, *, ref: str | None, as_json: bool) -> None:
    app = open_app(line)
    figures = app.run(_read_figures(app, ref))
    if as_json:
        output.print_exactly(msgspec.json.encode(_as_json(figures, ref)).decode())
        return
    report = figures.report
    subject = f"Conversation {ref}" if ref else pluralize(report.conversations, "conversation")
    output.print_line(f"{subject}: {pluralize(report.turns, 'turn')}")
    for text in report_lines(report):
        output.print_line(text)
    for title, sums in (("By day", figures.days[-MAX_DAYS:]), ("By model", figures.models)):
        if sums:
            output.print_line("")
            output.print_line(title)
        for text in chart_lines(
            sums, output.terminal_columns() or DEFAULT_COLUMNS, bar=_draw_bar()
        ):
            output.print_line(text)


class Figures(msgspec.Struct, frozen=True, kw_only=True):
    """The report, and the sums of each day and of each model, the largest first."""

    report: CacheReport
    days: tuple[UsageSum, ...] = ()
    models: tuple[UsageSum, ...] = ()


async def _read_figures(app: App, ref: str | None) -> Figures:
    """Return the figures of one conversation, or of all with archived and side conversations."""
    price = app.prices.price_turn
    if ref is not None:
        conversation = await app.store.load(ref)
        calls = list(list_calls(conversation))
        return _build_figures(build_cache_report([conversation], price), calls)
    page = await app.store.list_conversations(archive_filter="all", side=True, limit=sys.maxsize)
    for notice in page.notices:
        output.warn(notice)
    report, calls = CacheReport(), []
    seen: set[str] = set()
    for summary in show_progress(page.items, "Reading conversations", total=len(page.items)):
        conversation_or_none = await _load_or_warn(app, summary)
        if conversation_or_none is not None:
            calls += list_calls(conversation_or_none)
            report = add_conversation(report, conversation_or_none, price, seen=seen)
    return _build_figures(report, calls)


def _build_figures(report: CacheReport, calls: list[CallRecord]) -> Figures:
    days = sum_usage(calls, since=None, until=None, by="day")
    models = sum_usage(calls, since=None, until=None, by="model")
    by_tokens = sorted(models, key=lambda one: (-one.usage.total, one.key))
    return Figures(report=report, days=days, models=tuple(by_tokens))


def chart_lines(sums: Sequence[UsageSum], columns: int, *, bar: str = "█") -> Iterator[str]:
    """Yield a bar of the tokens and the figures of each sum, at most `columns` wide."""
    if not sums:
        return
    figures = align_columns(map(_sum_columns, sums))
    keys = [cut_cells(one_line(each.key), MAX_KEY_CELLS) for each in sums]
    width = max(map(count_cells, keys))
    room = columns - width - max(map(len, figures)) - 6
    longest = max(1, *(each.usage.total for each in sums))
    for each, key, text in zip(sums, keys, figures, strict=True):
        length = max(min(room, MAX_BAR), 0) * each.usage.total / longest
        drawn = bar * (ceil(length) if each.usage.total else 0)
        padded = key + " " * (width - count_cells(key))
        yield f"  {padded}  {drawn.ljust(max(min(room, MAX_BAR), 0))}  {text}".rstrip()


def _sum_columns(each: UsageSum) -> tuple[str, ...]:
    about = "about " if each.usage.estimated else ""
    cost = "cost unknown" if each.cost is None else format_dollars(each.cost)
    more = f" and {each.unpriced:,} unpriced" if each.cost is not None and each.unpriced else ""
    return (
        pluralize(each.calls, "reply", "replies"),
        f"{about}{pluralize(each.usage.total, 'token')}",
        f"{cost}{more}",
    )


def _draw_bar() -> str:
    return "█" if (sys.stdout.encoding or "").lower().startswith("utf") else "#"


async def _load_or_warn(app: App, summary: Summary) -> StoredConversation | None:
    """Load a conversation; None and a warning if only this one cannot be read."""
    try:
        return await app.store.load(summary.id)
    except (BrokenConversationError, ConversationNotFoundError) as error:
        output.note(f"Warning: {error}")
    except StoreUnavailableError as error:
        # Raises if the whole store is unavailable.
        await app.store.summary(summary.id)
        output.note(f"Warning: conversation '{summary.ref}' is not counted: {error}")
    return None


def _as_json(figures: Figures, ref: str | None) -> dict[str, Any]:
    report = figures.report
    counts = ("conversations", "turns", "answers", "summaries")
    return {
        **({} if ref is None else {"conversation": ref}),
        **{name: getattr(report, name) for name in counts},
        "tokens": msgspec.to_builtins(report.usage),
        "cache": {
            "hit_ratio": report.hit_ratio,
            "missed": report.missed,
            "missed_after_trimming": report.trimmed,
            "expired": report.expired,
        },
        "cost": _amount_as_json(report.cost),
        "saved": _amount_as_json(report.saved),
        "lost": _amount_as_json(report.lost),
        "by_day": [{"day": each.key, **_sum_as_json(each)} for each in figures.days],
        "by_model": [{"model": each.key, **_sum_as_json(each)} for each in figures.models],
    }


def _sum_as_json(each: UsageSum) -> dict[str, Any]:
    return {
        "answers": each.calls,
        "tokens": msgspec.to_builtins(each.usage),
        "dollars": each.cost,
        "unknown_answers": each.unpriced,
    }


def _amount_as_json(amount: Amount) -> dict[str, Any]:
    is_unknown = amount.unknown > 0 and amount.known == 0
    return {
        "dollars": None if is_unknown else amount.dollars,
        "unknown_answers": amount.unknown,
    }
