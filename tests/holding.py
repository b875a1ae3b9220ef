"""How much memory is held, for tests of what may be kept."""

import gc
import tracemalloc
from collections.abc import Callable

EVERY = 7
"""Steps; what is held goes up and down, and looking takes a while."""


def most_held(step: Callable[[int], object], *, times: int) -> int:
    """The most bytes that were held after some of so many steps, and were not before."""
    most = 0
    gc.collect()
    gc.freeze()
    tracemalloc.start()
    try:
        for number in range(times):
            step(number)
            if number % EVERY == 0:
                gc.collect()
                most = max(most, tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
        gc.unfreeze()
    return most
