"""The cost of a call and the context window of a model.

Prices from the settings come first, then genai-prices' table; what neither knows is None. The
table takes 200 ms to import, so each record found in it is saved in memory and in a file; a
damaged file is read from the table again. Makes no network call.
"""

import contextlib
import functools
from collections.abc import Collection, Mapping
from datetime import datetime
from decimal import Decimal
from importlib.util import find_spec
from pathlib import Path

import msgspec

from cllm.core.errors import SettingsError
from cllm.core.reply import Usage
from cllm.files import CacheFolder
from cllm.prices.names import TableEntry, table_entry
from cllm.prices.record import ModelRecord, Rate, Rates

PACKAGE = "genai_prices"
FORMAT = 4
"""Increase it when ModelRecord, or how one is made from the table, changes."""

MAX_RECORDS = 1024
MAX_FILES = 512
MAX_FILE_BYTES = 64 * 1024
HIGHEST_PRICE = 1_000_000
KINDS = ("input", "output", "cache_read", "cache_write", "cache_write_hour", "reasoning")


class PriceBook:
    """Prices by our names of providers and their names of models.

    `folder` is the cache. `given` has the `prices` of each provider's settings. `redirected` are
    the providers that are called at an address other than their own, where prices are unknown.

    The first look-up of a model that has no file takes 200 ms and blocks: in a server, call
    `context_window` in a thread first.
    """

    def __init__(
        self,
        folder: Path,
        *,
        given: Mapping[str, object] | None = None,
        redirected: Collection[str] = (),
    ) -> None:
        self._cache = CacheFolder(folder=folder, max_files=MAX_FILES, max_bytes=MAX_FILE_BYTES)
        self._given = _read_given(given or {})
        self._redirected = frozenset(redirected)
        self._records: dict[tuple[str, str], ModelRecord] = {}

    def price(self, provider: str, model: str, usage: Usage, at: datetime) -> Decimal | None:
        """Dollars for a call made at that time; None if they are not known."""
        rates = self._given.get((provider, model)) or self._record(provider, model).rates(at)
        return None if rates is None else rates.cost(usage)

    def price_turn(self, provider: str, model: str, usage: Usage, at: datetime) -> float | None:
        """The price of a stored turn, whose model may have its provider's name before it."""
        cost = self.price(provider, model.removeprefix(f"{provider}/"), usage, at)
        return None if cost is None else float(cost)

    def context_window(self, provider: str, model: str) -> int | None:
        """How many tokens the model accepts; None if that is not known."""
        return self._record(provider, model).context_window

    def _record(self, provider: str, model: str) -> ModelRecord:
        record = self._records.get((provider, model))
        if record is None:
            entry = None if provider in self._redirected else table_entry(provider, model)
            record = ModelRecord() if entry is None else _look_up(entry, self._cache)
            if len(self._records) >= MAX_RECORDS:
                self._records.clear()
            self._records[provider, model] = record
        return record


def _look_up(entry: TableEntry, cache: CacheFolder) -> ModelRecord:
    version = installed_version()
    key = repr((FORMAT, version, entry.provider, entry.model))
    saved = cache.read(key) if version is not None else None
    if saved is not None:
        with contextlib.suppress(msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return msgspec.json.decode(saved, type=ModelRecord)
    from cllm.prices.table import look_up  # noqa: PLC0415 - loads genai-prices

    record = look_up(entry)
    if version is not None:
        cache.write(key, msgspec.json.encode(record))
    return record


@functools.cache
def installed_version() -> str | None:
    """The version of genai-prices from the name of its metadata folder; None if not found.

    importlib.metadata takes 30 ms.
    """
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        return None
    start, end = f"{PACKAGE}-", ".dist-info"
    found = list(Path(spec.origin).parent.parent.glob(f"{start}*{end}"))
    return found[0].name.removeprefix(start).removesuffix(end) if len(found) == 1 else None


def _read_given(given: Mapping[str, object]) -> dict[tuple[str, str], Rates]:
    """The rates of `providers.NAME.prices` by provider and model."""
    rates = {}
    for provider, models in given.items():
        where = f"providers.{provider}.prices"
        if not isinstance(models, Mapping) or not all(isinstance(model, str) for model in models):
            example = "gpt-4o: {input: 2.5, output: 10.0}"
            raise SettingsError(f"`{where}` must have a line for each model, such as {example}.")
        for model, prices in models.items():
            rates[provider, model] = _read_rates(f"{where}.{model}", prices)
    return rates


def _read_rates(where: str, prices: object) -> Rates:
    if not isinstance(prices, Mapping) or not prices:
        raise SettingsError(
            f"`{where}` must be prices in dollars per million tokens, such as "
            "{input: 2.5, output: 10.0}."
        )
    rates: dict[str, Rate] = {}
    for kind, price in prices.items():
        if kind not in KINDS:
            raise SettingsError(f"`{where}` has no price '{kind}'; there are {', '.join(KINDS)}.")
        is_number = isinstance(price, int | float | Decimal) and not isinstance(price, bool)
        exact = Decimal(str(price)) if is_number else Decimal("NaN")
        if exact.is_nan() or not 0 <= exact <= HIGHEST_PRICE:
            raise SettingsError(
                f"`{where}.{kind}` must be a number of dollars per million tokens, "
                f"from 0 to {HIGHEST_PRICE}."
            )
        rates[kind] = Rate(base=exact)
    return Rates(**rates, per_call=Decimal(0))
