"""Requests in OpenAI's words: what a client asked for, and what other protocols' words become."""

import contextlib
import json
import string
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cllm.core.message import (
    AnyPart,
    CacheMark,
    Document,
    Image,
    RedactedThinking,
    Refusal,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Unknown,
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
from cllm.wire.convert import encode_openai
from cllm.wire.errors import FieldError, MalformedError, NotExpressibleError
from cllm.wire.messages import EncodedRequest, OutgoingMessage
from cllm.wire.openai.parts import decode_parts
from cllm.wire.openai.request import decode_options, decode_request, encode_options, encode_request

WORDS = st.text(alphabet=st.characters(codec="utf-8"), min_size=1, max_size=20)
NAMES = st.text(alphabet=string.ascii_letters + "_-", min_size=1, max_size=20)
JSON_VALUES: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)
OBJECTS = st.dictionaries(st.text(max_size=5), JSON_VALUES, max_size=3)
WEATHER = Tool(name="weather", schema={"type": "object", "properties": {"city": {}}})
CALL = ToolCall(id="c1", name="weather", arguments='{"city":"Bern"}')
OTHER_CALL = ToolCall(id="c2", name="weather", arguments='{"city":"Basel"}')


def user(*parts: AnyPart) -> OutgoingMessage:
    return OutgoingMessage(role="user", parts=parts)


def assistant(*parts: AnyPart) -> OutgoingMessage:
    return OutgoingMessage(role="assistant", parts=parts)


def result(call_id: str, *content: Any, **fields: Any) -> ToolResult:
    texts = tuple(Text(text=part) if isinstance(part, str) else part for part in content)
    return ToolResult(call_id=call_id, content=texts, **fields)


def encode(*messages: OutgoingMessage, **fields: Any) -> EncodedRequest:
    given = {"model": "gpt-4o", "system": None, "parameters": {}, "stream": False, **fields}
    placed = [msgspec.structs.replace(said, prompt_index=n) for n, said in enumerate(messages)]
    return encode_request(messages=placed, **given)


def sent(*messages: OutgoingMessage, **fields: Any) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(encode(*messages, **fields).body)["messages"]
    return found


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


class TestToolResults:
    def test_results_come_directly_after_their_calls_in_call_order_then_the_users_text(self):
        messages = sent(
            assistant(CALL, OTHER_CALL),
            user(Text(text="And now?"), result("c2", "rain"), result("c1", "sun")),
        )

        assert messages[1:] == [
            {"role": "tool", "tool_call_id": "c1", "content": "sun"},
            {"role": "tool", "tool_call_id": "c2", "content": "rain"},
            {"role": "user", "content": "And now?"},
        ]

    def test_results_in_several_messages_still_come_first(self):
        messages = sent(
            assistant(CALL, OTHER_CALL),
            user(Text(text="Wait.")),
            user(result("c2", "rain")),
            user(result("c1", "sun")),
        )

        assert [message["role"] for message in messages] == ["assistant", "tool", "tool", "user"]
        assert [message.get("tool_call_id") for message in messages[1:3]] == ["c1", "c2"]

    def test_the_same_id_in_a_later_turn_is_paired_by_position(self):
        messages = sent(
            assistant(CALL),
            user(result("c1", "first")),
            assistant(CALL),
            user(result("c1", "second")),
        )

        assert [message["content"] for message in messages] == [None, "first", None, "second"]

    def test_an_image_in_a_result_follows_in_a_user_message_and_is_said(self):
        image = Image(media_type="image/png", data="QUJD")
        encoded = encode(assistant(CALL), user(result("c1", "a map:", image), Text(text="See?")))
        messages = json.loads(encoded.body)["messages"]

        assert messages[1] == {"role": "tool", "tool_call_id": "c1", "content": "a map:"}
        assert messages[2]["content"] == [
            {"type": "image_url", "image_url": {"url": "data:image/png;base64,QUJD"}},
            {"type": "text", "text": "See?"},
        ]
        assert encoded.notices[0].code == "media_moved"
        assert encoded.notices[0].path == "messages[1].content[0].content[1]"

    def test_a_result_of_an_image_alone_is_an_empty_tool_message_and_the_image(self):
        messages = sent(assistant(CALL), user(result("c1", Image(url="https://x/y.png"))))

        assert messages[1]["content"] == ""
        assert messages[2]["role"] == "user"

    @pytest.mark.parametrize("text", ["", " "])
    def test_a_blank_result_is_still_a_result(self, text):
        assert sent(assistant(CALL), user(result("c1", text)))[1]["role"] == "tool"

    def test_that_a_tool_failed_is_in_a_notice_and_never_on_the_wire(self):
        encoded = encode(assistant(CALL), user(result("c1", "no such city", is_error=True)))

        assert json.loads(encoded.body)["messages"][1] == {
            "role": "tool",
            "tool_call_id": "c1",
            "content": "no such city",
        }
        assert codes(encoded.notices) == ["error_flag_left_out"]

    def test_a_call_without_arguments_has_an_empty_object(self):
        call = sent(assistant(ToolCall(id="c", name="now", arguments="")))[0]["tool_calls"][0]

        assert call["function"] == {"name": "now", "arguments": "{}"}

    def test_an_id_that_openai_refuses_has_one_alias_on_call_and_result(self):
        long = "functions.Bash:" + "0" * 200
        encoded = encode(
            assistant(ToolCall(id=long, name="f", arguments="{}"), CALL),
            user(result("c1", "a"), result(long, "b")),
        )
        call, first, second = json.loads(encoded.body)["messages"]

        assert call["tool_calls"][0]["id"] == first["tool_call_id"]
        assert len(first["tool_call_id"]) <= 40
        assert second["tool_call_id"] == "c1"
        assert encoded.ids == {first["tool_call_id"]: long}
        assert not encoded.notices

    def test_a_result_in_openais_words_follows_the_alias_of_its_call(self):
        long = "x" * 41
        raw = msgspec.json.encode({"role": "tool", "tool_call_id": long, "content": "b"})
        call, answer = sent(
            assistant(ToolCall(id=long, name="f", arguments="{}")),
            OutgoingMessage(role="tool", parts=(result(long, "b"),), raw=raw),
        )

        assert call["tool_calls"][0]["id"] == answer["tool_call_id"] != long

    def test_an_id_in_openais_own_words_is_never_changed(self):
        long = "x" * 41
        call = ToolCall(id=long, name="f", arguments="{}")
        raw = b'{"role":"assistant","content":null,"tool_calls":[]}'
        messages = sent(
            OutgoingMessage(role="assistant", parts=(call,), raw=raw), user(result(long, "b"))
        )

        assert messages[1]["tool_call_id"] == long

    def test_results_before_any_call_are_sent_where_they_stand(self):
        messages = sent(user(Text(text="Hi")), user(result("c9", "x")))

        assert [message["role"] for message in messages] == ["user", "tool"]

    def test_a_foreign_block_in_a_result_is_left_out_and_said(self):
        foreign = Unknown(dialect="anthropic", raw=b'{"type":"search_result"}')
        own = Unknown(dialect="openai", raw=b'{"type":"new"}')
        encoded = encode(assistant(CALL), user(result("c1", "a", foreign, own)))

        assert json.loads(encoded.body)["messages"][1]["content"] == [
            {"type": "text", "text": "a"},
            {"type": "new"},
        ]
        assert codes(encoded.notices) == ["part_left_out"]

    def test_marks_and_fields_on_a_result_are_left_out_and_said(self):
        marked = result("c1", "a", cache=CacheMark(), extra={"toolset_name": "x"})
        encoded = encode(assistant(CALL), user(marked))

        assert b"toolset" not in encoded.body
        assert codes(encoded.notices) == ["cache_mark_left_out", "field_left_out"]


class TestMessages:
    def test_thinking_is_never_visible_text(self):
        encoded = encode(
            assistant(
                Thinking(text="secret plan", signature="s"),
                RedactedThinking(data="xyz"),
                Text(text="Hello"),
            )
        )

        assert json.loads(encoded.body)["messages"] == [{"role": "assistant", "content": "Hello"}]
        assert b"secret" not in encoded.body
        assert b"xyz" not in encoded.body
        assert codes(encoded.notices) == ["thinking_left_out"]

    def test_content_is_null_only_with_tool_calls(self):
        assert sent(assistant(CALL))[0]["content"] is None
        assert sent(assistant(Text(text=" \n"), CALL))[0]["content"] is None
        assert sent(assistant(Text(text="")))[0]["content"] == ""
        assert sent(assistant(Thinking(text="hm")))[0]["content"] == ""
        assert sent(assistant())[0]["content"] == ""

    def test_white_space_that_was_said_is_sent(self):
        assert sent(assistant(Text(text=" ")))[0]["content"] == " "
        assert len(sent(user(Text(text="a"), Text(text=""), Text(text="\n")))[0]["content"]) == 2

    def test_a_refusal_stays_a_refusal(self):
        assert sent(assistant(Refusal(text="No.")))[0]["content"] == [
            {"type": "refusal", "refusal": "No."}
        ]

    def test_images_and_documents_are_openais_parts(self):
        content = sent(
            user(
                Image(url="https://x/y.png", extra={"image_url": {"detail": "low"}}),
                Document(media_type="application/pdf", data="QUJD", name="a.pdf"),
                Document(media_type="application/pdf", data="QUJD"),
                Document(data="QUJD"),
                Document(file_id="file-1"),
                Document(text="plain"),
            )
        )[0]["content"]

        data = "data:application/pdf;base64,QUJD"
        assert content == [
            {"type": "image_url", "image_url": {"url": "https://x/y.png", "detail": "low"}},
            {"type": "file", "file": {"filename": "a.pdf", "file_data": data}},
            {"type": "file", "file": {"filename": "document.pdf", "file_data": data}},
            {
                "type": "file",
                "file": {
                    "filename": "document.octet-stream",
                    "file_data": "data:application/octet-stream;base64,QUJD",
                },
            },
            {"type": "file", "file": {"file_id": "file-1"}},
            {"type": "text", "text": "plain"},
        ]

    @pytest.mark.parametrize(
        ("part", "code"),
        [
            (Document(url="https://x/y.pdf"), "part_changed"),
            (Document(text="a", name="b"), "document_name_left_out"),
            (Image(data="QUJD"), "part_left_out"),
            (Unknown(dialect="anthropic", raw=b"{}"), "part_left_out"),
            (Text(text="a", cache=CacheMark()), "cache_mark_left_out"),
            (Text(text="a", extra={"citations": []}), "field_left_out"),
            (Image(url="https://x", extra={"transformations": []}), "field_left_out"),
            (Refusal(text="No."), "part_left_out"),
            (CALL, "part_left_out"),
        ],
    )
    def test_what_a_user_cannot_say_to_openai_is_named_in_a_notice(self, part, code):
        encoded = encode(user(Text(text="Hi"), part))

        assert codes(encoded.notices) == [code]
        assert encoded.notices[0].path.startswith("messages[0].content[1]")
        assert json.loads(encoded.body)["messages"][0]["role"] == "user"

    @pytest.mark.parametrize("part", [Image(url="https://x"), Document(file_id="f"), result("c")])
    def test_what_an_assistant_cannot_say_to_openai_is_named_in_a_notice(self, part):
        assert codes(encode(assistant(Text(text="Hi"), part)).notices) == ["part_left_out"]

    def test_a_block_of_openais_own_kind_goes_through(self):
        raw = b'{"type":"input_audio","input_audio":{"data":"QUJD","format":"wav"}}'

        assert raw in encode(user(Unknown(dialect="openai", raw=raw))).body

    def test_cache_marks_are_stripped_with_one_notice(self):
        marked = Text(text="a", cache=CacheMark(ttl="1h"))
        encoded = encode(user(marked), assistant(marked), user(marked), system=[marked])

        assert b"cache_control" not in encoded.body
        assert codes(encoded.notices) == ["cache_mark_left_out"]
        assert encoded.notices[0].path == "system[0]"
        assert "4 times" in encoded.notices[0].message

    def test_a_system_prompt_of_blocks_keeps_its_blocks(self):
        messages = sent(user(Text(text="Hi")), system=[Text(text="One."), Text(text="Two.")])

        assert messages[0] == {
            "role": "system",
            "content": [{"type": "text", "text": "One."}, {"type": "text", "text": "Two."}],
        }

    def test_a_system_prompt_of_one_text_is_a_string(self):
        assert sent(system=[Text(text="One.")]) == [{"role": "system", "content": "One."}]

    @pytest.mark.parametrize("system", [None, [], [Text(text=" ")]])
    def test_no_system_prompt_none_sent(self, system):
        assert sent(user(Text(text="Hi")), system=system) == [{"role": "user", "content": "Hi"}]

    def test_a_system_message_among_the_messages_keeps_its_place(self):
        messages = sent(
            user(Text(text="Hi")), OutgoingMessage(role="system", parts=(Text(text="Be brief."),))
        )

        assert messages[1] == {"role": "system", "content": "Be brief."}

    def test_a_message_that_is_openais_goes_as_it_is(self):
        raws = [
            b'{"content":"\\u00e4 1.0e5","role":"user","name":"z"}',
            b'{"role":"assistant","content":null,"tool_calls":[{"id":"a","x":1.50}]}',
            b'{"role":"tool", "tool_call_id":"a","content":"ok"}',
        ]
        roles: list[Any] = ["user", "assistant", "tool"]
        parts: list[Any] = [(), (ToolCall(id="a", name="f", arguments=""),), (result("a", "ok"),)]
        body = encode(
            *(
                OutgoingMessage(role=role, parts=part, raw=raw)
                for role, part, raw in zip(roles, parts, raws, strict=True)
            )
        ).body

        assert b",".join(raws) in body

    @pytest.mark.parametrize("stream", [True, False])
    def test_usage_is_asked_for_in_a_stream_and_stream_options_go_with_one_only(self, stream):
        given = {"stream": not stream, "stream_options": {"include_obfuscation": False}, "n": 1}
        body = json.loads(encode(user(), parameters=given, stream=stream).body)
        options = {"include_usage": True, "include_obfuscation": False}

        assert body.get("stream_options") == (options if stream else None)
        assert body.get("stream") == (True if stream else None)
        assert body["n"] == 1

    def test_parameters_never_replace_the_model_or_the_messages(self):
        given: dict[str, Any] = {"model": "other", "messages": [], "stream_options": None}
        body = json.loads(encode(user(Text(text="Hi")), parameters=given, stream=True).body)

        assert body["model"] == "gpt-4o"
        assert len(body["messages"]) == 1

    @given(
        st.lists(
            st.one_of(
                st.lists(st.builds(Text, text=WORDS), min_size=1, max_size=3).map(
                    lambda parts: user(*parts)
                ),
                st.lists(
                    st.builds(Text, text=WORDS.filter(str.strip))
                    | st.builds(ToolCall, id=NAMES, name=NAMES, arguments=st.just("{}")),
                    min_size=1,
                    max_size=3,
                    unique_by=lambda part: getattr(part, "id", id(part)),
                ).map(lambda parts: assistant(*sorted(parts, key=lambda p: type(p).__name__))),
            ),
            max_size=6,
        )
    )
    def test_what_openai_can_say_is_the_same_after_going_through_a_request(self, said):
        messages = [each for message in said for each in (message, user(Text(text="And?")))]
        encoded = encode(*messages)
        prompt = decode_request(encoded.body)

        assert [decode_parts(message) for message in prompt.messages] == [
            message.parts for message in messages
        ]
        assert encoded == encode(*messages)
        assert encoded.notices == ()


class TestDoor:
    def test_messages_keep_their_bytes_and_everything_else_is_a_parameter(self):
        raws = [
            b'{"role": "developer",  "content":"Be brief."}',
            b'{"content":[{"type":"text","text":"\\u00e4"},{"type":"new","n":1.50}],"role":"user"}',
            b'{"role":"assistant","content":null,"tool_calls":[{"id":"a","function":{}}]}',
            b'{"role":"tool","tool_call_id":"a","content":"ok"}',
        ]
        prompt = decode_request(
            b'{"temperature":0,"messages":['
            + b" ,".join(raws)
            + b'],"stream":true,"model":"m","stream_options":{"include_usage":true},"x":null}'
        )

        assert [message.raw for message in prompt.messages] == raws
        assert [message.role for message in prompt.messages] == [
            "system",
            "user",
            "assistant",
            "tool",
        ]
        assert (prompt.model, prompt.stream, prompt.dialect) == ("m", True, "openai")
        assert prompt.system is None
        assert prompt.parameters == {
            "temperature": 0,
            "stream_options": {"include_usage": True},
            "x": None,
        }

    def test_a_request_passed_on_says_the_same(self):
        body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], "n": 2}

        assert json.loads(encode_openai(decode_request(json.dumps(body).encode())).body) == body

    def test_of_a_field_given_twice_the_last_is_read(self):
        body = b'{"messages":5,"model":1,"model":"m","messages":[{"role":"user","content":"a"}]}'

        assert decode_request(body).messages[0].raw == b'{"role":"user","content":"a"}'

    def test_no_messages_are_for_the_caller_to_judge(self):
        assert decode_request(b'{"model":"m","messages":[]}').messages == ()

    @pytest.mark.parametrize(
        ("body", "path"),
        [
            (b"", ""),
            (b"[]", ""),
            (b"null", ""),
            (b"\xff", ""),
            (b'{"model":"m","messages":[{"role":"user","content":"\xff"}]}', ""),
            (b'{"model":"m","messages":[{"role":"user","content":"\\ud800"}]}', ""),
            (b'{"model":"m","messages":' + b"[" * 100_000, ""),
            (b'{"model":"m","n":' + b"9" * 5000 + b"e5000}", ""),
            ({"messages": []}, "model"),
            ({"messages": [], "model": 1}, "model"),
            ({"messages": [], "model": " "}, "model"),
            ({"model": "m"}, "messages"),
            ({"model": "m", "messages": {}}, "messages"),
            ({"model": "m", "messages": [], "stream": "yes"}, "stream"),
            ({"model": "m", "messages": [1]}, "messages[0]"),
            ({"model": "m", "messages": [{}]}, "messages[0].role"),
            ({"model": "m", "messages": [{"role": "bot"}]}, "messages[0].role"),
            ({"model": "m", "messages": [{"role": ["user"]}]}, "messages[0].role"),
            ({"model": "m", "messages": [{"role": "user", "content": 1}]}, "messages[0].content"),
            (
                {"model": "m", "messages": [{"role": "user", "content": ["a"]}]},
                "messages[0].content[0]",
            ),
            (
                {"model": "m", "messages": [{"role": "user", "content": [{"type": "text"}]}]},
                "messages[0].content[0].text",
            ),
            (
                {"model": "m", "messages": [{"role": "assistant", "tool_calls": {}}]},
                "messages[0].tool_calls",
            ),
            (
                {"model": "m", "messages": [{"role": "assistant", "tool_calls": [1]}]},
                "messages[0].tool_calls[0]",
            ),
            (
                {"model": "m", "messages": [{"role": "assistant", "tool_calls": [{}]}]},
                "messages[0].tool_calls[0].id",
            ),
            ({"model": "m", "messages": [{"role": "tool"}]}, "messages[0].tool_call_id"),
        ],
    )
    def test_what_is_malformed_is_named_by_its_path(self, body, path):
        given = body if isinstance(body, bytes) else json.dumps(body).encode()

        with pytest.raises(FieldError) as caught:
            decode_request(given)

        assert caught.value.path == path
        assert str(caught.value).startswith(path or "body")

    @given(
        st.binary(max_size=60)
        | st.fixed_dictionaries(
            {},
            optional={
                "model": JSON_VALUES,
                "stream": JSON_VALUES,
                "messages": st.lists(
                    JSON_VALUES
                    | st.fixed_dictionaries(
                        {"role": st.sampled_from(["user", "tool", "assistant", "x"])},
                        optional={
                            "content": JSON_VALUES,
                            "tool_calls": JSON_VALUES,
                            "tool_call_id": JSON_VALUES,
                        },
                    ),
                    max_size=3,
                ),
            },
        ).map(lambda fields: json.dumps(fields).encode())
    )
    def test_whatever_comes_nothing_but_a_malformed_error_is_raised(self, body):
        try:
            prompt = decode_request(body)
        except MalformedError:
            return
        for message in prompt.messages:
            decode_parts(message)
