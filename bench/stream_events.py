"""Measures a gateway's CPU time for one additional event of a stream, for `server.py`.

Paced: the upstream writes events one by one, as a model does, slowly enough for every gateway. Most
of the cost is then reading and writing. Burst: the upstream writes all events at once, and the cost
is the processing of each event.

Each round measures two streams that differ only in their number of events, directly after each
other, and divides the difference. Paced streams have the same duration, so the cost of waiting
cancels out.
"""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from gateways import Gateway
from load import Load, measure_load
from upstream import PACED_SECONDS

FEW_EVENTS, MANY_EVENTS = 40, 440
STREAMS = 8
FEW_BURST_EVENTS, MANY_BURST_EVENTS = 100, 2100
BURST_STREAMS = 32


@dataclass(frozen=True, kw_only=True)
class EventCost:
    """CPU seconds per event, one value per round."""

    rounds: list[float] = field(default_factory=list)

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)


def measure_events(
    gateways: Mapping[str, Gateway], *, path: str, rounds: int, burst: bool = False
) -> dict[str, EventCost]:
    """Return the cost of an event for each gateway, measured alternately in every round."""
    few, many = (FEW_BURST_EVENTS, MANY_BURST_EVENTS) if burst else (FEW_EVENTS, MANY_EVENTS)
    streams = BURST_STREAMS if burst else STREAMS
    seconds = 0 if burst else PACED_SECONDS
    load = Load(requests=streams, concurrency=STREAMS, path=path, stream=True, seconds=seconds)
    costs = {name: EventCost() for name in gateways}
    for gateway in gateways.values():
        _measure_stream(gateway, load, few)
    for number in range(rounds):
        for name, gateway in gateways.items():
            # Alternate the order, so that neither stream always has the warmer caches.
            order = (few, many) if number % 2 else (many, few)
            cpu = {words: _measure_stream(gateway, load, words) for words in order}
            costs[name].rounds.append((cpu[many] - cpu[few]) / (many - few))
    return costs


def _measure_stream(gateway: Gateway, load: Load, words: int) -> float:
    """Return the CPU seconds of one stream with this number of words."""
    return measure_load(gateway, replace(load, words=words)).cpu
