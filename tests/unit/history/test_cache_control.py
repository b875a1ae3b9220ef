"""Positions of cache breakpoints."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cllm.history.cache_control import (
    CacheBlock,
    CacheBreakpoints,
    min_cacheable_tokens,
    place_breakpoints,
)

LARGE = CacheBlock(tokens=2000)
THOUGHT = CacheBlock(tokens=2000, allows_breakpoint=False)


def breakpoints_of(blocks: list[CacheBlock], **given_: int | bool | None) -> CacheBreakpoints:
    return place_breakpoints(blocks, **({"system_tokens": 2000, "minimum": 1024} | given_))  # type: ignore[arg-type]


def test_the_system_prompt_and_the_last_block_get_breakpoints():
    assert breakpoints_of([LARGE] * 3) == CacheBreakpoints(system=True, blocks=(2,))


def test_blocks_for_this_turn_only_come_after_the_last_breakpoint():
    assert breakpoints_of([LARGE] * 3, stable_blocks=2) == CacheBreakpoints(
        system=True, blocks=(1,)
    )


def test_no_breakpoint_is_below_the_minimum():
    small = [CacheBlock(tokens=100)] * 3

    assert breakpoints_of(small, system_tokens=500) == CacheBreakpoints()
    assert breakpoints_of(small, system_tokens=800) == CacheBreakpoints(blocks=(2,))
    assert breakpoints_of(small, system_tokens=0, minimum=300) == CacheBreakpoints(blocks=(2,))


def test_a_prompt_without_a_system_prompt_has_no_system_breakpoint():
    assert breakpoints_of([LARGE], system_tokens=0, minimum=0) == CacheBreakpoints(blocks=(0,))


def test_a_prompt_without_stable_blocks_has_only_the_system_breakpoint():
    assert breakpoints_of([LARGE], stable_blocks=0) == CacheBreakpoints(system=True)
    assert breakpoints_of([]) == CacheBreakpoints(system=True)


def test_a_breakpoint_moves_from_thinking_to_the_block_before_it():
    assert breakpoints_of([LARGE, THOUGHT]) == CacheBreakpoints(system=True, blocks=(0,))
    assert breakpoints_of([THOUGHT]) == CacheBreakpoints(system=True)


def test_a_turn_of_nineteen_blocks_needs_no_extra_breakpoint():
    assert breakpoints_of([LARGE] * 29, cached_blocks=10).blocks == (28,)


def test_a_turn_of_twenty_blocks_gets_a_breakpoint_fifteen_blocks_earlier():
    assert breakpoints_of([LARGE] * 30, cached_blocks=10).blocks == (14, 29)
    assert breakpoints_of([LARGE] * 31, cached_blocks=10).blocks == (15, 30)
    assert breakpoints_of([LARGE] * 40, cached_blocks=0).blocks == (13, 26, 39)


def test_a_prompt_without_a_cached_prefix_has_breakpoints_in_its_middle():
    assert breakpoints_of([LARGE] * 12, cached_blocks=0).blocks == (3, 7, 11)
    assert breakpoints_of([LARGE] * 12, cached_blocks=2).blocks == (11,)
    assert breakpoints_of([LARGE] * 5, cached_blocks=0).blocks == (4,)
    assert breakpoints_of([THOUGHT] * 11 + [LARGE], cached_blocks=0).blocks == (11,)


def test_a_very_long_turn_has_a_breakpoint_within_reach_of_the_cached_prefix():
    assert breakpoints_of([LARGE] * 200, cached_blocks=10).blocks == (24, 184, 199)


def test_the_breakpoints_of_the_next_turn_reach_the_last_breakpoint_of_this_one():
    first = breakpoints_of([LARGE] * 31, cached_blocks=10)
    second = breakpoints_of([LARGE] * 45, cached_blocks=first.blocks[-1] + 1)

    assert second.blocks[0] - first.blocks[-1] < 20


@given(
    st.lists(
        st.builds(CacheBlock, tokens=st.integers(0, 500), allows_breakpoint=st.booleans()),
        max_size=90,
    ),
    st.integers(0, 3000),
    st.integers(0, 90),
    st.integers(0, 90),
)
def test_there_are_at_most_four_breakpoints_in_order_on_allowed_blocks(
    blocks, system, first, second
):
    cached_blocks, stable_blocks = sorted(min(n, len(blocks)) for n in (first, second))
    marks = place_breakpoints(
        blocks,
        system_tokens=system,
        minimum=1024,
        stable_blocks=stable_blocks,
        cached_blocks=cached_blocks,
    )

    assert marks.count <= 4
    assert list(marks.blocks) == sorted(set(marks.blocks))
    for place in marks.blocks:
        assert place < stable_blocks
        assert blocks[place].allows_breakpoint
        assert system + sum(block.tokens for block in blocks[: place + 1]) >= 1024


@pytest.mark.parametrize(
    ("model", "minimum"),
    [
        ("claude-opus-4-6-20260205", 4096),
        ("us.anthropic.claude-haiku-4-5-20251001-v1:0", 4096),
        ("claude-3-5-haiku-latest", 2048),
        ("claude-3-haiku-20240307", 2048),
        ("claude-sonnet-4-6", 1024),
        ("claude-opus-4-7", 2048),
        ("claude-opus-4-8", 1024),
        ("anthropic.claude-opus-5", 512),
        ("claude-fable-5-1", 512),
        ("claude-sonnet-4-5", 1024),
        ("amazon.nova-pro-v1:0", 1000),
    ],
)
def test_each_model_has_its_minimum(model, minimum):
    assert min_cacheable_tokens(model) == minimum
