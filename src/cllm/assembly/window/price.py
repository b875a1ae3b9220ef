"""What a provider's cache costs, and how much of a history to drop at once because of it.

Prices are multiples of the price of an input token. Keeping a prefix is cheap to read and grows; to
drop the oldest turns makes it shorter, and everything after them is written anew. Arithmetic only.
"""

from math import inf, sqrt

import msgspec

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
