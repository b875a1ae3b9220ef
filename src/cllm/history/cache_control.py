"""The positions of cache marks in a prompt for Anthropic or Bedrock.

One mark ends the system prompt and one the last block that the next prompt will have too. A
provider compares at most 20 blocks before a mark with its cache, so that longer turns get marks in
between. A prompt without a cached prefix has marks in its middle, at which a summary can begin.
"""

from collections.abc import Sequence
from itertools import accumulate

import msgspec

MAX_BREAKPOINTS = 4
LOOKBACK = 20
STEP = 15
MIN_BLOCKS = 6
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
    allows_breakpoint: bool = True


class CacheBreakpoints(msgspec.Struct, frozen=True, kw_only=True):
    system: bool = False
    blocks: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        return self.system + len(self.blocks)


NO_BREAKPOINTS = CacheBreakpoints()


def min_cacheable_tokens(model: str) -> int:
    """Return the tokens under which this model caches nothing."""
    name = model.lower()
    return next((least for part, least in MINIMUMS if part in name), DEFAULT_MINIMUM)


def place_breakpoints(
    blocks: Sequence[CacheBlock],
    *,
    system_tokens: int,
    minimum: int,
    stable_blocks: int | None = None,
    cached_blocks: int = 0,
    has_client_breakpoints: bool = False,
) -> CacheBreakpoints:
    """Return the marks of a prompt with these blocks.

    The next prompt will begin with the first `stable_blocks` blocks (None: all); the last one began
    with the first `cached_blocks` and had a mark there. `system_tokens` includes the tools.
    """
    if has_client_breakpoints:
        return NO_BREAKPOINTS
    system = 0 < system_tokens >= minimum
    last = _markable(blocks, (len(blocks) if stable_blocks is None else stable_blocks) - 1)
    sums = list(accumulate((block.tokens for block in blocks), initial=system_tokens))
    wanted = [] if last is None else _wanted(blocks, last, cached_blocks)
    found = tuple(sorted(n for n in wanted if sums[n + 1] >= minimum))
    most = MAX_BREAKPOINTS - system
    if len(found) > most:
        # The first and the last ones save most.
        found = (found[0], *found[1 - most :])
    return CacheBreakpoints(system=system, blocks=found)


def _wanted(blocks: Sequence[CacheBlock], last: int, cached_blocks: int) -> set[int]:
    """Return the last block, one a step before it, and one near the cached prefix."""
    wanted = {last}
    if not cached_blocks and last + 1 >= MIN_BLOCKS:
        thirds = (_markable(blocks, last // 3), _markable(blocks, 2 * last // 3))
        wanted.update(n for n in thirds if n is not None)
    seen = cached_blocks - 1
    if last - seen < LOOKBACK:
        return wanted
    behind = _markable(blocks, last - STEP)
    if behind is not None and behind > seen:
        wanted.add(behind)
        if cached_blocks and behind - seen >= LOOKBACK:
            near = _markable(blocks, seen + STEP)
            wanted.add(behind if near is None or near <= seen else near)
    return wanted


def _markable(blocks: Sequence[CacheBlock], position: int) -> int | None:
    """Return the nearest block at or before a position that takes a mark."""
    return next((n for n in range(position, -1, -1) if blocks[n].allows_breakpoint), None)
