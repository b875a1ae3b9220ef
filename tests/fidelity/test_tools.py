"""Tool calls and results stay paired, with ids and names that the provider accepts."""

import json
import re
from typing import Any

import pytest
from tests.fake_provider import ToolCall
from tests.fidelity.answers import (
    anthropic_whole,
    converse_stream,
    converse_tool,
    openai_stream,
    openai_whole,
)
from tests.fidelity.clients import (
    last,
    to_anthropic_client,
    to_openai_client,
    whole_for_anthropic,
    whole_for_openai,
)
from tests.fidelity.conftest import prompt_of

from cllm.core.errors import InvalidRequestError
from cllm.wire.convert import encode_openai

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
TOOL = {"name": "f", "description": "Does it.", "input_schema": SCHEMA}
FUNCTION: dict[str, Any] = {"name": "f", "description": "Does it.", "parameters": SCHEMA}
OPENAI_TOOL = {"type": "function", "function": FUNCTION}
PNG = "iVBORw0KGgo="
CLAUDES = ["anthropic", "bedrock"]
on_claude = pytest.mark.parametrize("kind", CLAUDES)


def call(call_id: str, arguments: str = "{}", name: str = "f") -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def result(call_id: str, content: Any = "ok") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def loop(*ids: str, results: Any = None, content: Any = None) -> dict[str, Any]:
    """An OpenAI client's request in the middle of a tool loop."""
    answers = [result(call_id) for call_id in ids] if results is None else results
    return {
        "tools": [OPENAI_TOOL],
        "messages": [
            {"role": "user", "content": "Hello"},
            {
                "role": "assistant",
                "content": content,
                "tool_calls": [call(call_id) for call_id in ids],
            },
            *answers,
        ],
    }


def anthropic_loop(*results: Any, ids: tuple[str, ...] = ("toolu_1",)) -> dict[str, Any]:
    calls = [{"type": "tool_use", "id": call_id, "name": "f", "input": {}} for call_id in ids]
    return {
        "tools": [TOOL],
        "messages": [
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": calls},
            {"role": "user", "content": list(results)},
        ],
    }


def sent_calls(sent: Any) -> list[dict[str, Any]]:
    """The calls in a body, in either of Claude's protocols."""
    blocks = [b for m in sent["messages"] if isinstance(m["content"], list) for b in m["content"]]
    own = [block for block in blocks if block.get("type") == "tool_use"]
    return own + [block["toolUse"] for block in blocks if "toolUse" in block]


def sent_results(sent: Any) -> list[dict[str, Any]]:
    blocks = [b for m in sent["messages"] if isinstance(m["content"], list) for b in m["content"]]
    own = [block for block in blocks if block.get("type") == "tool_result"]
    return own + [block["toolResult"] for block in blocks if "toolResult" in block]


def call_ids(sent: Any) -> list[str]:
    return [c.get("id") or c["toolUseId"] for c in sent_calls(sent)]


def result_ids(sent: Any) -> list[str]:
    return [r.get("tool_use_id") or r["toolUseId"] for r in sent_results(sent)]


@on_claude
@pytest.mark.parametrize("order", [("a", "b", "c"), ("c", "a", "b")], ids=["in order", "not"])
async def test_results_are_one_message_in_the_order_of_the_calls(ask, kind, order):
    body = loop("a", "b", "c", results=[result(i, f"result {i}") for i in order])
    body["messages"].append({"role": "user", "content": "Thanks."})
    sent = (await ask(kind, body)).sent
    assert [message["role"] for message in sent["messages"]] == ["user", "assistant", "user"]
    assert result_ids(sent) == ["a", "b", "c"] == call_ids(sent)
    for call_id, value in zip("abc", sent_results(sent), strict=True):
        assert f"result {call_id}" in json.dumps(value)
    assert "Thanks." in json.dumps(sent["messages"][2]["content"][3])


async def test_results_in_two_messages_of_an_anthropic_client_are_one(ask):
    body = anthropic_loop(ids=("a", "b"))
    body["messages"][2:] = [
        {
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": i, "content": "ok"}],
        }
        for i in "ba"
    ]
    for kind in CLAUDES:
        sent = (await ask(kind, body, client="anthropic")).sent
        assert [message["role"] for message in sent["messages"]] == ["user", "assistant", "user"]
        assert result_ids(sent) == ["a", "b"]


async def test_results_with_text_are_tool_messages_before_it_for_openai(ask):
    body = anthropic_loop(
        {"type": "text", "text": "Look:"},
        {"type": "tool_result", "tool_use_id": "b", "content": "rb"},
        {"type": "tool_result", "tool_use_id": "a", "content": "ra"},
        ids=("a", "b"),
    )
    messages = (await ask("openai", body, client="anthropic")).sent["messages"]
    assert [(m["role"], m.get("tool_call_id"), m["content"]) for m in messages[2:]] == [
        ("tool", "a", "ra"),
        ("tool", "b", "rb"),
        ("user", None, "Look:"),
    ]


@pytest.mark.parametrize(
    "content",
    [
        "It broke.",
        [{"type": "text", "text": "It broke."}],
        [
            {"type": "text", "text": "It broke."},
            {
                "type": "image",
                "source": {"type": "base64", "media_type": "image/png", "data": PNG},
            },
        ],
    ],
    ids=["text", "blocks", "image"],
)
async def test_the_error_flag_of_a_result_is_sent_where_supported(ask, content):
    failed = {
        "type": "tool_result",
        "tool_use_id": "toolu_1",
        "is_error": True,
        "content": content,
    }
    body = anthropic_loop(failed)
    own = (await ask("anthropic", body, client="anthropic")).sent
    assert own["messages"][2]["content"] == [failed]
    bedrock = (await ask("bedrock", body, client="anthropic")).sent
    (sent,) = sent_results(bedrock)
    assert sent["status"] == "error"
    assert {"text": "It broke."} in sent["content"]
    assert any("image" in block for block in sent["content"]) == (PNG in json.dumps(content))
    exchange = await ask("openai", body, client="anthropic")
    assert "is_error" not in exchange.request.body.decode()
    assert exchange.sent["messages"][2]["content"] == "It broke."
    assert exchange.has_notice("messages[2]")


@pytest.mark.parametrize("value", [None, False])
async def test_a_result_that_is_no_error_is_a_success(ask, value):
    fine = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "ok"}
    fine |= {} if value is None else {"is_error": value}
    (sent,) = sent_results((await ask("bedrock", anthropic_loop(fine), client="anthropic")).sent)
    assert sent.get("status", "success") == "success"


ODD_IDS = ["functions.Bash:0", "x" * 200, "call with blanks", "ünï", "a/b", "", "call|1"]
VALID = {"anthropic": r"[a-zA-Z0-9_-]{1,64}", "bedrock": r"[a-zA-Z0-9_.:-]{1,64}"}


@on_claude
@pytest.mark.parametrize("odd", ODD_IDS)
async def test_a_refused_id_has_one_alias_for_call_and_result(ask, kind, odd):
    body = loop(odd, "call_2", results=[result("call_2", "two"), result(odd, "one")])
    first = (await ask(kind, body)).sent
    again = (await ask(kind, body)).sent
    assert call_ids(first) == result_ids(first) == call_ids(again)
    assert all(re.fullmatch(VALID[kind], call_id) for call_id in call_ids(first))
    assert call_ids(first)[1] == "call_2"
    assert "one" in json.dumps(sent_results(first)[0])


@on_claude
@pytest.mark.parametrize("fine", ["call_1", "toolu_01AbC-9", "a" * 64])
async def test_an_accepted_id_is_unchanged(ask, kind, fine):
    sent = (await ask(kind, loop(fine))).sent
    assert call_ids(sent) == result_ids(sent) == [fine]


async def test_an_id_with_dots_and_colons_is_unchanged_on_bedrock(ask):
    assert call_ids((await ask("bedrock", loop("functions.Bash:0"))).sent) == ["functions.Bash:0"]


async def test_ids_that_differ_only_in_refused_characters_have_different_aliases(ask):
    for kind in CLAUDES:
        ids = call_ids((await ask(kind, loop("a/b", "a|b", "a b"))).sent)
        assert len(set(ids)) == 3


@on_claude
async def test_one_id_in_two_turns_is_paired_by_position(ask, kind):
    turns = loop("call_1", results=[result("call_1", "first")])
    more = loop("call_1", results=[result("call_1", "second")])
    sent = (await ask(kind, turns | {"messages": turns["messages"] + more["messages"]})).sent
    results = [json.dumps(r) for r in sent_results(sent)]
    assert len(results) == 2
    assert "first" in results[0]
    assert "second" in results[1]


async def test_a_long_id_of_an_anthropic_client_has_one_alias_for_openai(ask):
    long = "toolu_" + "x" * 60
    body = anthropic_loop(
        {"type": "tool_result", "tool_use_id": long, "content": "ok"}, ids=(long,)
    )
    sent = (await ask("openai", body, client="anthropic")).sent["messages"]
    (sent_call,) = sent[1]["tool_calls"]
    assert sent_call["id"] == sent[2]["tool_call_id"]
    assert len(sent_call["id"]) <= 40


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
async def test_a_tool_name_that_bedrock_refuses_is_restored_in_the_answer(ask, server, stream):
    name = "mcp.server/list files"
    function = {"name": name, "parameters": SCHEMA}
    body = {"tools": [{"type": "function", "function": function}]}
    first = await ask("bedrock", body)
    (tool,) = first.sent["toolConfig"]["tools"]
    alias = tool["toolSpec"]["name"]
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", alias)
    server.queue_reply(
        tool_calls=(ToolCall(id="t", name=alias, arguments='{"a":1}'),), finish="tool_calls"
    )
    exchange = await ask("bedrock", body, stream=stream)
    assert to_openai_client(exchange.events).calls == [("t", name, '{"a":1}')]
    assert to_anthropic_client(exchange.events).content[0]["name"] == name


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
async def test_a_tool_name_that_anthropic_refuses_is_restored_in_the_answer(ask, server, stream):
    """Anthropic takes `[a-zA-Z0-9_-]{1,128}`."""
    name = "mcp.server/list files"
    function = {"name": name, "parameters": SCHEMA}
    body = {"tools": [{"type": "function", "function": function}]}
    first = await ask("anthropic", body)
    alias = first.sent["tools"][0]["name"]
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,128}", alias)
    server.queue_reply(
        tool_calls=(ToolCall(id="t", name=alias, arguments='{"a": 1}'),), finish="tool_calls"
    )
    exchange = await ask("anthropic", body, stream=stream)
    (value,) = to_openai_client(exchange.events).calls
    assert value[1] == name


async def test_tool_choice_none_is_sent_to_anthropic(ask):
    body = {"tools": [OPENAI_TOOL], "tool_choice": "none"}
    assert (await ask("anthropic", body)).sent["tool_choice"] == {"type": "none"}
    own = {"tools": [TOOL], "tool_choice": {"type": "none"}}
    exchange = await ask("openai", own, client="anthropic")
    assert exchange.sent["tool_choice"] == "none"
    assert exchange.sent["tools"]


async def test_tool_choice_none_drops_the_tools_on_bedrock(ask):
    body = {"tools": [OPENAI_TOOL], "tool_choice": "none"}
    assert "toolConfig" not in (await ask("bedrock", body)).sent


async def test_tool_choice_none_after_calls_keeps_the_tools_on_bedrock(ask):
    exchange = await ask("bedrock", loop("call_1") | {"tool_choice": "none"})
    assert exchange.sent["toolConfig"]["tools"]
    assert exchange.has_notice("tool")


@pytest.mark.parametrize(
    ("value", "anthropic", "bedrock"),
    [
        ("auto", {"type": "auto"}, [{"auto": {}}, None]),
        ("required", {"type": "any"}, [{"any": {}}]),
        (
            {"type": "function", "function": {"name": "f"}},
            {"type": "tool", "name": "f"},
            [{"tool": {"name": "f"}}],
        ),
    ],
)
async def test_a_tool_choice_is_converted(ask, value, anthropic, bedrock):
    body = {"tools": [OPENAI_TOOL], "tool_choice": value}
    assert (await ask("anthropic", body)).sent["tool_choice"] == anthropic
    assert (await ask("bedrock", body)).sent["toolConfig"].get("toolChoice") in bedrock
    own = {"tools": [TOOL], "tool_choice": anthropic}
    assert (await ask("openai", own, client="anthropic")).sent["tool_choice"] == value


@pytest.mark.parametrize(
    ("more", "choice"),
    [
        ({}, {"type": "auto"}),
        ({"tool_choice": "auto"}, {"type": "auto"}),
        ({"tool_choice": "required"}, {"type": "any"}),
        (
            {"tool_choice": {"type": "function", "function": {"name": "f"}}},
            {"type": "tool", "name": "f"},
        ),
    ],
    ids=["alone", "auto", "required", "named"],
)
async def test_disabled_parallel_calls_have_a_typed_tool_choice(ask, more, choice):
    body = {"tools": [OPENAI_TOOL], "parallel_tool_calls": False} | more
    sent = (await ask("anthropic", body)).sent
    assert sent["tool_choice"] == choice | {"disable_parallel_tool_use": True}
    own = {"tools": [TOOL], "tool_choice": choice | {"disable_parallel_tool_use": True}}
    assert (await ask("openai", own, client="anthropic")).sent["parallel_tool_calls"] is False


async def test_disabled_parallel_calls_are_not_sent_with_tool_choice_none(ask):
    body = {"tools": [OPENAI_TOOL], "parallel_tool_calls": False, "tool_choice": "none"}
    assert (await ask("anthropic", body)).sent["tool_choice"] == {"type": "none"}


@pytest.mark.parametrize("tools", [{}, {"tools": []}], ids=["absent", "empty"])
async def test_disabled_parallel_calls_without_tools_are_no_error(ask, tools):
    """OpenAI and Anthropic refuse a tool choice without tools."""
    exchange = await ask("anthropic", tools | {"parallel_tool_calls": False})
    assert "tool_choice" not in exchange.sent
    own = tools | {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}
    exchange = await ask("openai", own, client="anthropic")
    assert "parallel_tool_calls" not in exchange.sent
    assert "tool_choice" not in exchange.sent


@pytest.mark.parametrize(
    ("choice", "sent"),
    [
        ({}, {"type": "auto"}),
        ({"tool_choice": "auto"}, {"type": "auto"}),
        ({"tool_choice": "required"}, {"type": "any"}),
        (
            {"tool_choice": {"type": "function", "function": {"name": FUNCTION["name"]}}},
            {"type": "tool", "name": FUNCTION["name"]},
        ),
    ],
    ids=["absent", "auto", "required", "named"],
)
async def test_disabled_parallel_calls_are_claudes_own_tool_choice_on_bedrock(ask, choice, sent):
    body = {"tools": [OPENAI_TOOL], "parallel_tool_calls": False, **choice}
    exchange = await ask("bedrock", body)
    fields = exchange.sent["additionalModelRequestFields"]
    assert fields["tool_choice"] == {**sent, "disable_parallel_tool_use": True}
    # Bedrock refuses both.
    assert "toolChoice" not in exchange.sent["toolConfig"]
    assert not exchange.notices


async def test_disabled_parallel_calls_are_reported_for_other_models_on_bedrock(ask):
    body = {"tools": [OPENAI_TOOL], "parallel_tool_calls": False}
    exchange = await ask("bedrock", body, model="amazon.nova-lite-v1:0")
    assert exchange.has_notice("parallel")
    assert "additionalModelRequestFields" not in exchange.sent


@pytest.mark.parametrize("kind", ["anthropic", "bedrock"])
async def test_strict_false_is_not_sent(ask, kind):
    body = {"tools": [{"type": "function", "function": {**FUNCTION, "strict": False}}]}
    exchange = await ask(kind, body)
    assert "strict" not in exchange.request.body.decode()
    assert not exchange.has_notice("strict")


async def test_strict_false_of_an_anthropic_client_is_not_sent_to_bedrock(ask):
    body = {"tools": [TOOL | {"strict": False}]}
    exchange = await ask("bedrock", body, client="anthropic")
    assert "strict" not in exchange.request.body.decode()


@pytest.mark.parametrize("content", [None, "", " ", []], ids=["null", "empty", "blank", "list"])
@on_claude
async def test_a_call_without_text_has_no_text_block(ask, kind, content):
    sent = (await ask(kind, loop("call_1", content=content))).sent
    (block,) = sent["messages"][1]["content"]
    assert block.get("type", "tool_use") == "tool_use"
    assert "text" not in block


async def test_a_call_without_text_has_null_content_for_openai(ask):
    body = anthropic_loop({"type": "tool_result", "tool_use_id": "toolu_1", "content": "ok"})
    sent = (await ask("openai", body, client="anthropic")).sent["messages"][1]
    assert sent.get("content") is None


EMPTY_RESULTS = ["", " ", "\n\t", [], [{"type": "text", "text": ""}], None]


@pytest.mark.parametrize("content", EMPTY_RESULTS[:-1], ids=map(repr, EMPTY_RESULTS[:-1]))
@on_claude
async def test_an_empty_result_is_accepted_by_the_provider(ask, kind, content):
    (sent,) = sent_results(
        (await ask(kind, loop("call_1", results=[result("call_1", content)]))).sent
    )
    if kind == "bedrock":
        assert all(block["text"].strip() for block in sent["content"])
        assert sent["content"]
    else:
        value = sent.get("content", "absent")
        assert value == "absent" or (value if isinstance(value, str) else value[0]["text"]).strip()


@pytest.mark.parametrize("content", EMPTY_RESULTS, ids=map(repr, EMPTY_RESULTS))
@pytest.mark.parametrize("kind", ["anthropic", "bedrock", "openai"])
async def test_an_empty_result_of_an_anthropic_client_is_accepted_by_the_provider(
    ask, kind, content
):
    empty = {"type": "tool_result", "tool_use_id": "toolu_1"}
    empty |= {} if content is None else {"content": content}
    sent = (await ask(kind, anthropic_loop(empty), client="anthropic")).sent
    if kind == "openai":
        assert isinstance(sent["messages"][2]["content"], str | list)
        return
    (value,) = sent_results(sent)
    assert value.get("content", "absent") not in ("", [], None)
    assert '"text": ""' not in json.dumps(value)


@pytest.mark.parametrize(
    "content",
    [
        [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}],
        [{"type": "text", "text": "one"}, {"type": "text", "text": ""}],
    ],
    ids=["two", "one of them empty"],
)
@on_claude
async def test_a_tool_message_keeps_all_its_parts(ask, kind, content):
    (sent,) = sent_results(
        (await ask(kind, loop("call_1", results=[result("call_1", content)]))).sent
    )
    value = sent["content"]
    texts = [value] if isinstance(value, str) else [block["text"] for block in value]
    assert texts == [part["text"] for part in content if part["text"]]


async def test_an_image_in_a_result_follows_it_for_openai(ask):
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
    value = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [image]}
    exchange = await ask("openai", anthropic_loop(value), client="anthropic")
    tool, user = exchange.sent["messages"][2:]
    assert tool["role"] == "tool"
    assert user["content"][0]["image_url"]["url"] == f"data:image/png;base64,{PNG}"
    assert exchange.has_notice("messages[2]")


@on_claude
@pytest.mark.parametrize("tools_field", [{}, {"tools": []}], ids=["absent", "empty"])
async def test_tools_of_the_history_are_described_if_the_request_has_none(ask, kind, tools_field):
    body = {
        "messages": [
            {"role": "user", "content": "Hello"},
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [call("1", name="zeta"), call("2", name="alpha")],
            },
            result("1"),
            result("2"),
            {"role": "assistant", "content": None, "tool_calls": [call("3", name="zeta")]},
            result("3"),
        ]
    } | tools_field
    first, again = (await ask(kind, body)), (await ask(kind, body))
    assert first.request.body == again.request.body
    tools = first.sent["tools"] if kind == "anthropic" else first.sent["toolConfig"]["tools"]
    names = [tool.get("name") or tool["toolSpec"]["name"] for tool in tools]
    assert sorted(names) == ["alpha", "zeta"]


@on_claude
async def test_an_unanswered_call_gets_an_error_result(ask, kind):
    body = loop("a", "b", results=[result("a")])
    body["messages"] += [{"role": "user", "content": "Never mind."}]
    before = json.dumps(body)
    exchange = await ask(kind, body)
    assert result_ids(exchange.sent) == ["a", "b"]
    made = sent_results(exchange.sent)[1]
    assert made.get("is_error") or made.get("status") == "error"
    assert "Never mind." in json.dumps(exchange.sent)
    assert exchange.notices
    assert json.dumps(body) == before


async def test_an_unanswered_call_gets_a_result_for_openai(ask):
    body = anthropic_loop(ids=("a", "b"))
    body["messages"][2]["content"] = [
        {"type": "tool_result", "tool_use_id": "b", "content": "rb"},
        {"type": "text", "text": "Never mind."},
    ]
    exchange = await ask("openai", body, client="anthropic")
    roles = [(m["role"], m.get("tool_call_id")) for m in exchange.sent["messages"][2:]]
    assert roles == [("tool", "a"), ("tool", "b"), ("user", None)]
    assert exchange.notices


@pytest.mark.parametrize("kind", ["anthropic", "bedrock", "openai"])
async def test_an_unanswered_call_of_an_openai_client_gets_a_result_for_every_provider(ask, kind):
    body = loop("a", results=[{"role": "user", "content": "Never mind."}])
    exchange = await ask(kind, body)
    assert '"a"' in json.dumps(exchange.sent["messages"][2])
    assert exchange.notices


@pytest.mark.parametrize("kind", ["anthropic", "bedrock", "openai"])
async def test_a_result_without_a_call_is_accepted(ask, kind):
    body = {
        "messages": [
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": "Hi."},
            result("gone", "late news"),
            {"role": "user", "content": "Go on."},
        ]
    }
    exchange = await ask(kind, body)
    assert not result_ids(exchange.sent)
    assert exchange.notices


@pytest.mark.parametrize(
    "tool",
    [
        {"type": "web_search_20250305", "name": "web_search", "max_uses": 3},
        {"type": "bash_20250124", "name": "bash"},
        {"type": "computer_20250124", "name": "computer", "display_width_px": 1},
        {"type": "code_execution_20250825", "name": "code_execution"},
    ],
    ids=lambda tool: tool["name"],
)
@pytest.mark.parametrize("kind", ["openai", "bedrock"])
async def test_a_tool_of_anthropic_is_an_error_for_other_providers(break_off, server, kind, tool):
    _, error = await break_off(kind, {"tools": [TOOL, tool]}, client="anthropic")
    assert isinstance(error, InvalidRequestError)
    assert tool["name"] in str(error)
    assert not server.requests


@on_claude
async def test_a_tool_of_openai_is_an_error_for_other_providers(break_off, server, kind):
    tool = {"type": "custom", "custom": {"name": "shell", "format": {"type": "text"}}}
    _, error = await break_off(kind, {"tools": [OPENAI_TOOL, tool]})
    assert isinstance(error, InvalidRequestError)
    assert "shell" in str(error)
    assert not server.requests


async def test_a_tool_of_anthropic_is_sent_unchanged_to_anthropic(ask):
    tool = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}
    exchange = await ask("anthropic", {"tools": [TOOL, tool]}, client="anthropic")
    assert exchange.sent["tools"] == [TOOL, tool]


async def test_a_tool_without_parameters_is_sent_to_every_provider(ask):
    body = {"tools": [{"type": "function", "function": {"name": "now"}}]}
    assert (await ask("anthropic", body)).sent["tools"][0]["input_schema"]["type"] == "object"
    (tool,) = (await ask("bedrock", body)).sent["toolConfig"]["tools"]
    assert tool["toolSpec"]["inputSchema"]["json"]["type"] == "object"


@pytest.mark.parametrize("kind", ["anthropic", "bedrock"])
async def test_an_empty_list_of_tools_is_no_tools(ask, kind):
    exchange = await ask(kind, {"tools": []})
    assert not exchange.sent.get("tools")
    assert "toolConfig" not in exchange.sent


async def test_an_empty_list_of_tools_is_no_tools_for_openai(ask):
    exchange = await ask("openai", {"tools": []}, client="anthropic")
    assert "tools" not in exchange.sent


@pytest.mark.parametrize("arguments", ['{"a": 1', "not json", "[1]", '"x"'])
@on_claude
async def test_arguments_that_are_not_an_object_are_accepted(ask, kind, arguments):
    body = loop("call_1")
    body["messages"][1]["tool_calls"] = [call("call_1", arguments)]
    exchange = await ask(kind, body)
    (value,) = sent_calls(exchange.sent)
    assert arguments in json.loads(json.dumps(list(value["input"].values())))
    assert exchange.notices


@on_claude
async def test_arguments_keep_their_digits_and_their_order(ask, kind):
    arguments = '{"z":1.0,"a":12345678901234567890,"m":1e-7}'
    body = loop("call_1")
    body["messages"][1]["tool_calls"] = [call("call_1", arguments)]
    assert arguments in (await ask(kind, body)).request.body.decode()


@pytest.mark.parametrize("kind", ["openai", "anthropic", "bedrock"])
async def test_calls_of_a_whole_answer_are_equal_for_both_clients(ask, server, kind):
    calls = tuple(ToolCall(id=i, name="f", arguments='{"a": 1}') for i in ("x", "y"))
    server.queue_reply("Hm.", tool_calls=calls, finish="tool_calls")
    exchange = await ask(kind, {"tools": [OPENAI_TOOL]}, stream=False)
    ours = [
        block for block in whole_for_anthropic(exchange.events).content if block.type == "tool_use"
    ]
    assert [(block.id, block.input) for block in ours] == [("x", {"a": 1}), ("y", {"a": 1})]
    theirs = whole_for_openai(exchange.events).choices[0]
    assert [json.loads(c.function.arguments) for c in theirs.message.tool_calls] == [{"a": 1}] * 2
    assert theirs.finish_reason == "tool_calls"


async def test_a_call_of_one_provider_can_be_answered_at_another(ask):
    """The next turn still works: a reply of Bedrock's goes on at Anthropic and at OpenAI."""
    answer = converse_stream(converse_tool(0, '{"a": 1}', call="tooluse_1"), stop="tool_use")
    read = to_openai_client((await ask("bedrock", answer=answer)).events)
    reply = {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {"id": i, "type": "function", "function": {"name": n, "arguments": a}}
            for i, n, a in read.calls
        ],
    }
    body = {
        "tools": [OPENAI_TOOL],
        "messages": [{"role": "user", "content": "Hello"}, reply, result("tooluse_1")],
    }
    for kind in CLAUDES:
        assert call_ids((await ask(kind, body)).sent) == ["tooluse_1"]


async def test_arguments_sent_as_an_object_are_text_for_the_client(ask):
    """Some compatible servers send the object itself where a string belongs."""
    function = {"name": "f", "arguments": {"a": 1}}
    message = {
        "content": None,
        "tool_calls": [{"id": "x", "type": "function", "function": function}],
    }
    exchange = await ask("openai", answer=openai_whole(message, "tool_calls"), stream=False)
    (value,) = whole_for_openai(exchange.events).choices[0].message.tool_calls
    assert json.loads(value.function.arguments) == {"a": 1}
    assert to_anthropic_client(exchange.events).content[0]["input"] == {"a": 1}


async def test_unknown_fields_of_a_tool_use_are_saved_for_the_next_turn(ask):
    odd = {"type": "tool_use", "id": "t", "name": "f", "input": {}, "caller": {"type": "direct"}}
    exchange = await ask("anthropic", answer=anthropic_whole(odd, stop="tool_use"), stream=False)
    assert last(exchange.events).message.json()["content"] == [odd]


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
async def test_calls_without_ids_get_ids_and_can_be_answered(ask, stream):
    """Small servers send none; the ids that a client sees are those that are kept."""
    function = {"name": "f", "arguments": "{}"}
    calls = [{"index": i, "type": "function", "function": function} for i in range(2)]
    answer = openai_stream({"tool_calls": calls}, finish="tool_calls")
    if not stream:
        answer = openai_whole({"content": None, "tool_calls": calls}, "tool_calls")
    exchange = await ask("openai", answer=answer, stream=stream)
    saved_ids = [
        saved_call["id"] for saved_call in last(exchange.events).message.json()["tool_calls"]
    ]
    assert all(saved_ids)
    assert len(set(saved_ids)) == 2
    assert [value[0] for value in to_openai_client(exchange.events).calls] == saved_ids
    assert [block["id"] for block in to_anthropic_client(exchange.events).content] == saved_ids


SIGNATURE = {"google": {"thought_signature": "c2ln"}}


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
async def test_extra_fields_of_a_call_are_saved_for_the_next_turn(ask, stream):
    """Gemini's compatible endpoint refuses a history whose calls lost their signatures."""
    value = call("call_1", '{"a":1}') | {"index": 0, "extra_content": SIGNATURE}
    answer = openai_stream({"tool_calls": [value]}, finish="tool_calls")
    if not stream:
        answer = openai_whole({"content": None, "tool_calls": [value]}, "tool_calls")
    exchange = await ask("openai", answer=answer, stream=stream)
    (saved_ids,) = last(exchange.events).message.json()["tool_calls"]
    assert saved_ids["extra_content"] == SIGNATURE


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
async def test_extra_fields_of_a_call_are_sent_to_an_openai_client(ask, stream):
    """A client that keeps its own history has to send it back."""
    value = call("call_1", '{"a":1}') | {"index": 0, "extra_content": SIGNATURE}
    if stream:
        answer = openai_stream({"tool_calls": [value]}, finish="tool_calls")
        shown = to_openai_client((await ask("openai", answer=answer)).events).sent.decode()
    else:
        answer = openai_whole({"content": None, "tool_calls": [value]}, "tool_calls")
        exchange = await ask("openai", answer=answer, stream=False)
        shown = whole_for_openai(exchange.events).to_json()
    assert "thought_signature" in shown


async def test_extra_fields_of_a_call_are_sent_back_to_the_server(ask):
    body = loop("call_1")
    body["messages"][1]["tool_calls"] = [call("call_1") | {"extra_content": SIGNATURE}]
    body["messages"].append({"role": "user", "content": "And?"})
    prompt = prompt_of(body, "openai", "gemini-3-pro", stream=False)
    assert encode_openai(prompt).body.count(b"thought_signature") == 1
