"""What Claude's models are told, and what of a request they would refuse."""

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
from cllm.wire.anthropic.options import build_limit_notices, default_max_tokens, encode_options
from cllm.wire.anthropic.request import encode_request
from cllm.wire.bedrock.models import BEDROCK_BETAS, find_features
from cllm.wire.bedrock.options import encode_options as encode_for_bedrock
from cllm.wire.messages import OutgoingMessage

NAMES = [str(name) for name in get_args(get_args(Model)[0])]


def fitted(model: str, **fields: Any) -> tuple[dict[str, Any], list[str]]:
    notices = NoticeSink()
    return fit_parameters(fields, model, notices), [
        f"{notice.code}:{notice.path}" for notice in notices
    ]


@pytest.mark.parametrize(
    ("model", "limit"),
    [
        ("claude-3-haiku-20240307", 4_096),
        ("claude-3-5-sonnet-20241022", 8_192),
        ("claude-3-7-sonnet-20250219", 32_000),
        ("claude-opus-4-20250514", 32_000),
        ("claude-haiku-4-5", 64_000),
        ("claude-sonnet-4-6", 128_000),
        ("claude-opus-5-5", 128_000),
        ("claude-mythos-preview", 128_000),
        ("anthropic/claude-opus-4.7", 128_000),
        ("kimi-k3", 8_192),
    ],
)
def test_an_answer_may_be_as_long_as_its_model_can_make_it(model, limit):
    assert default_max_tokens(model) == limit


def test_only_a_client_of_anthropics_is_told_of_a_limit_it_did_not_give():
    assert [n.code for n in build_limit_notices({}, "anthropic", limit=9)] == ["max_tokens_added"]
    assert build_limit_notices({"max_tokens": 1}, "anthropic", limit=9) == ()
    assert build_limit_notices({}, "openai", limit=9) == ()


@pytest.mark.parametrize("name", NAMES)
def test_a_model_of_today_is_told_the_same_by_anthropic_and_by_bedrock(name):
    known, there = find_claude_model(name), find_features(f"us.anthropic.{name}-v1:0")
    assert known is not None
    assert (there.thinking, there.sampling) == (known.thinking, known.sampling)
    assert ("any" in there.choices) == known.forced_tools


@pytest.mark.parametrize("model", ["claude-opus-4-7", "claude-sonnet-5", "claude-mythos-preview"])
def test_the_newest_models_get_no_sampling_and_that_is_said(model):
    fields, told = fitted(model, temperature=0, top_p=0.5, top_k=3, max_tokens=5)
    assert fields == {"max_tokens": 5}
    assert told == [f"parameter_left_out:{name}" for name in ("temperature", "top_p", "top_k")]
    assert fitted(model, temperature=1, top_p=1.0) == ({}, [])


def test_a_model_that_takes_all_sampling_is_sent_all_of_it():
    said = {"temperature": 0, "top_p": 0.5, "top_k": 3}
    assert fitted("claude-sonnet-4-20250514", **said) == (said, [])


def test_thinking_in_a_clients_own_words_excludes_sampling_too():
    thinking = {"type": "enabled", "budget_tokens": 2000}
    said = {"thinking": thinking, "max_tokens": 9000, "temperature": 0.5, "top_p": 0.97, "top_k": 1}
    fields, told = fitted("claude-3-7-sonnet-20250219", **said)
    assert fields == {"thinking": thinking, "max_tokens": 9000, "top_p": 0.97}
    assert told == ["parameter_left_out:temperature", "parameter_left_out:top_k"]


@pytest.mark.parametrize("model", ["claude-opus-5-5", "claude-fable-5-1", "claude-mythos-5-2"])
def test_a_model_that_cannot_be_forced_may_call_a_tool(model):
    choice = {"type": "tool", "name": "x", "disable_parallel_tool_use": True}
    fields, told = fitted(model, tool_choice=choice, thinking={"type": "adaptive"})
    assert fields["tool_choice"] == {"type": "auto", "disable_parallel_tool_use": True}
    assert fields["thinking"] == {"type": "adaptive"}
    assert told == ["tool_choice_changed:tool_choice"]


def test_a_forced_tool_switches_thinking_off():
    said = {"tool_choice": {"type": "any"}, "thinking": {"type": "adaptive"}}
    fields, told = fitted("claude-opus-5", **said, output_config={"effort": "max"})
    assert fields["thinking"] == DISABLED
    assert fields["output_config"] == {"effort": "high"}
    assert told == ["thinking_disabled:thinking", "effort_changed:output_config.effort"]


@pytest.mark.parametrize("model", ["claude-opus-5-5", "claude-fable-5", "claude-mythos-preview"])
def test_thinking_that_cannot_be_switched_off_gets_the_least_effort(model):
    assert fitted(model, thinking=DISABLED) == (
        {"output_config": {"effort": "low"}},
        ["thinking_kept:thinking"],
    )
    said = {"thinking": DISABLED, "output_config": {"effort": "medium", "format": 1}}
    assert fitted(model, **said)[0] == {"output_config": {"effort": "medium", "format": 1}}


def test_a_budget_for_a_model_that_decides_itself_is_left_to_it():
    thinking = {"type": "enabled", "budget_tokens": 2000, "display": "omitted"}
    fields, told = fitted("claude-opus-4-8", thinking=thinking)
    assert fields == {"thinking": {"type": "adaptive", "display": "omitted"}}
    assert told == ["thinking_changed:thinking.budget_tokens"]


def test_thinking_as_it_sees_fit_becomes_a_budget_for_an_older_model():
    said = {"thinking": {"type": "adaptive"}, "max_tokens": 20_000}
    fields, told = fitted("claude-sonnet-4-5", **said)
    assert fields["thinking"] == {"type": "enabled", "budget_tokens": 8192}
    assert told == ["thinking_changed:thinking"]


@pytest.mark.parametrize(
    ("budget", "limit", "sent", "told"),
    [
        (2000, 2001, 2000, []),
        (2000, 2000, 1999, ["thinking_changed:thinking.budget_tokens"]),
        (5, 2000, 1024, ["thinking_changed:thinking.budget_tokens"]),
        (9999, 1025, 1024, ["thinking_changed:thinking.budget_tokens"]),
        (2000, 1024, None, ["thinking_disabled:thinking"]),
    ],
)
def test_a_budget_is_less_than_the_limit_and_not_too_little(budget, limit, sent, told):
    thinking = {"type": "enabled", "budget_tokens": budget}
    fields, said = fitted("claude-opus-4-5", thinking=thinking, max_tokens=limit)
    assert (fields.get("thinking") or {}).get("budget_tokens") == sent
    assert said == told


def test_a_budget_may_pass_the_limit_while_thinking_is_interleaved():
    thinking = {"type": "enabled", "budget_tokens": 9000}
    said = {"thinking": thinking, "max_tokens": 5, "betas": ["interleaved-thinking-2025-05-14"]}
    assert fitted("claude-sonnet-4-5", **said) == (said, [])


def test_the_limit_that_was_added_counts_for_the_budget():
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
    ("model", "asked", "sent"),
    [
        ("claude-haiku-4-5", "low", None),
        ("claude-opus-4-5", "max", "high"),
        ("claude-opus-4-6", "xhigh", "max"),
        ("claude-sonnet-5", "xhigh", "xhigh"),
        ("claude-sonnet-5", "brand-new", "brand-new"),
    ],
)
def test_an_effort_is_one_that_the_model_takes(model, asked, sent):
    fields, told = fitted(model, output_config={"effort": asked})
    assert fields.get("output_config", {}).get("effort") == sent
    assert bool(told) == (asked != sent)


@pytest.mark.parametrize("model", ["claude-opus-5-5", "claude-fable-5-1"])
def test_bedrock_is_told_the_same_of_thinking_and_tools(model):
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
@pytest.mark.parametrize("said", [{"temperature": 1}, {"top_p": 1.0}, {"temperature": 0.3}])
def test_a_model_without_sampling_is_told_of_alike_by_both_services(model, said):
    _, here = encode_options(RequestOptions(**said), model=model)
    fields, there = encode_for_bedrock(RequestOptions(**said), model=f"us.anthropic.{model}")
    assert fields == {}
    assert [(notice.code, notice.path) for notice in here] == [
        (notice.code, notice.path) for notice in there
    ]
    assert bool(here) is (said.get("temperature") == 0.3)


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
def test_fitting_twice_changes_nothing_more(model, thinking, fields):
    given_fields = fields if thinking is None else {**fields, "thinking": thinking}
    before = json.dumps(given_fields)
    once, _ = fitted(model, **given_fields)
    assert fitted(model, **once) == (once, [])
    assert json.dumps(given_fields) == before


def test_beta_flags_come_as_a_list_or_as_a_header():
    assert parse_betas(["a", 5, "b"]) == ("a", "b")
    assert parse_betas("a, b") == ("a", " b")
    assert parse_betas(None) == parse_betas({"a": 1}) == ()


def test_a_beta_flag_is_sent_once_and_an_unknown_one_is_named_once():
    flag = min(KNOWN_BETAS)
    sent, notices = filter_betas([flag, " x ", flag, "x", ""], always=["mine", "mine"])
    assert sent == ("mine", flag)
    assert [notice.code for notice in notices] == ["beta_left_out"]
    assert "'x'" in notices[0].message


def test_bedrock_knows_one_flag_under_a_name_of_its_own():
    assert sorted(BEDROCK_BETAS - KNOWN_BETAS) == ["tool-search-tool-2025-10-19"]
