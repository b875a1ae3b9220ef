"""Tools: calls and results stay pairs, under ids and names that the provider takes."""

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
    for call_id, said in zip("abc", sent_results(sent), strict=True):
        assert f"result {call_id}" in json.dumps(said)
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


async def test_results_beside_text_are_tool_messages_before_it_for_openai(ask):
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
async def test_an_error_of_a_tool_is_an_error_everywhere_it_can_be_said(ask, content):
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
    asked = await ask("openai", body, client="anthropic")
    assert "is_error" not in asked.request.body.decode()
    assert asked.sent["messages"][2]["content"] == "It broke."
    assert asked.noticed("messages[2]")


@pytest.mark.parametrize("said", [None, False])
async def test_a_result_that_is_no_error_is_a_success(ask, said):
    fine = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "ok"}
    fine |= {} if said is None else {"is_error": said}
    (sent,) = sent_results((await ask("bedrock", anthropic_loop(fine), client="anthropic")).sent)
    assert sent.get("status", "success") == "success"


ODD_IDS = ["functions.Bash:0", "x" * 200, "call with blanks", "ünï", "a/b", "", "call|1"]
VALID = {"anthropic": r"[a-zA-Z0-9_-]{1,64}", "bedrock": r"[a-zA-Z0-9_.:-]{1,64}"}


@on_claude
@pytest.mark.parametrize("odd", ODD_IDS)
async def test_an_id_that_is_refused_has_one_alias_on_call_and_result(ask, kind, odd):
    body = loop(odd, "call_2", results=[result("call_2", "two"), result(odd, "one")])
    first = (await ask(kind, body)).sent
    again = (await ask(kind, body)).sent
    assert call_ids(first) == result_ids(first) == call_ids(again)
    assert all(re.fullmatch(VALID[kind], call_id) for call_id in call_ids(first))
    assert call_ids(first)[1] == "call_2"
    assert "one" in json.dumps(sent_results(first)[0])


@on_claude
@pytest.mark.parametrize("fine", ["call_1", "toolu_01AbC-9", "a" * 64])
async def test_an_id_that_is_taken_is_untouched(ask, kind, fine):
    sent = (await ask(kind, loop(fine))).sent
    assert call_ids(sent) == result_ids(sent) == [fine]


async def test_an_id_with_dots_and_colons_is_untouched_on_bedrock(ask):
    assert call_ids((await ask("bedrock", loop("functions.Bash:0"))).sent) == ["functions.Bash:0"]


async def test_two_ids_that_differ_only_in_refused_characters_stay_two(ask):
    for kind in CLAUDES:
        ids = call_ids((await ask(kind, loop("a/b", "a|b", "a b"))).sent)
        assert len(set(ids)) == 3


@on_claude
async def test_one_id_in_two_turns_is_paired_by_place(ask, kind):
    turns = loop("call_1", results=[result("call_1", "first")])
    more = loop("call_1", results=[result("call_1", "second")])
    sent = (await ask(kind, turns | {"messages": turns["messages"] + more["messages"]})).sent
    results = [json.dumps(r) for r in sent_results(sent)]
    assert len(results) == 2
    assert "first" in results[0]
    assert "second" in results[1]


async def test_a_long_id_of_an_anthropic_client_is_shortened_alike_for_openai(ask):
    long = "toolu_" + "x" * 60
    body = anthropic_loop(
        {"type": "tool_result", "tool_use_id": long, "content": "ok"}, ids=(long,)
    )
    sent = (await ask("openai", body, client="anthropic")).sent["messages"]
    (sent_call,) = sent[1]["tool_calls"]
    assert sent_call["id"] == sent[2]["tool_call_id"]
    assert len(sent_call["id"]) <= 40


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
async def test_a_tools_name_that_bedrock_refuses_comes_back_as_the_clients_own(ask, server, stream):
    name = "mcp.server/list files"
    function = {"name": name, "parameters": SCHEMA}
    body = {"tools": [{"type": "function", "function": function}]}
    first = await ask("bedrock", body)
    (tool,) = first.sent["toolConfig"]["tools"]
    alias = tool["toolSpec"]["name"]
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", alias)
    server.say(tool_calls=(ToolCall(id="t", name=alias, arguments='{"a":1}'),), finish="tool_calls")
    asked = await ask("bedrock", body, stream=stream)
    assert to_openai_client(asked.events).calls == [("t", name, '{"a":1}')]
    assert to_anthropic_client(asked.events).content[0]["name"] == name


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
async def test_a_tools_name_that_anthropic_refuses_comes_back_as_the_clients_own(
    ask, server, stream
):
    """Anthropic takes `[a-zA-Z0-9_-]{1,128}`."""
    name = "mcp.server/list files"
    function = {"name": name, "parameters": SCHEMA}
    body = {"tools": [{"type": "function", "function": function}]}
    first = await ask("anthropic", body)
    alias = first.sent["tools"][0]["name"]
    assert re.fullmatch(r"[a-zA-Z0-9_-]{1,128}", alias)
    server.say(
        tool_calls=(ToolCall(id="t", name=alias, arguments='{"a": 1}'),), finish="tool_calls"
    )
    asked = await ask("anthropic", body, stream=stream)
    (said,) = to_openai_client(asked.events).calls
    assert said[1] == name


async def test_no_tool_choice_is_none_for_anthropic(ask):
    body = {"tools": [OPENAI_TOOL], "tool_choice": "none"}
    assert (await ask("anthropic", body)).sent["tool_choice"] == {"type": "none"}
    own = {"tools": [TOOL], "tool_choice": {"type": "none"}}
    asked = await ask("openai", own, client="anthropic")
    assert asked.sent["tool_choice"] == "none"
    assert asked.sent["tools"]


async def test_no_tool_choice_leaves_the_tools_out_on_bedrock(ask):
    body = {"tools": [OPENAI_TOOL], "tool_choice": "none"}
    assert "toolConfig" not in (await ask("bedrock", body)).sent


async def test_no_tool_choice_after_calls_on_bedrock_still_describes_the_tools(ask):
    asked = await ask("bedrock", loop("call_1") | {"tool_choice": "none"})
    assert asked.sent["toolConfig"]["tools"]
    assert asked.noticed("tool")


@pytest.mark.parametrize(
    ("said", "anthropic", "bedrock"),
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
async def test_a_tool_choice_means_the_same_everywhere(ask, said, anthropic, bedrock):
    body = {"tools": [OPENAI_TOOL], "tool_choice": said}
    assert (await ask("anthropic", body)).sent["tool_choice"] == anthropic
    assert (await ask("bedrock", body)).sent["toolConfig"].get("toolChoice") in bedrock
    own = {"tools": [TOOL], "tool_choice": anthropic}
    assert (await ask("openai", own, client="anthropic")).sent["tool_choice"] == said


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
async def test_one_call_at_a_time_has_a_choice_of_a_type(ask, more, choice):
    body = {"tools": [OPENAI_TOOL], "parallel_tool_calls": False} | more
    sent = (await ask("anthropic", body)).sent
    assert sent["tool_choice"] == choice | {"disable_parallel_tool_use": True}
    own = {"tools": [TOOL], "tool_choice": choice | {"disable_parallel_tool_use": True}}
    assert (await ask("openai", own, client="anthropic")).sent["parallel_tool_calls"] is False


async def test_one_call_at_a_time_is_not_said_where_no_tool_may_be_called(ask):
    body = {"tools": [OPENAI_TOOL], "parallel_tool_calls": False, "tool_choice": "none"}
    assert (await ask("anthropic", body)).sent["tool_choice"] == {"type": "none"}


@pytest.mark.parametrize("tools", [{}, {"tools": []}], ids=["absent", "empty"])
async def test_one_call_at_a_time_without_tools_is_not_an_error_anywhere(ask, tools):
    """OpenAI and Anthropic refuse a tool choice without tools."""
    asked = await ask("anthropic", tools | {"parallel_tool_calls": False})
    assert "tool_choice" not in asked.sent
    own = tools | {"tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}
    asked = await ask("openai", own, client="anthropic")
    assert "parallel_tool_calls" not in asked.sent
    assert "tool_choice" not in asked.sent


async def test_that_bedrock_cannot_forbid_parallel_calls_is_said(ask):
    body = {"tools": [OPENAI_TOOL], "parallel_tool_calls": False}
    assert (await ask("bedrock", body)).noticed("parallel")


@pytest.mark.parametrize("kind", ["anthropic", "bedrock"])
async def test_a_tool_that_is_not_strict_does_not_say_so(ask, kind):
    body = {"tools": [{"type": "function", "function": {**FUNCTION, "strict": False}}]}
    asked = await ask(kind, body)
    assert "strict" not in asked.request.body.decode()
    assert not asked.noticed("strict")


async def test_a_tool_that_is_not_strict_does_not_say_so_on_bedrock_to_an_anthropic_client(ask):
    body = {"tools": [TOOL | {"strict": False}]}
    asked = await ask("bedrock", body, client="anthropic")
    assert "strict" not in asked.request.body.decode()


@pytest.mark.parametrize("content", [None, "", " ", []], ids=["null", "empty", "blank", "list"])
@on_claude
async def test_a_call_without_words_has_no_text_beside_it(ask, kind, content):
    sent = (await ask(kind, loop("call_1", content=content))).sent
    (block,) = sent["messages"][1]["content"]
    assert block.get("type", "tool_use") == "tool_use"
    assert "text" not in block


async def test_a_call_without_words_has_null_content_for_openai(ask):
    body = anthropic_loop({"type": "tool_result", "tool_use_id": "toolu_1", "content": "ok"})
    sent = (await ask("openai", body, client="anthropic")).sent["messages"][1]
    assert sent.get("content") is None


EMPTY_RESULTS = ["", " ", "\n\t", [], [{"type": "text", "text": ""}], None]


@pytest.mark.parametrize("content", EMPTY_RESULTS[:-1], ids=map(repr, EMPTY_RESULTS[:-1]))
@on_claude
async def test_an_empty_result_is_one_the_provider_takes(ask, kind, content):
    (sent,) = sent_results(
        (await ask(kind, loop("call_1", results=[result("call_1", content)]))).sent
    )
    if kind == "bedrock":
        assert all(block["text"].strip() for block in sent["content"])
        assert sent["content"]
    else:
        said = sent.get("content", "absent")
        assert said == "absent" or (said if isinstance(said, str) else said[0]["text"]).strip()


@pytest.mark.parametrize("content", EMPTY_RESULTS, ids=map(repr, EMPTY_RESULTS))
@pytest.mark.parametrize("kind", ["anthropic", "bedrock", "openai"])
async def test_an_empty_result_of_an_anthropic_client_is_one_the_provider_takes(ask, kind, content):
    empty = {"type": "tool_result", "tool_use_id": "toolu_1"}
    empty |= {} if content is None else {"content": content}
    sent = (await ask(kind, anthropic_loop(empty), client="anthropic")).sent
    if kind == "openai":
        assert isinstance(sent["messages"][2]["content"], str | list)
        return
    (said,) = sent_results(sent)
    assert said.get("content", "absent") not in ("", [], None)
    assert '"text": ""' not in json.dumps(said)


@pytest.mark.parametrize(
    "content",
    [
        [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}],
        [{"type": "text", "text": "one"}, {"type": "text", "text": ""}],
    ],
    ids=["two", "one of them empty"],
)
@on_claude
async def test_a_tool_message_of_parts_keeps_them_all(ask, kind, content):
    (sent,) = sent_results(
        (await ask(kind, loop("call_1", results=[result("call_1", content)]))).sent
    )
    said = sent["content"]
    texts = [said] if isinstance(said, str) else [block["text"] for block in said]
    assert texts == [part["text"] for part in content if part["text"]]


async def test_an_image_in_a_result_follows_it_for_openai(ask):
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}}
    said = {"type": "tool_result", "tool_use_id": "toolu_1", "content": [image]}
    asked = await ask("openai", anthropic_loop(said), client="anthropic")
    tool, user = asked.sent["messages"][2:]
    assert tool["role"] == "tool"
    assert user["content"][0]["image_url"]["url"] == f"data:image/png;base64,{PNG}"
    assert asked.noticed("messages[2]")


@on_claude
@pytest.mark.parametrize("given", [{}, {"tools": []}], ids=["absent", "empty"])
async def test_tools_of_the_history_are_described_where_the_request_has_none(ask, kind, given):
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
    } | given
    first, again = (await ask(kind, body)), (await ask(kind, body))
    assert first.request.body == again.request.body
    tools = first.sent["tools"] if kind == "anthropic" else first.sent["toolConfig"]["tools"]
    names = [tool.get("name") or tool["toolSpec"]["name"] for tool in tools]
    assert sorted(names) == ["alpha", "zeta"]


@on_claude
async def test_a_call_that_was_interrupted_is_answered_with_an_error_on_the_wire(ask, kind):
    body = loop("a", "b", results=[result("a")])
    body["messages"] += [{"role": "user", "content": "Never mind."}]
    before = json.dumps(body)
    asked = await ask(kind, body)
    assert result_ids(asked.sent) == ["a", "b"]
    made = sent_results(asked.sent)[1]
    assert made.get("is_error") or made.get("status") == "error"
    assert "Never mind." in json.dumps(asked.sent)
    assert asked.notices
    assert json.dumps(body) == before


async def test_a_call_that_was_interrupted_is_answered_on_the_wire_to_openai(ask):
    body = anthropic_loop(ids=("a", "b"))
    body["messages"][2]["content"] = [
        {"type": "tool_result", "tool_use_id": "b", "content": "rb"},
        {"type": "text", "text": "Never mind."},
    ]
    asked = await ask("openai", body, client="anthropic")
    roles = [(m["role"], m.get("tool_call_id")) for m in asked.sent["messages"][2:]]
    assert roles == [("tool", "a"), ("tool", "b"), ("user", None)]
    assert asked.notices


@pytest.mark.parametrize("kind", ["anthropic", "bedrock", "openai"])
async def test_an_openai_clients_interrupted_call_is_answered_whoever_is_asked(ask, kind):
    body = loop("a", results=[{"role": "user", "content": "Never mind."}])
    asked = await ask(kind, body)
    assert '"a"' in json.dumps(asked.sent["messages"][2])
    assert asked.notices


@pytest.mark.parametrize("kind", ["anthropic", "bedrock", "openai"])
async def test_a_result_without_a_call_does_not_spoil_the_request(ask, kind):
    body = {
        "messages": [
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": "Hi."},
            result("gone", "late news"),
            {"role": "user", "content": "Go on."},
        ]
    }
    asked = await ask(kind, body)
    assert not result_ids(asked.sent)
    assert asked.notices


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
async def test_a_tool_that_only_anthropic_has_is_an_error_that_names_it(
    break_off, server, kind, tool
):
    _, error = await break_off(kind, {"tools": [TOOL, tool]}, client="anthropic")
    assert isinstance(error, InvalidRequestError)
    assert tool["name"] in str(error)
    assert not server.requests


@on_claude
async def test_a_tool_that_only_openai_has_is_an_error_that_names_it(break_off, server, kind):
    tool = {"type": "custom", "custom": {"name": "shell", "format": {"type": "text"}}}
    _, error = await break_off(kind, {"tools": [OPENAI_TOOL, tool]})
    assert isinstance(error, InvalidRequestError)
    assert "shell" in str(error)
    assert not server.requests


async def test_a_tool_that_only_anthropic_has_goes_to_anthropic_as_it_is(ask):
    tool = {"type": "web_search_20250305", "name": "web_search", "max_uses": 3}
    asked = await ask("anthropic", {"tools": [TOOL, tool]}, client="anthropic")
    assert asked.sent["tools"] == [TOOL, tool]


async def test_a_tool_without_parameters_is_one_everywhere(ask):
    body = {"tools": [{"type": "function", "function": {"name": "now"}}]}
    assert (await ask("anthropic", body)).sent["tools"][0]["input_schema"]["type"] == "object"
    (tool,) = (await ask("bedrock", body)).sent["toolConfig"]["tools"]
    assert tool["toolSpec"]["inputSchema"]["json"]["type"] == "object"


@pytest.mark.parametrize("kind", ["anthropic", "bedrock"])
async def test_an_empty_list_of_tools_is_no_tools(ask, kind):
    asked = await ask(kind, {"tools": []})
    assert not asked.sent.get("tools")
    assert "toolConfig" not in asked.sent


async def test_an_empty_list_of_tools_is_no_tools_for_openai(ask):
    asked = await ask("openai", {"tools": []}, client="anthropic")
    assert "tools" not in asked.sent


@pytest.mark.parametrize("arguments", ['{"a": 1', "not json", "[1]", '"x"'])
@on_claude
async def test_arguments_that_are_no_object_do_not_spoil_the_request(ask, kind, arguments):
    body = loop("call_1")
    body["messages"][1]["tool_calls"] = [call("call_1", arguments)]
    asked = await ask(kind, body)
    (said,) = sent_calls(asked.sent)
    assert arguments in json.loads(json.dumps(list(said["input"].values())))
    assert asked.notices


@on_claude
async def test_arguments_keep_their_digits_and_their_order(ask, kind):
    arguments = '{"z":1.0,"a":12345678901234567890,"m":1e-7}'
    body = loop("call_1")
    body["messages"][1]["tool_calls"] = [call("call_1", arguments)]
    assert arguments in (await ask(kind, body)).request.body.decode()


@pytest.mark.parametrize("kind", ["openai", "anthropic", "bedrock"])
async def test_calls_of_a_whole_answer_are_the_same_for_both_clients(ask, server, kind):
    calls = tuple(ToolCall(id=i, name="f", arguments='{"a": 1}') for i in ("x", "y"))
    server.say("Hm.", tool_calls=calls, finish="tool_calls")
    asked = await ask(kind, {"tools": [OPENAI_TOOL]}, stream=False)
    ours = [
        block for block in whole_for_anthropic(asked.events).content if block.type == "tool_use"
    ]
    assert [(block.id, block.input) for block in ours] == [("x", {"a": 1}), ("y", {"a": 1})]
    theirs = whole_for_openai(asked.events).choices[0]
    assert [json.loads(c.function.arguments) for c in theirs.message.tool_calls] == [{"a": 1}] * 2
    assert theirs.finish_reason == "tool_calls"


async def test_a_call_read_from_one_provider_can_be_answered_at_another(ask):
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


async def test_arguments_that_came_as_an_object_are_text_for_the_client(ask):
    """Some compatible servers send the object itself where a string belongs."""
    function = {"name": "f", "arguments": {"a": 1}}
    message = {
        "content": None,
        "tool_calls": [{"id": "x", "type": "function", "function": function}],
    }
    asked = await ask("openai", answer=openai_whole(message, "tool_calls"), stream=False)
    (said,) = whole_for_openai(asked.events).choices[0].message.tool_calls
    assert json.loads(said.function.arguments) == {"a": 1}
    assert to_anthropic_client(asked.events).content[0]["input"] == {"a": 1}


async def test_the_fields_of_a_tool_use_that_nobody_knows_are_kept_for_the_next_turn(ask):
    odd = {"type": "tool_use", "id": "t", "name": "f", "input": {}, "caller": {"type": "direct"}}
    asked = await ask("anthropic", answer=anthropic_whole(odd, stop="tool_use"), stream=False)
    assert last(asked.events).message.json()["content"] == [odd]


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
async def test_calls_that_came_without_ids_can_be_told_apart_and_answered(ask, stream):
    """Small servers send none; the ids that a client sees are those that are kept."""
    function = {"name": "f", "arguments": "{}"}
    calls = [{"index": i, "type": "function", "function": function} for i in range(2)]
    answer = openai_stream({"tool_calls": calls}, finish="tool_calls")
    if not stream:
        answer = openai_whole({"content": None, "tool_calls": calls}, "tool_calls")
    asked = await ask("openai", answer=answer, stream=stream)
    kept = [kept_call["id"] for kept_call in last(asked.events).message.json()["tool_calls"]]
    assert all(kept)
    assert len(set(kept)) == 2
    assert [said[0] for said in to_openai_client(asked.events).calls] == kept
    assert [block["id"] for block in to_anthropic_client(asked.events).content] == kept


SIGNATURE = {"google": {"thought_signature": "c2ln"}}


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
async def test_what_a_server_adds_to_a_call_is_kept_for_the_next_turn(ask, stream):
    """Gemini's compatible endpoint refuses a history whose calls lost their signatures."""
    said = call("call_1", '{"a":1}') | {"index": 0, "extra_content": SIGNATURE}
    answer = openai_stream({"tool_calls": [said]}, finish="tool_calls")
    if not stream:
        answer = openai_whole({"content": None, "tool_calls": [said]}, "tool_calls")
    asked = await ask("openai", answer=answer, stream=stream)
    (kept,) = last(asked.events).message.json()["tool_calls"]
    assert kept["extra_content"] == SIGNATURE


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
async def test_what_a_server_adds_to_a_call_is_shown_to_an_openai_client(ask, stream):
    """A client that keeps its own history has to send it back."""
    said = call("call_1", '{"a":1}') | {"index": 0, "extra_content": SIGNATURE}
    if stream:
        answer = openai_stream({"tool_calls": [said]}, finish="tool_calls")
        shown = to_openai_client((await ask("openai", answer=answer)).events).sent.decode()
    else:
        answer = openai_whole({"content": None, "tool_calls": [said]}, "tool_calls")
        asked = await ask("openai", answer=answer, stream=False)
        shown = whole_for_openai(asked.events).to_json()
    assert "thought_signature" in shown


async def test_what_a_client_sends_with_a_call_goes_to_the_server_that_added_it(ask):
    body = loop("call_1")
    body["messages"][1]["tool_calls"] = [call("call_1") | {"extra_content": SIGNATURE}]
    body["messages"].append({"role": "user", "content": "And?"})
    prompt = prompt_of(body, "openai", "gemini-3-pro", stream=False)
    assert encode_openai(prompt).body.count(b"thought_signature") == 1
