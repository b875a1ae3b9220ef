"""Strategies as values: what somebody chose, and nothing that a conversation has to remember."""

import msgspec

from cllm.assembly.window.price import CachePrices, best_block, best_floor
from cllm.core.errors import UsageError

DEFAULT_MAX_TURNS = 10


class ByTurns(msgspec.Struct, frozen=True, kw_only=True, tag="turns"):
    """At most so many complete turns, and the one under way; the oldest leave one by one."""

    max_turns: int = DEFAULT_MAX_TURNS

    def __post_init__(self) -> None:
        _at_least_one("max_turns", self.max_turns)


class Marks(msgspec.Struct, frozen=True, kw_only=True):
    """Over the high mark a history is cut back to the low one."""

    low: float
    high: float


class ByTokens(msgspec.Struct, frozen=True, kw_only=True, tag="tokens"):
    """So many tokens at most, in blocks: over the high mark, cut back to the low one.

    `floor` is what survives a cut at least; `block` how far the history grows over it. What is not
    given is what costs least by the prices of the model's cache. Without `max_tokens` the limit is
    what the model takes.
    """

    max_tokens: int | None = None
    floor: int | None = None
    block: int | None = None
    prices: CachePrices = CachePrices()

    def __post_init__(self) -> None:
        for name in ("max_tokens", "floor", "block"):
            if (given := getattr(self, name)) is not None:
                _at_least_one(name, given)

    def limit(self, budget: int | None) -> int | None:
        """The tokens that a view may have: the smaller of what was chosen and what is possible."""
        given = [most for most in (self.max_tokens, budget) if most is not None]
        return min(given) if given else None

    def marks(self, limit: int, turn_size: float) -> Marks:
        """The two marks of a history of such turns, none of them over the limit."""
        if self.floor is None and self.block is None:
            low = best_floor(limit, turn_size=turn_size, prices=self.prices)
            return Marks(low=low, high=limit)
        if self.floor is None:
            return Marks(low=max(0, limit - (self.block or 0)), high=limit)
        block = self.block or best_block(self.floor, turn_size=turn_size, prices=self.prices)
        return Marks(low=min(self.floor, limit), high=min(self.floor + block, limit))


class Summarise(msgspec.Struct, frozen=True, kw_only=True, tag="summarise"):
    """By tokens, and what leaves is first put into a summary of at most so many tokens."""

    tokens: ByTokens = ByTokens()
    summary_tokens: int = 1000

    def __post_init__(self) -> None:
        _at_least_one("summary_tokens", self.summary_tokens)


Strategy = ByTurns | ByTokens | Summarise


def _at_least_one(name: str, given: int) -> None:
    if type(given) is not int or given < 1:
        raise UsageError(f"{name} is {given!r}; give a whole number from 1 on.")
