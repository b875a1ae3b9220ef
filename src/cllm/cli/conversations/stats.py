"""`cllm conversations stats`: usage, cost and cache figures, as lines or JSON."""

import sys
from typing import Any

import click
import msgspec

from cllm.app import App
from cllm.cli import completion, output
from cllm.cli.inputs import HelpCommand, store_options
from cllm.cli.progress import show_progress
from cllm.cli.trust import open_app
from cllm.core.conversation import StoredConversation, Summary
from cllm.core.errors import (
    BrokenConversationError,
    ConversationNotFoundError,
    StoreUnavailableError,
)
from cllm.repl.format import pluralize, report_lines
from cllm.settings.load import CommandLine
from cllm.window.cache_report import Amount, CacheReport, add_conversation, build_cache_report

HELP = """Print the token usage and cost of one conversation, or of all.

The report includes the tokens read from and written to the provider's cache, the cache misses
(tokens that should still have been in the cache but were not), the money that the cache saved and
the cost of the misses. A cost is unknown if the price of the model is unknown."""


@click.command(
    cls=HelpCommand,
    name="stats",
    help=HELP,
    examples=("cllm conversations stats", "cllm conversations stats cats --json"),
)
@completion.optional_ref_argument
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
@store_options
def command(line: CommandLine, *, ref: str | None, as_json: bool) -> None:
    app = open_app(line)
    report = app.run(_build_report(app, ref))
    if as_json:
        output.print_exactly(msgspec.json.encode(_as_json(report, ref)).decode())
        return
    subject = f"Conversation {ref}" if ref else pluralize(report.conversations, "conversation")
    output.print_line(f"{subject}: {pluralize(report.turns, 'turn')}")
    for text in report_lines(report):
        output.print_line(text)


async def _build_report(app: App, ref: str | None) -> CacheReport:
    """The report of one conversation, or of all, including archived and side conversations."""
    price = app.prices.price_turn
    if ref is not None:
        return build_cache_report([await app.store.load(ref)], price)
    page = await app.store.list_conversations(archive_filter="all", side=True, limit=sys.maxsize)
    for notice in page.notices:
        output.warn(notice)
    report = CacheReport()
    seen: set[str] = set()
    for summary in show_progress(page.items, "Reading conversations", total=len(page.items)):
        conversation = await _load_or_warn(app, summary)
        if conversation is not None:
            report = add_conversation(report, conversation, price, seen=seen)
    return report


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


def _as_json(report: CacheReport, ref: str | None) -> dict[str, Any]:
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
    }


def _amount_as_json(amount: Amount) -> dict[str, Any]:
    is_unknown = amount.unknown > 0 and amount.known == 0
    return {
        "dollars": None if is_unknown else amount.dollars,
        "unknown_answers": amount.unknown,
    }
