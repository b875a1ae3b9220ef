"""Cache prices by provider, and the blocks and floors that follow from them."""

from math import inf

import pytest

from cllm.window.strategies import (
    LOCAL,
    NOVA,
    OPENAI,
    ByTokens,
    CachePrices,
    Marks,
    best_block,
    best_floor,
    prices_for,
)


def test_the_best_block_follows_the_formula():
    assert round(best_block(8000, turn_size=400, prices=CachePrices())) == 8579


def test_the_best_floor_and_its_block_fill_the_limit():
    for limit in (4000, 20_000, 200_000):
        floor = best_floor(limit, turn_size=40, prices=CachePrices())
        block = best_block(floor, turn_size=40, prices=CachePrices())
        assert floor + block == pytest.approx(limit)


def test_without_a_cache_turns_are_dropped_one_by_one():
    prices = CachePrices(write=1.0, read=1.0)

    assert best_block(8000, turn_size=400, prices=prices) == 0
    assert best_floor(8000, turn_size=400, prices=prices) == pytest.approx(8000)


def test_at_least_half_remains_however_cheap_reading_is():
    assert best_block(8000, turn_size=400, prices=LOCAL) == inf
    assert best_floor(8000, turn_size=400, prices=LOCAL) == 4000
    assert best_floor(8000, turn_size=4000, prices=CachePrices()) == 4000


@pytest.mark.parametrize(
    ("provider", "model", "prices"),
    [
        ("anthropic", "claude-opus-4-6", CachePrices()),
        ("bedrock", "us.anthropic.claude-sonnet-4-5-v1:0", CachePrices()),
        ("bedrock", "amazon.nova-pro-v1:0", NOVA),
        ("bedrock", "mistral.large", CachePrices(write=1.0, read=1.0, lifetime=0.0)),
        ("openai", "gpt-5.6-mini", OPENAI),
        ("openai", "gpt-4o", CachePrices(write=1.0, read=0.5, lifetime=600.0)),
        ("local", "smollm2", LOCAL),
        ("somebody", "some-model", LOCAL),
    ],
)
def test_each_provider_has_its_prices(provider, model, prices):
    assert prices_for(provider, model) == prices


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        (ByTokens(floor=300, block=200), Marks(low=300, high=500)),
        (ByTokens(floor=300, block=900), Marks(low=300, high=1000)),
        (ByTokens(floor=2000, block=100), Marks(low=1000, high=1000)),
        (ByTokens(block=400), Marks(low=600, high=1000)),
        (ByTokens(block=4000), Marks(low=0, high=1000)),
    ],
)
def test_the_marks_of_a_strategy_stay_within_the_limit(strategy, expected):
    assert strategy.marks(1000, 20.0) == expected


def test_the_default_marks_are_the_best_floor_and_the_limit():
    floor = best_floor(1000, turn_size=20.0, prices=CachePrices())

    assert ByTokens().marks(1000, 20.0) == Marks(low=floor, high=1000)


@pytest.mark.parametrize(
    ("max_tokens", "budget", "expected"),
    [(None, None, None), (100, None, 100), (None, 50, 50), (100, 50, 50), (20, 50, 20)],
)
def test_the_limit_is_the_smaller_number(max_tokens, budget, expected):
    assert ByTokens(max_tokens=max_tokens).limit(budget) == expected
