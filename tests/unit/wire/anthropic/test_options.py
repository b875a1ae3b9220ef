"""The parameters of the Messages API, decoded and encoded."""

import json
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
from cllm.wire.anthropic.options import build_limit_notices, default_max_tokens
from cllm.wire.anthropic.request import (
    decode_options,
    encode_options,
)
from cllm.wire.errors import FieldError, MalformedError, NotExpressibleError

OLD = "claude-sonnet-4-20250514"
NEW = "claude-opus-4-8"


def encoded_options(model: str = OLD, **options: Any) -> dict[str, Any]:
    return encode_options(RequestOptions(**options), model=model)[0]


def test_zero_is_sent():
    assert encoded_options(temperature=0) == {"temperature": 0}
    assert encoded_options(top_p=0) == {"top_p": 0}
    assert decode_options({"temperature": 0, "top_k": 0}) == RequestOptions(temperature=0, top_k=0)


def test_stop_is_sent_as_stop_sequences():
    assert encoded_options(stop=("X",)) == {"stop_sequences": ["X"]}
    assert decode_options({"stop_sequences": ["X"]}).stop == ("X",)
    fields, notices = encode_options(RequestOptions(stop=("X", "\n")), model=OLD)
    assert fields == {"stop_sequences": ["X"]}
    assert notices[0].path == "stop_sequences"


@pytest.mark.parametrize(
    "model", ["claude-opus-4-1", "claude-sonnet-4-5-20250929", "claude-opus-4-6"]
)
def test_a_model_with_one_sampling_parameter_gets_temperature_and_a_notice(model):
    fields, notices = encode_options(RequestOptions(temperature=0, top_p=0.5), model=model)
    assert fields == {"temperature": 0}
    assert [(notice.code, notice.path) for notice in notices] == [("parameter_left_out", "top_p")]


@pytest.mark.parametrize("model", [OLD, "claude-3-7-sonnet-20250219", "other", "claude-2.1"])
def test_a_model_with_both_sampling_parameters_gets_both(model):
    fields, notices = encode_options(RequestOptions(temperature=0.5, top_p=0.5), model=model)
    assert fields == {"temperature": 0.5, "top_p": 0.5}
    assert notices == ()


@pytest.mark.parametrize("kind", ["auto", "any", "none"])
def test_every_tool_choice_is_encoded(kind):
    choice = ToolChoice(kind=kind)
    assert encoded_options(tool_choice=choice) == {"tool_choice": {"type": kind}}
    assert decode_options({"tool_choice": {"type": kind}}).tool_choice == choice
    named = ToolChoice(kind="tool", name="f")
    assert encoded_options(tool_choice=named)["tool_choice"] == {"type": "tool", "name": "f"}


def test_disabled_parallel_calls_need_a_tool_choice_with_a_type():
    sent = {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}
    tools = (Tool(name="f"),)
    assert encoded_options(parallel_tool_calls=False, tools=tools).items() > sent.items()
    assert encoded_options(parallel_tool_calls=False) == {}
    assert decode_options(sent).parallel_tool_calls is False
    assert encoded_options(parallel_tool_calls=True) == {}
    none = ToolChoice(kind="none")
    fields = encoded_options(parallel_tool_calls=False, tool_choice=none)
    assert fields == {"tool_choice": {"type": "none"}}


def test_strict_false_is_not_sent():
    (tool,) = encoded_options(tools=(Tool(name="f", strict=False),))["tools"]
    assert tool == {"name": "f", "input_schema": {"type": "object"}}
    (tool,) = encoded_options(tools=(Tool(name="f", strict=True),))["tools"]
    assert tool["strict"] is True


def test_tools_keep_every_field_of_the_api():
    tools = [
        {
            "name": "f",
            "input_schema": {"type": "object", "properties": {"a": {}}},
            "description": "d",
            "type": "custom",
            "input_examples": [{"a": 1}],
            "cache_control": {"type": "ephemeral", "ttl": "1h"},
        },
        {"name": "g", "input_schema": {"type": "object"}, "cache_control": {"type": "ephemeral"}},
    ]
    options = decode_options({"tools": tools})
    assert options.tools is not None
    assert isinstance(options.tools[0], Tool)
    assert options.tools[0].cache == CacheMark(ttl="1h")
    assert encode_options(options, model=OLD) == ({"tools": tools}, ())


def test_an_unsupported_field_of_a_tool_is_reported():
    fields, notices = encode_options(
        RequestOptions(tools=(Tool(name="f", extra={"x": 1}),)), model=OLD
    )
    assert "x" not in fields["tools"][0]
    assert notices[0].path == "tools.f.x"
    odd = {"name": "f", "input_schema": {}, "cache_control": {"odd": 1}}
    assert decode_options({"tools": [odd]}).tools == (
        Tool(name="f", extra={"cache_control": {"odd": 1}}),
    )


def test_a_server_tool_of_anthropic_is_unchanged():
    tool = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}
    options = decode_options({"tools": [tool, {"type": "mcp_toolset"}]})
    assert options.tools == (
        ForeignTool(dialect="anthropic", name="web_search", raw=tool),
        ForeignTool(dialect="anthropic", name="mcp_toolset", raw={"type": "mcp_toolset"}),
    )
    assert encode_options(options, model=OLD)[0]["tools"][0] == tool


def test_a_tool_of_another_protocol_is_refused_by_name():
    tool = ForeignTool(dialect="openai", name="code_interpreter", raw={})
    with pytest.raises(NotExpressibleError, match="code_interpreter"):
        encode_options(RequestOptions(tools=(tool,)), model=OLD)


@pytest.mark.parametrize(
    "thinking",
    [
        {"type": "enabled", "budget_tokens": 2000, "display": "omitted"},
        {"type": "disabled"},
        {"type": "adaptive"},
        {"type": "brand_new", "x": 1},
    ],
)
def test_thinking_of_an_anthropic_client_is_unchanged(thinking):
    for parameters in (
        {"thinking": thinking},
        {"thinking": thinking, "output_config": {"effort": "high"}},
    ):
        options = decode_options(parameters)
        assert options.reasoning is not None
        assert options.reasoning.enabled == (thinking["type"] != "disabled")
        assert encode_options(options, model="claude-opus-4-6") == (parameters, ())


def test_effort_without_thinking_is_sent_alone():
    parameters = {"output_config": {"effort": "low"}}
    assert encode_options(decode_options(parameters), model=NEW) == (parameters, ())


@pytest.mark.parametrize(
    ("model", "reasoning", "sent"),
    [
        (
            NEW,
            {"enabled": True, "effort": "high"},
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "high"}},
        ),
        (
            "claude-mythos-preview",
            {"enabled": True, "effort": "minimal"},
            {"thinking": {"type": "adaptive"}, "output_config": {"effort": "low"}},
        ),
        (NEW, {"enabled": True, "budget_tokens": 9}, {"thinking": {"type": "adaptive"}}),
        (NEW, {"enabled": False}, {"thinking": {"type": "disabled"}}),
        (NEW, {"enabled": True, "effort": "none"}, {"thinking": {"type": "disabled"}}),
        (
            OLD,
            {"enabled": True, "effort": "low"},
            {"thinking": {"type": "enabled", "budget_tokens": 2048}},
        ),
        (
            OLD,
            {"enabled": True, "budget_tokens": 3000},
            {"thinking": {"type": "enabled", "budget_tokens": 3000}},
        ),
        ("claude-3-5-sonnet-20241022", {"enabled": True}, {}),
    ],
)
def test_reasoning_of_another_protocol_is_encoded_for_the_model(model, reasoning, sent):
    fields, notices = encode_options(RequestOptions(reasoning=Reasoning(**reasoning)), model=model)
    assert fields == sent
    assert bool(notices) == (not sent)


def test_a_thinking_budget_stays_below_max_tokens():
    high = Reasoning(enabled=True, effort="high")
    fields = encoded_options(reasoning=high, max_tokens=5000)
    assert fields["thinking"]["budget_tokens"] == 2500
    fields, notices = encode_options(RequestOptions(reasoning=high, max_tokens=1024), model=OLD)
    assert fields == {"max_tokens": 1024}
    assert notices[0].path == "thinking"


def test_a_thinking_budget_of_an_effort_leaves_room_for_the_reply():
    high = Reasoning(enabled=True, effort="high")
    assert encoded_options(reasoning=high, max_tokens=2000)["thinking"]["budget_tokens"] == 1024
    assert encoded_options(reasoning=high, max_tokens=64_000)["thinking"]["budget_tokens"] == 16384
    budget = Reasoning(enabled=True, budget_tokens=1900)
    assert encoded_options(reasoning=budget, max_tokens=2000)["thinking"]["budget_tokens"] == 1900


def test_json_output_without_a_schema_is_reported():
    fields, notices = encode_options(RequestOptions(output=JsonOutput()), model=OLD)
    assert fields == {}
    assert [(n.code, n.path) for n in notices] == [("field_left_out", "response_format")]


@pytest.mark.parametrize("kind", ["any", "tool"])
def test_a_forced_tool_disables_thinking_with_a_budget_only(kind):
    choice = ToolChoice(kind=kind, name="f")
    effort = Reasoning(enabled=True, effort="high")
    options = RequestOptions(reasoning=effort, tool_choice=choice, max_tokens=20_000)
    fields, notices = encode_options(options, model=OLD)
    assert fields["thinking"] == {"type": "disabled"}
    assert [notice.code for notice in notices] == ["thinking_disabled"]
    fields, notices = encode_options(options, model=NEW)
    assert fields["thinking"] == {"type": "adaptive"}
    assert notices == ()


def test_sampling_that_thinking_excludes_is_not_sent():
    options = RequestOptions(
        temperature=0, top_p=0.5, top_k=3, reasoning=Reasoning(enabled=True, effort="low")
    )
    fields, notices = encode_options(options, model=OLD)
    assert list(fields) == ["thinking"]
    assert [notice.path for notice in notices] == ["temperature", "top_p", "top_k"]
    taken = msgspec.structs.replace(options, temperature=1, top_p=0.99, top_k=None)
    assert encode_options(taken, model=OLD)[1] == ()
    off = msgspec.structs.replace(options, reasoning=Reasoning(enabled=False))
    assert encode_options(off, model=OLD)[1] == ()


def test_a_json_schema_is_sent_as_output_config():
    schema = {"type": "object"}
    current = {"output_config": {"format": {"type": "json_schema", "schema": schema}}}
    former = {"output_format": {"type": "json_schema", "schema": schema}}
    for parameters in (current, former):
        options = decode_options(parameters)
        assert options.output == JsonOutput(schema=schema)
        assert encode_options(options, model=NEW) == (current, ())
    fields, notices = encode_options(RequestOptions(output=JsonOutput()), model=NEW)
    assert fields == {}
    assert notices[0].path == "response_format"


def test_the_user_is_in_the_metadata():
    assert encoded_options(user="u1") == {"metadata": {"user_id": "u1"}}
    options = decode_options({"metadata": {"user_id": "u1", "x": 1}})
    assert options.user == "u1"
    assert options.extra == {"metadata": {"x": 1}}


def test_unsupported_options_are_reported():
    extra = {"logprobs": True, "service_tier": "flex", "container": "c", "output_config": {"x": 1}}
    fields, notices = encode_options(RequestOptions(seed=1, extra=extra), model=OLD)
    assert fields == {"container": "c", "output_config": {"x": 1}}
    assert [notice.path for notice in notices] == ["seed", "logprobs", "service_tier"]
    fields, _ = encode_options(RequestOptions(extra={"service_tier": "auto"}), model=OLD)
    assert fields == {"service_tier": "auto"}


SCHEMAS = st.fixed_dictionaries({"type": st.just("object")})
NAMES = st.from_regex(r"[a-z]{1,8}", fullmatch=True)
OPTIONS = st.builds(
    RequestOptions,
    max_tokens=st.none() | st.integers(1, 9),
    temperature=st.none() | st.sampled_from([0, 0.5, 1]),
    top_k=st.none() | st.integers(0, 9),
    stop=st.none() | st.lists(NAMES, max_size=2).map(tuple),
    tools=st.none()
    | st.lists(
        st.builds(
            Tool,
            name=NAMES,
            description=st.none() | NAMES,
            schema=SCHEMAS,
            strict=st.sampled_from([None, True]),
            cache=st.none() | st.builds(CacheMark, ttl=st.sampled_from([None, "1h"])),
        ),
        max_size=2,
    ).map(tuple),
    tool_choice=st.none() | st.builds(ToolChoice, kind=st.sampled_from(["auto", "none"])),
    output=st.none() | st.builds(JsonOutput, schema=SCHEMAS),
    user=st.none() | NAMES,
    extra=st.dictionaries(st.sampled_from(["container", "speed"]), NAMES),
)


@given(OPTIONS)
def test_options_are_equal_after_encoding_and_decoding(options):
    fields, notices = encode_options(options, model=OLD)
    assert notices == ()
    assert decode_options(json.loads(json.dumps(fields))) == options


ODD = st.sampled_from([None, 3, -1.5, "x", [], {}, [None], {"type": "x"}, True, [{"name": 3}]])
PARAMETERS = [
    "max_tokens",
    "temperature",
    "top_p",
    "stop_sequences",
    "tools",
    "tool_choice",
    "output_format",
    "output_config",
    "thinking",
    "metadata",
    "x",
]


@given(st.dictionaries(st.sampled_from(PARAMETERS), ODD))
def test_any_parameters_give_options_or_malformed(parameters):
    try:
        options = decode_options(parameters)
    except MalformedError:
        return
    encode_options(options, model=NEW)


def test_an_invalid_parameter_is_named_by_its_path():
    with pytest.raises(FieldError) as caught:
        decode_options({"tools": [{"name": "f", "input_schema": 3}]})
    assert caught.value.path == "tools[0].input_schema"
    with pytest.raises(FieldError) as caught:
        decode_options({"temperature": "hot"})
    assert caught.value.path == "temperature"


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
def test_the_default_max_tokens_is_the_models_maximum(model, limit):
    assert default_max_tokens(model) == limit


def test_only_an_anthropic_client_gets_a_notice_about_added_max_tokens():
    (notice,) = build_limit_notices({}, "anthropic", model="claude-opus-4-8")
    assert notice.code == "max_tokens_added"
    assert build_limit_notices({"max_tokens": 1}, "anthropic", model="claude-opus-4-8") == ()


@pytest.mark.parametrize(
    ("model", "is_reported"),
    [("claude-opus-4-8", False), ("claude-3-7-sonnet-20250219", True), ("unheard-of", True)],
)
def test_an_added_limit_below_the_models_maximum_is_reported_to_every_client(model, is_reported):
    notices = build_limit_notices({}, "openai", model=model)
    assert [notice.code for notice in notices] == (["max_tokens_added"] if is_reported else [])
    assert build_limit_notices({"max_completion_tokens": 1}, "openai", model=model) == ()
