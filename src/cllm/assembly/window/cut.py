"""Where a cut goes: to a border of the log with which the view is within its limit.

Everything is found by bisection. A cut is at the beginning of a turn, or, if the newest turn alone
is over the limit, at the beginning of one of its units.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Sequence

from cllm.assembly.window.ledger import Ledger
from cllm.assembly.window.strategy import ByTokens, Marks
from cllm.assembly.window.view import Pins, used
from cllm.core.errors import WindowTooSmallError


def cut_in_blocks(
    ledger: Ledger, strategy: ByTokens, *, limit: int, before: int, pins: Pins, idle: float = 0.0
) -> int:
    """The cut as it was, until the history is over the high mark, or to drop some is cheap."""
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


def _worth(ledger: Ledger, cut: int, marks: Marks) -> float:
    """How much has to leave to be worth a cut.

    A whole block is, where all that stays has to be written anew. What was never sent is written
    in any case, so that after a long new message a smaller block is worth it too.
    """
    sent_before = max(0, ledger.tokens(cut, ledger.unsent))
    return (marks.high - marks.low) * sent_before / max(1.0, marks.low)


def cut_to_fit(
    ledger: Ledger, oldest: int, *, limit: int | None, pins: Pins, floor: int | None = None
) -> int:
    """The first border from a position on with which the view is within the limit."""
    if limit is None or used(ledger, oldest, pins) <= limit:
        return oldest
    turns = ledger.turns
    index = _first_within(ledger, turns, bisect_left(turns, oldest), limit, pins)
    if index < len(turns):
        return turns[index]
    return _inside_newest(ledger, limit, pins, floor=limit if floor is None else floor)


def _first_within(
    ledger: Ledger, borders: Sequence[int], first: int, limit: int, pins: Pins
) -> int:
    """By bisection: what a view comes to never grows as its cut moves on."""
    return bisect_left(borders, -limit, lo=first, key=lambda border: -used(ledger, border, pins))


def _inside_newest(ledger: Ledger, limit: int, pins: Pins, *, floor: int) -> int:
    """A cut in the newest turn, which is over the limit alone; its last unit stays."""
    turn = ledger.turns[-1]
    units = ledger.units(turn)
    needed = used(ledger, units[-1] if units else turn, pins)
    if needed > limit:
        raise WindowTooSmallError(needed=needed, available=limit, pinned=pins.tokens_before(turn))
    within = _first_within(ledger, units, 0, limit, pins)
    with_floor = bisect_right(units, -floor, key=lambda unit: -ledger.tokens(unit)) - 1
    return units[max(within, with_floor)]
