"""Parameters for OpenAI's models, and the changes for reasoning models."""

import re
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types.shared.chat_model import ChatModel

from cllm.core.options import Reasoning, RequestOptions
from cllm.wire.media import COMPATIBLE, OPENAI_CHAT
from cllm.wire.openai.models import (
    REASONING_MODELS,
    find_reasoning_model,
    fit_fields,
    fit_media_rule,
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
def test_parameters_of_other_models_are_unchanged(model):
    parameters = {"max_tokens": 5, "temperature": 0, "stop": ["x"], "reasoning_effort": "none"}
    assert fit_parameters(parameters, model=model) == (parameters, ())


def test_every_reasoning_model_has_a_row():
    names = [str(name) for name in get_args(ChatModel)]
    thinking = [name for name in names if re.match(r"o\d|gpt-[5-9]", name) and "-chat" not in name]
    assert len(thinking) > 20
    assert all(find_reasoning_model(name) is not None for name in thinking)


@pytest.mark.parametrize(
    ("model", "effort", "expected_codes"),
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
def test_disabled_thinking_is_the_lowest_effort(model, effort, expected_codes):
    fields, notices = encode_options(RequestOptions(reasoning=OFF), model=model)
    assert fields.get("reasoning_effort") == effort
    assert codes(notices) == expected_codes


@pytest.mark.parametrize(
    ("model", "requested", "sent"),
    [
        ("gpt-5", "max", "high"),
        ("gpt-5.1", "minimal", "low"),
        ("gpt-5.2", "max", "xhigh"),
        ("o3", "minimal", "low"),
        ("gpt-5-pro", "low", "high"),
    ],
)
def test_an_unsupported_effort_becomes_the_nearest(model, requested, sent):
    options = RequestOptions(reasoning=Reasoning(enabled=True, effort=requested))
    fields, notices = encode_options(options, model=model)
    assert fields == {"reasoning_effort": sent}
    assert codes(notices) == ["effort_changed:reasoning_effort"]


def test_sampling_is_dropped_with_a_notice_for_reasoning_models():
    parameters = {
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
    fields, notices = fit_parameters(parameters, model="gpt-5-mini")
    assert fields == {"max_completion_tokens": 9, "seed": 7}
    left_out = sorted(set(parameters) - {"max_tokens", "seed"})
    assert sorted(notice.path for notice in notices) == left_out
    assert {notice.code for notice in notices} == {"parameter_left_out"}


def test_default_values_are_dropped_without_a_notice():
    parameters = {"temperature": 1, "top_p": 1, "presence_penalty": 0, "logprobs": False, "n": 1}
    assert fit_parameters(parameters, model="o3") == ({"n": 1}, ())


@pytest.mark.parametrize("model", ["gpt-5.1", "gpt-5.4-mini"])
def test_a_model_that_does_not_reason_by_default_gets_sampling(model):
    parameters = {"temperature": 0, "top_p": 0.5, "logprobs": True}
    assert fit_parameters(parameters, model=model) == (parameters, ())


def test_sampling_is_sent_only_with_effort_none():
    off = {"temperature": 0, "reasoning_effort": "none"}
    assert fit_parameters(off, model="gpt-5.6-luna") == (off, ())
    fields, notices = fit_parameters({**off, "reasoning_effort": "low"}, model="gpt-5.6-luna")
    assert fields == {"reasoning_effort": "low"}
    assert codes(notices) == ["parameter_left_out:temperature"]


def test_temperature_is_dropped_if_reasoning_cannot_be_disabled():
    options = RequestOptions(reasoning=OFF, temperature=0.0)
    fields, notices = encode_options(options, model="gpt-5")
    assert fields == {"reasoning_effort": "minimal"}
    assert codes(notices) == ["thinking_kept:reasoning_effort", "parameter_left_out:temperature"]


def test_parallel_tool_calls_is_dropped_for_the_oldest_reasoning_models():
    fields, notices = fit_parameters({"parallel_tool_calls": False}, model="o3-mini")
    assert fields == {}
    assert codes(notices) == ["parameter_left_out:parallel_tool_calls"]
    assert fit_parameters({"parallel_tool_calls": False}, model="gpt-5")[1] == ()


def test_max_completion_tokens_takes_precedence_over_max_tokens():
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
def test_fitting_twice_equals_fitting_once(model, fields):
    before = dict(fields)
    once, _ = fit_fields(fields, model)
    assert fit_fields(once, model) == (once, [])
    assert fields == before


def test_a_plain_openai_request_has_no_extra_options():
    parameters = {"n": 1, "logprobs": False, "presence_penalty": 0, "stream_options": {"x": 1}}
    assert decode_options(parameters).extra == {}
    assert decode_options({"n": 2}).extra == {"n": 2}


def test_every_row_is_reachable():
    patterns = [pattern.pattern for pattern, _ in REASONING_MODELS]
    assert len(set(patterns)) == len(patterns)


@pytest.mark.parametrize(
    "model", ["gpt-4o", "openai/gpt-5", "o3-mini", "chatgpt-4o-latest", "codex-mini", "ft:gpt-4o:a"]
)
def test_openai_models_support_the_developer_role(model):
    assert supports_developer_role(model)


@pytest.mark.parametrize("model", ["qwen3-32b", "olmo-2", "meta/llama-3.3", "mistral-small", ""])
def test_other_models_do_not_support_the_developer_role(model):
    assert not supports_developer_role(model)


@pytest.mark.parametrize(
    ("model", "reads"),
    [
        ("gpt-4o", {"image", "file"}),
        ("gpt-4.1-mini", {"image", "file"}),
        ("gpt-4-turbo", {"image", "file"}),
        ("gpt-4", set()),
        ("gpt-4-0613", set()),
        ("gpt-3.5-turbo", set()),
        ("o3-mini", set()),
        ("o3", {"image", "file"}),
        ("gpt-4o-audio-preview", {"other"}),
    ],
)
def test_openais_models_read_different_attachments(model, reads):
    assert fit_media_rule(OPENAI_CHAT, model).reads == reads


def test_the_attachments_of_another_server_do_not_depend_on_the_model():
    assert fit_media_rule(COMPATIBLE, "gpt-4") is COMPATIBLE


@pytest.mark.parametrize(
    ("model", "is_sent"),
    [("o1", True), ("o3-mini", True), ("o3", False), ("o4-mini", False), ("gpt-5", False)],
)
def test_stop_sequences_are_sent_to_the_reasoning_models_that_accept_them(model, is_sent):
    fields, _ = fit_fields({"stop": ["END"]}, model)
    assert ("stop" in fields) is is_sent
