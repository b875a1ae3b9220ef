"""Requests in Anthropic's words: options, histories, bodies."""

import contextlib
import copy
import json
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
    Message,
    RedactedThinking,
    Refusal,
    Role,
    Text,
    Thinking,
    ToolCall,
    ToolResult,
    Unknown,
)
from cllm.core.options import (
    ForeignTool,
    JsonOutput,
    Reasoning,
    RequestOptions,
    Tool,
    ToolChoice,
)
from cllm.providers.history import repair_for
from cllm.wire.anthropic.parts import decode_parts
from cllm.wire.anthropic.request import (
    EncodedMessagesRequest,
    decode_options,
    decode_request,
    encode_options,
    encode_request,
)
from cllm.wire.convert import build_outgoing_message
from cllm.wire.errors import FieldError, MalformedError, NotExpressibleError
from cllm.wire.messages import OutgoingMessage, replace_parts

OLD = "claude-sonnet-4-20250514"
NEW = "claude-opus-4-8"


def said(role: Role, *parts: AnyPart) -> OutgoingMessage:
    """A message that came in another protocol's words."""
    return OutgoingMessage(role=role, parts=parts)


def own(role: Role, content: Any) -> OutgoingMessage:
    """A message that came in Anthropic's words."""
    raw = json.dumps({"role": role, "content": content}).encode()
    parts = decode_parts(Message(role=role, raw=raw, dialect="anthropic"))
    return OutgoingMessage(role=role, parts=parts, raw=raw)


def encode(
    *messages: OutgoingMessage,
    system: list[AnyPart] | None = None,
    model: str = OLD,
    **parameters: Any,
) -> EncodedMessagesRequest:
    placed = [msgspec.structs.replace(said, prompt_index=n) for n, said in enumerate(messages)]
    return encode_request(
        model=model,
        system=system,
        messages=placed,
        parameters=parameters,
        stream=False,
        repair=repair_for("anthropic", model, provider="anthropic"),
    )


def body(*messages: OutgoingMessage, **rest: Any) -> dict[str, Any]:
    decoded: dict[str, Any] = json.loads(encode(*messages, **rest).body)
    return decoded


def history(*messages: OutgoingMessage, **rest: Any) -> list[Any]:
    sent: list[Any] = body(*messages, **rest)["messages"]
    return sent


def codes(encoded: EncodedMessagesRequest) -> list[str]:
    return [notice.code for notice in encoded.notices]


def call(call_id: str, name: str = "f", arguments: str = "{}") -> ToolCall:
    return ToolCall(id=call_id, name=name, arguments=arguments)


def result(call_id: str, text: str = "ok") -> ToolResult:
    return ToolResult(call_id=call_id, content=(Text(text=text),))


HI = said("user", Text(text="hi"))
TOOLS = [{"name": "f", "input_schema": {"type": "object"}}]


# Options


def encoded_options(model: str = OLD, **options: Any) -> dict[str, Any]:
    return encode_options(RequestOptions(**options), model=model)[0]


def test_zero_is_sent():
    assert encoded_options(temperature=0) == {"temperature": 0}
    assert encoded_options(top_p=0) == {"top_p": 0}
    assert decode_options({"temperature": 0, "top_k": 0}) == RequestOptions(temperature=0, top_k=0)


def test_stop_and_stop_sequences_are_one_thing():
    assert encoded_options(stop=("X",)) == {"stop_sequences": ["X"]}
    assert decode_options({"stop_sequences": ["X"]}).stop == ("X",)
    fields, notices = encode_options(RequestOptions(stop=("X", "\n")), model=OLD)
    assert fields == {"stop_sequences": ["X"]}
    assert notices[0].path == "stop_sequences"


@pytest.mark.parametrize(
    "model", ["claude-opus-4-1", "claude-sonnet-4-5-20250929", "claude-opus-4-6"]
)
def test_a_model_for_one_sampler_gets_temperature_and_says_so(model):
    fields, notices = encode_options(RequestOptions(temperature=0, top_p=0.5), model=model)
    assert fields == {"temperature": 0}
    assert [(notice.code, notice.path) for notice in notices] == [("parameter_left_out", "top_p")]


@pytest.mark.parametrize("model", [OLD, "claude-3-7-sonnet-20250219", "other", "claude-2.1"])
def test_a_model_for_both_samplers_gets_both(model):
    fields, notices = encode_options(RequestOptions(temperature=0.5, top_p=0.5), model=model)
    assert fields == {"temperature": 0.5, "top_p": 0.5}
    assert notices == ()


@pytest.mark.parametrize("kind", ["auto", "any", "none"])
def test_every_tool_choice_is_said(kind):
    choice = ToolChoice(kind=kind)
    assert encoded_options(tool_choice=choice) == {"tool_choice": {"type": kind}}
    assert decode_options({"tool_choice": {"type": kind}}).tool_choice == choice
    named = ToolChoice(kind="tool", name="f")
    assert encoded_options(tool_choice=named)["tool_choice"] == {"type": "tool", "name": "f"}


def test_no_parallel_calls_alone_is_a_choice_with_a_type():
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


def test_tools_keep_everything_the_api_has_a_name_for():
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


def test_a_field_of_a_tool_that_anthropic_lacks_is_said_to_be_dropped():
    fields, notices = encode_options(
        RequestOptions(tools=(Tool(name="f", extra={"x": 1}),)), model=OLD
    )
    assert "x" not in fields["tools"][0]
    assert notices[0].path == "tools.f.x"
    odd = {"name": "f", "input_schema": {}, "cache_control": {"odd": 1}}
    assert decode_options({"tools": [odd]}).tools == (
        Tool(name="f", extra={"cache_control": {"odd": 1}}),
    )


def test_a_tool_that_only_anthropic_has_comes_through():
    tool = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}
    options = decode_options({"tools": [tool, {"type": "mcp_toolset"}]})
    assert options.tools == (
        ForeignTool(dialect="anthropic", name="web_search", raw=tool),
        ForeignTool(dialect="anthropic", name="mcp_toolset", raw={"type": "mcp_toolset"}),
    )
    assert encode_options(options, model=OLD)[0]["tools"][0] == tool


def test_a_tool_that_only_another_protocol_has_is_refused_by_name():
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
def test_thinking_in_anthropics_words_stays_as_it_was_said(thinking):
    for parameters in (
        {"thinking": thinking},
        {"thinking": thinking, "output_config": {"effort": "high"}},
    ):
        options = decode_options(parameters)
        assert options.reasoning is not None
        assert options.reasoning.enabled == (thinking["type"] != "disabled")
        assert encode_options(options, model="claude-opus-4-6") == (parameters, ())


def test_effort_alone_stays_alone():
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
def test_reasoning_in_other_words_is_said_as_the_model_takes_it(model, reasoning, sent):
    fields, notices = encode_options(RequestOptions(reasoning=Reasoning(**reasoning)), model=model)
    assert fields == sent
    assert bool(notices) == (not sent)


def test_a_thinking_budget_stays_below_max_tokens():
    high = Reasoning(enabled=True, effort="high")
    fields = encoded_options(reasoning=high, max_tokens=5000)
    assert fields["thinking"]["budget_tokens"] == 4999
    fields, notices = encode_options(RequestOptions(reasoning=high, max_tokens=1024), model=OLD)
    assert fields == {"max_tokens": 1024}
    assert notices[0].path == "thinking"


@pytest.mark.parametrize("kind", ["any", "tool"])
def test_a_forced_tool_disables_thinking_and_says_so(kind):
    choice = ToolChoice(kind=kind, name="f")
    for reasoning in (
        Reasoning(enabled=True, effort="high"),
        decode_options({"thinking": {"type": "enabled", "budget_tokens": 2000}}).reasoning,
    ):
        fields, notices = encode_options(
            RequestOptions(reasoning=reasoning, tool_choice=choice), model=NEW
        )
        assert fields["thinking"] == {"type": "disabled"}
        assert [notice.code for notice in notices] == ["thinking_disabled"]


def test_sampling_that_a_thinking_model_refuses_is_left_out():
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


def test_thinking_is_disabled_in_a_tool_loop_that_began_without():
    enabled = {"type": "enabled", "budget_tokens": 2000}
    loop = (HI, said("assistant", call("a")), said("tool", result("a")))
    encoded = encode(*loop, tools=TOOLS, thinking=enabled)
    assert json.loads(encoded.body)["thinking"] == {"type": "disabled"}
    assert codes(encoded) == ["thinking_disabled"]
    signed = said("assistant", Thinking(text="hm", signature="s"), call("a"))
    assert body(HI, signed, loop[2], tools=TOOLS, thinking=enabled)["thinking"] == enabled
    over = (*loop, own("assistant", "done"), HI)
    assert body(*over, tools=TOOLS, thinking=enabled)["thinking"] == enabled


def test_a_schema_for_the_answer_is_said_in_the_current_form():
    schema = {"type": "object"}
    current = {"output_config": {"format": {"type": "json_schema", "schema": schema}}}
    former = {"output_format": {"type": "json_schema", "schema": schema}}
    for parameters in (current, former):
        options = decode_options(parameters)
        assert options.output == JsonOutput(schema=schema)
        assert encode_options(options, model=NEW) == (current, ())
    fields, notices = encode_options(RequestOptions(output=JsonOutput()), model=NEW)
    assert fields == {}
    assert notices[0].path == "output_config.format"


def test_the_user_is_in_the_metadata():
    assert encoded_options(user="u1") == {"metadata": {"user_id": "u1"}}
    options = decode_options({"metadata": {"user_id": "u1", "x": 1}})
    assert options.user == "u1"
    assert options.extra == {"metadata": {"x": 1}}


def test_what_anthropic_cannot_say_is_named_in_a_notice():
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
def test_options_survive_the_way_there_and_back(options):
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
def test_any_parameters_are_options_or_malformed(parameters):
    try:
        options = decode_options(parameters)
    except MalformedError:
        return
    encode_options(options, model=NEW)


def test_a_wrong_parameter_is_named_by_its_path():
    with pytest.raises(FieldError) as caught:
        decode_options({"tools": [{"name": "f", "input_schema": 3}]})
    assert caught.value.path == "tools[0].input_schema"
    with pytest.raises(FieldError) as caught:
        decode_options({"temperature": "hot"})
    assert caught.value.path == "temperature"


# Histories


def test_parameters_in_anthropics_words_that_exclude_one_another_are_fitted_too():
    thinking = {"type": "enabled", "budget_tokens": 2000}
    given_choice = {"type": "any", "name": None}
    parameters: dict[str, Any] = {
        "temperature": 0,
        "top_p": 0.5,
        "thinking": thinking,
        "tool_choice": given_choice,
    }
    encoded = encode(HI, model="claude-opus-4-6", tools=TOOLS, **parameters)
    sent = json.loads(encoded.body)
    assert (sent["temperature"], sent["thinking"]) == (0, {"type": "disabled"})
    assert "top_p" not in sent
    assert codes(encoded) == ["thinking_disabled", "parameter_left_out"]


def test_messages_that_need_no_change_go_as_the_bytes_they_came_as():
    messages = [
        own("user", [{"type": "text", "text": "hi", "new": 1}]),
        own("assistant", [{"type": "tool_use", "id": "t1", "name": "f", "input": {"a": 1.0}}]),
        own("user", [{"type": "tool_result", "tool_use_id": "t1"}, {"type": "text", "text": "?"}]),
    ]
    encoded = encode(*messages, tools=TOOLS, max_tokens=9)
    for message in messages:
        assert message.raw is not None
        assert message.raw in encoded.body
    assert encoded.notices == ()
    assert encoded.ids == {}


def test_the_same_request_is_the_same_bytes():
    messages = (HI, said("assistant", call("a.b")), said("tool", result("a.b")))
    assert encode(*messages) == encode(*messages)


def test_messages_of_one_role_in_a_row_are_one():
    sent = history(HI, said("user", Text(text="there")), own("assistant", "yes"))
    assert [message["role"] for message in sent] == ["user", "assistant"]
    assert [block["text"] for block in sent[0]["content"]] == ["hi", "there"]


def test_two_results_are_one_user_message_in_the_order_of_the_calls():
    sent = history(
        HI,
        said("assistant", call("a"), call("b")),
        said("tool", result("b")),
        said("tool", result("a")),
        said("user", Text(text="and?")),
        tools=TOOLS,
    )
    assert len(sent) == 3
    assert [block.get("tool_use_id") for block in sent[2]["content"]] == ["a", "b", None]


def test_results_come_before_text():
    blocks = [{"type": "text", "text": "x"}, {"type": "tool_result", "tool_use_id": "a"}]
    sent = history(HI, said("assistant", call("a")), own("user", blocks), tools=TOOLS)
    assert [block["type"] for block in sent[2]["content"]] == ["tool_result", "text"]


def test_a_call_that_was_interrupted_gets_an_error_for_a_result():
    encoded = encode(
        HI,
        said("assistant", call("a"), call("b")),
        said("user", Text(text="go on"), result("b")),
        tools=TOOLS,
    )
    first, second, third = json.loads(encoded.body)["messages"][2]["content"]
    assert (first["tool_use_id"], first["is_error"]) == ("a", True)
    assert second["tool_use_id"] == "b"
    assert third["text"] == "go on"
    assert codes(encoded) == ["result_moved", "interrupted_call_answered"]


def test_a_call_at_the_end_is_answered_too():
    sent = history(HI, said("assistant", call("a")), tools=TOOLS)
    assert sent[2]["content"][0]["tool_use_id"] == "a"
    assert sent[2]["content"][0]["is_error"] is True


def test_an_id_may_come_back_in_a_later_turn():
    turn = (HI, said("assistant", call("a")), said("tool", result("a")), own("assistant", "ok"))
    encoded = encode(*turn, *turn, tools=TOOLS)
    assert encoded.notices == ()
    assert encoded.ids == {}


@pytest.mark.parametrize("own_id", ["functions.Bash:0", "x" * 200, "", "é"])
def test_an_id_the_api_refuses_has_one_alias_on_call_and_result(own_id):
    encoded = encode(HI, said("assistant", call(own_id)), said("tool", result(own_id)), tools=TOOLS)
    sent = json.loads(encoded.body)["messages"]
    alias = sent[1]["content"][0]["id"]
    assert sent[2]["content"][0]["tool_use_id"] == alias
    assert alias.replace("_", "").isalnum()
    assert len(alias) <= 64
    assert encoded.ids == {alias: own_id}


def test_the_same_id_twice_in_one_message_becomes_two():
    encoded = encode(
        HI,
        said("assistant", call("a"), call("a")),
        said("tool", result("a", "one")),
        said("tool", result("a", "two")),
        tools=TOOLS,
    )
    sent = json.loads(encoded.body)["messages"]
    ids = [block["id"] for block in sent[1]["content"]]
    assert len(set(ids)) == 2
    assert [block["tool_use_id"] for block in sent[2]["content"]] == ids
    assert [block["content"] for block in sent[2]["content"]] == ["one", "two"]


def test_valid_ids_are_untouched():
    sent = history(HI, said("assistant", call("call_A-1")), said("tool", result("call_A-1")))
    assert sent[1]["content"][0]["id"] == "call_A-1"


def test_a_result_without_a_call_is_not_lost():
    encoded = encode(said("tool", result("x.y")), tools=TOOLS)
    assert json.loads(encoded.body)["messages"] == [{"role": "user", "content": "ok"}]
    assert codes(encoded) == ["result_as_text"]


def test_content_null_with_calls_has_no_blank_text():
    sent = history(HI, said("assistant", Text(text=""), call("a")), tools=TOOLS)
    assert [block["type"] for block in sent[1]["content"]] == ["tool_use"]


@pytest.mark.parametrize("blank", ["", " ", "\n\t "])
def test_blank_text_is_left_out(blank):
    assert history(own("user", [{"type": "text", "text": blank}]), HI) == [
        {"role": "user", "content": "hi"}
    ]
    assert history(own("user", blank), HI) == [{"role": "user", "content": "hi"}]
    assert history(said("user", Refusal(text=blank)), HI)[0]["content"] == "hi"


@pytest.mark.parametrize("content", ["", " ", [], [{"type": "text", "text": " "}], None])
def test_an_empty_result_has_no_content(content):
    block = {"type": "tool_result", "tool_use_id": "a"}
    if content is not None:
        block = {**block, "content": content}
    sent = history(HI, said("assistant", call("a")), own("user", [block]), tools=TOOLS)
    assert sent[2]["content"] == [{"type": "tool_result", "tool_use_id": "a"}]


@pytest.mark.parametrize("signature", [None, ""])
def test_thinking_without_a_signature_is_dropped_and_the_rest_kept(signature):
    thought = {"type": "thinking", "thinking": "hm", "signature": signature}
    use = {"type": "tool_use", "id": "a", "name": "f", "input": {}}
    encoded = encode(
        HI,
        own("assistant", [thought, {"type": "text", "text": "t"}, use]),
        said("tool", result("a")),
        tools=TOOLS,
    )
    sent = json.loads(encoded.body)["messages"]
    assert [block["type"] for block in sent[1]["content"]] == ["text", "tool_use"]
    assert codes(encoded) == ["thinking_left_out"]


def test_thinking_from_another_provider_is_dropped_with_a_notice():
    encoded = encode(HI, said("assistant", Thinking(text="hm"), Text(text="a")), HI)
    assert b"hm" not in encoded.body
    assert codes(encoded) == ["thinking_left_out"]
    assert encoded.notices[0].path == "messages[1]"


def test_signed_and_redacted_thinking_stay_in_their_place():
    parts = (
        Thinking(text="hm", signature="s", cache=CacheMark()),
        RedactedThinking(data="d"),
        call("a"),
    )
    sent = history(HI, said("assistant", *parts), tools=TOOLS)
    assert sent[1]["content"][:2] == [
        {"type": "thinking", "thinking": "hm", "signature": "s"},
        {"type": "redacted_thinking", "data": "d"},
    ]


def test_no_assistant_message_is_thinking_alone():
    for parts in ((Thinking(text="hm"),), (Thinking(text="hm", signature="s"),)):
        sent = history(HI, said("assistant", *parts), said("user", Text(text="?")))
        assert [message["role"] for message in sent] == ["user"]
    sent = history(HI, said("assistant", Thinking(text="hm", signature="s")), own("assistant", "a"))
    assert len(sent[1]["content"]) == 2


def test_system_messages_in_the_history_go_with_the_system():
    encoded = encode(HI, said("system", Text(text="B")), HI, system=[Text(text="A")])
    sent = json.loads(encoded.body)
    assert [block["text"] for block in sent["system"]] == ["A", "B"]
    assert len(sent["messages"]) == 1
    assert codes(encoded) == ["system_moved", "messages_merged"]


def test_a_system_message_in_anthropics_words_stays_where_the_model_takes_it():
    messages = (HI, own("system", "B"), own("assistant", "a"), HI)
    assert [message["role"] for message in history(*messages, model=NEW)] == [
        "user",
        "system",
        "assistant",
        "user",
    ]
    assert body(*messages, model=OLD)["system"] == "B"
    assert body(own("system", "B"), HI, model=NEW)["system"] == "B"
    assert body(HI, own("system", "B"), HI, model=NEW)["system"] == "B"


def test_a_system_of_blocks_keeps_its_blocks_and_marks():
    marked = Text(text="A", cache=CacheMark(ttl="1h"))
    sent = body(HI, system=[marked, Text(text=" "), Text(text="B")])["system"]
    mark = {"type": "ephemeral", "ttl": "1h"}
    assert sent == [
        {"type": "text", "text": "A", "cache_control": mark},
        {"type": "text", "text": "B"},
    ]
    assert "system" not in body(HI, system=[])
    assert body(HI, system=[Text(text="A")])["system"] == "A"


def test_what_a_system_prompt_cannot_hold_is_said():
    assert codes(encode(HI, system=[Image(url="https://x")])) == ["part_left_out"]


def test_tools_are_rebuilt_from_a_history_that_has_calls():
    messages = (
        HI,
        said("assistant", call("a", "g"), call("b", "f")),
        said("tool", result("a"), result("b")),
    )
    encoded = encode(*messages)
    sent = json.loads(encoded.body)
    assert [tool["name"] for tool in sent["tools"]] == ["g", "f"]
    assert sent["tool_choice"] == {"type": "none"}
    assert codes(encoded) == ["tools_added"]


def test_parts_of_another_protocol_are_made_at_home():
    encoded = encode(
        said(
            "user",
            Image(media_type="image/jpg", data="aGk=", extra={"image_url": {"detail": "low"}}),
            Image(url="https://x"),
            Image(),
            Document(media_type="text/csv", data="aGk="),
            Document(media_type="Application/PDF; v=1", data="aG\nk=", name="N"),
            Document(file_id="f"),
            Document(name="empty"),
            Unknown(dialect="openai", raw=b"{}"),
            Text(text="t"),
        )
    )
    jpeg, url, text, pdf, last = json.loads(encoded.body)["messages"][0]["content"]
    assert jpeg["source"]["media_type"] == "image/jpeg"
    assert set(jpeg) == {"type", "source"}
    assert url["source"]["type"] == "url"
    assert text["source"] == {"type": "text", "media_type": "text/plain", "data": "hi"}
    assert pdf["title"] == "N"
    assert pdf["source"] == {"type": "base64", "media_type": "application/pdf", "data": "aGk="}
    assert last["text"] == "t"
    assert sorted(codes(encoded)) == ["field_left_out"] + ["part_left_out"] * 4


@pytest.mark.parametrize(
    "part",
    [
        Image(media_type="image/bmp", data="aGk="),
        Image(media_type="image/png", data="?"),
        Document(media_type="application/zip", data="aGk="),
        Document(media_type="application/pdf", data="?"),
        Document(media_type="text/plain", data="/w=="),
    ],
    ids=["bmp", "image data", "zip", "document data", "no utf-8"],
)
def test_a_file_that_cannot_be_read_there_is_an_error(part):
    with pytest.raises(NotExpressibleError):
        encode(said("user", part, Text(text="?")))


def test_a_message_of_its_own_that_is_rewritten_keeps_the_fields_beside_its_parts():
    raw = b'{"role":"user","content":[{"type":"text","text":"hi","odd":1}],"odd":2}'
    message = build_outgoing_message(
        Message(role="user", raw=raw, dialect="anthropic"), "anthropic"
    )
    encoded = encode(replace_parts(message, message.parts))
    assert json.loads(encoded.body)["messages"] == [json.loads(raw)]
    assert not encoded.notices


@pytest.mark.parametrize("arguments", ["{", "[1]", '"x"'])
def test_arguments_that_are_no_object_are_kept_as_text(arguments):
    asked = said("assistant", call("a", arguments=arguments))
    encoded = encode(HI, asked, said("tool", result("a")), tools=TOOLS)
    block = json.loads(encoded.body)["messages"][1]["content"][0]
    assert block["input"] == {"INVALID_JSON": arguments}
    assert codes(encoded) == ["arguments_changed"]


def test_images_and_errors_inside_a_result_are_kept():
    content = (Text(text="a"), Image(media_type="image/jpg", data="aGk="), Image())
    answer = ToolResult(call_id="a", content=content, is_error=True, extra={"name": "f"})
    encoded = encode(HI, said("assistant", call("a")), said("tool", answer), tools=TOOLS)
    block = json.loads(encoded.body)["messages"][2]["content"][0]
    assert codes(encoded) == ["part_left_out"]
    assert block["is_error"] is True
    assert [inner["type"] for inner in block["content"]] == ["text", "image"]
    assert "name" not in block


def marked(text: str) -> OutgoingMessage:
    block = {"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}
    return own("user", [block])


def test_four_cache_marks_are_left_alone():
    encoded = encode(
        marked("a"),
        own("assistant", "x"),
        marked("b"),
        system=[Text(text="s", cache=CacheMark())],
        tools=[{**TOOLS[0], "cache_control": {"type": "ephemeral"}}],
    )
    assert encoded.body.count(b"cache_control") == 4
    assert encoded.notices == ()


def test_no_mark_is_added():
    assert b"cache_control" not in encode(HI, system=[Text(text="s")]).body


def test_surplus_cache_marks_go_the_oldest_of_the_messages_first():
    inner = ToolResult(call_id="a", content=(Text(text="r", cache=CacheMark()),), cache=CacheMark())
    unknown = {"type": "search_result", "cache_control": {"type": "ephemeral"}}
    encoded = encode(
        own("user", [unknown]),
        said("assistant", call("a")),
        said("tool", inner),
        own("assistant", "x"),
        marked("b"),
        system=[Text(text="s", cache=CacheMark())],
        tools=TOOLS,
        cache_control={"type": "ephemeral"},
    )
    sent = json.loads(encoded.body)
    assert "cache_control" not in sent["messages"][0]["content"][0]
    result_block = sent["messages"][2]["content"][0]
    assert result_block["content"] == "r"
    assert "cache_control" in result_block
    assert encoded.body.count(b"cache_control") == 4
    assert codes(encoded) == ["cache_mark_left_out"]


@pytest.mark.parametrize("odd", ["abc", 5, [1], None])
def test_a_result_with_content_that_is_no_block_is_sent_beside_surplus_marks(odd):
    block = {"type": "tool_result", "tool_use_id": "a", "content": [odd]}
    texts = [
        {"type": "text", "text": "t", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
        *({"type": "text", "text": "t", "cache_control": {"type": "ephemeral"}} for _ in range(5)),
    ]
    encoded = encode(HI, said("assistant", call("a")), own("user", [block, *texts]), tools=TOOLS)
    sent = json.loads(encoded.body)["messages"][2]["content"]
    assert sent[0]["content"] == [odd]
    assert encoded.body.count(b"cache_control") == 4


def test_a_null_mark_of_an_unknown_block_does_not_count():
    odd = {"type": "weird", "cache_control": None}
    texts = [
        {"type": "text", "text": str(n), "cache_control": {"type": "ephemeral"}} for n in range(5)
    ]
    encoded = encode(own("user", [odd, *texts]), system=[Text(text="s", cache=CacheMark())])
    sent = json.loads(encoded.body)
    marks = [block.get("cache_control") for block in sent["messages"][0]["content"]]
    assert sum(mark is not None for mark in marks) == 3
    assert "cache_control" in sent["system"][0]


def test_a_mark_that_moves_to_an_unknown_block_does_not_count():
    odd = {"type": "weird", "value": 1}
    blank = {"type": "text", "text": " ", "cache_control": {"type": "ephemeral"}}
    texts = [
        {"type": "text", "text": str(n), "cache_control": {"type": "ephemeral"}} for n in range(4)
    ]
    encoded = encode(own("user", [odd, blank, *texts]))
    assert encoded.body.count(b"cache_control") == 4
    assert "cache_mark_left_out" not in codes(encoded)


def test_surplus_marks_of_the_beginning_go_the_first_of_the_tools_first():
    tools: list[Any] = [
        {**TOOLS[0], "name": f"t{n}", "cache_control": {"type": "ephemeral"}} for n in range(6)
    ]
    encoded = encode(HI, system=[Text(text="s", cache=CacheMark())], tools=[*tools, "odd"])
    sent = json.loads(encoded.body)
    assert ["cache_control" in tool for tool in sent["tools"][:6]] == [False] * 3 + [True] * 3
    assert "cache_control" in sent["system"][0]
    assert codes(encode(HI, tools="odd")) == []


def test_an_hours_mark_does_not_follow_one_of_five_minutes():
    long, short = CacheMark(ttl="1h"), CacheMark()
    encoded = encode(
        said("user", Text(text="a", cache=short)),
        said("assistant", call("a")),
        said("tool", ToolResult(call_id="a", content=(Text(text="r", cache=long),), cache=long)),
        system=[Text(text="s", cache=long)],
        tools=TOOLS,
    )
    sent = json.loads(encoded.body)
    assert sent["system"][0]["cache_control"] == {"type": "ephemeral", "ttl": "1h"}
    answer = sent["messages"][2]["content"][0]
    assert answer["cache_control"] == {"type": "ephemeral"}
    assert answer["content"][0]["cache_control"] == {"type": "ephemeral"}
    assert codes(encoded) == ["cache_mark_changed"]


def test_an_hours_mark_on_a_tool_does_not_follow_one_of_five_minutes():
    tools = [
        {**TOOLS[0], "name": "f", "cache_control": {"type": "ephemeral"}},
        {**TOOLS[0], "name": "g", "cache_control": {"type": "ephemeral", "ttl": "1h"}},
    ]
    encoded = encode(HI, tools=tools)
    assert [tool["cache_control"] for tool in json.loads(encoded.body)["tools"]] == [
        {"type": "ephemeral"},
        {"type": "ephemeral"},
    ]
    in_order = encode(HI, tools=tools[::-1])
    assert in_order.notices == ()
    assert json.loads(in_order.body)["tools"] == tools[::-1]


def test_many_notices_of_one_kind_are_one():
    turn = (HI, said("assistant", Thinking(text="hm"), Text(text="a")))
    encoded = encode(*turn, *turn, *turn)
    assert len(encoded.notices) == 1
    assert encoded.notices[0].message.endswith("(3 times)")


def test_streaming_is_asked_for_only_when_wanted():
    for stream in (True, False):
        encoded = encode_request(
            model="m",
            system=None,
            messages=[HI],
            parameters={"stream": True, "model": "x"},
            stream=stream,
        )
        sent = json.loads(encoded.body)
        assert sent.get("stream", False) is stream
        assert sent["model"] == "m"


# Reading a client's request


def request(**fields: Any) -> bytes:
    given_fields = {"model": "m", "messages": [{"role": "user", "content": "hi"}], **fields}
    return json.dumps(given_fields).encode()


def test_a_request_keeps_its_messages_byte_for_byte():
    first = b'{"role": "user",  "content":[{"type":"text","text":"\\u00e9","new":1.0}]}'
    second = b'{"content":"x","role":"assistant"}'
    data = (
        b'{"model":"m","max_tokens":5,"messages":[' + first + b" , " + second + b'],"stream":true}'
    )
    prompt = decode_request(data)
    assert [message.raw for message in prompt.messages] == [first, second]
    assert [message.role for message in prompt.messages] == ["user", "assistant"]
    assert prompt.dialect == "anthropic"
    assert prompt.stream
    assert prompt.model == "m"
    assert prompt.parameters == {"max_tokens": 5}
    assert prompt.system is None


def test_a_system_as_text_or_as_blocks_is_a_message():
    prompt = decode_request(request(system="S"))
    assert prompt.system is not None
    assert (prompt.system.role, prompt.system.dialect) == ("system", "anthropic")
    assert decode_parts(prompt.system) == (Text(text="S"),)
    blocks = [{"type": "text", "text": "S", "cache_control": {"type": "ephemeral"}}]
    prompt = decode_request(request(system=blocks))
    assert prompt.system is not None
    assert prompt.system.json() == {"role": "system", "content": blocks}
    nothings: list[Any] = ["", [], None]
    for nothing in nothings:
        assert decode_request(request(system=nothing)).system is None


def test_every_other_field_is_a_parameter():
    fields = {"temperature": 0, "new": {"a": [1]}, "tools": TOOLS, "metadata": {"user_id": "u"}}
    assert decode_request(request(**fields)).parameters == fields


@pytest.mark.parametrize(
    ("data", "path"),
    [
        (request(model=3), "model"),
        (request(messages="x"), "messages"),
        (request(messages=[3]), "messages[0]"),
        (request(messages=[{"role": "user"}]), "messages[0]"),
        (request(messages=[{"role": "tool", "content": "x"}]), "messages[0].role"),
        (request(messages=[{"role": "user", "content": 3}]), "messages[0].content"),
        (request(messages=[{"role": "user", "content": [{}]}]), "messages[0].content[0]"),
        (
            request(messages=[{"role": "user", "content": [{"type": 3}]}]),
            "messages[0].content[0].type",
        ),
        (request(system=3), "system"),
        (request(stream="yes"), "stream"),
        (b"", ""),
        (b"[]", ""),
        (b"{}", ""),
        (b"\xff", ""),
        (b"[" * 100_000, ""),
    ],
)
def test_a_wrong_request_is_malformed_at_the_path_of_its_field(data, path):
    with pytest.raises(FieldError) as caught:
        decode_request(data)
    assert caught.value.path == path


@given(st.binary(max_size=80))
def test_any_bytes_are_a_request_or_malformed(data):
    with contextlib.suppress(MalformedError):
        decode_request(data)


BLOCKS: list[dict[str, Any]] = [
    {"type": "text", "text": "t", "cache_control": {"type": "ephemeral"}},
    {"type": "tool_use", "id": "a", "name": "f", "input": {"x": 1}},
    {"type": "tool_result", "tool_use_id": "a", "content": [{"type": "text", "text": "r"}]},
    {"type": "thinking", "thinking": "hm", "signature": "s"},
    {"type": "image", "source": {"type": "url", "url": "https://x"}},
]


@given(st.data())
def test_a_changed_request_is_answered_or_malformed(data):
    fields: dict[str, Any] = {
        "model": NEW,
        "system": "S",
        "max_tokens": 5,
        "tools": TOOLS,
        "messages": [
            {"role": "user", "content": "hi"},
            {"role": "assistant", "content": BLOCKS},
            {"role": "user", "content": BLOCKS},
        ],
    }
    fields = json.loads(json.dumps(fields))
    for _ in range(data.draw(st.integers(1, 3))):
        inside: Any = fields
        while isinstance(inside, dict | list) and inside and data.draw(st.integers(0, 3)):
            keys = sorted(inside) if isinstance(inside, dict) else range(len(inside))
            key = data.draw(st.sampled_from(keys))
            if not isinstance(inside[key], dict | list) or data.draw(st.booleans()):
                inside[key] = copy.deepcopy(data.draw(ODD))
                break
            inside = inside[key]
    raw = msgspec.json.encode(fields)
    try:
        prompt = decode_request(raw)
        spoken = [
            OutgoingMessage(role=m.role, parts=decode_parts(m), raw=m.raw) for m in prompt.messages
        ]
        decode_options(prompt.parameters)
        system = decode_parts(prompt.system) if prompt.system else None
    except MalformedError:
        return
    sent = encode_request(
        model=prompt.model,
        system=system,
        messages=spoken,
        parameters=prompt.parameters,
        stream=prompt.stream,
    )
    json.loads(sent.body)
