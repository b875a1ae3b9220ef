"""The log in numbers: one item for each message, its tokens, and where turns and units begin.

A turn is a run of plain user messages and everything until the next such run. In it, a unit is one
assistant message (or several in a row) with all results of its calls, and system messages before
it. Results are paired by position, never by ID.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from cllm.core.message import AnyPart, Role, ToolCall, ToolResult
from cllm.window.tokens import NO_TOKENS, TokenEstimate, TokenRatios, distribute_tokens


class IndexedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One message; `says`: whether it has more than tool results."""

    role: Role
    tokens: int
    calls: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    says: bool = True

    @property
    def is_plain_user(self) -> bool:
        """Whether it can begin a turn."""
        return self.role == "user" and not self.results


def make_indexed_message(role: Role, parts: Sequence[AnyPart], tokens: int = 0) -> IndexedMessage:
    calls = tuple(part.id for part in parts if isinstance(part, ToolCall))
    results = tuple(part.call_id for part in parts if isinstance(part, ToolResult))
    says = len(results) < len(parts)
    return IndexedMessage(role=role, tokens=tokens, calls=calls, results=results, says=says)


Span = tuple[int, int]
Border = Literal["start", "run", "assistant", "answer"]


class TurnIndex:
    """Positions count from 0; `first_sequence` is the sequence number of the message at 0."""

    def __init__(self, items: Iterable[IndexedMessage] = (), *, first_sequence: int = 1) -> None:
        self.first_sequence = first_sequence
        self._sums = [0]
        self._turns: list[int] = []
        self._units: list[int] = []
        self._spoken: list[int] = []
        self._last: Border = "start"
        self._waiting: set[str] = set()
        self._system_since: int | None = None
        for item in items:
            self.append(item)

    def __len__(self) -> int:
        return len(self._sums) - 1

    def append(self, item: IndexedMessage) -> None:
        position = len(self)
        self._sums.append(self._sums[-1] + item.tokens)
        if not self._turns:
            self._turns.append(position)
        if item.role == "system":
            if self._system_since is None:
                self._system_since = position
            return
        if item.is_plain_user:
            self._begin_turn(position)
        elif item.role == "assistant":
            self._begin_unit(position, item)
        else:
            self._answer(item)
        self._system_since = None

    def _begin_turn(self, position: int) -> None:
        if self._last in ("assistant", "answer"):
            self._turns.append(position)
        self._last = "run"
        self._waiting.clear()

    def _begin_unit(self, position: int, item: IndexedMessage) -> None:
        """Begin a unit, unless the assistant continues: most providers merge such messages."""
        if self._last != "assistant":
            self._units.append(position if self._system_since is None else self._system_since)
            self._waiting.clear()
        self._waiting.update(item.calls)
        self._last = "assistant"

    def _answer(self, item: IndexedMessage) -> None:
        self._waiting.difference_update(item.results)
        says_more = item.says and item.role == "user"
        if says_more and self._spoken[-1:] != self._units[-1:]:
            self._spoken.append(self._units[-1])
        self._last = "answer"

    @property
    def turns(self) -> Sequence[int]:
        """Where each turn begins."""
        return self._turns

    @property
    def is_answered(self) -> bool:
        return self._last == "assistant" and not self._waiting

    @property
    def turn_size(self) -> float:
        """Mean tokens of the turns before the newest one."""
        if len(self._turns) > 1:
            return self._sums[self._turns[-1]] / (len(self._turns) - 1)
        return float(self._sums[-1])

    @property
    def unsent(self) -> int:
        """The last assistant message, which no prompt had yet."""
        return self._units[-1] if self._units else 0

    def tokens(self, start: int = 0, stop: int | None = None) -> int:
        return self._sums[len(self) if stop is None else stop] - self._sums[start]

    def turn_start(self, position: int) -> int:
        """Return where the turn of a message begins."""
        return self._turns[bisect_right(self._turns, position) - 1]

    def turn_end(self, position: int) -> int:
        after = bisect_right(self._turns, position)
        return self._turns[after] if after < len(self._turns) else len(self)

    def units(self, turn: int) -> Sequence[int]:
        """Return where the units of a turn begin."""
        stop = bisect_left(self._units, self.turn_end(turn))
        return self._units[bisect_left(self._units, turn) : stop]

    def head(self, turn: int) -> tuple[int, int]:
        """Return the run of user messages that begins the turn."""
        first = bisect_left(self._units, turn)
        end = self.turn_end(turn)
        if first < len(self._units):
            end = min(end, self._units[first])
        return turn, end

    def spoken_before(self, window_start: int) -> tuple[int, int] | None:
        """Return the last unit of the turn before a cut with user text beside results.

        None if the unit at the cut has such text.
        """
        index = bisect_left(self._spoken, window_start)
        if self._spoken[index : index + 1] == [window_start] or not index:
            return None
        start = self._spoken[index - 1]
        if start < self.turn_start(window_start):
            return None
        return start, self._units[bisect_right(self._units, start)]

    def find_start(self, sequence: int | None) -> int:
        """Return the first border of this log at or after a remembered cut."""
        position = 0 if sequence is None else max(0, sequence - self.first_sequence)
        if position >= len(self):
            return self._turns[-1] if self._turns else 0
        turn, end = self.turn_start(position), self.turn_end(position)
        if position == turn:
            return position
        unit = bisect_left(self._units, position)
        if unit < len(self._units) and self._units[unit] < end:
            return self._units[unit]
        return end if end < len(self) else turn

    def last_turn_with(self, tokens: int) -> int:
        """Return the newest turn from which on there are this many tokens."""
        most = self._sums[-1] - tokens
        index = bisect_right(self._turns, most, key=self._sums.__getitem__) - 1
        return self._turns[max(index, 0)]


class ReportedCount(msgspec.Struct, frozen=True, kw_only=True):
    """A provider's count of a prompt; `overhead` is what it had beside the messages."""

    spans: tuple[Span, ...]
    tokens: int
    overhead: TokenEstimate = NO_TOKENS


class TokenCounts(msgspec.Struct, frozen=True, kw_only=True):
    messages: tuple[int, ...]
    overhead: int
    ratios: TokenRatios


def count_messages(
    estimates: Sequence[TokenEstimate],
    *,
    replies: Mapping[int, int],
    last: ReportedCount | None = None,
    overhead: TokenEstimate = NO_TOKENS,
) -> TokenCounts:
    """Return the tokens of the messages, from estimates and counts of the same model."""
    if last is None:
        tokens = tuple(replies.get(n, one.tokens) for n, one in enumerate(estimates))
        return TokenCounts(messages=tokens, overhead=overhead.tokens, ratios=TokenRatios())
    ratios = TokenRatios().after(_sent(estimates, last), last.tokens)
    covered, around = _covered(estimates, replies, last)
    messages = tuple(
        covered[n] if n in covered else replies.get(n, ratios.expect(one))
        for n, one in enumerate(estimates)
    )
    now = around if overhead == last.overhead else ratios.expect(overhead)
    return TokenCounts(messages=messages, overhead=now, ratios=ratios)


def _sent(estimates: Sequence[TokenEstimate], report: ReportedCount) -> TokenEstimate:
    spoken = [one for start, stop in report.spans for one in estimates[start:stop]]
    plain = report.overhead.plain + sum(one.plain for one in spoken)
    return TokenEstimate(plain=plain, wide=report.overhead.wide + sum(one.wide for one in spoken))


def _covered(
    estimates: Sequence[TokenEstimate], replies: Mapping[int, int], report: ReportedCount
) -> tuple[dict[int, int], int]:
    """Divide a report: tokens by position, and of what is beside the messages."""
    positions = [n for start, stop in report.spans for n in range(start, stop)]
    known = {n: replies[n] for n in positions if n in replies}
    rest = report.tokens - sum(known.values())
    if rest <= 0:
        known, rest = {}, report.tokens
    unknown = [n for n in positions if n not in known]
    weights = [report.overhead.tokens, *(estimates[n].tokens for n in unknown)]
    around, *shares = distribute_tokens(rest, weights)
    return known | dict(zip(unknown, shares, strict=True)), around
