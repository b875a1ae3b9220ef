"""Lists models with their context windows and prices.

Reads the cache folder, the settings, the price table and a running Ollama. Calls no provider.
"""

from collections.abc import Iterable, Iterator
from datetime import datetime

import msgspec

from cllm.core.errors import UsageError
from cllm.default_model import find_ollama_address, list_keyed_providers
from cllm.prices.book import PROVIDERS, TableEntry
from cllm.providers.local.models import CachePaths, list_models
from cllm.providers.ollama import OLLAMA, list_ollama_models
from cllm.providers.registry import BUILTIN_PROVIDERS, LOCAL
from cllm.settings.load import Settings

MEGABYTE = 1_000_000
HEADINGS = ("MODEL", "CONTEXT", "INPUT $/M", "OUTPUT $/M", "SIZE")


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
        return (
            self.model,
            "" if self.context is None else f"{self.context:,}",
            "" if self.input_price is None else f"{self.input_price:g}",
            "" if self.output_price is None else f"{self.output_price:g}",
            size,
        )


def list_rows(
    settings: Settings,
    paths: CachePaths,
    *,
    now: datetime,
    provider: str | None = None,
    is_complete: bool = False,
) -> list[ModelRow]:
    """List the models of one provider, of all (`is_complete`), or of those with a key."""
    known = {LOCAL, *BUILTIN_PROVIDERS, *settings.providers}
    if provider is not None and provider not in known:
        listed = ", ".join(sorted(known))
        raise UsageError(f"There is no provider '{provider}'; use one of {listed}.")
    if provider is not None:
        names = [provider]
    elif is_complete:
        names = [LOCAL, *sorted(known - {LOCAL})]
    else:
        names = [LOCAL, *sorted({OLLAMA, *settings.providers, *list_keyed_providers(settings)})]
    rows: dict[str, ModelRow] = {}
    for name in names:
        for row in _list_provider(name, settings, paths, now):
            rows.setdefault(row.model, row)
    return list(rows.values())


def _list_provider(
    name: str, settings: Settings, paths: CachePaths, now: datetime
) -> Iterator[ModelRow]:
    if name == LOCAL:
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
        return
    configured = settings.providers.get(name)
    models = () if configured is None else configured.models
    yield from (ModelRow(model=f"{name}/{model}", provider=name) for model in models)
    if name == OLLAMA:
        for found in list_ollama_models(find_ollama_address(settings)) or ():
            yield ModelRow(model=f"{name}/{found.name}", provider=name, size=found.size or None)
    elif name in PROVIDERS and (configured is None or configured.api_base is None):
        yield from _list_priced_models(name, now)


def _list_priced_models(name: str, now: datetime) -> Iterator[ModelRow]:
    from cllm.prices import table  # noqa: PLC0415 - loads genai-prices

    for model in table.list_models(PROVIDERS[name]):
        record = table.look_up(TableEntry(provider=PROVIDERS[name], model=model))
        rates = record.rates(now)
        yield ModelRow(
            model=f"{name}/{model}",
            provider=name,
            context=record.context_window,
            input_price=None if rates is None or rates.input is None else float(rates.input.base),
            output_price=(
                None if rates is None or rates.output is None else float(rates.output.base)
            ),
        )


def format_rows(rows: Iterable[ModelRow]) -> list[tuple[str, ...]]:
    return [HEADINGS, *(row.to_columns() for row in rows)]
