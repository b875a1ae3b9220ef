"""PriceBook and genai-prices return the same prices."""

import subprocess
import sys
import textwrap
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import msgspec
import pytest
from genai_prices import Usage as TableUsage
from genai_prices.data import providers
from genai_prices.data_snapshot import DataSnapshot, set_custom_snapshot
from genai_prices.types import ModelInfo, ModelPrice, TieredPrices

from cllm.core.reply import Usage
from cllm.prices.book import LITELLM_PROVIDERS, PriceBook, Rates, TableEntry
from cllm.prices.table import look_up

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
TABLE = {provider.id: provider for provider in providers}
MILLION = 1_000_000
REQUEST_NAMES = {"fireworks": "accounts/fireworks/models/{}"}
"""Providers whose model names in requests differ from the ids in the table."""


@pytest.fixture
def book(tmp_path: Path) -> PriceBook:
    return PriceBook(tmp_path / "prices")


def model_of(provider: str, name: str) -> ModelInfo:
    model = TABLE[provider].find_model(name)
    assert model is not None
    return model


def table_price(prices: ModelPrice, name: str, *, above: bool = False) -> Decimal:
    """The table's own figure of a price, below or above its one border."""
    price = getattr(prices, name)
    if isinstance(price, TieredPrices):
        (tier,) = price.tiers
        return tier.price if above else price.base
    assert isinstance(price, Decimal)
    return price


def price_in_table(model: ModelInfo, provider: str, usage: Usage, at: datetime) -> Decimal:
    """What genai-prices makes of it, in whose words the parts are counted in the whole."""
    counted = TableUsage(
        input_tokens=usage.input + usage.cache_read + usage.cache_write,
        cache_read_tokens=usage.cache_read,
        cache_write_tokens=usage.cache_write,
        output_tokens=usage.output + usage.reasoning,
        output_reasoning_tokens=usage.reasoning,
    )
    calculation = model.calc_price(counted, TABLE[provider], genai_request_timestamp=at)
    return calculation.total_price


class TestFigures:
    MODEL = "claude-sonnet-4-5-20250929"

    @pytest.mark.parametrize("above", [False, True])
    def test_each_kind_has_the_price_of_the_table_and_the_kinds_add_up(self, book, above):
        usage = Usage(
            input=250_000 if above else 50_000,
            cache_read=40_000,
            cache_write=30_000,
            output=2_000,
            reasoning=1_000,
        )
        prices = model_of("anthropic", self.MODEL).prices
        assert isinstance(prices, ModelPrice)
        assert isinstance(prices.input_mtok, TieredPrices)

        cost = book.price("anthropic", self.MODEL, usage, NOW)

        by_hand = (
            usage.input * table_price(prices, "input_mtok", above=above)
            + usage.cache_read * table_price(prices, "cache_read_mtok", above=above)
            + usage.cache_write * table_price(prices, "cache_write_mtok", above=above)
            + (usage.output + usage.reasoning) * table_price(prices, "output_mtok", above=above)
        ) / MILLION
        assert cost == by_hand
        assert cost > 0

    def test_a_cache_write_has_the_five_minute_price(self, book):
        prices = model_of("anthropic", self.MODEL).prices
        assert isinstance(prices, ModelPrice)
        five_minutes = table_price(prices, "cache_write_mtok")
        assert five_minutes == table_price(prices, "input_mtok") * Decimal("1.25")

        cost = book.price("anthropic", self.MODEL, Usage(cache_write=100_000), NOW)

        assert cost == five_minutes / 10

    def test_a_cache_write_for_an_hour_costs_more(self, book):
        prices = model_of("anthropic", self.MODEL).prices
        assert isinstance(prices, ModelPrice)
        hour = table_price(prices, "cache_write_1h_mtok")
        assert hour == table_price(prices, "input_mtok") * 2
        usage = Usage(cache_write=100_000, cache_write_hour=100_000)

        assert book.price("anthropic", self.MODEL, usage, NOW) == hour / 10

    def test_the_price_of_a_bedrock_model_depends_on_its_profile(self, book):
        name = "anthropic.claude-sonnet-4-5-20250929-v1:0"
        usage = Usage(input=1000, output=10)

        regional = book.price("bedrock", f"us.{name}", usage, NOW)
        worldwide = book.price("bedrock", f"global.{name}", usage, NOW)

        assert None is not regional > worldwide is not None
        assert book.price("bedrock", "claude-sonnet-4-5", usage, NOW) == regional
        assert book.price("litellm", f"bedrock/us.{name}", usage, NOW) == regional

    def test_a_dated_name_has_the_price_of_its_model(self, book):
        usage = Usage(input=1000, output=10)

        assert book.price("openai", "gpt-4o", usage, NOW) is not None
        assert book.price("openai", "gpt-4o-2024-08-06", usage, NOW) == book.price(
            "openai", "gpt-4o", usage, NOW
        )

    def test_the_price_depends_on_the_date(self, book):
        usage = Usage(input=MILLION)

        assert book.price("openai", "o3", usage, datetime(2025, 6, 9, tzinfo=UTC)) == 10
        assert book.price("openai", "o3", usage, datetime(2025, 6, 10, tzinfo=UTC)) == 2

    def test_the_price_depends_on_the_hour(self, book):
        usage = Usage(input=MILLION)

        day = book.price("deepseek", "deepseek-chat", usage, NOW)
        night = book.price("deepseek", "deepseek-chat", usage, NOW.replace(hour=20))

        assert day == 2 * night > 0

    def test_a_price_per_call_is_included(self, book):
        prices = model_of("perplexity", "sonar").prices
        assert isinstance(prices, ModelPrice)

        cost = book.price("perplexity", "sonar", Usage(input=MILLION), NOW)

        assert (
            cost
            == table_price(prices, "input_mtok") + table_price(prices, "requests_kcount") / 1000
        )

    def test_tokens_that_usage_does_not_count_make_the_cost_unknown(self, book):
        prices = model_of("perplexity", "sonar-deep-research").prices
        assert isinstance(prices, ModelPrice)
        assert prices.output_citation_mtok is not None

        assert book.price("perplexity", "sonar-deep-research", Usage(input=1), NOW) is None

    @pytest.mark.parametrize(
        ("provider", "model", "usage"),
        [
            ("openai", "gpt-4o", Usage(cache_write=1)),
            ("groq", "llama-3.3-70b-versatile", Usage(input=10, cache_read=1)),
            ("openai", "whisper-1", Usage(input=1)),
            ("mistral", "devstral-small:free", Usage()),
            ("openai", "gpt-of-my-own", Usage(input=1)),
            ("anthropic", "gpt-4o", Usage(input=1)),
            ("nvidia", "meta/llama-3.1-8b-instruct", Usage(input=1)),
        ],
    )
    def test_a_price_that_the_table_does_not_have_is_unknown(self, book, provider, model, usage):
        assert book.price(provider, model, usage, NOW) is None

    def test_the_context_window_comes_from_the_table(self, book):
        window = model_of("openai", "gpt-4o").context_window

        assert window is not None
        assert book.context_window("openai", "gpt-4o") == window
        assert book.context_window("openai", "gpt-of-my-own") is None


def has_every_rate(rates: Rates) -> bool:
    return None not in (rates.input, rates.output, rates.cache_read, rates.cache_write)


@pytest.mark.parametrize("provider", sorted(set(LITELLM_PROVIDERS.values())))
def test_the_cost_equals_that_of_genai_prices_for_every_model(provider):
    """Where we know a cost it is theirs; they also guess where a kind of token has no price."""
    usages = (
        Usage(input=1000, output=200, cache_read=500, cache_write=300, reasoning=70),
        Usage(input=150_000, output=2000, cache_read=100_000, cache_write=50_000, reasoning=70),
        Usage(input=600_000, output=1, reasoning=3),
        Usage(input=1000, output=200),
    )
    times = (NOW, NOW.replace(hour=2), NOW.replace(year=2024))
    compared = set()
    for listed in TABLE[provider].models:
        name = REQUEST_NAMES.get(provider, "{}").format(listed.id.removeprefix("regional."))
        model = TABLE[provider].find_model(name)
        if model is None:
            continue
        record = look_up(TableEntry(provider=provider, model=name))
        assert record.context_window == model.context_window
        for at in times:
            rates = record.rates(at)
            for usage in usages:
                cost = None if rates is None else rates.cost(usage)
                if cost is not None:
                    assert cost == price_in_table(model, provider, usage, at), (name, usage)
                    compared.add(name)
                else:
                    assert rates is None or not has_every_rate(rates)
    assert len(compared) > len(TABLE[provider].models) * 0.6


def test_prices_fetched_by_other_code_are_not_cached_under_the_installed_version():
    entry = TableEntry(provider="openai", model="gpt-4o")
    set_custom_snapshot(DataSnapshot(providers=[], from_auto_update=True))
    try:
        assert look_up(entry).dated_rates
    finally:
        set_custom_snapshot(None)


def test_a_look_up_starts_no_thread_and_opens_no_connection(tmp_path):
    program = """
        import sys, threading
        from datetime import UTC, datetime
        from pathlib import Path

        def refuse(event, arguments):
            if event.startswith(("socket.", "subprocess.")):
                raise SystemExit(f"{event} {arguments}")

        sys.addaudithook(refuse)
        from cllm.core.reply import Usage
        from cllm.prices.book import PriceBook

        book = PriceBook(Path(sys.argv[1]))
        print(book.price("openai", "gpt-4o", Usage(input=1), datetime.now(UTC)) is not None)
        print("genai_prices" in sys.modules, threading.active_count())
    """

    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program), str(tmp_path)],
        capture_output=True,
        check=False,
        text=True,
        timeout=60,
    )

    assert done.stderr == ""
    assert done.stdout.split() == ["True", "True", "1"]


class TestByHand:
    """Calls whose cost was worked out on paper, from the prices that the providers publish."""

    CACHED = Usage(input=1_000, cache_read=20_000, cache_write=3_000, output=500)

    @pytest.mark.parametrize(
        ("provider", "model", "usage", "dollars"),
        [
            # 3 000 + 6 000 + 11 250 + 7 500 millionths
            ("anthropic", "claude-sonnet-4-5", CACHED, "0.02775"),
            # 5 000 + 10 000 + 18 750 + 12 500
            ("anthropic", "claude-opus-4-5", CACHED, "0.04625"),
            # 3 300 + 6 600 + 12 375 + 8 250
            ("bedrock", "claude-sonnet-4-5", CACHED, "0.030525"),
            # 800 + 4 000 + 2 400 + 1 600: writing costs what input does
            ("bedrock", "amazon.nova-pro-v1:0", CACHED, "0.0088"),
            # 4 000 + 8 000 + 15 000 + 10 000
            ("openai", "gpt-5.6", CACHED, "0.037"),
            # 2 500 + 25 000 + 5 000
            ("openai", "gpt-4o", Usage(input=1_000, cache_read=20_000, output=500), "0.0325"),
        ],
    )
    def test_cached_tokens_have_their_own_price(self, book, provider, model, usage, dollars):
        assert book.price(provider, model, usage, NOW) == Decimal(dollars)

    @pytest.mark.parametrize(
        ("provider", "dollars"),
        [
            # 3 000 + 6 000 + 7 500 for five minutes + 6 000 for an hour + 7 500
            ("anthropic", "0.03"),
            # 3 300 + 6 600 + 8 250 + 6 600 + 8 250
            ("bedrock", "0.033"),
        ],
    )
    def test_tokens_cached_for_an_hour_cost_twice_as_much_as_input(self, book, provider, dollars):
        usage = msgspec.structs.replace(self.CACHED, cache_write_hour=1_000)

        assert book.price(provider, "claude-sonnet-4-5", usage, NOW) == Decimal(dollars)

    def test_a_long_prompt_costs_more_even_if_it_is_cached(self, book):
        usage = Usage(input=1_000, cache_read=200_000, output=500)

        # 6 000 + 120 000 + 11 250
        assert book.price("anthropic", "claude-sonnet-4-5", usage, NOW) == Decimal("0.13725")

    def test_tokens_without_a_price_make_the_cost_unknown(self, book):
        assert book.price("openai", "gpt-4o", self.CACHED, NOW) is None
