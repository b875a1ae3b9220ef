"""Lists models with their context windows and prices.

The names of a provider are from its own list, else from the price table.
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from datetime import datetime
from typing import TYPE_CHECKING

import msgspec

from cllm.core.errors import ModelNotFoundError, UsageError
from cllm.default_model import choose_model, find_ollama_address, list_keyed_providers
from cllm.prices.book import PROVIDERS, ModelRecord, Rates, TableEntry, read_configured
from cllm.provider_factory import ProviderFactory
from cllm.providers.http.transport import format_origin
from cllm.providers.local.models import CachePaths, list_models
from cllm.providers.ollama import OLLAMA, list_ollama_models
from cllm.providers.registry import BUILTIN_PROVIDERS, LOCAL
from cllm.settings.load import Settings
from cllm.terminal import align_columns, count_cells

if TYPE_CHECKING:
    from cllm.provider_models import ProviderModels

THOUSAND, MEGABYTE, GIGABYTE = 1000, 1_000_000, 1_000_000_000
UNKNOWN = "\N{EN DASH}"
HEADINGS = ("MODEL", "CONTEXT", "INPUT $/M", "OUTPUT $/M", "SIZE")
NARROW_HEADINGS = ("MODEL", "TOKENS", "IN $/M", "OUT", "SIZE")


class ModelRow(msgspec.Struct, frozen=True, kw_only=True):
    """`context` in tokens, prices in dollars per million tokens, `size` in bytes; None if unknown.

    `is_downloaded` is None for a model that is not a local one.
    """

    model: str
    provider: str
    context: int | None = None
    input_price: float | None = None
    output_price: float | None = None
    size: int | None = None
    is_downloaded: bool | None = None

    def to_columns(self) -> tuple[str, ...]:
        size = "" if self.size is None else f"{self.size / MEGABYTE:,.0f} MB"
        if self.is_downloaded is not None:
            size += ", downloaded" if self.is_downloaded else ", not downloaded"
        context = UNKNOWN if self.context is None else f"{self.context:,}"
        return self.model, context, *map(_format_price, self._prices), size

    def to_narrow_columns(self) -> tuple[str, ...]:
        size = "" if self.size is None else f"{self.size / GIGABYTE:.1f} GB"
        mark = ", downloaded" if self.is_downloaded else ""
        context = UNKNOWN if self.context is None else _format_tokens(self.context)
        return self.model, context, *map(_format_price, self._prices), f"{size}{mark}"

    @property
    def _prices(self) -> tuple[float | None, ...]:
        return self.input_price, self.output_price


def _format_tokens(count: int) -> str:
    return f"{count // THOUSAND:,}k" if count >= THOUSAND else str(count)


def _format_price(price: float | None) -> str:
    return UNKNOWN if price is None else f"{price:g}"


class ModelListing:
    """Lists models. `report` gets one sentence for each provider whose list cannot be read.

    `is_refresh`: call the providers although their lists are cached.
    """

    def __init__(
        self,
        settings: Settings,
        paths: CachePaths,
        *,
        now: datetime,
        report: Callable[[str], None],
        is_refresh: bool = False,
    ) -> None:
        self._settings = settings
        self._paths = paths
        self._now = now
        self._report = report
        self._is_refresh = is_refresh
        self._factory = ProviderFactory(
            settings, model=self._get_model, report=None, single_turn=True
        )
        prices = {name: row.options.get("prices", {}) for name, row in settings.providers.items()}
        self._configured_rates = read_configured(prices)

    def _get_model(self) -> str:
        return self._settings.model or choose_model(self._settings).model

    def list_rows(
        self, *, provider: str | None = None, is_complete: bool = False
    ) -> list[ModelRow]:
        """List the models of one provider, of all (`is_complete`), or of those with a key."""
        settings = self._settings
        known = {LOCAL, *BUILTIN_PROVIDERS, *settings.providers}
        if provider is not None and provider not in known:
            listed = ", ".join(sorted(known))
            raise UsageError(f"There is no provider '{provider}'; use one of {listed}.")
        configured = {
            *settings.providers,
            *list_keyed_providers(settings),
            *self._list_addressed_providers(),
        } - {LOCAL}
        names = [LOCAL, *sorted(configured | {OLLAMA})]
        if provider is not None:
            names = [provider]
        elif is_complete:
            names = [LOCAL, *sorted(known - {LOCAL})]
        is_called = configured | {provider} - {None, LOCAL}
        lists = self._read_lists(name for name in names if name in is_called and name != OLLAMA)
        rows: dict[str, ModelRow] = {}
        for name in names:
            for row in self._list_provider(name, lists.get(name)):
                rows.setdefault(row.model, row)
        if provider == OLLAMA and not rows:
            address = format_origin(find_ollama_address(settings))
            self._report(f"No Ollama server with chat models responds at {address}; start it.")
        return list(rows.values())

    def _list_addressed_providers(self) -> Iterator[str]:
        """Yield the providers that top-level settings give an address or a key."""
        for top in self._settings.top_providers:
            if top.settings.api_base is None and top.settings.api_key is None:
                continue
            with suppress(ModelNotFoundError):
                yield self._factory.resolve(top.model or self._get_model()).provider

    def _read_lists(self, names: Iterable[str]) -> "dict[str, ProviderModels]":
        names = list(names)
        if not names:
            return {}
        from cllm.provider_models import ModelListReader  # noqa: PLC0415 - imports asyncio

        reader = ModelListReader(
            self._factory, self._paths.root, now=self._now, is_refresh=self._is_refresh
        )
        lists = reader.read(names)
        for name, listed in lists.items():
            if listed.problem is not None:
                is_priced = listed.models is None and self._has_prices(name)
                advice = " The names in the price table are listed instead." if is_priced else ""
                self._report(f"{listed.problem}{advice}")
        return lists

    def _has_prices(self, name: str) -> bool:
        """Whether the price table is about this provider, and not about another server."""
        return name in PROVIDERS and not self._factory.has_custom_address(name)

    def _list_provider(self, name: str, listed: "ProviderModels | None") -> Iterator[ModelRow]:
        if name == LOCAL:
            yield from _list_local_models(self._paths)
            return
        configured = self._settings.providers.get(name)
        contexts: dict[str, int | None] = {}
        sizes: dict[str, int] = {}
        if name == OLLAMA:
            found = list_ollama_models(find_ollama_address(self._settings)) or ()
            sizes = {model.name: model.size for model in found}
        elif listed is not None and listed.models is not None:
            contexts = {model.name: model.context for model in listed.models}
        elif self._has_prices(name):
            contexts = dict.fromkeys(_list_priced_models(name))
        models = () if configured is None else configured.models
        for model in dict.fromkeys((*models, *contexts, *sizes)):
            yield self._build_row(name, model, contexts.get(model), sizes.get(model))

    def _build_row(
        self, provider: str, model: str, context: int | None, size: int | None
    ) -> ModelRow:
        record = ModelRecord()
        if self._has_prices(provider):
            record = _look_up(TableEntry(provider=PROVIDERS[provider], model=model))
        rates = self._configured_rates.get((provider, model)) or record.rates(self._now) or Rates()
        return ModelRow(
            model=f"{provider}/{model}",
            provider=provider,
            context=context or record.context_window,
            input_price=None if rates.input is None else float(rates.input.base),
            output_price=None if rates.output is None else float(rates.output.base),
            size=size or None,
        )


def _list_local_models(paths: CachePaths) -> Iterator[ModelRow]:
    for model in list_models(paths, with_known=True):
        yield ModelRow(
            model=f"{LOCAL}/{model.name}",
            provider=LOCAL,
            context=model.context,
            input_price=0,
            output_price=0,
            size=model.size,
            is_downloaded=model.is_downloaded,
        )


def _list_priced_models(provider: str) -> list[str]:
    from cllm.prices import table  # noqa: PLC0415 - loads genai-prices

    return table.list_models(PROVIDERS[provider])


def _look_up(entry: TableEntry) -> ModelRecord:
    from cllm.prices import table  # noqa: PLC0415 - loads genai-prices

    return table.look_up(entry)


def format_rows(rows: Sequence[ModelRow], *, columns: int | None = None) -> list[str]:
    """Return lines with aligned columns; shorter ones if they exceed the columns of a terminal."""
    lines = _align(HEADINGS, [row.to_columns() for row in rows])
    if columns is None or max(map(count_cells, lines)) <= columns:
        return lines
    return _align(NARROW_HEADINGS, [row.to_narrow_columns() for row in rows], columns)


def _align(
    headings: tuple[str, ...], cells: list[tuple[str, ...]], columns: int | None = None
) -> list[str]:
    """Omit the last column if it is empty."""
    width = len(headings) if any(row[-1] for row in cells) else len(headings) - 1
    return align_columns((row[:width] for row in (headings, *cells)), columns)
