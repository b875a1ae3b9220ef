"""Options, encoded as parameters of Converse."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cllm.core.message import (
    CacheMark,
)
from cllm.core.options import (
    ForeignTool,
    JsonOutput,
    Reasoning,
    RequestOptions,
    Tool,
    ToolChoice,
)
from cllm.wire.bedrock.request import encode_options
from cllm.wire.errors import NotExpressibleError

CLAUDE = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"
NEW_CLAUDE = "us.anthropic.claude-opus-4-6-v1"
SONNET_37 = "us.anthropic.claude-3-7-sonnet-20250219-v1:0"
NOVA = "us.amazon.nova-pro-v1:0"
LLAMA = "meta.llama3-3-70b-instruct-v1:0"
MISTRAL = "mistral.mistral-large-2402-v1:0"


def encode_fields(options: RequestOptions, model: str = CLAUDE, **more: Any) -> dict[str, Any]:
    return encode_options(options, model=model, **more)[0]


def notice_codes(options: RequestOptions, model: str = CLAUDE) -> set[str]:
    return {f"{notice.code}:{notice.path}" for notice in encode_options(options, model=model)[1]}


def test_zero_is_sent():
    fields = encode_fields(RequestOptions(temperature=0, top_p=0, max_tokens=5, stop=()), SONNET_37)
    expected = {"temperature": 0, "topP": 0, "maxTokens": 5, "stopSequences": []}
    assert fields == {"inferenceConfig": expected}
    assert encode_fields(RequestOptions()) == {}


def test_a_temperature_above_one_is_one():
    assert encode_fields(RequestOptions(temperature=1.7))["inferenceConfig"]["temperature"] == 1
    assert notice_codes(RequestOptions(temperature=1.7)) == {"parameter_changed:temperature"}


def test_stop_is_sent_as_stop_sequences_and_the_match_is_requested():
    fields = encode_fields(RequestOptions(stop=("X", " ")))
    assert fields["inferenceConfig"]["stopSequences"] == ["X"]
    assert fields["additionalModelResponseFieldPaths"] == ["/stop_sequence"]
    assert "additionalModelResponseFieldPaths" not in encode_fields(
        RequestOptions(stop=("X",)), LLAMA
    )
    assert notice_codes(RequestOptions(stop=("X", " "))) == {"parameter_changed:stop"}


def test_strict_false_is_omitted():
    for strict in (False, None):
        tool = Tool(name="a", strict=strict, description="")
        spec = encode_fields(RequestOptions(tools=(tool,)))["toolConfig"]["tools"][0]["toolSpec"]
        assert spec == {"name": "a", "inputSchema": {"json": {"type": "object"}}}


def test_strict_is_sent_to_models_that_support_it():
    tool = Tool(name="a", strict=True, extra={"odd": 1})
    assert encode_fields(RequestOptions(tools=(tool,)))["toolConfig"]["tools"][0]["toolSpec"][
        "strict"
    ]
    assert notice_codes(RequestOptions(tools=(tool,)), LLAMA) == {
        "field_left_out:tools.a.strict",
        "field_left_out:tools.a.odd",
    }


def test_a_tool_of_another_protocol_is_refused_by_name():
    tool = ForeignTool(dialect="anthropic", name="web_search", raw={})
    with pytest.raises(NotExpressibleError, match="web_search"):
        encode_options(RequestOptions(tools=(tool,)), model=CLAUDE)


def test_tool_choice_none_drops_the_tools_unless_the_history_has_tools():
    options = RequestOptions(tools=(Tool(name="a"),), tool_choice=ToolChoice(kind="none"))
    assert encode_fields(options) == {}
    assert "toolChoice" not in encode_fields(options, history_has_tools=True)["toolConfig"]


@pytest.mark.parametrize(
    ("choice", "model", "expected"),
    [
        (ToolChoice(kind="auto"), CLAUDE, {"auto": {}}),
        (ToolChoice(kind="any"), MISTRAL, {"any": {}}),
        (ToolChoice(kind="tool", name="a"), NOVA, {"tool": {"name": "a"}}),
        (ToolChoice(kind="auto"), LLAMA, None),
        (ToolChoice(kind="any"), LLAMA, None),
    ],
)
def test_a_tool_choice_is_sent_if_the_model_supports_it(choice, model, expected):
    options = RequestOptions(tools=(Tool(name="a"),), tool_choice=choice)
    assert encode_fields(options, model)["toolConfig"].get("toolChoice") == expected
    dropped = expected is None and choice.kind != "auto"
    assert bool(notice_codes(options, model)) is dropped


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        (CLAUDE, {"top_k": 5}),
        (NOVA, {"inferenceConfig": {"topK": 5}}),
        (MISTRAL, {"top_k": 5}),
    ],
)
def test_top_k_is_sent_in_the_fields_of_the_family(model, expected):
    fields = encode_fields(RequestOptions(top_k=5), model)
    assert fields == {"additionalModelRequestFields": expected}


def test_unsupported_options_are_reported():
    options = RequestOptions(
        top_k=1,
        seed=1,
        user="u",
        parallel_tool_calls=False,
        output=JsonOutput(schema={}),
        reasoning=Reasoning(enabled=True, effort="high"),
        extra={"logprobs": True},
    )
    assert {path.partition(":")[2] for path in notice_codes(options, LLAMA)} == {
        "top_k",
        "seed",
        "user",
        "parallel_tool_calls",
        "response_format",
        "thinking",
        "logprobs",
    }
    assert encode_fields(options, LLAMA) == {}
    assert encode_fields(RequestOptions(reasoning=Reasoning(enabled=False)), LLAMA) == {}


def thinking(options: RequestOptions, model: str = SONNET_37) -> Any:
    return encode_fields(options, model).get("additionalModelRequestFields")


def test_thinking_is_encoded_for_the_model():
    high = Reasoning(enabled=True, effort="high")
    assert thinking(RequestOptions(reasoning=high)) == {
        "thinking": {"type": "enabled", "budget_tokens": 16384}
    }
    assert thinking(RequestOptions(reasoning=high, max_tokens=2000)) == {
        "thinking": {"type": "enabled", "budget_tokens": 1024}
    }
    assert thinking(RequestOptions(reasoning=high), NEW_CLAUDE) == {
        "thinking": {"type": "adaptive"},
        "output_config": {"effort": "high"},
    }
    assert thinking(RequestOptions(reasoning=Reasoning(enabled=False))) == {
        "thinking": {"type": "disabled"}
    }


def test_thinking_of_an_anthropic_client_is_unchanged():
    raw = {"type": "enabled", "budget_tokens": 2048}
    reasoning = Reasoning(enabled=True, effort="low", dialect="anthropic", raw=raw)
    assert thinking(RequestOptions(reasoning=reasoning)) == {"thinking": raw}


def test_thinking_without_enough_max_tokens_is_disabled():
    options = RequestOptions(reasoning=Reasoning(enabled=True, budget_tokens=4096), max_tokens=100)
    assert thinking(options) is None
    assert notice_codes(options, SONNET_37) == {"thinking_disabled:thinking"}


def test_a_forced_tool_disables_thinking():
    options = RequestOptions(
        tools=(Tool(name="a"),),
        tool_choice=ToolChoice(kind="any"),
        reasoning=Reasoning(enabled=True, effort="low"),
    )
    assert thinking(options) is None
    assert notice_codes(options, SONNET_37) == {"thinking_disabled:thinking"}


def test_sampling_that_thinking_excludes_is_not_sent():
    options = RequestOptions(
        temperature=0, top_k=5, top_p=0.5, reasoning=Reasoning(enabled=True, budget_tokens=2048)
    )
    fields = encode_fields(options, SONNET_37)
    assert set(fields) == {"additionalModelRequestFields", "inferenceConfig"}
    assert set(fields["inferenceConfig"]) == {"maxTokens"}
    assert fields["inferenceConfig"]["maxTokens"] > 2048
    assert len(notice_codes(options, SONNET_37)) == 3
    assert (
        encode_fields(RequestOptions(temperature=0), SONNET_37)["inferenceConfig"]["temperature"]
        == 0
    )


@pytest.mark.parametrize(
    ("model", "sampling"),
    [
        (SONNET_37, {"temperature", "topP"}),
        (CLAUDE, {"temperature"}),
        ("us.anthropic.claude-opus-4-1-20250805-v1:0", {"temperature"}),
        ("us.anthropic.claude-opus-4-7", set()),
    ],
)
def test_sampling_that_a_model_refuses_is_not_sent(model, sampling):
    options = RequestOptions(temperature=0, top_p=0.5, max_tokens=9)
    assert set(encode_fields(options, model)["inferenceConfig"]) == {"maxTokens", *sampling}
    assert len(notice_codes(options, model)) == 2 - len(sampling)


def test_a_budget_is_not_sent_to_a_model_with_adaptive_thinking():
    raw = {"type": "enabled", "budget_tokens": 2048}
    reasoning = Reasoning(enabled=True, budget_tokens=2048, dialect="anthropic", raw=raw)
    options = RequestOptions(reasoning=reasoning)
    assert thinking(options, "us.anthropic.claude-opus-4-7") == {"thinking": {"type": "adaptive"}}
    assert notice_codes(options, "us.anthropic.claude-opus-4-7") == {
        "thinking_changed:thinking.budget_tokens"
    }


def test_only_known_beta_flags_are_sent():
    options = RequestOptions(extra={"betas": ["context-1m-2025-08-07", "made-up"]})
    assert thinking(options) == {"anthropic_beta": ["context-1m-2025-08-07"]}
    assert notice_codes(options) == {"beta_left_out:betas"}
    assert thinking(options, LLAMA) is None


def test_a_json_schema_is_sent_to_models_that_support_it():
    output = JsonOutput(schema={"type": "object"}, name="n")
    text = encode_fields(RequestOptions(output=output))["outputConfig"]["textFormat"]
    assert text["structure"] == {"jsonSchema": {"schema": '{"type":"object"}', "name": "n"}}
    assert notice_codes(RequestOptions(output=JsonOutput())) == {"field_left_out:response_format"}
    encode_fields(RequestOptions(output=JsonOutput(schema={})))


OPTIONS = st.builds(
    RequestOptions,
    max_tokens=st.none() | st.integers(4096, 9000),
    temperature=st.none() | st.floats(0, 1),
    top_p=st.none() | st.floats(0, 1),
    top_k=st.none() | st.integers(0, 9),
    stop=st.none() | st.just(("X", "Y")),
    tools=st.none()
    | st.just(
        (
            Tool(name="a", description="d", schema={"type": "object"}, cache=CacheMark(ttl="1h")),
            Tool(name="b", schema={"type": "object"}, strict=True),
        )
    ),
    extra=st.sampled_from(
        [
            {},
            {"serviceTier": {"type": "flex"}},
            {"betas": ["effort-2025-11-24"]},
            {"additionalModelRequestFields": {"custom": 1}},
        ]
    ),
)
CHOICES = st.none() | st.sampled_from(
    [ToolChoice(kind="auto"), ToolChoice(kind="any"), ToolChoice(kind="tool", name="a")]
)


@given(OPTIONS, CHOICES)
def test_options_that_claude_accepts_cause_no_notice(options, choice):
    if options.temperature is not None:
        options = msgspec.structs.replace(options, top_p=None)
    if options.tools:
        options = msgspec.structs.replace(options, tool_choice=choice)
    fields, notices = encode_options(options, model=CLAUDE)
    assert notices == ()
    assert fields.get("inferenceConfig", {}).get("maxTokens") == options.max_tokens
    assert ("toolConfig" in fields) == bool(options.tools)
