"""The features of Claude models, fitted parameters and beta flags."""

import json
from typing import Any, get_args

import pytest
from anthropic.types import Model
from hypothesis import given
from hypothesis import strategies as st

from cllm.core.message import Text
from cllm.core.options import Reasoning, RequestOptions, Tool, ToolChoice
from cllm.wire.anthropic.models import (
    DISABLED,
    KNOWN_BETAS,
    NoticeSink,
    filter_betas,
    find_claude_model,
    fit_parameters,
    parse_betas,
)
from cllm.wire.anthropic.options import encode_options
from cllm.wire.anthropic.request import encode_request
from cllm.wire.bedrock.models import BEDROCK_BETAS, find_features
from cllm.wire.bedrock.options import encode_options as encode_for_bedrock
from cllm.wire.messages import OutgoingMessage

NAMES = [str(name) for name in get_args(get_args(Model)[0])]


def fit(model: str, **fields: Any) -> tuple[dict[str, Any], list[str]]:
    notices = NoticeSink()
    return fit_parameters(fields, model, notices), [
        f"{notice.code}:{notice.path}" for notice in notices
    ]


@pytest.mark.parametrize("name", NAMES)
def test_every_current_model_has_the_same_features_at_anthropic_and_bedrock(name):
    known, there = find_claude_model(name), find_features(f"us.anthropic.{name}-v1:0")
    assert known is not None
    assert (there.thinking, there.sampling) == (known.thinking, known.sampling)
    assert ("any" in there.choices) == known.forced_tools


@pytest.mark.parametrize("model", ["claude-opus-4-7", "claude-sonnet-5", "claude-mythos-preview"])
def test_the_newest_models_get_no_sampling_parameters(model):
    fields, codes = fit(model, temperature=0, top_p=0.5, top_k=3, max_tokens=5)
    assert fields == {"max_tokens": 5}
    assert codes == [f"parameter_left_out:{name}" for name in ("temperature", "top_p", "top_k")]
    assert fit(model, temperature=1, top_p=1.0) == ({}, [])


def test_a_model_that_accepts_all_sampling_parameters_gets_them():
    parameters = {"temperature": 0, "top_p": 0.5, "top_k": 3}
    assert fit("claude-sonnet-4-20250514", **parameters) == (parameters, [])


def test_thinking_of_an_anthropic_client_excludes_sampling():
    thinking = {"type": "enabled", "budget_tokens": 2000}
    parameters = {
        "thinking": thinking,
        "max_tokens": 9000,
        "temperature": 0.5,
        "top_p": 0.97,
        "top_k": 1,
    }
    fields, codes = fit("claude-3-7-sonnet-20250219", **parameters)
    assert fields == {"thinking": thinking, "max_tokens": 9000, "top_p": 0.97}
    assert codes == ["parameter_left_out:temperature", "parameter_left_out:top_k"]


@pytest.mark.parametrize("model", ["claude-opus-5-5", "claude-fable-5-1", "claude-mythos-5-2"])
def test_a_model_without_forced_tools_gets_the_choice_auto(model):
    choice = {"type": "tool", "name": "x", "disable_parallel_tool_use": True}
    fields, codes = fit(model, tool_choice=choice, thinking={"type": "adaptive"})
    assert fields["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}
    assert fields["thinking"] == {"type": "adaptive"}
    assert codes == ["tool_choice_changed:tool_choice"]


def test_a_forced_tool_disables_thinking_with_a_budget():
    budget = {"type": "enabled", "budget_tokens": 1024}
    parameters = {"tool_choice": {"type": "any"}, "thinking": budget, "max_tokens": 4096}
    fields, codes = fit("claude-opus-4-6", **parameters, output_config={"effort": "max"})
    assert fields["thinking"] == DISABLED
    assert fields["output_config"] == {"effort": "high"}
    assert codes == ["thinking_disabled:thinking", "effort_changed:output_config.effort"]


@pytest.mark.parametrize("model", ["claude-opus-4-6", "claude-opus-5", "claude-fable-5"])
def test_a_forced_tool_does_not_disable_adaptive_thinking(model):
    parameters = {"tool_choice": {"type": "any"}, "thinking": {"type": "adaptive"}}
    assert fit(model, **parameters) == (parameters, [])


def test_a_forced_tool_disables_adaptive_thinking_that_needs_a_budget():
    parameters = {"tool_choice": {"type": "any"}, "thinking": {"type": "adaptive"}}
    fields, codes = fit("claude-sonnet-4-5", **parameters, max_tokens=9000)
    assert fields["thinking"] == DISABLED
    assert codes[-1] == "thinking_disabled:thinking"


@pytest.mark.parametrize("model", ["claude-opus-5-5", "claude-fable-5", "claude-mythos-preview"])
def test_thinking_that_cannot_be_disabled_gets_the_lowest_effort(model):
    assert fit(model, thinking=DISABLED) == (
        {"output_config": {"effort": "low"}},
        ["thinking_kept:thinking"],
    )
    parameters = {"thinking": DISABLED, "output_config": {"effort": "medium", "format": 1}}
    assert fit(model, **parameters)[0] == {"output_config": {"effort": "medium", "format": 1}}


def test_a_budget_is_not_sent_to_a_model_with_adaptive_thinking():
    thinking = {"type": "enabled", "budget_tokens": 2000, "display": "omitted"}
    fields, codes = fit("claude-opus-4-8", thinking=thinking)
    assert fields == {"thinking": {"type": "adaptive", "display": "omitted"}}
    assert codes == ["thinking_changed:thinking.budget_tokens"]


def test_adaptive_thinking_becomes_a_budget_for_an_older_model():
    parameters = {"thinking": {"type": "adaptive"}, "max_tokens": 20_000}
    fields, codes = fit("claude-sonnet-4-5", **parameters)
    assert fields["thinking"] == {"type": "enabled", "budget_tokens": 8192}
    assert codes == ["thinking_changed:thinking"]


@pytest.mark.parametrize(
    ("budget", "limit", "sent", "expected"),
    [
        (2000, 2001, 2000, []),
        (2000, 2000, 1999, ["thinking_changed:thinking.budget_tokens"]),
        (5, 2000, 1024, ["thinking_changed:thinking.budget_tokens"]),
        (9999, 1025, 1024, ["thinking_changed:thinking.budget_tokens"]),
        (2000, 1024, None, ["thinking_disabled:thinking"]),
    ],
)
def test_a_budget_is_at_least_the_minimum_and_below_max_tokens(budget, limit, sent, expected):
    thinking = {"type": "enabled", "budget_tokens": budget}
    fields, codes = fit("claude-opus-4-5", thinking=thinking, max_tokens=limit)
    assert (fields.get("thinking") or {}).get("budget_tokens") == sent
    assert codes == expected


def test_a_budget_can_exceed_max_tokens_with_interleaved_thinking():
    thinking = {"type": "enabled", "budget_tokens": 9000}
    parameters = {
        "thinking": thinking,
        "max_tokens": 5,
        "betas": ["interleaved-thinking-2025-05-14"],
    }
    assert fit("claude-sonnet-4-5", **parameters) == (parameters, [])


def test_added_max_tokens_limit_the_budget():
    options = RequestOptions(reasoning=Reasoning(enabled=True, effort="max"))
    parameters, _ = encode_options(options, model="claude-opus-4-1")
    encoded = encode_request(
        model="claude-opus-4-1",
        system=None,
        messages=[OutgoingMessage(role="user", parts=(Text(text="Hi"),))],
        parameters={"max_tokens": 32_000, **parameters},
        stream=False,
    )
    assert json.loads(encoded.body)["thinking"]["budget_tokens"] == 31_999


@pytest.mark.parametrize(
    ("model", "requested", "sent"),
    [
        ("claude-haiku-4-5", "low", None),
        ("claude-opus-4-5", "max", "high"),
        ("claude-opus-4-6", "xhigh", "max"),
        ("claude-sonnet-5", "xhigh", "xhigh"),
        ("claude-sonnet-5", "brand-new", "brand-new"),
    ],
)
def test_an_effort_is_changed_to_one_that_the_model_accepts(model, requested, sent):
    fields, codes = fit(model, output_config={"effort": requested})
    assert fields.get("output_config", {}).get("effort") == sent
    assert bool(codes) == (requested != sent)


@pytest.mark.parametrize("model", ["claude-opus-5-5", "claude-fable-5-1"])
def test_bedrock_gets_the_same_thinking_and_tool_choice(model):
    options = RequestOptions(
        reasoning=Reasoning(enabled=False),
        tools=(Tool(name="f", schema={}),),
        tool_choice=ToolChoice(kind="any"),
        temperature=0.2,
    )
    fields, notices = encode_for_bedrock(options, model=f"us.anthropic.{model}")
    assert fields["additionalModelRequestFields"] == {"output_config": {"effort": "low"}}
    assert fields["toolConfig"]["toolChoice"] == {"auto": {}}
    assert {notice.code for notice in notices} == {
        "thinking_kept",
        "parameter_left_out",
        "tool_choice_changed",
    }


@pytest.mark.parametrize("model", ["claude-opus-4-7", "claude-sonnet-5"])
@pytest.mark.parametrize("parameters", [{"temperature": 1}, {"top_p": 1.0}, {"temperature": 0.3}])
def test_both_services_report_unsupported_sampling_alike(model, parameters):
    _, here = encode_options(RequestOptions(**parameters), model=model)
    fields, there = encode_for_bedrock(RequestOptions(**parameters), model=f"us.anthropic.{model}")
    assert fields == {}
    assert [(notice.code, notice.path) for notice in here] == [
        (notice.code, notice.path) for notice in there
    ]
    assert bool(here) is (parameters.get("temperature") == 0.3)


THINKING = st.sampled_from(
    [None, DISABLED, {"type": "adaptive"}, {"type": "enabled", "budget_tokens": 5000}]
)


@given(
    st.sampled_from([*NAMES, "claude-3-5-sonnet-20241022", "claude-3-7-sonnet-20250219", "other"]),
    THINKING,
    st.fixed_dictionaries(
        {},
        optional={
            "max_tokens": st.sampled_from([5, 1024, 1025, 6000]),
            "temperature": st.sampled_from([0, 1]),
            "top_p": st.sampled_from([0.5, 0.97, 1]),
            "top_k": st.just(4),
            "tool_choice": st.sampled_from([{"type": "auto"}, {"type": "any"}]),
            "output_config": st.sampled_from([{"effort": "low"}, {"effort": "xhigh"}]),
        },
    ),
)
def test_fitting_twice_changes_nothing(model, thinking, fields):
    given_fields = fields if thinking is None else {**fields, "thinking": thinking}
    before = json.dumps(given_fields)
    once, _ = fit(model, **given_fields)
    assert fit(model, **once) == (once, [])
    assert json.dumps(given_fields) == before


def test_beta_flags_are_parsed_from_a_list_or_a_header():
    assert parse_betas(["a", 5, "b"]) == ("a", "b")
    assert parse_betas("a, b") == ("a", " b")
    assert parse_betas(None) == parse_betas({"a": 1}) == ()


def test_a_known_beta_flag_is_sent_once_and_an_unknown_one_reported_once():
    flag = min(KNOWN_BETAS)
    sent, notices = filter_betas([flag, " x ", flag, "x", ""], always=["mine", "mine"])
    assert sent == ("mine", flag)
    assert [notice.code for notice in notices] == ["beta_left_out"]
    assert "'x'" in notices[0].message


def test_bedrock_has_one_flag_with_another_name():
    assert sorted(BEDROCK_BETAS - KNOWN_BETAS) == ["tool-search-tool-2025-10-19"]
