"""The cost of a call by rates, tiers and times, table entries, and prices in the settings."""

import subprocess
import sys
from datetime import UTC, date, datetime, time, timedelta, timezone
from decimal import Decimal, localcontext

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cllm.core.errors import SettingsError
from cllm.core.reply import Usage
from cllm.prices.book import (
    MAX_NAME_LENGTH,
    PROVIDERS,
    DatedRates,
    ModelRecord,
    PriceBook,
    Rate,
    Rates,
    Tier,
    table_entry,
)
from cllm.providers.registry import BUILTIN_PROVIDERS, LITELLM

NOW = datetime(2026, 11, 15, 12, 0, tzinfo=UTC)
KINDS = ("input", "output", "cache_read", "cache_write", "reasoning")
LOCAL_PROVIDERS = {"llama-server", "lmstudio", "ollama", "vllm"}
UNLISTED_PROVIDERS = {"nvidia"}

RATES = Rates(
    input=Rate(base=Decimal(3)),
    output=Rate(base=Decimal(15)),
    cache_read=Rate(base=Decimal("0.3")),
    cache_write=Rate(base=Decimal("3.75")),
)

tokens = st.integers(0, 3_000_000)
usages = st.builds(
    Usage, input=tokens, output=tokens, cache_read=tokens, cache_write=tokens, reasoning=tokens
)
prices = st.decimals(0, 1000, places=6)
flat_rates = st.builds(Rate, base=prices)


def rising(base: Decimal, steps: list[tuple[int, Decimal]]) -> Rate:
    """A rate whose tiers have rising prices."""
    above, price, tiers = 0, base, []
    for step, more in steps:
        above, price = above + step, price + more
        tiers.append(Tier(above=above, price=price))
    return Rate(base=base, tiers=tuple(tiers))


rising_rates = st.builds(
    rising, prices, st.lists(st.tuples(st.integers(1, 1_000_000), prices), max_size=3)
)


def all_kinds(rates: st.SearchStrategy[Rate]) -> st.SearchStrategy[Rates]:
    return st.fixed_dictionaries(dict.fromkeys(KINDS, rates)).map(
        lambda chosen: Rates(**chosen, per_call=Decimal(0))
    )


def used(**counts: int) -> Usage:
    return Usage(**counts, estimated=False)


def known(rates: Rates | None, usage: Usage) -> Decimal:
    assert rates is not None
    cost = rates.cost(usage)
    assert cost is not None
    return cost


class TestCost:
    @pytest.mark.parametrize(
        ("kind", "dollars"),
        [
            ("input", "3"),
            ("output", "15"),
            ("cache_read", "0.3"),
            ("cache_write", "3.75"),
            ("reasoning", "15"),
        ],
    )
    def test_a_million_tokens_of_a_kind_cost_its_price(self, kind, dollars):
        assert RATES.cost(used(**{kind: 1_000_000})) == Decimal(dollars)

    def test_the_kinds_are_disjoint_and_add_up(self):
        usage = Usage(input=1000, output=200, cache_read=5000, cache_write=300, reasoning=70)

        assert RATES.cost(usage) == Decimal("0.009675")

    def test_reasoning_with_a_separate_rate_is_not_charged_as_output(self):
        rates = msgspec.structs.replace(RATES, reasoning=Rate(base=Decimal(2)))

        assert rates.cost(Usage(reasoning=1_000_000)) == 2

    def test_the_price_per_call_is_added_once(self):
        rates = msgspec.structs.replace(RATES, per_call=Decimal("0.012"))

        assert rates.cost(Usage(input=1_000_000)) == Decimal("3.012")
        assert rates.cost(Usage()) == Decimal("0.012")

    @pytest.mark.parametrize("kind", KINDS)
    def test_a_used_kind_without_a_rate_makes_the_cost_unknown(self, kind):
        usage = used(**{kind: 1})
        others = {other: Rate(base=Decimal(1)) for other in KINDS if other != kind}
        if kind == "reasoning":
            del others["output"]

        assert Rates(**others, per_call=Decimal(1)).cost(usage) is None

    def test_an_unused_kind_needs_no_rate(self):
        assert Rates(input=Rate(base=Decimal(1))).cost(Usage(input=5)) == Decimal("0.000005")

    def test_a_price_of_zero_is_known(self):
        free = Rate(base=Decimal(0))

        assert Rates(input=free, output=free).cost(Usage(input=5, output=5)) == 0

    def test_a_negative_count_makes_the_cost_unknown(self):
        assert RATES.cost(Usage(input=100, output=-1)) is None

    def test_estimated_usage_has_a_cost(self):
        assert RATES.cost(Usage(input=100, estimated=True)) == RATES.cost(Usage(input=100))

    def test_the_callers_decimal_context_does_not_round_a_cost(self):
        with localcontext() as context:
            context.prec = 2
            cost = RATES.cost(Usage(input=123_456_789))

        assert cost == Decimal("370.370367")


class TestTiers:
    TIERED = Rates(
        input=Rate(base=Decimal(3), tiers=(Tier(above=200_000, price=Decimal(6)),)),
        output=Rate(base=Decimal(15), tiers=(Tier(above=200_000, price=Decimal("22.5")),)),
        cache_read=Rate(base=Decimal("0.3")),
        cache_write=Rate(base=Decimal("3.75")),
    )

    def test_a_prompt_at_the_threshold_has_the_lower_price(self):
        assert self.TIERED.cost(Usage(input=200_000)) == Decimal("0.6")

    def test_a_prompt_above_the_threshold_has_the_higher_price_for_every_token(self):
        assert self.TIERED.cost(Usage(input=200_001, output=10)) == Decimal("1.200231")

    @pytest.mark.parametrize("kind", ["cache_read", "cache_write"])
    def test_cached_tokens_count_towards_the_threshold(self, kind):
        usage = used(input=1, output=1_000_000, **{kind: 200_000})
        alone = used(**{kind: 200_000})

        cost = known(self.TIERED, usage) - known(self.TIERED, alone)

        assert cost == Decimal("22.500006")

    def test_the_answer_does_not_count_towards_the_threshold(self):
        assert self.TIERED.cost(Usage(output=1_000_000, reasoning=1_000_000)) == 30

    def test_the_highest_tier_below_the_prompt_size_applies(self):
        tiers = (Tier(above=10, price=Decimal(2)), Tier(above=20, price=Decimal(3)))
        rate = Rate(base=Decimal(1), tiers=tiers)

        assert [rate.price(count) for count in (10, 11, 20, 21)] == [1, 2, 2, 3]


class TestProperties:
    @given(rates=all_kinds(rising_rates), usage=usages, kind=st.sampled_from(KINDS), more=tokens)
    def test_more_tokens_of_any_kind_never_cost_less(self, rates, usage, kind, more):
        larger = msgspec.structs.replace(usage, **{kind: getattr(usage, kind) + more})

        assert known(rates, larger) >= known(rates, usage)

    @given(rates=all_kinds(flat_rates), one=usages, other=usages)
    def test_without_tiers_the_costs_of_two_calls_add_up(self, rates, one, other):
        both = Usage(**{kind: getattr(one, kind) + getattr(other, kind) for kind in KINDS})

        assert known(rates, both) == known(rates, one) + known(rates, other)

    @given(rates=all_kinds(rising_rates), usage=usages)
    def test_a_record_survives_encoding_as_json(self, rates, usage):
        record = ModelRecord(dated_rates=(DatedRates(rates=rates),), context_window=1)

        again = msgspec.json.decode(msgspec.json.encode(record), type=ModelRecord)

        assert again == record
        assert known(again.dated_rates[0].rates, usage) == known(rates, usage)


def costing(dollars: int) -> Rates:
    return Rates(input=Rate(base=Decimal(dollars)))


class TestDatedRates:
    RECORD = ModelRecord(
        dated_rates=(
            DatedRates(rates=costing(1)),
            DatedRates(rates=costing(2), since=date(2026, 1, 1)),
            DatedRates(rates=costing(3), daily=(time(1), time(4))),
        )
    )

    @pytest.mark.parametrize(
        ("at", "dollars"),
        [
            (datetime(2025, 12, 31, 23, 59, 59, tzinfo=UTC), 1),
            (datetime(2026, 1, 1, tzinfo=UTC), 2),
            (datetime(2026, 1, 1, 1, 0, tzinfo=UTC), 3),
            (datetime(2026, 1, 1, 3, 59, 59, tzinfo=UTC), 3),
            (datetime(2026, 1, 1, 4, 0, tzinfo=UTC), 2),
            (datetime(2025, 6, 1, 2, 0, tzinfo=UTC), 3),
            (datetime(2026, 1, 1, 1, 0, tzinfo=timezone(timedelta(hours=2))), 1),
            (datetime(2026, 1, 1, 12, 0), 2),  # noqa: DTZ001 - a time without a zone is meant
        ],
    )
    def test_the_last_rates_that_apply_are_used(self, at, dollars):
        assert self.RECORD.rates(at) == costing(dollars)

    @pytest.mark.parametrize(("hour", "dollars"), [(22, 1), (23, 2), (0, 2), (1, 1)])
    def test_a_daily_range_can_span_midnight(self, hour, dollars):
        night = (time(23), time(1))
        record = ModelRecord(
            dated_rates=(DatedRates(rates=costing(1)), DatedRates(rates=costing(2), daily=night))
        )

        assert record.rates(NOW.replace(hour=hour)) == costing(dollars)

    def test_before_all_dates_the_first_rates_are_used(self):
        later = [date(2030, 1, 1), date(2031, 1, 1)]
        dated_rates = tuple(
            DatedRates(rates=costing(number), since=since) for number, since in enumerate(later)
        )

        assert ModelRecord(dated_rates=dated_rates).rates(NOW) == costing(0)

    def test_an_empty_record_has_no_rates(self):
        assert ModelRecord().rates(NOW) is None


class TestTableEntry:
    def test_every_provider_is_in_the_table_or_listed_as_absent(self):
        assert set(BUILTIN_PROVIDERS) == {
            *PROVIDERS,
            LITELLM,
            *LOCAL_PROVIDERS,
            *UNLISTED_PROVIDERS,
        }

    @pytest.mark.parametrize("provider", ["local", "my-own", "", *sorted(LOCAL_PROVIDERS)])
    def test_local_and_unknown_providers_have_no_entry(self, provider):
        assert table_entry(provider, "gpt-4o") is None

    @pytest.mark.parametrize(
        ("model", "name"),
        [
            ("us.anthropic.claude-sonnet-4-5-20250929-v1:0",) * 2,
            ("claude-sonnet-4-5", "anthropic.claude-sonnet-4-5-20250929-v1:0"),
            (
                "arn:aws:bedrock:us-east-1:123456789012:inference-profile/us.amazon.nova-pro-v1:0",
                "us.amazon.nova-pro-v1:0",
            ),
            (
                "arn:aws:bedrock:us-east-1::foundation-model/anthropic.claude-3-haiku-20240307-v1:0",
                "anthropic.claude-3-haiku-20240307-v1:0",
            ),
            ("arn:aws:bedrock:us-east-1:123456789012:application-inference-profile/a1b2", None),
            ("arn:", None),
            ("claude-of-my-own", None),
        ],
    )
    def test_a_bedrock_model_is_looked_up_by_its_id(self, model, name):
        entry = table_entry("bedrock", model)

        assert (entry and (entry.provider, entry.model)) == (name and ("aws", name))

    @pytest.mark.parametrize(
        ("model", "entry"),
        [
            ("openai/gpt-4o", ("openai", "gpt-4o")),
            ("gpt-4o", ("openai", "gpt-4o")),
            ("claude-sonnet-4-5", ("anthropic", "claude-sonnet-4-5")),
            ("together_ai/meta-llama/Llama-3", ("together", "meta-llama/Llama-3")),
            ("bedrock/converse/us.amazon.nova-pro-v1:0", ("aws", "us.amazon.nova-pro-v1:0")),
            ("bedrock/us-east-1/amazon.nova-pro-v1:0", ("aws", "amazon.nova-pro-v1:0")),
            ("openrouter/openai/gpt-4o", ("openrouter", "openai/gpt-4o")),
            ("azure/gpt-4o", None),
            ("ollama/llama3", None),
            ("smollm2-135m", None),
            ("something", None),
            ("openai/", None),
        ],
    )
    def test_a_litellm_name_identifies_the_provider(self, model, entry):
        result = table_entry(LITELLM, model)

        assert (result and (result.provider, result.model)) == entry

    def test_a_very_long_name_is_not_looked_up(self):
        assert table_entry("openai", "x" * MAX_NAME_LENGTH) is not None
        assert table_entry("openai", "x" * (MAX_NAME_LENGTH + 1)) is None


class TestConfiguredPrices:
    USAGE = Usage(input=1000, output=200, cache_read=5000, cache_write=300, reasoning=70)

    def test_they_take_precedence_over_the_table(self, tmp_path):
        prices = {"openai": {"gpt-4o": {"input": 1, "output": 2.5}}}
        book = PriceBook(tmp_path, configured=prices)

        cost = book.price("openai", "gpt-4o", Usage(input=1_000_000, reasoning=1_000_000), NOW)

        assert cost == Decimal("3.5")

    def test_they_are_exact(self, tmp_path):
        line = {"input": 3.0, "output": 15.0, "cache_read": 0.3, "cache_write": 3.75}
        book = PriceBook(tmp_path, configured={"mine": {"m": line}})

        assert book.price("mine", "m", self.USAGE, NOW) == Decimal("0.009675")

    def test_they_are_not_mixed_with_the_table(self, tmp_path):
        book = PriceBook(tmp_path, configured={"openai": {"gpt-4o": {"input": 1, "output": 2}}})

        assert book.price("openai", "gpt-4o", Usage(cache_read=1), NOW) is None

    def test_they_apply_to_the_named_model_only(self, tmp_path):
        book = PriceBook(tmp_path, configured={"ollama": {"llama3": {"input": 0, "output": 0}}})

        assert book.price("ollama", "llama3", Usage(input=5, output=5), NOW) == 0
        assert book.price("ollama", "llama4", Usage(input=5, output=5), NOW) is None
        assert book.price("vllm", "llama3", Usage(input=5, output=5), NOW) is None

    def test_a_name_that_starts_with_the_providers_name_has_its_price(self, tmp_path):
        prices = {"groq": {"groq/compound": {"input": 1.0, "output": 2.0}}}
        book = PriceBook(tmp_path, configured=prices)

        for model in ("groq/compound", "groq/groq/compound"):
            assert book.price_turn("groq", model, Usage(input=1_000_000), NOW) == 1.0

    def test_they_apply_to_a_provider_with_another_base_url(self, tmp_path):
        prices = {"openai": {"gpt-4o": {"input": 1}}}
        book = PriceBook(tmp_path, configured=prices, redirected_providers={"openai"})

        assert book.price("openai", "gpt-4o", Usage(input=1_000_000), NOW) == 1

    @pytest.mark.parametrize(
        ("prices", "message"),
        [
            (3, "`providers.mine.prices` must map each model to its prices"),
            (["gpt-4o"], "`providers.mine.prices` must map each model to its prices"),
            ({4: {"input": 1}}, "`providers.mine.prices` must map each model to its prices"),
            ({"m": 3}, "`providers.mine.prices.m` must be prices in dollars per million tokens"),
            ({"m": {}}, "`providers.mine.prices.m` must be prices in dollars per million tokens"),
            ({"m": None}, "`providers.mine.prices.m` must be prices"),
            ({"m": {"inptu": 1}}, "has no price 'inptu'; use one of input, output, cache_read"),
            ({"m": {"per_call": 1}}, "has no price 'per_call'"),
            ({"m": {"input": "3"}}, "`providers.mine.prices.m.input` must be a number of dollars"),
            ({"m": {"input": True}}, "`providers.mine.prices.m.input` must be a number"),
            ({"m": {"input": None}}, "`providers.mine.prices.m.input` must be a number"),
            ({"m": {"input": -1}}, "from 0 to 1000000"),
            ({"m": {"input": 1_000_001}}, "from 0 to 1000000"),
            ({"m": {"input": float("nan")}}, "from 0 to 1000000"),
            ({"m": {"input": Decimal("sNaN")}}, "from 0 to 1000000"),
            ({"m": {"input": float("inf")}}, "from 0 to 1000000"),
        ],
    )
    def test_an_invalid_price_is_reported_in_one_sentence(self, tmp_path, prices, message):
        with pytest.raises(SettingsError) as raised:
            PriceBook(tmp_path, configured={"mine": prices})

        text = str(raised.value)
        assert message in text
        assert text.startswith("Configuration error: ")
        assert text.endswith(".")
        assert "\n" not in text


def test_importing_the_book_does_not_import_the_table():
    program = "import cllm.prices.book, sys; print('genai_prices' in sys.modules)"

    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, check=True, text=True, timeout=60
    )

    assert done.stdout.strip() == "False"


def test_the_local_model_costs_nothing_unless_a_price_is_configured(tmp_path):
    prices = {"local": {"other": {"input": 2, "output": 2}}}
    book = PriceBook(tmp_path / "folder", configured=prices)

    assert book.price("local", "smollm2-135m", Usage(input=9, output=9), NOW) == 0
    assert book.price("local", "other", Usage(input=1_000_000), NOW) == 2
    assert not (tmp_path / "folder").exists()


def test_an_unknown_provider_needs_no_table_and_no_folder(tmp_path):
    book = PriceBook(tmp_path / "folder", redirected_providers={"openai"})

    for provider in ("ollama", "openai", "my-own"):
        assert book.price(provider, "gpt-4o", Usage(input=1), NOW) is None
        assert book.context_window(provider, "gpt-4o") is None
    assert not (tmp_path / "folder").exists()
