"""What OpenAI's models are told, and what of a request they would refuse."""

import re
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.shared.chat_model import ChatModel

from cllm.core.options import Reasoning, RequestOptions
from cllm.wire.openai.models import (
    REASONING_MODELS,
    find_reasoning_model,
    fit_fields,
    supports_developer_role,
)
from cllm.wire.openai.options import decode_options, encode_options, fit_parameters

OFF = Reasoning(enabled=False)


def codes(notices) -> list[str]:
    return [f"{notice.code}:{notice.path}" for notice in notices]


@pytest.mark.parametrize(
    ("model", "least", "most"),
    [
        ("o3", "low", "high"),
        ("openai/o4-mini-2025-04-16", "low", "high"),
        ("gpt-5", "minimal", "high"),
        ("gpt-5-mini-2025-08-07", "minimal", "high"),
        ("gpt-5-pro", "high", "high"),
        ("gpt-5.1", "none", "high"),
        ("gpt-5.1-codex", "low", "high"),
        ("gpt-5.1-codex-max", "low", "xhigh"),
        ("gpt-5.2-pro", "medium", "xhigh"),
        ("gpt-5.4-nano", "none", "xhigh"),
        ("gpt-5.6-sol", "none", "max"),
        ("gpt-6-astra", "low", "max"),
        ("gpt-6-luna", "none", "max"),
        ("gpt-6.1-sol", "low", "max"),
        ("gpt-oss-120b", "low", "high"),
    ],
)
def test_the_efforts_of_a_model(model, least, most):
    known = find_reasoning_model(model)
    assert known is not None
    assert (known.efforts[0], known.efforts[-1]) == (least, most)


@pytest.mark.parametrize("model", ["gpt-4o", "gpt-4.1-mini", "gpt-5-chat-latest", "llama", "o", ""])
def test_other_models_are_told_what_was_said(model):
    said = {"max_tokens": 5, "temperature": 0, "stop": ["x"], "reasoning_effort": "none"}
    assert fit_parameters(said, model=model) == (said, ())


def test_every_model_that_thinks_is_one_of_a_row():
    names = [str(name) for name in get_args(ChatModel)]
    thinking = [name for name in names if re.match(r"o\d|gpt-[5-9]", name) and "-chat" not in name]
    assert len(thinking) > 20
    assert all(find_reasoning_model(name) is not None for name in thinking)


@pytest.mark.parametrize(
    ("model", "effort", "told"),
    [
        ("gpt-5.1", "none", []),
        ("gpt-5", "minimal", ["thinking_kept:reasoning_effort"]),
        ("o3-mini", "low", ["thinking_kept:reasoning_effort"]),
        ("gpt-6.1-sol", "low", ["thinking_kept:reasoning_effort"]),
        ("gpt-oss-20b", "low", ["thinking_kept:reasoning_effort"]),
        ("some-reasoner", "none", []),
        ("gpt-4o", None, []),
        ("o1-mini", None, ["thinking_disabled:reasoning_effort"]),
    ],
)
def test_thinking_switched_off_is_the_least_a_model_takes(model, effort, told):
    fields, notices = encode_options(RequestOptions(reasoning=OFF), model=model)
    assert fields.get("reasoning_effort") == effort
    assert codes(notices) == told


@pytest.mark.parametrize(
    ("model", "asked", "sent"),
    [
        ("gpt-5", "max", "high"),
        ("gpt-5.1", "minimal", "low"),
        ("gpt-5.2", "max", "xhigh"),
        ("o3", "minimal", "low"),
        ("gpt-5-pro", "low", "high"),
    ],
)
def test_an_effort_that_a_model_does_not_take_becomes_the_nearest(model, asked, sent):
    options = RequestOptions(reasoning=Reasoning(enabled=True, effort=asked))
    fields, notices = encode_options(options, model=model)
    assert fields == {"reasoning_effort": sent}
    assert codes(notices) == ["effort_changed:reasoning_effort"]


def test_a_model_that_thinks_gets_no_sampling_and_that_is_said():
    said = {
        "max_tokens": 9,
        "temperature": 0,
        "top_p": 0.5,
        "presence_penalty": 1,
        "frequency_penalty": -1,
        "logprobs": True,
        "top_logprobs": 3,
        "logit_bias": {"5": 1},
        "stop": ["END"],
        "seed": 7,
    }
    fields, notices = fit_parameters(said, model="gpt-5-mini")
    assert fields == {"max_completion_tokens": 9, "seed": 7}
    left_out = sorted(set(said) - {"max_tokens", "seed"})
    assert sorted(notice.path for notice in notices) == left_out
    assert {notice.code for notice in notices} == {"parameter_left_out"}


def test_what_says_nothing_is_left_out_without_a_word():
    said = {"temperature": 1, "top_p": 1, "presence_penalty": 0, "logprobs": False, "n": 1}
    assert fit_parameters(said, model="o3") == ({"n": 1}, ())


@pytest.mark.parametrize("model", ["gpt-5.1", "gpt-5.4-mini"])
def test_a_model_that_does_not_think_by_itself_takes_sampling(model):
    said = {"temperature": 0, "top_p": 0.5, "logprobs": True}
    assert fit_parameters(said, model=model) == (said, ())


def test_sampling_goes_with_an_effort_of_none_and_with_no_other():
    off = {"temperature": 0, "reasoning_effort": "none"}
    assert fit_parameters(off, model="gpt-5.6-luna") == (off, ())
    fields, notices = fit_parameters({**off, "reasoning_effort": "low"}, model="gpt-5.6-luna")
    assert fields == {"reasoning_effort": "low"}
    assert codes(notices) == ["parameter_left_out:temperature"]


def test_a_temperature_stays_out_when_thinking_could_not_be_switched_off():
    options = RequestOptions(reasoning=OFF, temperature=0.0)
    fields, notices = encode_options(options, model="gpt-5")
    assert fields == {"reasoning_effort": "minimal"}
    assert codes(notices) == ["thinking_kept:reasoning_effort", "parameter_left_out:temperature"]


def test_the_oldest_reasoners_are_not_told_about_parallel_calls():
    fields, notices = fit_parameters({"parallel_tool_calls": False}, model="o3-mini")
    assert fields == {}
    assert codes(notices) == ["parameter_left_out:parallel_tool_calls"]
    assert fit_parameters({"parallel_tool_calls": False}, model="gpt-5")[1] == ()


def test_a_limit_under_both_names_is_the_newer_one():
    fields, _ = fit_parameters({"max_tokens": 1, "max_completion_tokens": 2}, model="o3")
    assert fields == {"max_completion_tokens": 2}


@given(
    st.sampled_from([*get_args(ChatModel), "llama"]),
    st.fixed_dictionaries(
        {},
        optional={
            "max_tokens": st.integers(1, 9),
            "temperature": st.sampled_from([0, 0.5, 1]),
            "top_p": st.sampled_from([0.1, 1]),
            "stop": st.just(["x"]),
            "logprobs": st.booleans(),
            "reasoning_effort": st.sampled_from(["none", "minimal", "low", "high", "max"]),
        },
    ),
)
def test_fitting_twice_changes_nothing_more(model, fields):
    before = dict(fields)
    once, _ = fit_fields(fields, model)
    assert fit_fields(once, model) == (once, [])
    assert fields == before


def test_an_ordinary_openai_request_says_nothing_that_others_would_have_to_be_told_of():
    said = {"n": 1, "logprobs": False, "presence_penalty": 0, "stream_options": {"x": 1}}
    assert decode_options(said).extra == {}
    assert decode_options({"n": 2}).extra == {"n": 2}


def test_no_row_hides_behind_another():
    patterns = [pattern.pattern for pattern, _ in REASONING_MODELS]
    assert len(set(patterns)) == len(patterns)


@pytest.mark.parametrize(
    "model", ["gpt-4o", "openai/gpt-5", "o3-mini", "chatgpt-4o-latest", "codex-mini", "ft:gpt-4o:a"]
)
def test_openai_s_models_know_developers(model):
    assert supports_developer_role(model)


@pytest.mark.parametrize("model", ["qwen3-32b", "olmo-2", "meta/llama-3.3", "mistral-small", ""])
def test_models_of_others_know_no_developers(model):
    assert not supports_developer_role(model)
