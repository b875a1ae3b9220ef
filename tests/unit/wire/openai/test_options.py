"""Parameters of Chat Completions, decoded and encoded."""

import contextlib
import json
import string
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cllm.core.message import (
    CacheMark,
)
from cllm.core.notice import Notice
from cllm.core.options import (
    ForeignTool,
    JsonOutput,
    Reasoning,
    RequestOptions,
    Tool,
    ToolChoice,
)
from cllm.wire.errors import FieldError, MalformedError, NotExpressibleError
from cllm.wire.openai.request import decode_options, encode_options

WORDS = st.text(alphabet=st.characters(codec="utf-8"), min_size=1, max_size=20)
NAMES = st.text(alphabet=string.ascii_letters + "_-", min_size=1, max_size=20)
JSON_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
OBJECTS = st.dictionaries(st.text(max_size=5), JSON_VALUES, max_size=3)
WEATHER = Tool(name="weather", schema={"type": "object", "properties": {"city": {}}})


def codes(notices: tuple[Notice, ...]) -> list[str]:
    return [notice.code for notice in notices]


def encode_fields(model: str = "gpt-4o", **options: Any) -> dict[str, Any]:
    return encode_options(RequestOptions(**options), model=model)[0]


def encode_notices(model: str = "gpt-4o", **options: Any) -> tuple[Notice, ...]:
    return encode_options(RequestOptions(**options), model=model)[1]


@st.composite
def tools(draw: st.DrawFn) -> Tool | ForeignTool:
    if draw(st.booleans()):
        raw = {"type": "custom", "custom": {"name": draw(NAMES)}}
        return ForeignTool(dialect="openai", name=raw["custom"]["name"], raw=raw)  # type: ignore[index]
    return Tool(
        name=draw(NAMES),
        description=draw(st.none() | WORDS),
        schema={"type": "object", **draw(OBJECTS)},
        strict=draw(st.none() | st.booleans()),
    )


@st.composite
def all_options(draw: st.DrawFn) -> RequestOptions:
    """Everything that OpenAI can be asked for."""
    efforts = st.sampled_from(["minimal", "low", "high", None])
    effort = draw(efforts)
    reasoning = Reasoning(
        enabled=effort is not None,
        effort=effort,
        dialect="openai",
        raw={"reasoning_effort": effort or "none"},
    )
    return RequestOptions(
        max_tokens=draw(st.none() | st.integers(0, 10**6)),
        temperature=draw(st.none() | st.floats(0, 2)),
        top_p=draw(st.none() | st.floats(0, 1)),
        stop=draw(st.none() | st.lists(WORDS, min_size=1, max_size=4).map(tuple)),
        tools=tuple(draw(st.lists(tools(), min_size=1, max_size=3))),
        tool_choice=draw(
            st.none()
            | st.builds(ToolChoice, kind=st.sampled_from(["auto", "any", "none"]))
            | st.builds(ToolChoice, kind=st.just("tool"), name=NAMES)
        ),
        parallel_tool_calls=draw(st.none() | st.booleans()),
        output=draw(
            st.none()
            | st.just(JsonOutput())
            | st.builds(JsonOutput, schema=OBJECTS, name=NAMES, strict=st.none() | st.booleans())
        ),
        reasoning=draw(st.none() | st.just(reasoning)),
        seed=draw(st.none() | st.integers(-(2**53), 2**53)),
        user=draw(st.none() | WORDS),
        extra=draw(
            st.dictionaries(
                st.sampled_from(["logprobs", "n", "logit_bias", "store", "verbosity"]),
                # 0, 1 and {} would say what is so without them.
                JSON_VALUES.filter(lambda value: value not in (None, 0, 1, {})),
                max_size=2,
            )
        ),
    )


class TestOptions:
    @given(all_options(), st.sampled_from(["llama", "openai/llama", "deepseek-reasoner"]))
    def test_options_survive_encoding(self, options, model):
        parameters, notices = encode_options(options, model=model)

        assert decode_options(json.loads(json.dumps(parameters))) == options
        assert notices == ()

    @given(all_options())
    def test_the_same_options_give_the_same_bytes(self, options):
        first, second = (encode_options(options, model="o3")[0] for _ in range(2))

        assert msgspec.json.encode(first) == msgspec.json.encode(second)

    @pytest.mark.parametrize("name", ["temperature", "top_p", "max_tokens", "seed"])
    def test_zero_is_sent(self, name):
        options: dict[str, Any] = {name: 0}

        assert encode_fields(**options) == {name: 0}
        assert getattr(decode_options({name: 0}), name) == 0

    @pytest.mark.parametrize(
        ("model", "name"),
        [
            ("gpt-4o", "max_tokens"),
            ("llama-3", "max_tokens"),
            ("o1", "max_completion_tokens"),
            ("o4-mini", "max_completion_tokens"),
            ("gpt-5", "max_completion_tokens"),
            ("gpt-5.6-mini", "max_completion_tokens"),
            ("openai/o3", "max_completion_tokens"),
            ("olmo-2", "max_tokens"),
        ],
    )
    def test_reasoning_models_get_max_completion_tokens(self, model, name):
        assert encode_fields(model, max_tokens=5) == {name: 5}

    def test_max_completion_tokens_takes_precedence_over_max_tokens(self):
        assert decode_options({"max_tokens": 5}).max_tokens == 5
        assert decode_options({"max_tokens": 5, "max_completion_tokens": 0}).max_tokens == 0

    def test_stop_is_a_string_or_a_list(self):
        assert decode_options({"stop": "X"}).stop == ("X",)
        assert decode_options({"stop": ["X", "Y"]}).stop == ("X", "Y")
        assert decode_options({"stop": None}).stop is None
        assert encode_fields(stop=("X",)) == {"stop": ["X"]}

    def test_more_than_four_stop_sequences_are_reported(self):
        five = ("a", "b", "c", "d", "e")

        assert encode_fields(stop=five) == {"stop": ["a", "b", "c", "d"]}
        assert encode_notices(stop=five)[0].code == "parameter_changed"
        assert encode_notices(stop=five)[0].path == "stop[4]"

    def test_empty_lists_that_openai_refuses_are_not_sent(self):
        assert encode_fields(stop=(), tools=()) == {}
        assert encode_notices(stop=(), tools=()) == ()

    @pytest.mark.parametrize(
        ("kind", "word"), [("auto", "auto"), ("any", "required"), ("none", "none")]
    )
    def test_tool_choices_survive_encoding(self, kind, word):
        choice = ToolChoice(kind=kind)

        assert encode_fields(tools=(WEATHER,), tool_choice=choice)["tool_choice"] == word
        assert decode_options({"tool_choice": word}).tool_choice == choice

    def test_a_choice_of_one_tool_has_its_name(self):
        choice = {"type": "function", "function": {"name": "weather"}}

        assert decode_options({"tool_choice": choice}).tool_choice == ToolChoice(
            kind="tool", name="weather"
        )
        assert (
            encode_fields(tools=(WEATHER,), tool_choice=ToolChoice(kind="tool", name="weather"))[
                "tool_choice"
            ]
            == choice
        )

    @pytest.mark.parametrize("choice", ["sometimes", {"type": "allowed_tools", "mode": "auto"}])
    def test_an_unknown_choice_is_preserved(self, choice):
        options = decode_options({"tool_choice": choice, "tools": []})

        assert options.tool_choice is None
        assert encode_options(options, model="m")[0] == {"tool_choice": choice}

    def test_tool_options_are_not_sent_without_tools(self):
        fields: dict[str, Any] = {
            "tool_choice": ToolChoice(kind="any"),
            "parallel_tool_calls": False,
        }

        assert encode_fields(**fields) == {}
        assert [notice.path for notice in encode_notices(**fields)] == [
            "tool_choice",
            "parallel_tool_calls",
        ]

    def test_parallel_tool_calls_can_be_disabled_alone(self):
        assert (
            encode_fields(tools=(WEATHER,), parallel_tool_calls=False)["parallel_tool_calls"]
            is False
        )

    def test_strict_is_sent_only_if_set(self):
        function = encode_fields(tools=(msgspec.structs.replace(WEATHER, strict=False),))["tools"][
            0
        ]

        assert function["function"]["strict"] is False
        assert "strict" not in encode_fields(tools=(WEATHER,))["tools"][0]["function"]

    def test_a_tool_without_a_schema_has_no_arguments(self):
        function = encode_fields(tools=(Tool(name="now"),))["tools"][0]["function"]

        assert function == {"name": "now", "parameters": {"type": "object", "properties": {}}}

    def test_a_tool_of_another_protocol_is_refused(self):
        tool = ForeignTool(dialect="anthropic", name="web_search", raw={"type": "web_search_1"})

        with pytest.raises(NotExpressibleError, match=r"tools\[1\].*web_search"):
            encode_options(RequestOptions(tools=(WEATHER, tool)), model="m")

    def test_cache_control_and_unknown_fields_of_tools_are_dropped_with_notices(self):
        tool = Tool(name="f", cache=CacheMark(), extra={"defer_loading": True})
        parameters, notices = encode_options(RequestOptions(tools=(tool, tool)), model="m")

        assert "cache" not in json.dumps(parameters)
        assert "defer_loading" not in json.dumps(parameters)
        assert [(notice.code, notice.path) for notice in notices] == [
            ("cache_mark_left_out", "tools[0]"),
            ("field_left_out", "tools[0].defer_loading"),
        ]
        assert all("2 times" in notice.message for notice in notices)

    def test_cache_control_of_a_tool_is_decoded(self):
        tool = {
            "type": "function",
            "function": {"name": "f", "new": 1},
            "cache_control": {"type": "ephemeral", "ttl": "1h"},
        }

        assert decode_options({"tools": [tool]}).tools == (
            Tool(name="f", cache=CacheMark(ttl="1h"), extra={"new": 1}),
        )

    @pytest.mark.parametrize("mark", ["yes", {"type": "ephemeral", "scope": "all"}])
    def test_invalid_cache_control_is_an_extra_field(self, mark):
        tool = {"type": "function", "function": {"name": "f"}, "cache_control": mark}

        assert decode_options({"tools": [tool]}).tools == (
            Tool(name="f", extra={"cache_control": mark}),
        )

    def test_a_hosted_tool_is_preserved(self):
        tool = {"type": "web_search_preview"}

        assert decode_options({"tools": [tool]}).tools == (
            ForeignTool(dialect="openai", name="web_search_preview", raw=tool),
        )

    def test_json_output_survives_encoding(self):
        assert encode_fields(output=JsonOutput())["response_format"] == {"type": "json_object"}
        assert encode_fields(output=JsonOutput(schema={"type": "object"}))["response_format"] == {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": {"type": "object"}},
        }

    def test_the_description_moves_into_the_schema(self):
        form = {"type": "json_schema", "json_schema": {"name": "a", "description": "An answer"}}

        assert decode_options({"response_format": form}).output == JsonOutput(
            name="a", schema={"description": "An answer"}
        )

    def test_text_format_is_the_default_and_an_unknown_format_is_preserved(self):
        grammar = {"type": "grammar", "grammar": "x"}

        assert decode_options({"response_format": {"type": "text"}}) == RequestOptions()
        assert encode_fields(extra={"response_format": grammar}) == {"response_format": grammar}
        assert decode_options({"response_format": grammar}).extra == {"response_format": grammar}

    def test_disabled_thinking_is_effort_none(self):
        disabled = Reasoning(enabled=False, dialect="anthropic", raw={"type": "disabled"})

        assert encode_fields("gpt-5.1", reasoning=disabled) == {"reasoning_effort": "none"}
        assert decode_options({"reasoning_effort": "none"}).reasoning == Reasoning(
            enabled=False, dialect="openai", raw={"reasoning_effort": "none"}
        )

    @pytest.mark.parametrize(
        ("budget", "effort"),
        [(1024, "low"), (2048, "low"), (2049, "medium"), (8192, "medium"), (32_000, "high")],
    )
    def test_a_budget_becomes_the_nearest_effort_with_a_notice(self, budget, effort):
        reasoning = Reasoning(enabled=True, budget_tokens=budget)

        assert encode_fields("o3", reasoning=reasoning) == {"reasoning_effort": effort}
        assert codes(encode_notices("o3", reasoning=reasoning)) == ["thinking_changed"]

    def test_thinking_without_a_budget_is_medium_effort(self):
        assert encode_fields("o3", reasoning=Reasoning(enabled=True)) == {
            "reasoning_effort": "medium"
        }

    def test_an_unknown_effort_is_reported(self):
        reasoning = Reasoning(enabled=True, effort="heroic")

        assert encode_fields("o3", reasoning=reasoning) == {}
        assert codes(encode_notices("o3", reasoning=reasoning)) == ["thinking_disabled"]

    @pytest.mark.parametrize("model", ["gpt-4o", "gpt-4.1-mini", "gpt-3.5-turbo", "gpt-5-chat"])
    def test_thinking_is_not_sent_to_models_without_reasoning(self, model):
        reasoning = Reasoning(enabled=True, effort="high")

        assert encode_fields(model, reasoning=reasoning) == {}
        assert codes(encode_notices(model, reasoning=reasoning)) == ["thinking_disabled"]
        assert encode_notices(model, reasoning=Reasoning(enabled=False)) == ()

    def test_unsupported_options_are_reported(self):
        parameters, notices = encode_options(
            RequestOptions(
                top_k=5, extra={"thinking": {}, "service_tier": "standard_only", "n": 2}
            ),
            model="m",
        )

        assert parameters == {"n": 2}
        assert {notice.path for notice in notices} == {"top_k", "thinking", "service_tier"}
        assert {notice.code for notice in notices} == {"field_left_out"}

    @pytest.mark.parametrize(
        ("parameters", "path"),
        [
            ({"temperature": "hot"}, "temperature"),
            ({"max_tokens": 1.5}, "max_tokens"),
            ({"stop": [1]}, "stop[0]"),
            ({"tools": {}}, "tools"),
            ({"tools": [1]}, "tools[0]"),
            ({"tools": [{"type": "function"}]}, "tools[0].function"),
            ({"tools": [{"type": "function", "function": {"name": 1}}]}, "tools[0].function.name"),
            ({"tools": [{}]}, "tools[0].function"),
            ({"parallel_tool_calls": "no"}, "parallel_tool_calls"),
            ({"response_format": "json"}, "response_format"),
            ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
            ({"seed": True}, "seed"),
        ],
    )
    def test_a_parameter_of_the_wrong_type_is_reported_with_its_path(self, parameters, path):
        with pytest.raises(FieldError) as caught:
            decode_options(parameters)

        assert caught.value.path == path

    @given(
        st.dictionaries(
            st.sampled_from(["tools", "tool_choice", "response_format", "stop", "x", "n"]),
            JSON_VALUES
            | st.lists(st.fixed_dictionaries({"type": JSON_VALUES, "function": JSON_VALUES})),
        )
    )
    def test_any_parameters_are_decoded_or_malformed(self, parameters):
        with contextlib.suppress(MalformedError):
            encode_options(decode_options(parameters), model="o3")
