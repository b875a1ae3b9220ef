"""An index of a history: the tokens of each message, and where turns and units start.

A turn is a run of plain user messages and everything until the next such run. In a turn, a unit is
one assistant message (or several in a row) with all results of its calls, and the system messages
before it. Results are paired by position, never by ID.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Literal

import msgspec

from cllm.core.message import AnyPart, Role, ToolCall, ToolResult
from cllm.window.tokens import (
    NO_TOKENS,
    TokenEstimate,
    TokenRatios,
    distribute_tokens,
    margin_of,
)


class IndexedMessage(msgspec.Struct, frozen=True, kw_only=True):
    """One message; `has_content`: whether it has other parts than tool results.

    `margin`: the part of `tokens` that makes an estimate almost never too low.
    """

    role: Role
    tokens: int
    margin: int = 0
    calls: tuple[str, ...] = ()
    results: tuple[str, ...] = ()
    has_content: bool = True

    @property
    def is_plain_user(self) -> bool:
        """Whether it can start a turn."""
        return self.role == "user" and not self.results


def make_indexed_message(role: Role, parts: Sequence[AnyPart], tokens: int = 0) -> IndexedMessage:
    calls = tuple(part.id for part in parts if isinstance(part, ToolCall))
    results = tuple(part.call_id for part in parts if isinstance(part, ToolResult))
    return IndexedMessage(
        role=role,
        tokens=tokens,
        calls=calls,
        results=results,
        has_content=len(results) < len(parts),
    )


Span = tuple[int, int]
State = Literal["start", "user", "assistant", "result"]
"""What the last message was: nothing yet, a plain user message, the assistant's, or a result."""


class TurnIndex:
    """Positions count from 0; `first_sequence` is the sequence number of the message at 0."""

    def __init__(self, items: Iterable[IndexedMessage] = (), *, first_sequence: int = 1) -> None:
        self.first_sequence = first_sequence
        self._sums = [0]
        self._margins = [0]
        self._turns: list[int] = []
        self._units: list[int] = []
        self._user_text_units: list[int] = []
        self._last: State = "start"
        self._open_calls: set[str] = set()
        self._system_since: int | None = None
        for item in items:
            self.append(item)

    def __len__(self) -> int:
        return len(self._sums) - 1

    def append(self, item: IndexedMessage) -> None:
        position = len(self)
        self._sums.append(self._sums[-1] + item.tokens)
        self._margins.append(self._margins[-1] + item.margin)
        if not self._turns:
            self._turns.append(position)
        if item.role == "system":
            if self._system_since is None:
                self._system_since = position
            return
        if item.is_plain_user:
            self._start_turn(position)
        elif item.role == "assistant":
            self._start_unit(position, item)
        else:
            self._add_results(item)
        self._system_since = None

    def _start_turn(self, position: int) -> None:
        if self._last in ("assistant", "result"):
            self._turns.append(position)
        self._last = "user"
        self._open_calls.clear()

    def _start_unit(self, position: int, item: IndexedMessage) -> None:
        """Start a unit, unless the assistant continues: most providers merge such messages."""
        if self._last != "assistant":
            self._units.append(position if self._system_since is None else self._system_since)
            self._open_calls.clear()
        self._open_calls.update(item.calls)
        self._last = "assistant"

    def _add_results(self, item: IndexedMessage) -> None:
        self._open_calls.difference_update(item.results)
        has_user_text = item.has_content and item.role == "user"
        if has_user_text and self._user_text_units[-1:] != self._units[-1:]:
            self._user_text_units.append(self._units[-1])
        self._last = "result"

    @property
    def turns(self) -> Sequence[int]:
        """The position of each turn's first message."""
        return self._turns

    @property
    def is_answered(self) -> bool:
        return self._last == "assistant" and not self._open_calls

    @property
    def turn_size(self) -> float:
        """Mean tokens of the turns before the newest one."""
        if len(self._turns) > 1:
            return self._sums[self._turns[-1]] / (len(self._turns) - 1)
        return float(self._sums[-1])

    @property
    def last_unit(self) -> int:
        """The position of the last assistant message, which no prompt contained yet."""
        return self._units[-1] if self._units else 0

    def tokens(self, start: int = 0, stop: int | None = None) -> int:
        return self._sums[len(self) if stop is None else stop] - self._sums[start]

    def margin(self, start: int, stop: int) -> int:
        return self._margins[stop] - self._margins[start]

    def turn_start(self, position: int) -> int:
        """Return where the turn of a message starts."""
        return self._turns[bisect_right(self._turns, position) - 1]

    def turn_end(self, position: int) -> int:
        following = bisect_right(self._turns, position)
        return self._turns[following] if following < len(self._turns) else len(self)

    def units(self, turn: int) -> Sequence[int]:
        """Return where the units of a turn start."""
        stop = bisect_left(self._units, self.turn_end(turn))
        return self._units[bisect_left(self._units, turn) : stop]

    def user_run(self, turn: int) -> Span:
        """Return the run of user messages at the start of the turn."""
        first = bisect_left(self._units, turn)
        end = self.turn_end(turn)
        if first < len(self._units):
            end = min(end, self._units[first])
        return turn, end

    def user_text_unit_before(self, window_start: int) -> Span | None:
        """Return the last unit in the turn before a position with user text besides results.

        None if the unit at the position has such text.
        """
        index = bisect_left(self._user_text_units, window_start)
        if self._user_text_units[index : index + 1] == [window_start] or not index:
            return None
        start = self._user_text_units[index - 1]
        if start < self.turn_start(window_start):
            return None
        return start, self._units[bisect_right(self._units, start)]

    def find_start(self, sequence: int | None) -> int:
        """Return where a window can start: the first turn or unit from a sequence number on."""
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
        """Return the newest turn from which the history has at least this many tokens."""
        limit = self._sums[-1] - tokens
        index = bisect_right(self._turns, limit, key=self._sums.__getitem__) - 1
        return self._turns[max(index, 0)]


class ReportedCount(msgspec.Struct, frozen=True, kw_only=True):
    """A provider's count of a prompt; `overhead` is its system prompt and tools."""

    spans: tuple[Span, ...]
    tokens: int
    overhead: TokenEstimate = NO_TOKENS


class TokenCounts(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of the messages, and how much of each is a margin."""

    messages: tuple[int, ...]
    margins: tuple[int, ...]
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
        return TokenCounts(
            messages=tokens,
            margins=(0,) * len(tokens),
            overhead=overhead.tokens,
            ratios=TokenRatios(),
        )
    ratios = TokenRatios().with_report(_estimate_prompt(estimates, last), last.tokens)
    counted, last_overhead = _divide_report(estimates, replies, last)
    messages = tuple(
        counted[n] if n in counted else replies.get(n, ratios.correct(one))
        for n, one in enumerate(estimates)
    )
    reported = counted.keys() | replies.keys()
    return TokenCounts(
        messages=messages,
        margins=tuple(0 if n in reported else margin_of(one) for n, one in enumerate(messages)),
        overhead=last_overhead if overhead == last.overhead else ratios.correct(overhead),
        ratios=ratios,
    )


def _estimate_prompt(estimates: Sequence[TokenEstimate], report: ReportedCount) -> TokenEstimate:
    sent = [one for start, stop in report.spans for one in estimates[start:stop]]
    plain = report.overhead.plain + sum(one.plain for one in sent)
    return TokenEstimate(plain=plain, wide=report.overhead.wide + sum(one.wide for one in sent))


def _divide_report(
    estimates: Sequence[TokenEstimate], replies: Mapping[int, int], report: ReportedCount
) -> tuple[dict[int, int], int]:
    """Divide a report: the tokens of each message by position, and of the overhead."""
    positions = [n for start, stop in report.spans for n in range(start, stop)]
    known = {n: replies[n] for n in positions if n in replies}
    rest = report.tokens - sum(known.values())
    if rest <= 0:
        known, rest = {}, report.tokens
    unknown = [n for n in positions if n not in known]
    weights = [report.overhead.tokens, *(estimates[n].tokens for n in unknown)]
    overhead, *shares = distribute_tokens(rest, weights)
    return known | dict(zip(unknown, shares, strict=True)), overhead
