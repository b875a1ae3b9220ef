"""A view of the log: what of it is sent, for a cut and for pins.

Older turns are whole or absent. In the turn that the cut is in, its user's messages stand first and
the units from the cut on follow; that turn was too long to be sent whole. Pinned turns before the
cut come back whole, each from the user's words to the answer, so that roles go on alternating.
"""

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import TypeVar

import msgspec

from cllm.assembly.window.item import Item
from cllm.assembly.window.ledger import Ledger

T = TypeVar("T")
Span = tuple[int, int]


class View(msgspec.Struct, frozen=True, kw_only=True):
    """What is sent: spans of positions, and the cut, to be remembered by its sequence number.

    `tokens` leaves out the system prompt and whatever else stands beside the messages. `left_turns`
    are those of which nothing is sent, and `newly_left` those of them that were sent until now.
    """

    spans: tuple[Span, ...]
    cut: int
    tokens: int
    sent_messages: int
    left_out_messages: int
    left_turns: int = 0
    newly_left: int = 0

    def of(self, messages: Sequence[T]) -> tuple[T, ...]:
        """The messages of the log that are in the view."""
        return tuple(message for start, stop in self.spans for message in messages[start:stop])


class Pins:
    """The pinned turns of a log, and what they come to before a cut."""

    def __init__(self, ledger: Ledger, sequences: Iterable[int]) -> None:
        positions = (sequence - ledger.first_sequence for sequence in sequences)
        self._ledger = ledger
        self._turns = sorted({ledger.turn_at(p) for p in positions if 0 <= p < len(ledger)})
        self._before = [0]
        for turn in self._turns:
            tokens = ledger.tokens(turn, ledger.turn_end(turn))
            self._before.append(self._before[-1] + tokens)

    def before(self, turn: int) -> Iterator[Span]:
        """The pinned turns that begin before another one does."""
        for pinned in self._turns[: bisect_left(self._turns, turn)]:
            yield pinned, self._ledger.turn_end(pinned)

    def tokens_before(self, turn: int) -> int:
        return self._before[bisect_left(self._turns, turn)]

    def __contains__(self, turn: int) -> bool:
        index = bisect_left(self._turns, turn)
        return index < len(self._turns) and self._turns[index] == turn


def kept_inside(ledger: Ledger, cut: int) -> tuple[Span, ...]:
    """What stays of the turn that a cut is in, before the cut."""
    turn = ledger.turn_at(cut)
    if turn == cut:
        return ()
    spoken = ledger.spoken_before(cut)
    kept = (ledger.head(turn),)
    return kept if spoken is None else (*kept, spoken)


def used(ledger: Ledger, cut: int, pins: Pins) -> int:
    """What a view with this cut comes to."""
    turn = ledger.turn_at(cut)
    if cut != turn and turn in pins:
        cut = turn
    inside = sum(ledger.tokens(*span) for span in kept_inside(ledger, cut))
    return pins.tokens_before(turn) + inside + ledger.tokens(cut)


def view_from(ledger: Ledger, cut: int, pins: Pins, *, before: int = 0) -> View:
    """The view with this cut; `before` is the one that was remembered."""
    if not len(ledger):
        return View(
            spans=(), cut=ledger.first_sequence, tokens=0, sent_messages=0, left_out_messages=0
        )
    turn = ledger.turn_at(cut)
    start = turn if turn in pins else cut
    spans = joined((*pins.before(turn), *kept_inside(ledger, start), (start, len(ledger))))
    sent = sum(stop - start for start, stop in spans)
    gone = _whole_turns_before(ledger, turn, pins)
    return View(
        spans=spans,
        cut=ledger.first_sequence + cut,
        tokens=sum(ledger.tokens(*span) for span in spans),
        sent_messages=sent,
        left_out_messages=ledger.first_sequence - 1 + len(ledger) - sent,
        left_turns=gone,
        newly_left=gone - _whole_turns_before(ledger, min(turn, ledger.turn_at(before)), pins),
    )


def sent_spans(items: Iterable[Item], cut: int, pins: Iterable[int]) -> tuple[Span, ...]:
    """What of these messages a prompt had that began at this cut, with these pins."""
    ledger = Ledger(items)
    return view_from(ledger, ledger.cut_at(cut), Pins(ledger, pins)).spans


def _whole_turns_before(ledger: Ledger, turn: int, pins: Pins) -> int:
    return bisect_left(ledger.turns, turn) - sum(1 for _ in pins.before(turn))


def joined(spans: Iterable[Span]) -> tuple[Span, ...]:
    """Spans in order, neighbours as one and empty ones left out."""
    found: list[Span] = []
    for start, stop in spans:
        if start == stop:
            continue
        if found and found[-1][1] == start:
            found[-1] = (found[-1][0], stop)
        else:
            found.append((start, stop))
    return tuple(found)
