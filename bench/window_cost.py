"""Computes the input cost of a conversation for a trimming strategy, and the lowest possible cost.

Costs are in multiples of the price of an input token. A turn reads the prompt of the previous call
from the cache if the prefix is the same and the cache is warm, and writes the rest.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from cllm.window.plan import plan_window
from cllm.window.strategies import ByTokens, CachePrices
from cllm.window.turn_index import IndexedMessage, TurnIndex

Cuts = Sequence[int]
PRICES = CachePrices(write=1.25, read=0.1)
SPREAD = 0.8
TURNS_PER_PAUSE = 25


@dataclass(frozen=True, kw_only=True)
class Workload:
    """The turns of a conversation: the tokens of each, and whether its cache is cold."""

    name: str
    turns: tuple[int, ...]
    cold: tuple[bool, ...]
    system: int = 1500
    floor: int = 8000
    prices: CachePrices = PRICES

    def cost(self, cuts: Cuts) -> float:
        """Return the cost of all turns. A turn sends the turns from its cut to itself."""
        sums = list(accumulate(self.turns, initial=0))
        total, previous = 0.0, None
        for index, cut in enumerate(cuts):
            new = self.turns[index]
            old = sums[index] - sums[cut]
            total += self.turn_cost(index, old, new, is_same=cut == previous)
            previous = cut
        return total

    def turn_cost(self, index: int, old: int, new: int, *, is_same: bool) -> float:
        write, read = self.prices.write, self.prices.read
        if index == 0 or self.cold[index]:
            return write * (self.system + old + new)
        if is_same:
            return read * (self.system + old) + write * new
        return read * self.system + write * (old + new)


def make_even(turns: int = 200, size: int = 400) -> Workload:
    return Workload(name="even turns", turns=(size,) * turns, cold=(False,) * turns)


def make_uneven(seed: int, turns: int = 200, size: int = 400) -> Workload:
    """Return lognormal turn sizes, with a cold cache after a pause in one of 25 turns."""
    chance = random.Random(seed)  # noqa: S311 - reproducible
    middle = -SPREAD * SPREAD / 2
    sizes = (int(size * chance.lognormvariate(middle, SPREAD)) for _ in range(turns))
    return Workload(
        name=f"lognormal turns, pauses ({seed})",
        turns=tuple(max(20, tokens) for tokens in sizes),
        cold=tuple(chance.random() < 1 / TURNS_PER_PAUSE for _ in range(turns)),
    )


def lowest_cost(workload: Workload) -> float:
    """Return the cost of the cheapest cuts, with all turns known, by dynamic programming.

    The floor applies as to every strategy: a cut leaves at least that many tokens.
    """
    sums = list(accumulate(workload.turns, initial=0))
    best = {0: 0.0}
    for index, new in enumerate(workload.turns):
        after: dict[int, float] = {}
        cheapest = float("inf")
        for cut in range(index + 1):
            old = sums[index] - sums[cut]
            if cut and old + new < workload.floor:
                break
            moved = cheapest + workload.turn_cost(index, old, new, is_same=False)
            stayed = best.get(cut, float("inf"))
            cheapest = min(cheapest, stayed)
            unchanged = stayed + workload.turn_cost(index, old, new, is_same=True)
            after[cut] = min(moved, unchanged)
        best = after
    return min(best.values())


def cut_never(workload: Workload) -> Cuts:
    return [0] * len(workload.turns)


def cut_one_turn(workload: Workload) -> Cuts:
    """Drop one turn with each new turn once the floor is reached."""
    mean = sum(workload.turns) / len(workload.turns)
    max_turns = round(workload.floor / mean)
    return [max(0, index + 1 - max_turns) for index in range(len(workload.turns))]


def cut_to_last_tokens(workload: Workload) -> Cuts:
    """Keep the newest turns that fit into the floor, computed for each turn."""
    sums = list(accumulate(workload.turns, initial=0))
    cuts: list[int] = []
    for index in range(len(workload.turns)):
        cut = cuts[-1] if cuts else 0
        while cut < index and sums[index + 1] - sums[cut] > workload.floor:
            cut += 1
        cuts.append(cut)
    return cuts


def cut_in_blocks(workload: Workload, strategy: ByTokens | None = None) -> Cuts:
    """Use cllm's strategy, called before every turn as the engine does."""
    by_tokens = strategy or ByTokens(
        max_tokens=1_000_000, floor=workload.floor, prices=workload.prices
    )
    ledger = TurnIndex()
    cuts: list[int] = []
    cut: int | None = None
    for new, is_cold in zip(workload.turns, workload.cold, strict=True):
        ledger.append(IndexedMessage(role="user", tokens=new))
        idle = workload.prices.lifetime + 1 if is_cold else 0.0
        cut = plan_window(ledger, by_tokens, window_start=cut, idle=idle).window_start
        cuts.append((cut - 1) // 2)
        ledger.append(IndexedMessage(role="assistant", tokens=0))
    return cuts
