"""The cost of a call and the context window of a model; None if unknown.

Prices in the settings take precedence over genai-prices. Its import takes 200 ms, so records are
cached in memory and in files.
"""

import contextlib
import functools
from collections.abc import Collection, Mapping
from datetime import UTC, date, datetime, time
from decimal import Context, Decimal
from importlib.util import find_spec
from pathlib import Path

import msgspec

from cllm.core.errors import SettingsError
from cllm.core.reply import Usage
from cllm.files import CacheFolder
from cllm.providers.registry import KNOWN_PREFIXES, LITELLM, LOCAL

PACKAGE = "genai_prices"
FORMAT = 4
"""Increase it when ModelRecord changes, or the way `table.look_up` builds one."""

MAX_RECORDS = 1024
MAX_FILES = 512
MAX_FILE_BYTES = 64 * 1024
MAX_PRICE = 1_000_000
KINDS = ("input", "output", "cache_read", "cache_write", "cache_write_hour", "reasoning")
MAX_NAME_LENGTH = 256
SAME_NAMES = (
    *("anthropic", "cerebras", "deepseek", "fireworks", "groq", "mistral", "openai"),
    *("openrouter", "perplexity", "together"),
)
PROVIDERS = {name: name for name in SAME_NAMES} | {
    "bedrock": "aws",
    "moonshot": "moonshotai",
    "xai": "x-ai",
}
# Without `azure/` and `vertex_ai/`: a deployment's name follows, or the price varies by region.
LITELLM_PROVIDERS = {
    **PROVIDERS,
    "cohere": "cohere",
    "cohere_chat": "cohere",
    "fireworks_ai": "fireworks",
    "gemini": "google",
    "together_ai": "together",
}
_ARN_FIELDS = 5
_NAMED_BY_ARN = frozenset({"foundation-model", "inference-profile"})
_EXACT = Context(prec=100)
_PER_MILLION = -6


class Tier(msgspec.Struct, frozen=True, kw_only=True):
    """The price of all tokens of a call whose prompt has more than `above` tokens."""

    above: int
    price: Decimal


class Rate(msgspec.Struct, frozen=True, kw_only=True):
    """Dollars per million tokens; `tiers` are in ascending order."""

    base: Decimal
    tiers: tuple[Tier, ...] = ()

    def price(self, prompt_tokens: int) -> Decimal:
        for tier in reversed(self.tiers):
            if prompt_tokens > tier.above:
                return tier.price
        return self.base


class Rates(msgspec.Struct, frozen=True, kw_only=True):
    """A rate per kind of token; None if unknown. Without a rate, reasoning costs as output."""

    input: Rate | None = None
    output: Rate | None = None
    cache_read: Rate | None = None
    cache_write: Rate | None = None
    cache_write_hour: Rate | None = None
    reasoning: Rate | None = None
    per_call: Decimal = Decimal(0)

    def cost(self, usage: Usage) -> Decimal | None:
        prompt_tokens = usage.input + usage.cache_read + usage.cache_write
        total = _EXACT.scaleb(self.per_call, -_PER_MILLION)
        hour = usage.cache_write_hour
        for tokens, rate in (
            (usage.input, self.input),
            (usage.cache_read, self.cache_read),
            (usage.cache_write - hour, self.cache_write),
            (hour, self.cache_write_hour),
            (usage.output, self.output),
            (usage.reasoning, self.reasoning or self.output),
        ):
            if not tokens:
                continue
            if rate is None or tokens < 0:
                return None
            total = _EXACT.fma(rate.price(prompt_tokens), tokens, total)
        return _EXACT.scaleb(total, _PER_MILLION)


class DatedRates(msgspec.Struct, frozen=True, kw_only=True):
    """Rates and when they apply, in UTC; a `daily` range whose end is earlier spans midnight."""

    rates: Rates | None
    since: date | None = None
    daily: tuple[time, time] | None = None

    def applies(self, at: datetime) -> bool:
        if self.since is not None and at.date() < self.since:
            return False
        if self.daily is None:
            return True
        start, end = self.daily
        if end < start:
            return at.time() >= start or at.time() < end
        return start <= at.time() < end


class ModelRecord(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Empty if the model is unknown. The last rates that apply are used, else the first."""

    dated_rates: tuple[DatedRates, ...] = ()
    context_window: int | None = None

    def rates(self, at: datetime) -> Rates | None:
        """Return the rates at a time; without a time zone it is UTC."""
        if len(self.dated_rates) <= 1:
            return self.dated_rates[0].rates if self.dated_rates else None
        at = at.replace(tzinfo=UTC) if at.tzinfo is None else at.astimezone(UTC)
        applicable = (rates for rates in reversed(self.dated_rates) if rates.applies(at))
        return next(applicable, self.dated_rates[0]).rates


class TableEntry(msgspec.Struct, frozen=True, kw_only=True):
    """Names in genai-prices."""

    provider: str
    model: str


def table_entry(provider: str, model: str) -> TableEntry | None:
    """Return the entry of a model; None if its name does not identify the provider."""
    if len(model) > MAX_NAME_LENGTH:
        return None
    names = PROVIDERS
    if provider == LITELLM:
        names = LITELLM_PROVIDERS
        prefix, slash, rest = model.partition("/")
        if slash:
            provider, model = prefix, rest
        else:
            matches = (name for start, name in KNOWN_PREFIXES.items() if model.startswith(start))
            provider = next(matches, "")
    owner: str | None = names.get(provider)
    name: str | None = model
    if owner == "aws":
        if names is LITELLM_PROVIDERS and not model.startswith("arn:"):
            # A route or a region can precede the id: bedrock/converse/ID, bedrock/us-east-1/ID.
            model = model.rpartition("/")[2]
        name = _bedrock_name(model)
    return TableEntry(provider=owner, model=name) if owner and name else None


def _bedrock_name(model: str) -> str | None:
    """Return the model id; a short name without a region is the regional model, as in a request."""
    from cllm.wire.bedrock.models import UnknownModelError, resolve_model_id  # noqa: PLC0415

    if model.startswith("arn:"):
        resource, _, name = model.split(":", _ARN_FIELDS)[-1].partition("/")
        return name if resource in _NAMED_BY_ARN else None
    try:
        return resolve_model_id(model)
    except UnknownModelError:
        return None


class PriceBook:
    """`configured`: `prices` of providers' settings. `redirected_providers` have another
    base URL.

    The first look-up of a model without a cache file blocks for 200 ms: a server calls
    `context_window` in a thread first.
    """

    def __init__(
        self,
        folder: Path,
        *,
        configured: Mapping[str, object] | None = None,
        redirected_providers: Collection[str] = (),
    ) -> None:
        self._cache = CacheFolder(folder=folder, max_files=MAX_FILES, max_bytes=MAX_FILE_BYTES)
        self._configured = read_configured(configured or {})
        self._redirected = frozenset(redirected_providers)
        self._record = functools.lru_cache(MAX_RECORDS)(self._find_record)

    def price(self, provider: str, model: str, usage: Usage, at: datetime) -> Decimal | None:
        rates = self._configured.get((provider, model))
        if rates is None and provider == LOCAL:
            # A model in a child process of ours is never billed.
            return Decimal(0)
        rates = rates or self._record(provider, model).rates(at)
        return None if rates is None else rates.cost(usage)

    def price_turn(self, provider: str, model: str, usage: Usage, at: datetime) -> float | None:
        """Price a stored turn, whose model may start with its provider's name.

        A provider's own name for a model can start so too: Groq has `groq/compound`.
        """
        names = dict.fromkeys((model.removeprefix(f"{provider}/"), model))
        costs = (self.price(provider, name, usage, at) for name in names)
        cost = next((cost for cost in costs if cost is not None), None)
        return None if cost is None else float(cost)

    def context_window(self, provider: str, model: str) -> int | None:
        return self._record(provider, model).context_window

    def _find_record(self, provider: str, model: str) -> ModelRecord:
        entry = None if provider in self._redirected else table_entry(provider, model)
        return ModelRecord() if entry is None else _look_up(entry, self._cache)


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
    """Read the version from the name of the metadata folder: importlib.metadata takes 30 ms."""
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        return None
    start, end = f"{PACKAGE}-", ".dist-info"
    folders = list(Path(spec.origin).parent.parent.glob(f"{start}*{end}"))
    return folders[0].name.removeprefix(start).removesuffix(end) if len(folders) == 1 else None


def read_configured(configured: Mapping[str, object]) -> dict[tuple[str, str], Rates]:
    """Return the rates of each provider and model in the settings."""
    rates = {}
    for provider, models in configured.items():
        where = f"providers.{provider}.prices"
        if not isinstance(models, Mapping) or not all(isinstance(model, str) for model in models):
            example = "gpt-4o: {input: 2.5, output: 10.0}"
            raise SettingsError(f"`{where}` must map each model to its prices, such as {example}.")
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
            raise SettingsError(f"`{where}` has no price '{kind}'; use one of {', '.join(KINDS)}.")
        is_number = isinstance(price, int | float | Decimal) and not isinstance(price, bool)
        exact = Decimal(str(price)) if is_number else Decimal("NaN")
        if exact.is_nan() or not 0 <= exact <= MAX_PRICE:
            raise SettingsError(
                f"`{where}.{kind}` must be a number of dollars per million tokens, "
                f"from 0 to {MAX_PRICE}."
            )
        rates[kind] = Rate(base=exact)
    return Rates(**rates, per_call=Decimal(0))
