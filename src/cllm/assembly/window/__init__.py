"""What of a conversation is sent: strategies choose, and the log stays whole.

A window is a view of an append-only log and a remembered cut. It never edits a message, never
reorders any, and does no I/O.
"""

from cllm.assembly.window.counting import Counted, Report, count_messages
from cllm.assembly.window.item import Item, item_of
from cllm.assembly.window.ledger import Ledger
from cllm.assembly.window.plan import plan_window
from cllm.assembly.window.price import CachePrices, prices_for
from cllm.assembly.window.strategy import ByTokens, ByTurns, Strategy, Summarise
from cllm.assembly.window.summary import (
    SummaryChunk,
    plan_summary,
    summary_request,
    summary_turn,
)
from cllm.assembly.window.view import View, sent_spans

__all__ = [
    "ByTokens",
    "ByTurns",
    "CachePrices",
    "Counted",
    "Item",
    "Ledger",
    "Report",
    "Strategy",
    "Summarise",
    "SummaryChunk",
    "View",
    "count_messages",
    "item_of",
    "plan_summary",
    "plan_window",
    "prices_for",
    "sent_spans",
    "summary_request",
    "summary_turn",
]
