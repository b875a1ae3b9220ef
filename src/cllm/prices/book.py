"""The book of prices: what a call cost, and how much fits a model.

What a person has configured wins; then genai-prices' table, looked up once for each model and
kept in memory and in a file. What neither knows is None. Never asks the network.
"""

from collections.abc import Collection, Mapping
from datetime import datetime
from decimal import Decimal
from pathlib import Path

from cllm.core.reply import Usage
from cllm.prices.given import read_given
from cllm.prices.names import TableEntry, table_entry
from cllm.prices.record import ModelRecord, Rates

MOST_REMEMBERED = 1024
_UNKNOWN = ModelRecord()


class PriceBook:
    """Prices by our names of providers and their names of models.

    `folder` is for what was looked up. `given` are the `prices` of each provider's settings.
    `redirected` are the providers that are reached at an address which is not their own: who is
    paid there, and what, nobody knows but the person.

    The first look at a model that is in no file takes 200 ms, in which nothing else runs: where
    others wait, call `context_window` in a thread beforehand.
    """

    def __init__(
        self,
        folder: Path,
        *,
        given: Mapping[str, object] | None = None,
        redirected: Collection[str] = (),
    ) -> None:
        self._folder = folder
        self._given = read_given(given or {})
        self._redirected = frozenset(redirected)
        self._records: dict[tuple[str, str], ModelRecord] = {}

    def price(self, provider: str, model: str, usage: Usage, at: datetime) -> Decimal | None:
        """Dollars for a call made at that time; None if they are not known.

        The cost of an estimated usage is an estimate too.
        """
        rates = self._rates(provider, model, at)
        return None if rates is None else rates.cost(usage)

    def context_window(self, provider: str, model: str) -> int | None:
        """How many tokens the model can take; None if that is not known."""
        return self._record(provider, model).context_window

    def _rates(self, provider: str, model: str, at: datetime) -> Rates | None:
        given = self._given.get((provider, model))
        return given if given is not None else self._record(provider, model).rates(at)

    def _record(self, provider: str, model: str) -> ModelRecord:
        record = self._records.get((provider, model))
        if record is None:
            record = self._find(provider, model)
            if len(self._records) >= MOST_REMEMBERED:
                self._records.clear()
            self._records[provider, model] = record
        return record

    def _find(self, provider: str, model: str) -> ModelRecord:
        entry = None if provider in self._redirected else table_entry(provider, model)
        return _UNKNOWN if entry is None else _look_up(entry, self._folder)


def _look_up(entry: TableEntry, folder: Path) -> ModelRecord:
    from cllm.prices.cache import RecordFiles, installed_version  # noqa: PLC0415

    version = installed_version()
    files = None if version is None else RecordFiles(folder=folder, version=version)
    record = None if files is None else files.read(entry)
    if record is None:
        from cllm.prices.table import look_up  # noqa: PLC0415 - loads genai-prices

        record = look_up(entry)
        if files is not None:
            files.write(entry, record)
    return record
