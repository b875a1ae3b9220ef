"""Rates and records from entries of genai-prices."""

from datetime import date, time, timedelta, timezone
from decimal import Decimal

import pytest
from genai_prices.types import (
    ConditionalPrice,
    ModelPrice,
    StartDateConstraint,
    Tier,
    TieredPrices,
    TimeOfDateConstraint,
)

from cllm.prices.book import DatedRates, ModelRecord, Rate, Rates, TableEntry
from cllm.prices.book import Tier as RateTier
from cllm.prices.table import _dated_rates, _rates, _with_cache_write_price, look_up

THREE = Rate(base=Decimal(3))


def test_an_unknown_model_has_an_empty_record():
    assert look_up(TableEntry(provider="openai", model="no-such-model")) == ModelRecord()


def test_a_known_model_has_rates_and_a_context_window():
    record = look_up(TableEntry(provider="openai", model="gpt-4o"))

    assert record.dated_rates
    assert record.context_window == 128_000


def test_a_cache_write_of_nova_costs_as_much_as_input():
    record = look_up(TableEntry(provider="aws", model="amazon.nova-pro-v1:0"))

    rates = record.dated_rates[0].rates
    assert rates is not None
    assert rates.cache_write == rates.input


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        (None, None),
        (Rates(input=THREE), Rates(input=THREE, cache_write=THREE)),
        (Rates(cache_write=THREE), Rates(cache_write=THREE)),
    ],
)
def test_a_missing_price_of_cache_writes_is_that_of_input(rates, expected):
    assert _with_cache_write_price(DatedRates(rates=rates)).rates == expected


def test_a_five_minute_cache_write_is_preferred():
    prices = ModelPrice(cache_write_5m_mtok=Decimal(3), cache_write_mtok=Decimal(4))

    assert _rates(prices) == Rates(cache_write=THREE)


def test_tiers_are_converted():
    tiered = TieredPrices(base=Decimal(3), tiers=[Tier(start=200_000, price=Decimal(6))])

    rates = _rates(ModelPrice(input_mtok=tiered))

    assert rates == Rates(
        input=Rate(base=Decimal(3), tiers=(RateTier(above=200_000, price=Decimal(6)),))
    )


@pytest.mark.parametrize(
    "prices",
    [
        ModelPrice(),
        ModelPrice(input_mtok=Decimal(1), output_citation_mtok=Decimal(1)),
        ModelPrice(input_mtok=Decimal(1), requests_kcount=TieredPrices(base=Decimal(1), tiers=[])),
    ],
)
def test_prices_that_usage_does_not_cover_are_unknown(prices):
    assert _rates(prices) is None


def test_a_price_per_thousand_calls_is_divided():
    rates = _rates(ModelPrice(input_mtok=Decimal(3), requests_kcount=Decimal(5)))

    assert rates == Rates(input=THREE, per_call=Decimal("0.005"))


def test_dates_and_hours_are_converted_to_utc():
    since = date(2026, 1, 2)
    east = timezone(timedelta(hours=8))
    prices = ModelPrice(input_mtok=Decimal(3))
    hours = TimeOfDateConstraint(time(0, 30, tzinfo=east), time(16, 30))

    always, dated_rates, daily = _dated_rates(
        [
            ConditionalPrice(prices=prices),
            ConditionalPrice(constraint=StartDateConstraint(since), prices=prices),
            ConditionalPrice(constraint=hours, prices=prices),
        ]
    )

    rates = Rates(input=THREE, per_call=Decimal(0))
    assert always == DatedRates(rates=rates)
    assert dated_rates == DatedRates(rates=rates, since=since)
    assert daily == DatedRates(rates=rates, daily=(time(16, 30), time(16, 30)))
