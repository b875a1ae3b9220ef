"""Which view a strategy gives: where the cut stays, and when it moves.

The same log, budget, cut and pins give the same view. A remembered cut only moves towards the end.
"""

from collections.abc import Iterable
from typing import assert_never

from cllm.assembly.window.cut import cut_in_blocks, cut_to_fit
from cllm.assembly.window.ledger import Ledger
from cllm.assembly.window.strategy import ByTokens, ByTurns, Strategy, Summarise
from cllm.assembly.window.view import Pins, View, used, view_from
from cllm.core.conversation import StandingSummary


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
    taken = 0
    if summary is not None:
        before, taken = max(before, ledger.cut_at(summary.through + 1)), summary.tokens
    if not len(ledger):
        return view_from(ledger, 0, pinned)
    match strategy:
        case ByTurns(max_turns=most):
            kept = most + (not ledger.is_answered)
            oldest = ledger.turns[max(0, len(ledger.turns) - kept)]
            if summary is not None:
                oldest = max(oldest, before)
            position = cut_to_fit(ledger, oldest, limit=_left(budget, taken), pins=pinned)
        case ByTokens():
            limit = _left(strategy.limit(budget), taken)
            position = _by_tokens(ledger, strategy, limit, before, pins=pinned, idle=idle)
        case Summarise(tokens=tokens):
            limit = _left(tokens.limit(budget), taken)
            position = _unsummarised(ledger, tokens, limit, before, pins=pinned)
        case _:
            assert_never(strategy)
    return view_from(ledger, position, pinned, before=before)


def _left(limit: int | None, taken: int) -> int | None:
    return None if limit is None else max(0, limit - taken)


def _by_tokens(
    ledger: Ledger, strategy: ByTokens, limit: int | None, before: int, *, pins: Pins, idle: float
) -> int:
    if limit is None:
        return before
    return cut_in_blocks(ledger, strategy, limit=limit, before=before, pins=pins, idle=idle)


def _unsummarised(
    ledger: Ledger, strategy: ByTokens, limit: int | None, before: int, *, pins: Pins
) -> int:
    """Turns leave without a summary only where there is no room for them."""
    if limit is None or used(ledger, before, pins) <= limit:
        return before
    return cut_in_blocks(ledger, strategy, limit=limit, before=before, pins=pins)
