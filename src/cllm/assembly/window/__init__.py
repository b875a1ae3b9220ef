"""Which part of a conversation is sent: strategies as values, and the cache prices behind them.

A window is a view of an append-only log and a remembered cut. It never edits or reorders messages
and does no I/O. Prices are multiples of the price of an input token. A kept prefix is cheap to read
and grows; to drop the oldest turns shortens it, but everything after them is written anew.
"""

from math import inf, sqrt

import msgspec

from cllm.core.errors import UsageError

LARGEST_BLOCK = 0.5
"""Of the budget. At least the other half survives a cut, however cheap reading is."""


class CachePrices(msgspec.Struct, frozen=True, kw_only=True):
    """Writing to the cache, reading from it, and for how many seconds it is kept unread."""

    write: float = 1.25
    read: float = 0.1
    lifetime: float = 300.0

    def weight(self, turn_size: float) -> float:
        """With K tokens kept, the best block is the root of K times this."""
        gain = 2 * (self.write - self.read) * turn_size
        if gain <= 0:
            return 0.0
        return gain / self.read if self.read else inf


CLAUDE = CachePrices()
OPENAI = CachePrices(lifetime=600.0)
OPENAI_EARLIER = CachePrices(write=1.0, read=0.5, lifetime=600.0)
NOVA = CachePrices(write=1.0, read=0.25)
LOCAL = CachePrices(write=1.0, read=0.0, lifetime=inf)
UNCACHED = CachePrices(write=1.0, read=1.0, lifetime=0.0)
PROVIDERS = {
    "anthropic": CLAUDE,
    "bedrock": UNCACHED,
    "local": LOCAL,
    "openai": OPENAI_EARLIER,
}
MODELS = (("claude", CLAUDE), ("nova", NOVA), ("gpt-5.6", OPENAI), ("gpt-6", OPENAI))


def prices_for(provider: str, model: str) -> CachePrices:
    """What is known without a price list; an unknown server is taken to keep prompts in memory."""
    name = model.lower()
    for part, prices in MODELS:
        if part in name:
            return prices
    return PROVIDERS.get(provider, LOCAL)


def best_block(floor: float, *, turn_size: float, prices: CachePrices) -> float:
    """How far a history may grow over its floor before it is cut back to that."""
    return sqrt(prices.weight(turn_size) * floor)


def best_floor(limit: float, *, turn_size: float, prices: CachePrices) -> float:
    """The floor whose block just fills the limit: as much is kept as can be, in good blocks."""
    weight = prices.weight(turn_size)
    lowest = limit * (1 - LARGEST_BLOCK)
    if weight == inf:
        return lowest
    root = (sqrt(weight + 4 * limit) - sqrt(weight)) / 2
    return max(lowest, root * root)


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
