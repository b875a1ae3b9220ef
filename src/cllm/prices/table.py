"""Reads a model's record from genai-prices; the only module that imports it.

Uses only the installed table, because records are cached by the installed version.
"""

from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal

import msgspec
from genai_prices.data import providers
from genai_prices.data_snapshot import DataSnapshot
from genai_prices.types import (
    ConditionalPrice,
    ModelPrice,
    StartDateConstraint,
    TieredPrices,
    TimeOfDateConstraint,
)

from cllm.prices.book import DatedRates, ModelRecord, Rate, Rates, TableEntry, Tier

# The table's names for the price of each kind of token, the preferred one first.
KINDS = {
    "input": ("input_mtok",),
    "output": ("output_mtok",),
    "cache_read": ("cache_read_mtok",),
    "cache_write": ("cache_write_5m_mtok", "cache_write_mtok"),
    "cache_write_hour": ("cache_write_1h_mtok",),
    "reasoning": ("output_reasoning_mtok",),
}
# Models whose cache writes cost as much as input; the table has no price for them.
CACHE_WRITE_AT_INPUT_PRICE = (("aws", "nova"),)
# The price of tokens that Usage does not count.
UNCOUNTED = "output_citation_mtok"
_CALLS_PER_UNIT = 1000


def look_up(entry: TableEntry) -> ModelRecord:
    snapshot = DataSnapshot(providers=providers, from_auto_update=False)
    try:
        _, model = snapshot.find_provider_model(entry.model, None, entry.provider, None)
    except LookupError:
        return ModelRecord()
    dated_rates = tuple(_dated_rates(model.prices))
    if any(
        entry.provider == provider and name in entry.model
        for provider, name in CACHE_WRITE_AT_INPUT_PRICE
    ):
        dated_rates = tuple(map(_with_cache_write_price, dated_rates))
    return ModelRecord(dated_rates=dated_rates, context_window=model.context_window or None)


def list_models(provider: str) -> list[str]:
    """Return the names of a provider's models in the table, without those it has withdrawn."""
    rows = (row for row in providers if row.id == provider)
    return [model.id for row in rows for model in row.models if not model.deprecated]


def _with_cache_write_price(dated_rates: DatedRates) -> DatedRates:
    rates = dated_rates.rates
    if rates is None or rates.cache_write is not None:
        return dated_rates
    rates = msgspec.structs.replace(rates, cache_write=rates.input)
    return msgspec.structs.replace(dated_rates, rates=rates)


def _dated_rates(prices: ModelPrice | list[ConditionalPrice]) -> Iterator[DatedRates]:
    if isinstance(prices, ModelPrice):
        yield DatedRates(rates=_rates(prices))
        return
    for conditional in prices:
        rates, constraint = _rates(conditional.prices), conditional.constraint
        if isinstance(constraint, StartDateConstraint):
            yield DatedRates(rates=rates, since=constraint.start_date)
        elif isinstance(constraint, TimeOfDateConstraint):
            daily = (_in_utc(constraint.start_time), _in_utc(constraint.end_time))
            yield DatedRates(rates=rates, daily=daily)
        else:
            yield DatedRates(rates=rates)


def _in_utc(value: time) -> time:
    if value.tzinfo is None:
        return value
    return datetime.combine(date(1970, 1, 1), value).astimezone(UTC).time()


def _rates(prices: ModelPrice) -> Rates | None:
    """Return the rates; None without any, or if a call has a cost that Usage does not count."""
    rates = {kind: _rate(prices, names) for kind, names in KINDS.items()}
    per_call = prices.requests_kcount or Decimal(0)
    if getattr(prices, UNCOUNTED) is not None or isinstance(per_call, TieredPrices):
        return None
    if not any(rates.values()):
        return None
    return Rates(**rates, per_call=per_call / _CALLS_PER_UNIT)


def _rate(prices: ModelPrice, names: tuple[str, ...]) -> Rate | None:
    price: Decimal | TieredPrices | None = next(
        (value for name in names if (value := getattr(prices, name)) is not None), None
    )
    if price is None:
        return None
    if isinstance(price, TieredPrices):
        tiers = tuple(Tier(above=tier.start, price=tier.price) for tier in price.tiers)
        return Rate(base=price.base, tiers=tiers)
    return Rate(base=price)
