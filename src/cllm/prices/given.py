"""Prices that a person has written into the settings: `providers.NAME.prices`.

Checks and converts; what is wrong is a SettingsError of one sentence. Reads no file.
"""

from collections.abc import Mapping
from decimal import Decimal

from cllm.core.errors import SettingsError
from cllm.prices.record import Rate, Rates

KINDS = ("input", "output", "cache_read", "cache_write", "cache_write_hour", "reasoning")
HIGHEST_PRICE = 1_000_000


def read_given(given: Mapping[str, object]) -> dict[tuple[str, str], Rates]:
    """The rates by provider and model; `given` are the `prices` of each provider."""
    return {
        (provider, model): _read_rates(f"providers.{provider}.prices.{model}", prices)
        for provider, models in given.items()
        for model, prices in _read_models(provider, models).items()
    }


def _read_models(provider: str, models: object) -> Mapping[str, object]:
    if isinstance(models, Mapping) and all(isinstance(model, str) for model in models):
        return models
    raise SettingsError(
        f"`providers.{provider}.prices` must have a line for each model, such as "
        "gpt-4o: {input: 2.5, output: 10.0}."
    )


def _read_rates(path: str, prices: object) -> Rates:
    if not isinstance(prices, Mapping) or not prices:
        raise SettingsError(
            f"`{path}` must be prices in dollars per million tokens, such as "
            "{input: 2.5, output: 10.0}."
        )
    unknown = next((kind for kind in prices if kind not in KINDS), None)
    if unknown is not None:
        raise SettingsError(f"`{path}` has no price '{unknown}'; there are {', '.join(KINDS)}.")
    rates = {kind: _read_rate(f"{path}.{kind}", price) for kind, price in prices.items()}
    return Rates(**rates, per_call=Decimal(0))


def _read_rate(path: str, price: object) -> Rate:
    # Compared, not converted: NaN is not between two numbers, and infinity is above both.
    if isinstance(price, int | float | Decimal) and not isinstance(price, bool):
        exact = Decimal(str(price))
        if not exact.is_nan() and 0 <= exact <= HIGHEST_PRICE:
            return Rate(base=exact)
    raise SettingsError(
        f"`{path}` must be a number of dollars per million tokens, from 0 to {HIGHEST_PRICE}."
    )
