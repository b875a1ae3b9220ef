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


def asked(model: str = "gpt-4o", **options: Any) -> dict[str, Any]:
    return encode_options(RequestOptions(**options), model=model)[0]


def noticed(model: str = "gpt-4o", **options: Any) -> tuple[Notice, ...]:
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
    def test_what_openai_can_be_asked_for_is_the_same_after_going_through_parameters(
        self, options, model
    ):
        parameters, notices = encode_options(options, model=model)

        assert decode_options(json.loads(json.dumps(parameters))) == options
        assert notices == ()

    @given(all_options())
    def test_the_same_options_give_the_same_bytes(self, options):
        first, second = (encode_options(options, model="o3")[0] for _ in range(2))

        assert msgspec.json.encode(first) == msgspec.json.encode(second)

    @pytest.mark.parametrize("name", ["temperature", "top_p", "max_tokens", "seed"])
    def test_zero_is_said(self, name):
        options: dict[str, Any] = {name: 0}

        assert asked(**options) == {name: 0}
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
    def test_reasoning_models_are_given_their_own_word_for_the_limit(self, model, name):
        assert asked(model, max_tokens=5) == {name: 5}

    def test_either_word_for_the_limit_is_read_and_the_newer_wins(self):
        assert decode_options({"max_tokens": 5}).max_tokens == 5
        assert decode_options({"max_tokens": 5, "max_completion_tokens": 0}).max_tokens == 0

    def test_stop_is_read_as_a_text_or_a_list(self):
        assert decode_options({"stop": "X"}).stop == ("X",)
        assert decode_options({"stop": ["X", "Y"]}).stop == ("X", "Y")
        assert decode_options({"stop": None}).stop is None
        assert asked(stop=("X",)) == {"stop": ["X"]}

    def test_more_than_four_stop_sequences_are_cut_and_said(self):
        five = ("a", "b", "c", "d", "e")

        assert asked(stop=five) == {"stop": ["a", "b", "c", "d"]}
        assert noticed(stop=five)[0].code == "parameter_changed"
        assert noticed(stop=five)[0].path == "stop[4]"

    def test_empty_lists_that_openai_refuses_are_not_sent(self):
        assert asked(stop=(), tools=()) == {}
        assert noticed(stop=(), tools=()) == ()

    @pytest.mark.parametrize(
        ("kind", "word"), [("auto", "auto"), ("any", "required"), ("none", "none")]
    )
    def test_a_tool_choice_keeps_its_meaning(self, kind, word):
        choice = ToolChoice(kind=kind)

        assert asked(tools=(WEATHER,), tool_choice=choice)["tool_choice"] == word
        assert decode_options({"tool_choice": word}).tool_choice == choice

    def test_a_choice_of_one_tool_names_it(self):
        choice = {"type": "function", "function": {"name": "weather"}}

        assert decode_options({"tool_choice": choice}).tool_choice == ToolChoice(
            kind="tool", name="weather"
        )
        assert (
            asked(tools=(WEATHER,), tool_choice=ToolChoice(kind="tool", name="weather"))[
                "tool_choice"
            ]
            == choice
        )

    @pytest.mark.parametrize("choice", ["sometimes", {"type": "allowed_tools", "mode": "auto"}])
    def test_a_choice_of_a_kind_we_have_no_name_for_goes_through(self, choice):
        options = decode_options({"tool_choice": choice, "tools": []})

        assert options.tool_choice is None
        assert encode_options(options, model="m")[0] == {"tool_choice": choice}

    def test_what_is_said_about_tools_is_not_sent_without_any(self):
        fields: dict[str, Any] = {
            "tool_choice": ToolChoice(kind="any"),
            "parallel_tool_calls": False,
        }

        assert asked(**fields) == {}
        assert [notice.path for notice in noticed(**fields)] == [
            "tool_choice",
            "parallel_tool_calls",
        ]

    def test_parallel_calls_can_be_forbidden_alone(self):
        assert asked(tools=(WEATHER,), parallel_tool_calls=False)["parallel_tool_calls"] is False

    def test_strict_false_is_said_and_absent_is_not(self):
        function = asked(tools=(msgspec.structs.replace(WEATHER, strict=False),))["tools"][0]

        assert function["function"]["strict"] is False
        assert "strict" not in asked(tools=(WEATHER,))["tools"][0]["function"]

    def test_a_tool_without_a_schema_takes_no_arguments(self):
        function = asked(tools=(Tool(name="now"),))["tools"][0]["function"]

        assert function == {"name": "now", "parameters": {"type": "object", "properties": {}}}

    def test_a_tool_of_another_protocol_is_refused_by_its_name(self):
        tool = ForeignTool(dialect="anthropic", name="web_search", raw={"type": "web_search_1"})

        with pytest.raises(NotExpressibleError, match=r"tools\[1\].*web_search"):
            encode_options(RequestOptions(tools=(WEATHER, tool)), model="m")

    def test_cache_marks_and_unnamed_fields_of_tools_are_left_out_and_said(self):
        tool = Tool(name="f", cache=CacheMark(), extra={"defer_loading": True})
        parameters, notices = encode_options(RequestOptions(tools=(tool, tool)), model="m")

        assert "cache" not in json.dumps(parameters)
        assert "defer_loading" not in json.dumps(parameters)
        assert [(notice.code, notice.path) for notice in notices] == [
            ("cache_mark_left_out", "tools[0]"),
            ("field_left_out", "tools[0].defer_loading"),
        ]
        assert all("2 times" in notice.message for notice in notices)

    def test_a_cache_mark_on_a_tool_is_read(self):
        tool = {
            "type": "function",
            "function": {"name": "f", "new": 1},
            "cache_control": {"type": "ephemeral", "ttl": "1h"},
        }

        assert decode_options({"tools": [tool]}).tools == (
            Tool(name="f", cache=CacheMark(ttl="1h"), extra={"new": 1}),
        )

    @pytest.mark.parametrize("mark", ["yes", {"type": "ephemeral", "scope": "all"}])
    def test_a_cache_mark_of_another_shape_stays_an_unnamed_field(self, mark):
        tool = {"type": "function", "function": {"name": "f"}, "cache_control": mark}

        assert decode_options({"tools": [tool]}).tools == (
            Tool(name="f", extra={"cache_control": mark}),
        )

    def test_a_hosted_tool_is_kept_as_it_came(self):
        tool = {"type": "web_search_preview"}

        assert decode_options({"tools": [tool]}).tools == (
            ForeignTool(dialect="openai", name="web_search_preview", raw=tool),
        )

    def test_json_output_of_any_shape(self):
        assert asked(output=JsonOutput())["response_format"] == {"type": "json_object"}
        assert asked(output=JsonOutput(schema={"type": "object"}))["response_format"] == {
            "type": "json_schema",
            "json_schema": {"name": "answer", "schema": {"type": "object"}},
        }

    def test_the_description_of_an_answer_goes_with_its_schema(self):
        form = {"type": "json_schema", "json_schema": {"name": "a", "description": "An answer"}}

        assert decode_options({"response_format": form}).output == JsonOutput(
            name="a", schema={"description": "An answer"}
        )

    def test_plain_text_is_no_wish_and_an_unknown_form_goes_through(self):
        grammar = {"type": "grammar", "grammar": "x"}

        assert decode_options({"response_format": {"type": "text"}}) == RequestOptions()
        assert asked(extra={"response_format": grammar}) == {"response_format": grammar}
        assert decode_options({"response_format": grammar}).extra == {"response_format": grammar}

    def test_thinking_disabled_is_an_effort_of_none(self):
        disabled = Reasoning(enabled=False, dialect="anthropic", raw={"type": "disabled"})

        assert asked("gpt-5.1", reasoning=disabled) == {"reasoning_effort": "none"}
        assert decode_options({"reasoning_effort": "none"}).reasoning == Reasoning(
            enabled=False, dialect="openai", raw={"reasoning_effort": "none"}
        )

    @pytest.mark.parametrize(
        ("budget", "effort"),
        [(1024, "low"), (2048, "low"), (2049, "medium"), (8192, "medium"), (32_000, "high")],
    )
    def test_a_budget_becomes_the_nearest_effort_and_is_said(self, budget, effort):
        reasoning = Reasoning(enabled=True, budget_tokens=budget)

        assert asked("o3", reasoning=reasoning) == {"reasoning_effort": effort}
        assert codes(noticed("o3", reasoning=reasoning)) == ["thinking_changed"]

    def test_thinking_without_a_measure_is_asked_for_all_the_same(self):
        assert asked("o3", reasoning=Reasoning(enabled=True)) == {"reasoning_effort": "medium"}

    def test_an_effort_that_openai_has_no_word_for_is_said(self):
        reasoning = Reasoning(enabled=True, effort="heroic")

        assert asked("o3", reasoning=reasoning) == {}
        assert codes(noticed("o3", reasoning=reasoning)) == ["thinking_disabled"]

    @pytest.mark.parametrize("model", ["gpt-4o", "gpt-4.1-mini", "gpt-3.5-turbo", "gpt-5-chat"])
    def test_a_model_that_never_thinks_is_not_asked_to(self, model):
        asking = Reasoning(enabled=True, effort="high")

        assert asked(model, reasoning=asking) == {}
        assert codes(noticed(model, reasoning=asking)) == ["thinking_disabled"]
        assert noticed(model, reasoning=Reasoning(enabled=False)) == ()

    def test_what_openai_has_no_word_for_is_named(self):
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
    def test_a_parameter_of_the_wrong_type_is_named_by_its_path(self, parameters, path):
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
    def test_whatever_parameters_come_nothing_but_a_malformed_error_is_raised(self, parameters):
        with contextlib.suppress(MalformedError):
            encode_options(decode_options(parameters), model="o3")
