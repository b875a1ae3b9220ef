"""The part of a history that a strategy sends: where the window starts, and when that moves.

The remembered start only moves towards the end. It is the start of a turn or, if the newest turn
alone exceeds the limit, of one of its units, after the user messages of that turn. Older turns are
whole or absent. Pinned turns before the start are sent whole, so that roles alternate.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import msgspec

from cllm.core.conversation import StandingSummary
from cllm.core.errors import WindowTooSmallError
from cllm.window.strategies import ByTokens, ByTurns, Marks, Strategy, Summarise
from cllm.window.turn_index import IndexedMessage, Span, TurnIndex

T = TypeVar("T")


class WindowPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The spans to send; `dropped_turns` counts those dropped since the last window."""

    spans: tuple[Span, ...]
    window_start: int
    tokens: int
    sent_messages: int
    left_out_messages: int
    dropped_turns: int = 0

    def select(self, messages: Sequence[T]) -> tuple[T, ...]:
        return tuple(message for start, stop in self.spans for message in messages[start:stop])


class PinnedTurns:
    def __init__(self, turn_index: TurnIndex, sequences: Iterable[int]) -> None:
        positions = (sequence - turn_index.first_sequence for sequence in sequences)
        self._turn_index = turn_index
        self._turns = sorted(
            {turn_index.turn_start(p) for p in positions if 0 <= p < len(turn_index)}
        )
        self._tokens_before = [0]
        for turn in self._turns:
            tokens = turn_index.tokens(turn, turn_index.turn_end(turn))
            self._tokens_before.append(self._tokens_before[-1] + tokens)

    def spans_before(self, turn: int) -> Iterator[Span]:
        for pinned in self._turns[: bisect_left(self._turns, turn)]:
            yield pinned, self._turn_index.turn_end(pinned)

    def tokens_before(self, turn: int) -> int:
        return self._tokens_before[bisect_left(self._turns, turn)]

    def __contains__(self, turn: int) -> bool:
        index = bisect_left(self._turns, turn)
        return index < len(self._turns) and self._turns[index] == turn


def find_partial_turn(turn_index: TurnIndex, window_start: int) -> tuple[Span, ...]:
    """Return what is sent before a start inside a turn: its user messages."""
    turn = turn_index.turn_start(window_start)
    if turn == window_start:
        return ()
    user_run = turn_index.user_run(turn)
    unit = turn_index.user_text_unit_before(window_start)
    return (user_run,) if unit is None else (user_run, unit)


def count_window_tokens(turn_index: TurnIndex, window_start: int, pins: PinnedTurns) -> int:
    turn = turn_index.turn_start(window_start)
    if window_start != turn and turn in pins:
        window_start = turn
    partial = sum(turn_index.tokens(*span) for span in find_partial_turn(turn_index, window_start))
    return pins.tokens_before(turn) + partial + turn_index.tokens(window_start)


def build_plan(
    turn_index: TurnIndex, window_start: int, pins: PinnedTurns, *, last_start: int = 0
) -> WindowPlan:
    """Return the window with this start; `last_start` is the start of the last window."""
    if not len(turn_index):
        return WindowPlan(
            spans=(),
            window_start=turn_index.first_sequence,
            tokens=0,
            sent_messages=0,
            left_out_messages=0,
        )
    turn = turn_index.turn_start(window_start)
    start = turn if turn in pins else window_start
    spans = merge_spans(
        (*pins.spans_before(turn), *find_partial_turn(turn_index, start), (start, len(turn_index)))
    )
    sent = sum(stop - start for start, stop in spans)
    dropped = _count_dropped_turns(turn_index, turn, pins)
    return WindowPlan(
        spans=spans,
        window_start=turn_index.first_sequence + window_start,
        tokens=sum(turn_index.tokens(*span) for span in spans),
        sent_messages=sent,
        left_out_messages=turn_index.first_sequence - 1 + len(turn_index) - sent,
        dropped_turns=dropped
        - _count_dropped_turns(turn_index, min(turn, turn_index.turn_start(last_start)), pins),
    )


def find_sent_spans(
    items: Iterable[IndexedMessage], window_start: int, pins: Iterable[int]
) -> tuple[Span, ...]:
    """Return the spans of a prompt whose window started here."""
    turn_index = TurnIndex(items)
    return build_plan(
        turn_index, turn_index.find_start(window_start), PinnedTurns(turn_index, pins)
    ).spans


def _count_dropped_turns(turn_index: TurnIndex, turn: int, pins: PinnedTurns) -> int:
    return bisect_left(turn_index.turns, turn) - sum(1 for _ in pins.spans_before(turn))


def merge_spans(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Merge adjacent spans and remove empty ones."""
    merged: list[Span] = []
    for start, stop in spans:
        if start == stop:
            continue
        if merged and merged[-1][1] == start:
            merged[-1] = (merged[-1][0], stop)
        else:
            merged.append((start, stop))
    return tuple(merged)


def trim_in_blocks(
    turn_index: TurnIndex,
    strategy: ByTokens,
    *,
    limit: int,
    last_start: int,
    pins: PinnedTurns,
    idle: float = 0.0,
) -> int:
    """Move the window start if the history is too long or moving it is cheap."""
    pinned = pins.tokens_before(turn_index.turns[-1])
    marks = strategy.marks(max(0, limit - pinned), turn_index.turn_size)
    low = int(marks.low)
    oldest = max(last_start, turn_index.last_turn_with(low))
    dropped = turn_index.tokens(last_start, oldest)
    is_worth_it = dropped > 0 and (
        idle > strategy.prices.lifetime
        or turn_index.tokens(last_start) > marks.high
        or (
            strategy.floor is not None and dropped >= _min_dropped_tokens(turn_index, oldest, marks)
        )
    )
    if is_worth_it or count_window_tokens(turn_index, last_start, pins) > limit:
        return trim_to_fit(turn_index, oldest, limit=limit, floor=low, pins=pins)
    return last_start


def _min_dropped_tokens(turn_index: TurnIndex, window_start: int, marks: Marks) -> float:
    """Return how many tokens must be dropped to make moving the start worthwhile.

    That is less than a block after a long new message, which is written to the cache anyway.
    """
    sent_before = max(0, turn_index.tokens(window_start, turn_index.last_unit))
    return (marks.high - marks.low) * sent_before / max(1.0, marks.low)


def trim_to_fit(
    turn_index: TurnIndex,
    oldest: int,
    *,
    limit: int | None,
    pins: PinnedTurns,
    floor: int | None = None,
) -> int:
    """Return the first start whose window is within the limit."""
    if limit is None or count_window_tokens(turn_index, oldest, pins) <= limit:
        return oldest
    turns = turn_index.turns
    index = _find_first_fitting(turn_index, turns, bisect_left(turns, oldest), limit, pins)
    if index < len(turns):
        return turns[index]
    return _find_start_in_newest_turn(
        turn_index, limit, pins, floor=limit if floor is None else floor
    )


def _find_first_fitting(
    turn_index: TurnIndex, starts: Sequence[int], first: int, limit: int, pins: PinnedTurns
) -> int:
    """Bisect: a later start never has a longer window."""
    return bisect_left(
        starts, -limit, lo=first, key=lambda start: -count_window_tokens(turn_index, start, pins)
    )


def _find_start_in_newest_turn(
    turn_index: TurnIndex, limit: int, pins: PinnedTurns, *, floor: int
) -> int:
    """Return a start in the newest turn, which alone exceeds the limit."""
    turn = turn_index.turns[-1]
    units = turn_index.units(turn)
    shortest = units[-1] if units else turn
    needed = count_window_tokens(turn_index, shortest, pins)
    if needed > limit:
        # Messages that probably fit are not refused, so the margin does not count.
        spans = (*find_partial_turn(turn_index, shortest), (shortest, len(turn_index)))
        needed -= sum(turn_index.margin(*span) for span in spans)
        if needed <= limit:
            return shortest
        raise WindowTooSmallError(needed=needed, available=limit, pinned=pins.tokens_before(turn))
    fitting = _find_first_fitting(turn_index, units, 0, limit, pins)
    with_floor = bisect_right(units, -floor, key=lambda unit: -turn_index.tokens(unit)) - 1
    return units[max(fitting, with_floor)]


def plan_window(
    turn_index: TurnIndex,
    strategy: Strategy,
    *,
    budget: int | None = None,
    window_start: int | None = None,
    pins: Iterable[int] = (),
    idle: float = 0.0,
    summary: StandingSummary | None = None,
) -> WindowPlan:
    """Return the part of the history that is sent next.

    `budget`: tokens for messages; None is no limit. `window_start` of the last window; None starts
    anew, as for another model. `pins`: numbers of messages whose turns stay. `idle`: seconds since
    the last call.
    """
    pinned = PinnedTurns(turn_index, pins)
    if not len(turn_index):
        return build_plan(turn_index, 0, pinned)
    last_start = turn_index.find_start(window_start)
    chosen = strategy.tokens if isinstance(strategy, Summarise) else strategy
    limit = budget if isinstance(chosen, ByTurns) else chosen.limit(budget)
    if summary is not None:
        last_start = max(last_start, turn_index.find_start(summary.through + 1))
    if limit is not None:
        limit = max(0, limit - (0 if summary is None else summary.tokens))
    if isinstance(chosen, ByTurns):
        count = chosen.max_turns + (not turn_index.is_answered)
        oldest = turn_index.turns[max(0, len(turn_index.turns) - count)]
        if summary is not None:
            oldest = max(oldest, last_start)
        position = trim_to_fit(turn_index, oldest, limit=limit, pins=pinned)
    elif limit is None:
        position = last_start
    elif chosen is strategy:
        position = trim_in_blocks(
            turn_index, chosen, limit=limit, last_start=last_start, pins=pinned, idle=idle
        )
    elif count_window_tokens(turn_index, last_start, pinned) > limit:
        # Turns are dropped without a summary only if they do not fit.
        position = trim_in_blocks(
            turn_index, chosen, limit=limit, last_start=last_start, pins=pinned
        )
    else:
        position = last_start
    return build_plan(turn_index, position, pinned, last_start=last_start)
