"""What a conversation's input costs under a way of trimming, and the least that it can cost.

Prices are multiples of the price of an input token. A turn reads from the cache what the call
before it sent, as long as the beginning is the same and the cache is warm, and writes the rest.
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
PAUSE = 25


@dataclass(frozen=True, kw_only=True)
class Workload:
    """The turns of a conversation: how many tokens each adds, and whether it finds a cold cache."""

    name: str
    turns: tuple[int, ...]
    cold: tuple[bool, ...]
    system: int = 1500
    floor: int = 8000
    prices: CachePrices = PRICES

    def cost(self, cuts: Cuts) -> float:
        """Of all turns, when the turn at a place sends those from its cut on."""
        sums = list(accumulate(self.turns, initial=0))
        total, before = 0.0, None
        for place, window_start in enumerate(cuts):
            new = self.turns[place]
            old = sums[place] - sums[window_start]
            total += self.turn_cost(place, old, new, is_same=window_start == before)
            before = window_start
        return total

    def turn_cost(self, place: int, old: int, new: int, *, is_same: bool) -> float:
        write, read = self.prices.write, self.prices.read
        if place == 0 or self.cold[place]:
            return write * (self.system + old + new)
        if is_same:
            return read * (self.system + old) + write * new
        return read * self.system + write * (old + new)


def even(turns: int = 200, size: int = 400) -> Workload:
    return Workload(name="even turns", turns=(size,) * turns, cold=(False,) * turns)


def uneven(seed: int, turns: int = 200, size: int = 400) -> Workload:
    """Lognormal turns, one in 25 after a pause in which the cache went cold."""
    chance = random.Random(seed)  # noqa: S311 - the same in every run
    middle = -SPREAD * SPREAD / 2
    sizes = (int(size * chance.lognormvariate(middle, SPREAD)) for _ in range(turns))
    return Workload(
        name=f"lognormal turns, pauses ({seed})",
        turns=tuple(max(20, drawn) for drawn in sizes),
        cold=tuple(chance.random() < 1 / PAUSE for _ in range(turns)),
    )


def least(workload: Workload) -> float:
    """The cheapest cuts of all, known in advance, by dynamic programming.

    Like everybody else they keep the floor: a cut is taken only where that much is left.
    """
    sums = list(accumulate(workload.turns, initial=0))
    best = {0: 0.0}
    for place, new in enumerate(workload.turns):
        after: dict[int, float] = {}
        cheapest = float("inf")
        for window_start in range(place + 1):
            old = sums[place] - sums[window_start]
            if window_start and old + new < workload.floor:
                break
            moved = cheapest + workload.turn_cost(place, old, new, is_same=False)
            stayed = best.get(window_start, float("inf"))
            cheapest = min(cheapest, stayed)
            kept = stayed + workload.turn_cost(place, old, new, is_same=True)
            after[window_start] = min(moved, kept)
        best = after
    return min(best.values())


def never(workload: Workload) -> Cuts:
    return [0] * len(workload.turns)


def one_pair(workload: Workload) -> Cuts:
    """One turn leaves with each, as soon as there are as many as the floor has room for."""
    mean = sum(workload.turns) / len(workload.turns)
    most = round(workload.floor / mean)
    return [max(0, place + 1 - most) for place in range(len(workload.turns))]


def last_tokens(workload: Workload) -> Cuts:
    """As many of the newest turns as the floor has room for, chosen anew for each."""
    sums = list(accumulate(workload.turns, initial=0))
    cuts: list[int] = []
    for place in range(len(workload.turns)):
        window_start = cuts[-1] if cuts else 0
        while window_start < place and sums[place + 1] - sums[window_start] > workload.floor:
            window_start += 1
        cuts.append(window_start)
    return cuts


def in_blocks(workload: Workload, strategy: ByTokens | None = None) -> Cuts:
    """Ours, asked before every call as the engine asks."""
    chosen = strategy or ByTokens(
        max_tokens=1_000_000, floor=workload.floor, prices=workload.prices
    )
    turn_index = TurnIndex()
    cuts: list[int] = []
    window_start: int | None = None
    for new, is_cold in zip(workload.turns, workload.cold, strict=True):
        turn_index.append(IndexedMessage(role="user", tokens=new))
        idle = workload.prices.lifetime + 1 if is_cold else 0.0
        window_start = plan_window(
            turn_index, chosen, window_start=window_start, idle=idle
        ).window_start
        cuts.append((window_start - 1) // 2)
        turn_index.append(IndexedMessage(role="assistant", tokens=0))
    return cuts
