"""Window strategies as values, and the cache prices from which their defaults follow.

Prices are multiples of the price of an input token. A cached prefix is cheap to read. Dropping the
oldest turns makes the prompt shorter, but everything after them must be written to the cache again.
"""

from math import inf, sqrt

import msgspec

from cllm.core.errors import UsageError

MAX_BLOCK_SHARE = 0.5
"""Of the budget. At least the other half remains after trimming, however cheap reading is."""


class CachePrices(msgspec.Struct, frozen=True, kw_only=True):
    """`lifetime`: seconds after which an unread cache expires."""

    write: float = 1.25
    read: float = 0.1
    lifetime: float = 300.0

    def weight(self, turn_size: float) -> float:
        """The best block for K remaining tokens is the square root of K times this."""
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
    """Return the prices; an unknown server is treated as local."""
    name = model.lower()
    matches = (prices for part, prices in MODELS if part in name)
    return next(matches, PROVIDERS.get(provider, LOCAL))


def best_block(floor: float, *, turn_size: float, prices: CachePrices) -> float:
    """Return how many tokens a history may grow above its floor before it is trimmed."""
    return sqrt(prices.weight(turn_size) * floor)


def best_floor(limit: float, *, turn_size: float, prices: CachePrices) -> float:
    """Return the floor whose best block exactly fills the limit."""
    weight = prices.weight(turn_size)
    lowest = limit * (1 - MAX_BLOCK_SHARE)
    if weight == inf:
        return lowest
    root = (sqrt(weight + 4 * limit) - sqrt(weight)) / 2
    return max(lowest, root * root)


DEFAULT_MAX_TURNS = 10


class ByTurns(msgspec.Struct, frozen=True, kw_only=True, tag="turns"):
    """The newest complete turns, and the current one."""

    max_turns: int = DEFAULT_MAX_TURNS

    def __post_init__(self) -> None:
        _check_positive("max_turns", self.max_turns)


class Marks(msgspec.Struct, frozen=True, kw_only=True):
    low: float
    high: float


class ByTokens(msgspec.Struct, frozen=True, kw_only=True, tag="tokens"):
    """At most `max_tokens`, trimmed in blocks.

    `floor` is the minimum that remains after trimming, `block` how far the history may grow above
    it. The defaults are the cheapest by `prices`.
    """

    max_tokens: int | None = None
    floor: int | None = None
    block: int | None = None
    prices: CachePrices = CachePrices()

    def __post_init__(self) -> None:
        for name in ("max_tokens", "floor", "block"):
            if (number := getattr(self, name)) is not None:
                _check_positive(name, number)

    def limit(self, budget: int | None) -> int | None:
        return min((one for one in (self.max_tokens, budget) if one is not None), default=None)

    def marks(self, limit: int, turn_size: float) -> Marks:
        if self.floor is None and self.block is None:
            low = best_floor(limit, turn_size=turn_size, prices=self.prices)
            return Marks(low=low, high=limit)
        if self.floor is None:
            return Marks(low=max(0, limit - (self.block or 0)), high=limit)
        block = self.block or best_block(self.floor, turn_size=turn_size, prices=self.prices)
        return Marks(low=min(self.floor, limit), high=min(self.floor + block, limit))


class Summarise(msgspec.Struct, frozen=True, kw_only=True, tag="summarise"):
    """By tokens; turns are summarised before they are dropped."""

    tokens: ByTokens = ByTokens()
    summary_tokens: int = 1000

    def __post_init__(self) -> None:
        if not isinstance(self.tokens, ByTokens):
            raise UsageError(f"tokens is {self.tokens!r}; it must be ByTokens(max_tokens=...).")
        _check_positive("summary_tokens", self.summary_tokens)


Strategy = ByTurns | ByTokens | Summarise


def _check_positive(name: str, number: int) -> None:
    if type(number) is not int or number < 1:
        raise UsageError(f"{name} is {number!r}; it must be a whole number of at least 1.")
