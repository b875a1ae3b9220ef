"""Which view a strategy gives: where the cut stays, and when it moves.

The same log, budget, cut and pins give the same view. A cut only moves towards the end.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import assert_never

from cllm.assembly.window.ledger import Ledger
from cllm.assembly.window.strategy import ByTokens, ByTurns, Strategy, Summarise
from cllm.assembly.window.summary import StandingSummary
from cllm.assembly.window.view import Pins, View, used, view_from
from cllm.core.errors import WindowTooSmallError


def plan_window(
    ledger: Ledger,
    strategy: Strategy,
    *,
    budget: int | None = None,
    cut: int | None = None,
    pins: Iterable[int] = (),
    idle: float = 0.0,
    summary: StandingSummary | None = None,
) -> View:
    """What of the log is sent next.

    `budget` is what the model takes beside the system prompt, the tools, this turn's context and
    room for the answer; None is no limit. `cut` is the sequence number that the last view
    remembered; None begins anew, as for another model. `pins` are sequence numbers of messages
    whose turns stay. `idle` are the seconds since the model was last asked. What a `summary` covers
    is not sent, and the summary takes its place in the budget.
    """
    pinned = Pins(ledger, pins)
    before = ledger.cut_at(cut)
    if not len(ledger):
        return view_from(ledger, 0, pinned)
    match strategy:
        case ByTurns(max_turns=most):
            kept = most + (not ledger.is_answered)
            oldest = ledger.turns[max(0, len(ledger.turns) - kept)]
            position = _fitting(ledger, oldest, budget, pinned)
        case ByTokens():
            position = _in_blocks(ledger, strategy, budget, before, pinned, idle)
        case Summarise(tokens=tokens):
            if summary is not None:
                before = max(before, ledger.cut_at(summary.through + 1))
                budget = _less(budget, tokens.max_tokens, summary.tokens)
            position = _in_blocks(ledger, tokens, budget, before, pinned, idle)
        case _:
            assert_never(strategy)
    return view_from(ledger, position, pinned, before=before)


def limit_of(strategy: ByTokens, budget: int | None) -> int | None:
    """The tokens that a view may have."""
    given = [most for most in (strategy.max_tokens, budget) if most is not None]
    return min(given) if given else None


def _less(budget: int | None, most: int | None, taken: int) -> int | None:
    given = [limit for limit in (budget, most) if limit is not None]
    return max(0, min(given) - taken) if given else None


def _in_blocks(
    ledger: Ledger,
    strategy: ByTokens,
    budget: int | None,
    before: int,
    pins: Pins,
    idle: float,
) -> int:
    limit = limit_of(strategy, budget)
    if limit is None:
        return before
    pinned = pins.tokens_before(ledger.turns[-1])
    marks = strategy.marks(max(0, limit - pinned), ledger.turn_size)
    rest = ledger.tokens(before)
    is_over = rest > marks.high or used(ledger, before, pins) > limit
    is_free = idle > strategy.prices.lifetime and rest > marks.low
    if not (is_over or is_free):
        return before
    low = max(before, ledger.last_turn_with(int(marks.low)))
    return _fitting(ledger, low, limit, pins, floor=int(marks.low))


def _fitting(
    ledger: Ledger, oldest: int, limit: int | None, pins: Pins, *, floor: int | None = None
) -> int:
    """The first border from a position on with which the view is within the limit."""
    if limit is None or used(ledger, oldest, pins) <= limit:
        return oldest
    turns = ledger.turns
    first = bisect_left(turns, oldest)
    index = _first_within(ledger, turns, first, limit, pins)
    if index < len(turns):
        return turns[index]
    return _inside_newest(ledger, limit, pins, floor=limit if floor is None else floor)


def _first_within(
    ledger: Ledger, borders: Sequence[int], first: int, limit: int, pins: Pins
) -> int:
    """By bisection: what a view comes to never grows as its cut moves on."""
    return bisect_left(
        borders, -limit, lo=first, key=lambda border: -used(ledger, border, pins)
    )


def _inside_newest(ledger: Ledger, limit: int, pins: Pins, *, floor: int) -> int:
    """A cut in the newest turn, which is over the limit alone: its open unit stays."""
    turn = ledger.turns[-1]
    units = ledger.units(turn)
    last = units[-1] if units else turn
    needed = used(ledger, last, pins)
    if needed > limit:
        raise WindowTooSmallError(
            needed=needed, available=limit, pinned=pins.tokens_before(turn)
        )
    index = _first_within(ledger, units, 0, limit, pins)
    from_floor = bisect_left(units, -floor, key=lambda unit: -ledger.tokens(unit)) 
    return units[max(index, min(from_floor - 1, len(units) - 1))]
