"""What one event more of a stream costs a gateway, for `server.py`.

Events come as from a model: one by one, each in a write of its own, slowly enough that every
gateway keeps up; then reading and writing are most of the cost. Or they come in a burst, all in one
write, where what is left is what is done with each. Two streams are compared that differ only in
how many events they have: the paced ones are of the same duration, so that what a gateway does
while it waits is in both. They follow each other directly, and their difference is taken, round by
round.
"""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from gateways import Gateway
from load import Load, cost_of

FEW, MANY = 40, 440
STREAMS = 8
FEW_AT_ONCE, MANY_AT_ONCE = 100, 2100
BURSTS = 32


@dataclass(frozen=True, kw_only=True)
class EventCost:
    """Seconds of the processor for one event, as each round found it."""

    rounds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)


def event_costs(
    found: Mapping[str, Gateway], *, path: str, rounds: int, burst: bool = False
) -> dict[str, EventCost]:
    """What an event costs each gateway, all of them in turn in every round."""
    few, many = (FEW_AT_ONCE, MANY_AT_ONCE) if burst else (FEW, MANY)
    streams = BURSTS if burst else STREAMS
    load = Load(requests=streams, at_once=STREAMS, path=path, stream=True, burst=burst)
    costs = {name: EventCost() for name in found}
    for gateway in found.values():
        _cost(gateway, load, few)
    for number in range(rounds):
        for name, gateway in found.items():
            # Which of the two comes first changes, so that neither always has the warmer caches.
            order = (few, many) if number % 2 else (many, few)
            spent = {words: _cost(gateway, load, words) for words in order}
            costs[name].rounds.append((spent[many] - spent[few]) / (many - few))
    return costs


def _cost(gateway: Gateway, load: Load, words: int) -> float:
    """Seconds of the processor for one stream of so many words."""
    return cost_of(gateway, replace(load, words=words)).cpu
