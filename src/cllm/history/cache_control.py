"""`cache_control`: the positions of cache breakpoints in a prompt for Anthropic or Bedrock.

`providers/history.py` applies the breakpoints, `wire/anthropic/history.py` limits their number.

One breakpoint ends the system prompt, one the last block that the next prompt also has. A provider
compares at most 20 blocks before a breakpoint with its cache, so longer turns get more. A prompt
without a cached prefix gets breakpoints in its middle, where a summary prompt can end.
"""

from collections.abc import Sequence
from itertools import accumulate

import msgspec

MAX_BREAKPOINTS = 4
LOOKBACK = 20
STEP = 15
MIN_BLOCKS = 6
"""A prompt with fewer blocks gets no breakpoints in its middle."""
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
"""Tokens, as documented in November 2026. Below these a breakpoint is ignored and free."""


class CacheBlock(msgspec.Struct, frozen=True, kw_only=True):
    tokens: int
    allows_breakpoint: bool = True


class CacheBreakpoints(msgspec.Struct, frozen=True, kw_only=True):
    system: bool = False
    blocks: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        return self.system + len(self.blocks)


def min_cacheable_tokens(model: str) -> int:
    """Return the tokens below which this model caches nothing."""
    name = model.lower()
    return next((tokens for part, tokens in MINIMUMS if part in name), DEFAULT_MINIMUM)


def place_breakpoints(
    blocks: Sequence[CacheBlock],
    *,
    system_tokens: int,
    minimum: int,
    stable_blocks: int | None = None,
    cached_blocks: int = 0,
) -> CacheBreakpoints:
    """Return the breakpoints of a prompt with these blocks.

    The next prompt will start with the first `stable_blocks` (None: all). The last prompt started
    with the first `cached_blocks` and had a breakpoint there. `system_tokens` includes the tools.
    """
    system = 0 < system_tokens >= minimum
    last = _find_allowed(blocks, (len(blocks) if stable_blocks is None else stable_blocks) - 1)
    sums = list(accumulate((block.tokens for block in blocks), initial=system_tokens))
    candidates = [] if last is None else _find_candidates(blocks, last, cached_blocks)
    chosen = tuple(sorted(n for n in candidates if sums[n + 1] >= minimum))
    limit = MAX_BREAKPOINTS - system
    if len(chosen) > limit:
        # The first and the last breakpoints save most.
        chosen = (chosen[0], *chosen[1 - limit :])
    return CacheBreakpoints(system=system, blocks=chosen)


def _find_candidates(blocks: Sequence[CacheBlock], last: int, cached_blocks: int) -> set[int]:
    """Return the last block, one `STEP` before it, and one near the cached prefix."""
    candidates = {last}
    if not cached_blocks and last + 1 >= MIN_BLOCKS:
        thirds = (_find_allowed(blocks, last // 3), _find_allowed(blocks, 2 * last // 3))
        candidates.update(n for n in thirds if n is not None)
    cached = cached_blocks - 1
    if last - cached < LOOKBACK:
        return candidates
    middle = _find_allowed(blocks, last - STEP)
    if middle is not None and middle > cached:
        candidates.add(middle)
        if cached_blocks and middle - cached >= LOOKBACK:
            early = _find_allowed(blocks, cached + STEP)
            candidates.add(middle if early is None or early <= cached else early)
    return candidates


def _find_allowed(blocks: Sequence[CacheBlock], position: int) -> int | None:
    """Return the nearest block at or before a position that allows a breakpoint."""
    return next((n for n in range(position, -1, -1) if blocks[n].allows_breakpoint), None)
