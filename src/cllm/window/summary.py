"""Summaries: which turns go into one, in which pieces, and its messages in a prompt.

Pieces are requested one after another, each behind the summary so far. The first request is a
prefix of the last prompt, which the provider's cache has, and one instruction.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence

import msgspec

from cllm.core.conversation import StandingSummary
from cllm.core.errors import WindowTooSmallError
from cllm.core.message import Message, plain_message
from cllm.window.ledger import Span, TokenLedger
from cllm.window.plan import PinnedTurns, cut_in_blocks, joined, kept_inside
from cllm.window.strategies import Summarise

INSTRUCTION = (
    "Summarise our conversation up to here, so that you can go on with it when you have only the "
    "summary: what I want, what was found, decided and done, names, numbers and ids exactly, and "
    "what is still open. Keep what an earlier summary says. Answer with the summary alone"
)
INTRODUCTION = "Summary of the conversation until here:"
ACKNOWLEDGED = "Understood."
INSTRUCTION_TOKENS = 120
"""Upper bound for the instruction and the text around a summary."""
UNLIMITED = 10**12
"""Tokens. Without a known limit, one request is enough."""


class SummaryChunk(msgspec.Struct, frozen=True, kw_only=True):
    """The messages of one request, through a sequence number."""

    spans: tuple[Span, ...]
    through: int


def plan_summary(
    ledger: TokenLedger,
    strategy: Summarise,
    *,
    budget: int | None = None,
    pins: Iterable[int] = (),
    summary: StandingSummary | None = None,
    keep_turns: int | None = None,
) -> tuple[SummaryChunk, ...]:
    """Return the requests to make before the next prompt; none while all fits.

    A cold cache is no reason: a summary costs more than it saves. With `keep_turns`, all turns but
    the newest are summarised.
    """
    limit = strategy.tokens.limit(budget)
    if limit is None and keep_turns is not None:
        limit = UNLIMITED
    if limit is None or not len(ledger):
        return ()
    pinned = PinnedTurns(ledger, pins)
    taken = 0 if summary is None else summary.tokens
    begin = 0 if summary is None else ledger.cut_at(summary.through + 1)
    if keep_turns is None:
        room = max(0, limit - taken)
        cut = cut_in_blocks(ledger, strategy.tokens, limit=room, before=begin, pins=pinned)
        end = ledger.turn_at(cut)
    else:
        end = ledger.turns[max(0, len(ledger.turns) - keep_turns)]
    if end <= begin:
        return ()
    room = limit - strategy.summary_tokens - INSTRUCTION_TOKENS
    ahead = tuple(pinned.before(ledger.turn_at(begin)))
    first = room - taken - sum(ledger.tokens(*span) for span in ahead)
    chunk = _chunk(ledger, begin, end, room=first, most=limit, ahead=ahead)
    chunks = [chunk]
    while (start := chunk.through + 1 - ledger.first_sequence) < end:
        chunk = _chunk(ledger, start, end, room=room - strategy.summary_tokens, most=limit)
        chunks.append(chunk)
    return tuple(chunks)


def _chunk(
    ledger: TokenLedger, start: int, end: int, *, room: int, most: int, ahead: tuple[Span, ...] = ()
) -> SummaryChunk:
    """Return a chunk of as many whole turns as fit, or units of a turn that is too long."""
    inside = kept_inside(ledger, start)
    left = room - sum(ledger.tokens(*span) for span in inside)
    turn_end = ledger.turn_end(start)
    for borders in (ledger.turns, [*ledger.units(ledger.turn_at(start)), turn_end]):
        after = borders[bisect_right(borders, start) : bisect_right(borders, end)]
        fitting = bisect_right(after, left, key=lambda stop: ledger.tokens(start, stop))
        if fitting:
            return _chunk_to(ledger, start, after[fitting - 1], (*ahead, *inside))
    needed = room - left + ledger.tokens(start, after[0])
    if needed > most:
        raise WindowTooSmallError(needed=needed, available=max(0, room))
    return _chunk_to(ledger, start, after[0], inside)


def _chunk_to(ledger: TokenLedger, start: int, stop: int, before: tuple[Span, ...]) -> SummaryChunk:
    spans = joined((*before, (start, stop)))
    return SummaryChunk(spans=spans, through=ledger.first_sequence + stop - 1)


def summary_turn(text: str) -> tuple[Message, ...]:
    """Return the two messages of a summary in a prompt."""
    summary = plain_message("user", f"{INTRODUCTION}\n\n{text}")
    return summary, plain_message("assistant", ACKNOWLEDGED)


def summary_request(
    chunk: SummaryChunk,
    messages: Sequence[Message],
    summary: StandingSummary | None,
    *,
    words: int,
) -> tuple[Message, ...]:
    ahead = () if summary is None else summary_turn(summary.text)
    kept = tuple(message for start, stop in chunk.spans for message in messages[start:stop])
    return (*ahead, *kept, plain_message("user", f"{INSTRUCTION}, in at most {words} words."))
