"""Parameters of the Responses API, decoded and encoded."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cllm.core.options import ForeignTool, JsonOutput, Reasoning, RequestOptions, Tool, ToolChoice
from cllm.wire.errors import FieldError, NotExpressibleError
from cllm.wire.openai import options as openai_options
from cllm.wire.responses.request import (
    decode_options,
    encode_options,
)

MODEL = "gpt-5-codex"
WORDS = st.text(alphabet=st.characters(codec="utf-8"), min_size=1, max_size=8)
SCHEMAS = st.sampled_from([{"type": "object"}, {"type": "object", "properties": {"a": {}}}])
TOOLS = st.lists(
    st.one_of(
        st.builds(
            Tool,
            name=WORDS,
            description=st.none() | WORDS,
            schema=SCHEMAS,
            strict=st.booleans(),
        ),
        st.just(
            ForeignTool(dialect="responses", name="web_search", raw={"type": "web_search", "n": 1})
        ),
    ),
    min_size=1,
    max_size=3,
).map(tuple)
CHOICES = st.builds(ToolChoice, kind=st.sampled_from(["auto", "any", "none"])) | st.builds(
    ToolChoice, kind=st.just("tool"), name=WORDS
)
OUTPUTS = st.builds(JsonOutput) | st.builds(
    JsonOutput, schema=SCHEMAS, name=WORDS, strict=st.none() | st.booleans()
)
EFFORTS = st.sampled_from(["low", "medium", "high"]).map(
    lambda effort: Reasoning(
        enabled=True, effort=effort, dialect="openai", raw={"reasoning_effort": effort}
    )
)
EXTRAS = st.fixed_dictionaries(
    {},
    optional={
        "include": st.just(["file_search_call.results"]),
        "metadata": st.just({"a": "b"}),
        "truncation": st.just("auto"),
        "max_tool_calls": st.just(3),
        "verbosity": st.just("low"),
        "safety_identifier": WORDS,
        "service_tier": st.just("flex"),
        "top_logprobs": st.just(2),
        "previous_response_id": st.just("resp_1"),
    },
)
OPTIONS = st.builds(
    RequestOptions,
    max_tokens=st.none() | st.integers(16, 9999),
    tools=TOOLS,
    tool_choice=st.none() | CHOICES,
    parallel_tool_calls=st.none() | st.booleans(),
    output=st.none() | OUTPUTS,
    reasoning=st.none() | EFFORTS,
    user=st.none() | WORDS,
    extra=EXTRAS,
)


class TestOptions:
    @settings(deadline=None)
    @given(OPTIONS)
    def test_options_survive_encoding(self, options):
        parameters, notices = encode_options(options, model="some-model")

        assert decode_options(json.loads(json.dumps(parameters))) == options
        assert notices == ()

    @pytest.mark.parametrize("value", [0, 0.0, 1.5])
    def test_sampling_values_of_zero_are_sent(self, value):
        options = RequestOptions(temperature=value, top_p=0)

        parameters, _ = encode_options(options, model="gpt-4.1")

        assert (parameters["temperature"], parameters["top_p"]) == (value, 0)

    def test_options_are_in_the_fields_of_this_api(self):
        parameters, notices = encode_options(
            RequestOptions(
                max_tokens=100,
                tools=(Tool(name="f", description="d", schema={"type": "object"}, strict=True),),
                tool_choice=ToolChoice(kind="tool", name="f"),
                parallel_tool_calls=False,
                output=JsonOutput(schema={"type": "object"}, name="a", strict=True),
                reasoning=Reasoning(enabled=True, effort="high"),
                extra={
                    "verbosity": "low",
                    "reasoning": {"summary": "auto"},
                    "stream_options": {"include_usage": True},
                },
            ),
            model=MODEL,
        )

        assert parameters == {
            "max_output_tokens": 100,
            "tools": [
                {
                    "type": "function",
                    "name": "f",
                    "description": "d",
                    "parameters": {"type": "object"},
                    "strict": True,
                }
            ],
            "tool_choice": {"type": "function", "name": "f"},
            "parallel_tool_calls": False,
            "text": {
                "format": {
                    "type": "json_schema",
                    "name": "a",
                    "schema": {"type": "object"},
                    "strict": True,
                },
                "verbosity": "low",
            },
            "reasoning": {"effort": "high", "summary": "auto"},
        }
        assert notices == ()

    def test_log_probabilities_are_an_include_value(self):
        parameters, _ = encode_options(RequestOptions(extra={"logprobs": True}), model="gpt-4.1")

        assert parameters == {"include": ["message.output_text.logprobs"]}

    def test_a_tool_without_strict_is_sent_with_strict_false(self):
        parameters, _ = encode_options(RequestOptions(tools=(Tool(name="f"),)), model=MODEL)

        assert parameters["tools"][0]["strict"] is False

    def test_unsupported_options_are_reported(self):
        parameters, notices = encode_options(
            RequestOptions(
                max_tokens=5, stop=("X",), seed=0, top_k=4, extra={"n": 2, "thinking": {}}
            ),
            model="gpt-4.1",
        )

        assert parameters == {"max_output_tokens": 16}
        assert {(notice.code, notice.path) for notice in notices} == {
            ("parameter_changed", "max_output_tokens"),
            ("field_left_out", "stop"),
            ("field_left_out", "seed"),
            ("field_left_out", "top_k"),
            ("field_left_out", "n"),
            ("field_left_out", "thinking"),
        }

    def test_a_tool_of_this_api_is_refused_elsewhere(self):
        options = decode_options({"tools": [{"type": "web_search"}]})

        with pytest.raises(NotExpressibleError, match="web_search"):
            openai_options.encode_options(options, model="gpt-5.2")

    @pytest.mark.parametrize(
        ("here", "there"),
        [
            (
                {"type": "custom", "name": "c", "format": {"type": "grammar", "syntax": "lark"}},
                {
                    "type": "custom",
                    "custom": {
                        "name": "c",
                        "format": {"type": "grammar", "grammar": {"syntax": "lark"}},
                    },
                },
            ),
            (
                {"type": "function", "name": "f", "parameters": {"a": 1}, "strict": True},
                {
                    "type": "function",
                    "function": {"name": "f", "parameters": {"a": 1}, "strict": True},
                },
            ),
        ],
        ids=["custom", "function"],
    )
    def test_a_shared_tool_is_converted_between_the_apis(self, here, there):
        flat, _ = encode_options(openai_options.decode_options({"tools": [there]}), model=MODEL)

        assert flat["tools"] == [here]
        nested, _ = openai_options.encode_options(decode_options({"tools": [here]}), model=MODEL)
        (tool,) = nested["tools"]
        if here["type"] == "custom":
            assert tool["function"]["parameters"]["required"] == ["input"]
        else:
            assert tool == there

    def test_allowed_tools_are_converted_between_the_apis(self):
        here = {
            "type": "allowed_tools",
            "mode": "auto",
            "tools": [{"type": "function", "name": "f"}],
        }
        there = {
            "type": "allowed_tools",
            "allowed_tools": {
                "mode": "auto",
                "tools": [{"type": "function", "function": {"name": "f"}}],
            },
        }
        parameters = {"tools": [{"type": "function", "name": "f"}], "tool_choice": here}

        options = decode_options(parameters)

        assert openai_options.encode_options(options, model=MODEL)[0]["tool_choice"] == there
        assert encode_options(options, model=MODEL)[0]["tool_choice"] == here

    @pytest.mark.parametrize(
        ("parameters", "path"),
        [
            ({"tools": [{"type": "function", "name": 5}]}, "tools[0].name"),
            ({"tools": "f"}, "tools"),
            ({"text": "no"}, "text"),
            ({"text": {"format": {"type": "json_schema", "name": 5}}}, "text.format.name"),
            ({"reasoning": {"effort": 5}}, "reasoning.effort"),
            ({"max_output_tokens": "many"}, "max_output_tokens"),
        ],
    )
    def test_an_invalid_field_is_reported_with_the_clients_path(self, parameters, path):
        with pytest.raises(FieldError) as caught:
            decode_options(parameters)

        assert caught.value.path == path
        assert str(caught.value).startswith(f"{path}: ")
