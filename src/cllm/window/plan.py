"""The view of the log that a strategy gives: where the cut stays, and when it moves.

A remembered cut only moves towards the end. It is at the beginning of a turn or, if the newest turn
alone exceeds the limit, of one of its units, behind the user messages of that turn. Older turns are
whole or absent. Pinned turns before the cut are sent whole, so that roles alternate.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import msgspec

from cllm.core.conversation import StandingSummary
from cllm.core.errors import WindowTooSmallError
from cllm.window.ledger import LedgerItem, Span, TokenLedger
from cllm.window.strategies import ByTokens, ByTurns, Marks, Strategy, Summarise

T = TypeVar("T")


class WindowPlan(msgspec.Struct, frozen=True, kw_only=True):
    """The spans to send, and the cut; `newly_left` turns were in the last view."""

    spans: tuple[Span, ...]
    cut: int
    tokens: int
    sent_messages: int
    left_out_messages: int
    newly_left: int = 0

    def of(self, messages: Sequence[T]) -> tuple[T, ...]:
        return tuple(message for start, stop in self.spans for message in messages[start:stop])


class PinnedTurns:
    def __init__(self, ledger: TokenLedger, sequences: Iterable[int]) -> None:
        positions = (sequence - ledger.first_sequence for sequence in sequences)
        self._ledger = ledger
        self._turns = sorted({ledger.turn_at(p) for p in positions if 0 <= p < len(ledger)})
        self._before = [0]
        for turn in self._turns:
            tokens = ledger.tokens(turn, ledger.turn_end(turn))
            self._before.append(self._before[-1] + tokens)

    def before(self, turn: int) -> Iterator[Span]:
        for pinned in self._turns[: bisect_left(self._turns, turn)]:
            yield pinned, self._ledger.turn_end(pinned)

    def tokens_before(self, turn: int) -> int:
        return self._before[bisect_left(self._turns, turn)]

    def __contains__(self, turn: int) -> bool:
        index = bisect_left(self._turns, turn)
        return index < len(self._turns) and self._turns[index] == turn


def kept_inside(ledger: TokenLedger, cut: int) -> tuple[Span, ...]:
    """Return what is sent of the turn of a cut before the cut."""
    turn = ledger.turn_at(cut)
    if turn == cut:
        return ()
    spoken = ledger.spoken_before(cut)
    kept = (ledger.head(turn),)
    return kept if spoken is None else (*kept, spoken)


def used(ledger: TokenLedger, cut: int, pins: PinnedTurns) -> int:
    """Return the tokens of the view with this cut."""
    turn = ledger.turn_at(cut)
    if cut != turn and turn in pins:
        cut = turn
    inside = sum(ledger.tokens(*span) for span in kept_inside(ledger, cut))
    return pins.tokens_before(turn) + inside + ledger.tokens(cut)


def view_from(ledger: TokenLedger, cut: int, pins: PinnedTurns, *, before: int = 0) -> WindowPlan:
    """Return the view with this cut; `before` is the remembered one."""
    if not len(ledger):
        return WindowPlan(
            spans=(), cut=ledger.first_sequence, tokens=0, sent_messages=0, left_out_messages=0
        )
    turn = ledger.turn_at(cut)
    start = turn if turn in pins else cut
    spans = joined((*pins.before(turn), *kept_inside(ledger, start), (start, len(ledger))))
    sent = sum(stop - start for start, stop in spans)
    gone = _whole_turns_before(ledger, turn, pins)
    return WindowPlan(
        spans=spans,
        cut=ledger.first_sequence + cut,
        tokens=sum(ledger.tokens(*span) for span in spans),
        sent_messages=sent,
        left_out_messages=ledger.first_sequence - 1 + len(ledger) - sent,
        newly_left=gone - _whole_turns_before(ledger, min(turn, ledger.turn_at(before)), pins),
    )


def sent_spans(items: Iterable[LedgerItem], cut: int, pins: Iterable[int]) -> tuple[Span, ...]:
    """Return the spans of a prompt that began at this cut."""
    ledger = TokenLedger(items)
    return view_from(ledger, ledger.cut_at(cut), PinnedTurns(ledger, pins)).spans


def _whole_turns_before(ledger: TokenLedger, turn: int, pins: PinnedTurns) -> int:
    return bisect_left(ledger.turns, turn) - sum(1 for _ in pins.before(turn))


def joined(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Join neighbouring spans and leave out empty ones."""
    found: list[Span] = []
    for start, stop in spans:
        if start == stop:
            continue
        if found and found[-1][1] == start:
            found[-1] = (found[-1][0], stop)
        else:
            found.append((start, stop))
    return tuple(found)


def cut_in_blocks(
    ledger: TokenLedger,
    strategy: ByTokens,
    *,
    limit: int,
    before: int,
    pins: PinnedTurns,
    idle: float = 0.0,
) -> int:
    """Move the cut if the history is too long or moving it is cheap."""
    pinned = pins.tokens_before(ledger.turns[-1])
    marks = strategy.marks(max(0, limit - pinned), ledger.turn_size)
    low = int(marks.low)
    oldest = max(before, ledger.last_turn_with(low))
    dropped = ledger.tokens(before, oldest)
    is_worth_it = dropped > 0 and (
        idle > strategy.prices.lifetime
        or ledger.tokens(before) > marks.high
        or (strategy.floor is not None and dropped >= _worth(ledger, oldest, marks))
    )
    if is_worth_it or used(ledger, before, pins) > limit:
        return cut_to_fit(ledger, oldest, limit=limit, floor=low, pins=pins)
    return before


def _worth(ledger: TokenLedger, cut: int, marks: Marks) -> float:
    """Return how many tokens have to leave to be worth a cut.

    Less than a block after a long new message, which is written to the cache in any case.
    """
    sent_before = max(0, ledger.tokens(cut, ledger.unsent))
    return (marks.high - marks.low) * sent_before / max(1.0, marks.low)


def cut_to_fit(
    ledger: TokenLedger,
    oldest: int,
    *,
    limit: int | None,
    pins: PinnedTurns,
    floor: int | None = None,
) -> int:
    """Return the first border whose view is within the limit."""
    if limit is None or used(ledger, oldest, pins) <= limit:
        return oldest
    turns = ledger.turns
    index = _first_within(ledger, turns, bisect_left(turns, oldest), limit, pins)
    if index < len(turns):
        return turns[index]
    return _inside_newest(ledger, limit, pins, floor=limit if floor is None else floor)


def _first_within(
    ledger: TokenLedger, borders: Sequence[int], first: int, limit: int, pins: PinnedTurns
) -> int:
    """Bisect: a later cut never has a longer view."""
    return bisect_left(borders, -limit, lo=first, key=lambda border: -used(ledger, border, pins))


def _inside_newest(ledger: TokenLedger, limit: int, pins: PinnedTurns, *, floor: int) -> int:
    """Return a cut in the newest turn, which alone is too long."""
    turn = ledger.turns[-1]
    units = ledger.units(turn)
    needed = used(ledger, units[-1] if units else turn, pins)
    if needed > limit:
        raise WindowTooSmallError(needed=needed, available=limit, pinned=pins.tokens_before(turn))
    within = _first_within(ledger, units, 0, limit, pins)
    with_floor = bisect_right(units, -floor, key=lambda unit: -ledger.tokens(unit)) - 1
    return units[max(within, with_floor)]


def plan_window(
    ledger: TokenLedger,
    strategy: Strategy,
    *,
    budget: int | None = None,
    cut: int | None = None,
    pins: Iterable[int] = (),
    idle: float = 0.0,
    summary: StandingSummary | None = None,
) -> WindowPlan:
    """Return the view of the log that is sent next.

    `budget` are the tokens for messages; None is no limit. `cut` is that of the last view; None
    starts again, as for another model. `pins` are numbers of messages whose turns stay. `idle` are
    the seconds since the last call.
    """
    pinned = PinnedTurns(ledger, pins)
    if not len(ledger):
        return view_from(ledger, 0, pinned)
    before = ledger.cut_at(cut)
    chosen = strategy.tokens if isinstance(strategy, Summarise) else strategy
    limit = budget if isinstance(chosen, ByTurns) else chosen.limit(budget)
    if summary is not None:
        before = max(before, ledger.cut_at(summary.through + 1))
    if limit is not None:
        limit = max(0, limit - (0 if summary is None else summary.tokens))
    if isinstance(chosen, ByTurns):
        kept = chosen.max_turns + (not ledger.is_answered)
        oldest = ledger.turns[max(0, len(ledger.turns) - kept)]
        if summary is not None:
            oldest = max(oldest, before)
        position = cut_to_fit(ledger, oldest, limit=limit, pins=pinned)
    elif limit is None:
        position = before
    elif chosen is strategy:
        position = cut_in_blocks(ledger, chosen, limit=limit, before=before, pins=pinned, idle=idle)
    elif used(ledger, before, pinned) > limit:
        # Turns leave without a summary only if there is no room for them.
        position = cut_in_blocks(ledger, chosen, limit=limit, before=before, pins=pinned)
    else:
        position = before
    return view_from(ledger, position, pinned, before=before)
