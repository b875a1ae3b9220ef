"""Summaries: which turns one covers, in which chunks, and its messages in a prompt.

Chunks are requested one after another, each after the summary so far. The first request is a prefix
of the last prompt, which is in the provider's cache, and one instruction.
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
    """Return the chunks to request before the next prompt; none while the history fits.

    An expired cache is no reason for a summary, which costs more than it saves. With `keep_turns`,
    all turns but the newest `keep_turns` are summarised.
    """
    limit = strategy.tokens.limit(budget)
    if limit is None and keep_turns is not None:
        limit = UNLIMITED
    if limit is None or not len(turn_index):
        return ()
    pinned = PinnedTurns(turn_index, pins)
    summary_tokens = 0 if summary is None else summary.tokens
    start = 0 if summary is None else turn_index.find_start(summary.through + 1)
    if keep_turns is None:
        room = max(0, limit - summary_tokens)
        window_start = trim_in_blocks(
            turn_index, strategy.tokens, limit=room, last_start=start, pins=pinned
        )
        end = turn_index.turn_start(window_start)
    else:
        end = turn_index.turns[max(0, len(turn_index.turns) - keep_turns)]
    if end <= start:
        return ()
    room = limit - strategy.summary_tokens - INSTRUCTION_TOKENS
    pinned_spans = tuple(pinned.spans_before(turn_index.turn_start(start)))
    first = room - summary_tokens - sum(turn_index.tokens(*span) for span in pinned_spans)
    chunk = _plan_chunk(turn_index, start, end, room=first, limit=limit, pinned=pinned_spans)
    chunks = [chunk]
    while (start := chunk.through + 1 - turn_index.first_sequence) < end:
        chunk = _plan_chunk(
            turn_index, start, end, room=room - strategy.summary_tokens, limit=limit
        )
        chunks.append(chunk)
    return tuple(chunks)


def _plan_chunk(
    turn_index: TurnIndex,
    start: int,
    end: int,
    *,
    room: int,
    limit: int,
    pinned: tuple[Span, ...] = (),
) -> SummaryChunk:
    """Return a chunk of as many whole turns as fit, or units of a turn that is too long."""
    partial = find_partial_turn(turn_index, start)
    available = room - sum(turn_index.tokens(*span) for span in partial)
    turn_end = turn_index.turn_end(start)
    for starts in (turn_index.turns, [*turn_index.units(turn_index.turn_start(start)), turn_end]):
        ends = starts[bisect_right(starts, start) : bisect_right(starts, end)]
        fitting = bisect_right(ends, available, key=lambda stop: turn_index.tokens(start, stop))
        if fitting:
            return _make_chunk(turn_index, start, ends[fitting - 1], (*pinned, *partial))
    needed = room - available + turn_index.tokens(start, ends[0])
    if needed > limit:
        raise WindowTooSmallError(needed=needed, available=max(0, room))
    return _make_chunk(turn_index, start, ends[0], partial)


def _make_chunk(
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
    earlier = () if summary is None else build_summary_messages(summary.text)
    covered = tuple(message for start, stop in chunk.spans for message in messages[start:stop])
    return (*earlier, *covered, plain_message("user", f"{INSTRUCTION}, in at most {words} words."))
