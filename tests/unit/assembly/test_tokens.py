"""Estimates of tokens, where nobody counted."""

from hypothesis import given
from hypothesis import strategies as st

from cllm.assembly.tokens import estimate_tokens, estimate_usage
from cllm.core.message import plain_message
from cllm.core.prompt import Prompt
from cllm.core.reply import Usage


@given(st.text(max_size=50), st.text(max_size=50))
def test_a_longer_text_is_never_fewer_tokens(text, more):
    assert estimate_tokens(plain_message("user", text)) <= estimate_tokens(
        plain_message("user", text + more)
    )


def test_an_empty_message_still_takes_some():
    assert estimate_tokens(plain_message("user", "")) == 4


def test_a_character_of_three_bytes_is_a_token_and_a_started_one_counts():
    assert estimate_tokens(plain_message("user", "漢字")) == 6
    assert estimate_tokens(plain_message("user", "abcd")) == 6


def test_an_estimated_usage_counts_the_system_prompt_and_says_that_it_is_an_estimate():
    prompt = Prompt(
        model="m",
        system=plain_message("system", "abc"),
        messages=(plain_message("user", "abcabc"),),
    )

    usage = estimate_usage(prompt, plain_message("assistant", "abc"))

    assert usage == Usage(input=11, output=5, estimated=True)
