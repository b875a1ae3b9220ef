"""The positions of cache marks in a prompt for Anthropic or Bedrock.

One mark ends the system prompt and one the last block that the next prompt will have too. A
provider compares at most 20 blocks before a mark with its cache, so that longer turns get marks in
between. A prompt without a cached prefix has marks in its middle, at which a summary can begin.
"""

from collections.abc import Sequence
from itertools import accumulate

import msgspec

MOST_MARKS = 4
LOOKBACK = 20
STEP = 15
FEWEST = 6
"""Blocks. A prompt of fewer gets no marks in its middle."""
DEFAULT_MINIMUM = 1024
MINIMUMS = (
    ("fable-5", 512),
    ("mythos-5", 512),
    ("opus-5", 512),
    ("opus-4-7", 2048),
    ("opus-4-6", 4096),
    ("opus-4-5", 4096),
    ("haiku-4-5", 4096),
    ("3-5-haiku", 2048),
    ("3-haiku", 2048),
    ("nova", 1000),
)
"""Tokens, as documented in November 2026. A mark at fewer is ignored and costs nothing."""


class CacheBlock(msgspec.Struct, frozen=True, kw_only=True):
    tokens: int
    takes_mark: bool = True


class CacheBreakpoints(msgspec.Struct, frozen=True, kw_only=True):
    system: bool = False
    blocks: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        return self.system + len(self.blocks)


NO_MARKS = CacheBreakpoints()


def minimum_for(model: str) -> int:
    """Return the tokens under which this model caches nothing."""
    name = model.lower()
    return next((least for part, least in MINIMUMS if part in name), DEFAULT_MINIMUM)


def place_marks(
    blocks: Sequence[CacheBlock],
    *,
    system_tokens: int,
    minimum: int,
    persistent: int | None = None,
    kept: int = 0,
    client_marked: bool = False,
) -> CacheBreakpoints:
    """Return the marks of a prompt with these blocks.

    The next prompt will begin with the first `persistent` blocks (None: all); the last one began
    with the first `kept` and had a mark there. `system_tokens` includes the tools.
    """
    if client_marked:
        return NO_MARKS
    system = 0 < system_tokens >= minimum
    last = _markable(blocks, (len(blocks) if persistent is None else persistent) - 1)
    sums = list(accumulate((block.tokens for block in blocks), initial=system_tokens))
    wanted = [] if last is None else _wanted(blocks, last, kept)
    found = tuple(sorted(n for n in wanted if sums[n + 1] >= minimum))
    most = MOST_MARKS - system
    if len(found) > most:
        # The first and the last ones save most.
        found = (found[0], *found[1 - most :])
    return CacheBreakpoints(system=system, blocks=found)


def _wanted(blocks: Sequence[CacheBlock], last: int, kept: int) -> set[int]:
    """Return the last block, one a step before it, and one near the cached prefix."""
    wanted = {last}
    if not kept and last + 1 >= FEWEST:
        thirds = (_markable(blocks, last // 3), _markable(blocks, 2 * last // 3))
        wanted.update(n for n in thirds if n is not None)
    seen = kept - 1
    if last - seen < LOOKBACK:
        return wanted
    behind = _markable(blocks, last - STEP)
    if behind is not None and behind > seen:
        wanted.add(behind)
        if kept and behind - seen >= LOOKBACK:
            near = _markable(blocks, seen + STEP)
            wanted.add(behind if near is None or near <= seen else near)
    return wanted


def _markable(blocks: Sequence[CacheBlock], position: int) -> int | None:
    """Return the nearest block at or before a position that takes a mark."""
    return next((n for n in range(position, -1, -1) if blocks[n].takes_mark), None)
