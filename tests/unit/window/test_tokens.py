"""Token estimates, and their correction by reported counts."""

import random
import string
import time
from functools import cache
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.text_corpus import CORPUS, text_of
from tests.text_samples import KINDS, samples
from tests.tokenizers import o200k

from cllm.core.message import Message, plain_message
from cllm.core.prompt import Prompt
from cllm.window import tokens
from cllm.window.tokens import (
    GENERAL,
    HIGHEST_RATIO,
    LARGE,
    LOWEST_RATIO,
    MARGIN,
    NO_TOKENS,
    TOKENS_PER_IMAGE,
    TOKENS_PER_MESSAGE,
    TokenEstimate,
    TokenRatios,
    TokenWeights,
    distribute_tokens,
    estimate_message,
    estimate_text,
    estimate_tokens,
    estimate_usage,
    weights_for,
)

SAMPLES = 200
LENGTHS = (100, 333, 1_000, 10_000, 100_000)


def raw(fields: dict[str, Any], role="user", dialect="openai") -> Message:
    return Message(role=role, raw=msgspec.json.encode(fields), dialect=dialect)


@cache
def true_tokens(kind: str, length: int) -> int:
    return o200k()(text_of(kind, length))


def shortfalls(texts: list[str], count, weights: TokenWeights, ratios: TokenRatios) -> list[float]:
    """Return how far estimates are below the true counts, as a share of them."""
    return [1 - ratios.correct(estimate_text(text, weights)) / count(text) for text in texts]


class TestAgainstTokenizers:
    @pytest.mark.parametrize("weights", [GENERAL, LARGE], ids=["general", "large"])
    @pytest.mark.parametrize("kind", sorted(KINDS))
    def test_before_any_report_an_estimate_is_never_a_quarter_too_low(self, kind, weights):
        texts = samples(kind, SAMPLES)

        assert max(shortfalls(texts, o200k(), weights, TokenRatios())) <= 0.25

    @pytest.mark.parametrize("weights", [GENERAL, LARGE], ids=["general", "large"])
    @pytest.mark.parametrize("kind", sorted(KINDS))
    def test_after_one_report_it_is_never_a_tenth_too_low(self, kind, weights):
        """Each text is estimated after a report on the previous one."""
        count = o200k()
        for reported, text in pairwise(samples(kind, SAMPLES + 1)):
            ratios = TokenRatios().with_report(estimate_text(reported, weights), count(reported))
            assert max(shortfalls([text], count, weights, ratios)) <= 0.1

    @pytest.mark.parametrize("kind", sorted(KINDS))
    def test_for_a_large_vocabulary_an_estimate_is_not_far_too_high_either(self, kind):
        texts, count = samples(kind, SAMPLES), o200k()
        estimated = sum(estimate_text(text, LARGE).tokens for text in texts)

        assert estimated <= 1.25 * sum(map(count, texts))

    @pytest.mark.parametrize("kind", sorted(CORPUS))
    def test_for_a_large_vocabulary_any_text_is_within_half_and_twice_its_tokens(self, kind):
        ratios = self.ratios(kind, LARGE)

        assert min(ratios) >= 0.5
        assert max(ratios) <= 2.0

    @pytest.mark.parametrize("kind", sorted(CORPUS))
    def test_for_any_vocabulary_no_text_is_below_half_its_tokens(self, kind):
        assert min(self.ratios(kind, GENERAL)) >= 0.5

    def ratios(self, kind: str, weights: TokenWeights) -> list[float]:
        """Return the ratios of estimated to true tokens, for each length."""
        return [
            estimate_text(text_of(kind, length), weights).tokens / true_tokens(kind, length)
            for length in LENGTHS
        ]

    def test_the_texts_differ(self):
        for kind in KINDS:
            texts = samples(kind, SAMPLES)
            assert len(set(texts)) == SAMPLES
            assert min(map(len, texts)) >= 100


def total(text: str, weights: TokenWeights) -> float:
    weighed = estimate_text(text, weights)
    return weighed.plain + weighed.wide


@pytest.mark.parametrize("weights", [GENERAL, LARGE], ids=["general", "large"])
class TestAnyText:
    """Properties of the estimate of any text."""

    @given(st.text(max_size=50), st.text(max_size=50))
    def test_a_longer_text_loses_no_more_than_one_short_run(self, weights, text, more):
        """Adding a character can make a run long enough for the weight of long runs."""
        shortest = weights.marks.per_run + 15 * max(
            weights.marks.per_character, weights.word.per_extra
        )

        assert total(text + more, weights) >= total(text, weights) - shortest

    @given(st.lists(st.text(min_size=1, max_size=3), min_size=1, max_size=8), st.integers(1, 400))
    def test_every_byte_counts(self, weights, parts, times):
        text = "".join(part * times for part in parts)

        assert total(text, weights) >= len(text.encode(errors="replace")) / 100

    @given(
        st.lists(st.text(string.ascii_letters + string.digits + string.punctuation, min_size=1)),
        st.integers(1, 400),
    )
    def test_visible_characters_count_a_token_for_every_67(self, weights, parts, times):
        text = "".join(part * times for part in parts)

        assert total(text, weights) >= len(text) / 67

    @given(st.text(string.ascii_letters + string.digits), st.integers(1, 400))
    def test_letters_and_digits_count_a_token_for_every_13(self, weights, text, times):
        assert total(text * times, weights) >= len(text * times) / 13

    @pytest.mark.parametrize("text", ["acgt", "-" * 15 + "=", "x", "—", " ", "\n", "word "])
    def test_the_cost_is_linear(self, weights, text):
        def cost(length: int) -> float:
            sample = (text * length)[:length]
            costs = []
            for _ in range(5):
                begun = time.process_time()
                estimate_text(sample, weights)
                costs.append(time.process_time() - begun)
            return min(costs)

        assert cost(1_600_000) <= 4 * 16 * max(cost(100_000), 0.0005)


class TestMessages:
    def test_a_long_run_of_letters_counts_by_its_length(self):
        dna = "".join(random.Random(9).choices("acgt", k=30_000))  # noqa: S311 - guards nothing
        message = plain_message("user", f"What is this? {dna}")

        assert 0.5 <= estimate_tokens(message, LARGE) / o200k()(message.text) <= 2

    def test_an_empty_message_has_some_tokens(self):
        assert estimate_tokens(plain_message("user", "")) == TOKENS_PER_MESSAGE

    def test_a_lone_surrogate_is_no_error(self):
        assert estimate_text("\ud800").tokens > 0

    def test_tools_thinking_and_results_are_counted_in_every_dialect(self):
        arguments = '{"city": "Paris", "days": 3}'
        calling = {"id": "call_1", "function": {"name": "forecast", "arguments": arguments}}
        openai = raw({"role": "assistant", "content": None, "tool_calls": [calling]}, "assistant")
        call = {"type": "tool_use", "id": "call_1", "name": "forecast"}
        block = call | {"input": {"city": "Paris", "days": 3}}
        anthropic = raw({"role": "assistant", "content": [block]}, "assistant", "anthropic")
        use = {"toolUseId": "call_1", "name": "forecast", "input": {"city": "Paris", "days": 3}}
        bedrock = raw({"role": "assistant", "content": [{"toolUse": use}]}, "assistant", "bedrock")

        for message in (openai, anthropic, bedrock):
            assert 14 <= estimate_tokens(message) <= 30

    def test_every_image_has_the_same_estimate(self):
        for size in (100, 1_000_000):
            source = {"type": "base64", "media_type": "image/png", "data": "A" * size}
            image = {"type": "image", "source": source}
            url = {"type": "image_url", "image_url": {"url": "data:image/png;base64," + "A" * size}}
            for block in (
                image,
                url,
                {"image": {"format": "png", "source": {"bytes": "A" * size}}},
            ):
                tokens = estimate_tokens(raw({"role": "user", "content": [block]}))
                assert TOKENS_PER_IMAGE <= tokens <= TOKENS_PER_IMAGE + 10

    def test_a_longer_file_has_more_tokens_and_plain_text_counts_as_text(self):
        def document(source: dict[str, Any]) -> int:
            block = {"type": "document", "source": source}
            return estimate_tokens(raw({"role": "user", "content": [block]}))

        pdf = {"type": "base64", "media_type": "application/pdf"}
        assert document(pdf | {"data": "A" * 160_000}) > document(pdf | {"data": "A" * 16_000})
        plain = {"type": "text", "media_type": "text/plain", "data": "one two three"}
        assert document(plain) < 20

    def test_an_estimated_usage_includes_the_system_prompt_and_is_flagged(self):
        system, text_message = (
            plain_message("system", "Be brief."),
            plain_message("user", "Hello there"),
        )
        reply = plain_message("assistant", "Hi")

        usage = estimate_usage(Prompt(model="m", system=system, messages=(text_message,)), reply)

        assert usage.input == estimate_tokens(system) + estimate_tokens(text_message)
        assert usage.output == estimate_tokens(reply)
        assert usage.estimated

    def test_openai_has_the_large_vocabulary_and_an_unknown_server_any(self):
        assert weights_for("openai") == LARGE
        assert weights_for("somebody") == GENERAL


class TestRatios:
    def test_without_a_report_an_estimate_stays(self):
        assert TokenRatios().correct(TokenEstimate(plain=10.2, wide=3.3)) == 14

    def test_a_report_above_the_estimate_applies_immediately(self):
        ratios = TokenRatios().with_report(TokenEstimate(plain=10), 20)

        assert ratios.correct(TokenEstimate(plain=100)) == 240

    def test_a_short_report_below_the_estimate_has_little_effect(self):
        short = (
            TokenRatios()
            .with_report(TokenEstimate(plain=100), 50)
            .correct(TokenEstimate(plain=1000))
        )
        long = (
            TokenRatios()
            .with_report(TokenEstimate(plain=100_000), 50_000)
            .correct(TokenEstimate(plain=1000))
        )

        assert short > 1000
        assert 600 <= long < 610

    @pytest.mark.parametrize("reported", [1, 1_000_000])
    def test_a_report_about_an_unusual_text_changes_later_estimates_within_bounds(self, reported):
        ratios = TokenRatios().with_report(TokenEstimate(plain=50_000), reported)
        expected = ratios.correct(TokenEstimate(plain=1000))

        assert 1000 * MARGIN * LOWEST_RATIO <= expected <= 1000 * MARGIN * HIGHEST_RATIO

    def test_a_report_on_chinese_does_not_change_estimates_of_english(self):
        english = estimate_message(plain_message("user", "What is the capital of France?"))
        ratios = TokenRatios().with_report(TokenEstimate(plain=100, wide=50_000), 20_100)

        assert ratios.correct(english) == TokenRatios().correct(english)
        assert ratios.correct(TokenEstimate(wide=1000)) < 500

    @given(st.integers(0, 10_000), st.lists(st.integers(0, 500), min_size=1, max_size=20))
    def test_shares_are_whole_numbers_that_add_up_to_the_report(self, total, estimates):
        shares = distribute_tokens(total, estimates)

        assert sum(shares) == total
        assert len(shares) == len(estimates)
        assert min(shares) >= 0

    def test_no_tokens_are_distributed_as_zeros(self):
        assert NO_TOKENS.tokens == 0
        assert (NO_TOKENS + TokenEstimate(plain=1.5)).tokens == 2


@given(text=st.text(max_size=50), repeat=st.sampled_from([1, 100]))
def test_a_message_is_estimated_the_same_again_and_under_other_weights(text, repeat):
    message = plain_message("user", text * repeat)
    for weights in (GENERAL, LARGE, GENERAL, LARGE):
        assert estimate_message(message, weights) == tokens._estimate_raw(message.raw, weights)


def test_the_cache_of_estimates_is_bounded_and_has_no_long_message():
    tokens._estimate_cached.cache_clear()
    estimate_message(plain_message("user", "x" * tokens.MAX_CACHED_BYTES))

    assert tokens._estimate_cached.cache_info().currsize == 0
    assert tokens._estimate_cached.cache_info().maxsize == tokens.MAX_CACHED_MESSAGES
