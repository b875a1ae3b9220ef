"""Token estimates against the local model's own tokenizer."""

from itertools import pairwise

import pytest
from tests.text_corpus import CORPUS, text_of
from tests.text_samples import KINDS, samples
from tests.tokenizers import Count, smollm2

from cllm.window.tokens import TokenRatios, estimate_text

SAMPLES = 200


@pytest.fixture(scope="module")
def count(local_model, tmp_path_factory):
    with smollm2(local_model, tmp_path_factory.mktemp("slots")) as count:
        yield count


@pytest.mark.parametrize("kind", sorted(KINDS))
def test_estimates_are_never_a_quarter_too_low_and_after_a_report_never_a_tenth(
    kind: str, count: Count
):
    texts = samples(kind, SAMPLES + 1)
    counts = [count(text) for text in texts]
    for (before, text), (reported, true) in zip(pairwise(texts), pairwise(counts), strict=True):
        ratios = TokenRatios().with_report(estimate_text(before), reported)

        assert TokenRatios().correct(estimate_text(text)) >= 0.75 * true
        assert ratios.correct(estimate_text(text)) >= 0.9 * true


@pytest.mark.parametrize("kind", sorted(CORPUS))
def test_no_kind_of_text_is_estimated_below_half_its_tokens(kind: str, count: Count):
    for length in (100, 1_000, 10_000):
        text = text_of(kind, length)
        assert estimate_text(text).tokens >= 0.5 * count(text)
