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
from cllm.window.plan import PinnedTurns, find_partial_turn, merge_spans, trim_in_blocks
from cllm.window.strategies import Summarise
from cllm.window.turn_index import Span, TurnIndex

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
    turn_index: TurnIndex,
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
    if limit is None or not len(turn_index):
        return ()
    pinned = PinnedTurns(turn_index, pins)
    taken = 0 if summary is None else summary.tokens
    begin = 0 if summary is None else turn_index.find_start(summary.through + 1)
    if keep_turns is None:
        room = max(0, limit - taken)
        window_start = trim_in_blocks(
            turn_index, strategy.tokens, limit=room, before=begin, pins=pinned
        )
        end = turn_index.turn_start(window_start)
    else:
        end = turn_index.turns[max(0, len(turn_index.turns) - keep_turns)]
    if end <= begin:
        return ()
    room = limit - strategy.summary_tokens - INSTRUCTION_TOKENS
    ahead = tuple(pinned.before(turn_index.turn_start(begin)))
    first = room - taken - sum(turn_index.tokens(*span) for span in ahead)
    chunk = _chunk(turn_index, begin, end, room=first, most=limit, ahead=ahead)
    chunks = [chunk]
    while (start := chunk.through + 1 - turn_index.first_sequence) < end:
        chunk = _chunk(turn_index, start, end, room=room - strategy.summary_tokens, most=limit)
        chunks.append(chunk)
    return tuple(chunks)


def _chunk(
    turn_index: TurnIndex,
    start: int,
    end: int,
    *,
    room: int,
    most: int,
    ahead: tuple[Span, ...] = (),
) -> SummaryChunk:
    """Return a chunk of as many whole turns as fit, or units of a turn that is too long."""
    inside = find_partial_turn(turn_index, start)
    left = room - sum(turn_index.tokens(*span) for span in inside)
    turn_end = turn_index.turn_end(start)
    for borders in (turn_index.turns, [*turn_index.units(turn_index.turn_start(start)), turn_end]):
        after = borders[bisect_right(borders, start) : bisect_right(borders, end)]
        fitting = bisect_right(after, left, key=lambda stop: turn_index.tokens(start, stop))
        if fitting:
            return _chunk_to(turn_index, start, after[fitting - 1], (*ahead, *inside))
    needed = room - left + turn_index.tokens(start, after[0])
    if needed > most:
        raise WindowTooSmallError(needed=needed, available=max(0, room))
    return _chunk_to(turn_index, start, after[0], inside)


def _chunk_to(
    turn_index: TurnIndex, start: int, stop: int, before: tuple[Span, ...]
) -> SummaryChunk:
    spans = merge_spans((*before, (start, stop)))
    return SummaryChunk(spans=spans, through=turn_index.first_sequence + stop - 1)


def build_summary_messages(text: str) -> tuple[Message, ...]:
    """Return the two messages of a summary in a prompt."""
    summary = plain_message("user", f"{INTRODUCTION}\n\n{text}")
    return summary, plain_message("assistant", ACKNOWLEDGED)


def build_summary_request(
    chunk: SummaryChunk,
    messages: Sequence[Message],
    summary: StandingSummary | None,
    *,
    words: int,
) -> tuple[Message, ...]:
    ahead = () if summary is None else build_summary_messages(summary.text)
    kept = tuple(message for start, stop in chunk.spans for message in messages[start:stop])
    return (*ahead, *kept, plain_message("user", f"{INSTRUCTION}, in at most {words} words."))
