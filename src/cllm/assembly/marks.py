"""Where cache marks go in a prompt for Anthropic or Bedrock: positions, and nothing is marked here.

One mark ends the system prompt and one the last block that the next prompt will have too; what is
for this turn only stands behind it. A provider looks at no more than 20 blocks for what it kept,
the marked one first, so a turn of as many gets marks in between. A prompt that begins anew has some
in its middle too: a summary of its first turns is asked for with what stands before one of them. A
client that sets marks of its own gets none of ours.
"""

from collections.abc import Sequence
from itertools import accumulate

import msgspec

MOST_MARKS = 4
LOOKBACK = 20
STEP = 15
FEWEST = 6
"""Blocks; of fewer there is no middle worth a mark."""
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
"""As documented in November 2026. Where one is too low, a mark is ignored and costs nothing."""


class Block(msgspec.Struct, frozen=True, kw_only=True):
    """One block of a message as it is sent; thinking and empty text take no mark."""

    tokens: int
    takes_mark: bool = True


class Marks(msgspec.Struct, frozen=True, kw_only=True):
    """Whether the system prompt ends in a mark, and which blocks do, by position."""

    system: bool = False
    blocks: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        return self.system + len(self.blocks)


NO_MARKS = Marks()


def minimum_for(model: str) -> int:
    """The tokens under which this model keeps nothing, with or without a mark."""
    name = model.lower()
    return next((least for part, least in MINIMUMS if part in name), DEFAULT_MINIMUM)


def place_marks(
    blocks: Sequence[Block],
    *,
    system_tokens: int,
    minimum: int,
    persistent: int | None = None,
    kept: int = 0,
    client_marked: bool = False,
) -> Marks:
    """The marks of a prompt whose messages have these blocks, one after another.

    `system_tokens` counts the tools too, which stand before the system prompt. The next prompt will
    begin with the first `persistent` blocks (all, if it is None); the last one began with the first
    `kept` of them and had a mark there.
    """
    if client_marked:
        return NO_MARKS
    system = 0 < system_tokens >= minimum
    last = _markable(blocks, (len(blocks) if persistent is None else persistent) - 1)
    sums = list(accumulate((block.tokens for block in blocks), initial=system_tokens))
    wanted = [] if last is None else _wanted(blocks, last, kept)
    found = tuple(sorted(place for place in wanted if sums[place + 1] >= minimum))
    return Marks(system=system, blocks=_at_most(found, MOST_MARKS - system))


def _at_most(places: tuple[int, ...], most: int) -> tuple[int, ...]:
    """The last ones, and the first: what is between them is the least use."""
    return places if len(places) <= most else (places[0], *places[1 - most :])


def _wanted(blocks: Sequence[Block], last: int, kept: int) -> set[int]:
    """The last block, one a step behind it, and one from which the provider sees what it kept."""
    wanted = {last}
    if not kept and last + 1 >= FEWEST:
        thirds = (_markable(blocks, last // 3), _markable(blocks, 2 * last // 3))
        wanted.update(place for place in thirds if place is not None)
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


def _markable(blocks: Sequence[Block], place: int) -> int | None:
    """The block at a place, or the nearest before it that takes a mark."""
    return next((n for n in range(place, -1, -1) if blocks[n].takes_mark), None)
