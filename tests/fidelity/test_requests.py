"""Requests that cannot be sent unchanged, and the notices about them."""

from typing import Any

import pytest
from tests.fidelity.conftest import prompt_of

from cllm.core.errors import InvalidRequestError
from cllm.core.prompt import Prompt
from cllm.wire.convert import encode_anthropic, encode_openai

HI = {"role": "user", "content": "Hello"}
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}}
TOOLS = [{"name": name, "input_schema": SCHEMA} for name in ("f", "g")]
FUNCTIONS = [{"name": name, "description": "Does it.", "parameters": SCHEMA} for name in ("f", "g")]
OPENAI_TOOLS = [{"type": "function", "function": function} for function in FUNCTIONS]
SEARCH = {"type": "web_search_20250305", "name": "web_search"}
SEARCHING = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {}}
THINKING = {"type": "enabled", "budget_tokens": 2000}
MARK = {"type": "ephemeral"}
on_claude = pytest.mark.parametrize("kind", ["anthropic", "bedrock"])


@pytest.mark.parametrize("model", ["claude-sonnet-4-5", "claude-opus-4-6", "claude-sonnet-5"])
async def test_a_paused_turn_can_be_continued(ask, model):
    content = [{"type": "text", "text": "I look."}, SEARCHING]
    messages = [HI, {"role": "assistant", "content": content}]
    body = {"messages": messages, "tools": [SEARCH]}
    exchange = await ask("anthropic", body, client="anthropic", model=model)
    assert exchange.sent["messages"] == messages
    assert exchange.notices == []


async def test_a_prefill_for_a_newer_model_is_refused(ask):
    messages = [HI, {"role": "assistant", "content": "I"}]
    with pytest.raises(InvalidRequestError, match="the last message is the assistant's"):
        await ask("anthropic", {"messages": messages}, client="anthropic", model="claude-opus-4-6")


async def test_a_null_limit_is_no_limit(ask):
    exchange = await ask("anthropic", {"max_tokens": None}, client="anthropic")
    assert exchange.sent["max_tokens"] == 64_000
    assert exchange.has_notice("max_tokens_added", "64000")


@on_claude
async def test_a_prefill_disables_thinking(ask, kind):
    messages = [HI, {"role": "assistant", "content": "I"}]
    body = {"messages": messages, "thinking": THINKING}
    exchange = await ask(kind, body, client="anthropic")
    fields = exchange.sent if kind == "anthropic" else exchange.sent["additionalModelRequestFields"]
    assert fields.get("thinking", {"type": "disabled"}) == {"type": "disabled"}
    assert exchange.has_notice("thinking_disabled", "prefilled")


@pytest.mark.parametrize("kind", ["anthropic", "bedrock", "openai"])
@pytest.mark.parametrize("choice", ["auto", "any", "none"])
async def test_a_tool_choice_without_tools_is_dropped_with_a_notice(ask, kind, choice):
    client = "anthropic" if kind != "anthropic" else "openai"
    value: Any = {"type": choice} if client == "anthropic" else choice.replace("any", "required")
    exchange = await ask(kind, {"tool_choice": value}, client=client)
    assert "tool_choice" not in exchange.sent
    assert "toolConfig" not in exchange.sent
    assert exchange.has_notice("tool_choice_left_out")


async def test_a_tool_choice_without_tools_in_the_own_protocol_is_dropped(ask):
    exchange = await ask("anthropic", {"tool_choice": {"type": "auto"}}, client="anthropic")
    assert "tool_choice" not in exchange.sent
    assert exchange.has_notice("tool_choice_left_out")


async def test_a_past_document_by_url_is_sent_to_openai_as_text(ask):
    url = "https://example.org/a.pdf"
    document = {"type": "document", "source": {"type": "url", "url": url}}
    messages: list[Any] = [{"role": "user", "content": [document]}]
    with pytest.raises(InvalidRequestError, match="by its URL"):
        await ask("openai", {"messages": messages}, client="anthropic")
    messages += [{"role": "assistant", "content": "I have it."}, HI]
    exchange = await ask("openai", {"messages": messages}, client="anthropic")
    assert url in exchange.sent["messages"][0]["content"]
    assert exchange.has_notice("part_changed", "url")


async def test_a_newest_message_that_cannot_be_sent_is_an_error(ask):
    block = {"type": "container_upload", "file_id": "f"}
    messages = [{"role": "user", "content": [block]}]
    with pytest.raises(InvalidRequestError, match=r"messages\[0\].*no block for a file"):
        await ask("openai", {"messages": messages}, client="anthropic")


async def test_an_earlier_message_that_cannot_be_sent_is_a_placeholder(ask):
    block = {"type": "container_upload", "file_id": "f"}
    answer = {"role": "assistant", "content": "I have it."}
    messages = [{"role": "user", "content": [block]}, answer, HI]
    exchange = await ask("openai", {"messages": messages}, client="anthropic")
    placeholder = {"role": "user", "content": "(a file, which this model cannot see)"}
    assert exchange.sent["messages"] == [placeholder, answer, HI]
    assert exchange.has_notice("part_left_out", "messages[0]")


@pytest.mark.parametrize(
    ("body", "path"),
    [
        ({"messages": [{"role": "user", "content": None}]}, "messages[0].content"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"role": "system", "content": None}, HI]}, "messages[0].content"),
        ({"tools": {}}, "tools"),
        ({"tools": ["f"]}, "tools[0]"),
        ({"tools": [{"type": "function"}]}, "tools[0].function"),
        ({"max_tokens": "5"}, "max_tokens"),
        ({"stop": [1]}, "stop"),
        ({"temperature": "hot"}, "temperature"),
    ],
)
@pytest.mark.parametrize("model", ["gpt-5.2", "llama3.2"])
async def test_a_request_that_openai_refuses_is_not_sent(ask, server, body, path, model):
    with pytest.raises(InvalidRequestError) as raised:
        await ask("openai", body, model=model)
    assert path in str(raised.value)
    assert server.requests == []


@pytest.mark.parametrize(
    "messages",
    [
        [HI, {"role": "assistant", "content": None, "refusal": "No."}, HI],
        [HI, {"role": "assistant", "content": None, "audio": {"id": "a"}}, HI],
        [{"role": "user", "content": "null"}],
        [{"role": "user", "content": "Hi", "name": None}],
        [
            HI,
            {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": ""}},
            {"role": "function", "name": "f", "content": None},
        ],
    ],
)
def test_a_request_that_openai_accepts_is_unchanged(messages):
    prompt = prompt_of({"messages": messages, "stop": None}, "openai", "gpt-4o", stream=False)
    assert encode_openai(prompt).body is own_body(prompt)


@on_claude
async def test_default_values_are_dropped_without_a_notice(ask, kind):
    image = {"url": "data:image/png;base64,iVBORw0KGgo=", "detail": "auto"}
    content = [{"type": "image_url", "image_url": image}, {"type": "text", "text": "What is it?"}]
    body = {"messages": [{"role": "user", "content": content}], "metadata": {}}
    assert (await ask(kind, body)).notices == []


@on_claude
async def test_the_loss_of_the_image_detail_is_reported(ask, kind):
    image = {"url": "data:image/png;base64,iVBORw0KGgo=", "detail": "low"}
    content = [{"type": "image_url", "image_url": image}, {"type": "text", "text": "What is it?"}]
    exchange = await ask(kind, {"messages": [{"role": "user", "content": content}]})
    assert exchange.has_notice("field_left_out", "image_url.detail")


def own_body(prompt: Prompt) -> bytes:
    assert prompt.original is not None
    return prompt.original.body


def names(kind: str, sent: Any) -> list[str]:
    if kind == "anthropic":
        return [tool["name"] for tool in sent["tools"]]
    return [tool["toolSpec"]["name"] for tool in sent["toolConfig"]["tools"]]


def choice_of(kind: str, sent: Any) -> str:
    if kind == "anthropic":
        return str(sent["tool_choice"]["type"])
    own = sent.get("additionalModelRequestFields", {}).get("tool_choice")
    if own is not None:
        return str(own["type"])
    (choice,) = sent["toolConfig"]["toolChoice"]
    return str(choice)


@on_claude
@pytest.mark.parametrize(("mode", "choice"), [("auto", "auto"), ("required", "any")])
async def test_only_the_allowed_tools_are_sent(ask, kind, mode, choice):
    allowed = {"mode": mode, "tools": [{"type": "function", "function": {"name": "g"}}]}
    value = {"type": "allowed_tools", "allowed_tools": allowed}
    exchange = await ask(kind, {"tools": OPENAI_TOOLS, "tool_choice": value})
    assert names(kind, exchange.sent) == ["g"]
    assert choice_of(kind, exchange.sent) == choice
    assert exchange.notices == []


@on_claude
@pytest.mark.parametrize(
    ("value", "choice"), [("auto", "auto"), ({"name": "g"}, "tool")], ids=["auto", "named"]
)
async def test_functions_become_tools(ask, kind, value, choice):
    messages = [
        HI,
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "12"},
    ]
    body = {"messages": messages, "functions": FUNCTIONS, "function_call": value}
    exchange = await ask(kind, body)
    assert names(kind, exchange.sent) == ["f", "g"]
    assert choice_of(kind, exchange.sent) == choice
    call, answer = (message["content"][0] for message in exchange.sent["messages"][1:])
    if kind == "anthropic":
        assert (call["type"], call["name"]) == ("tool_use", "f")
        assert (answer["type"], answer["tool_use_id"]) == ("tool_result", call["id"])
    else:
        assert call["toolUse"]["name"] == "f"
        assert answer["toolResult"]["toolUseId"] == call["toolUse"]["toolUseId"]
    assert not exchange.has_notice("left_out", "function")


async def test_tools_of_the_history_are_described_for_bedrock_with_a_notice(ask):
    messages = [
        HI,
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "1"}]},
    ]
    exchange = await ask("bedrock", {"messages": messages}, client="anthropic")
    assert names("bedrock", exchange.sent) == ["f"]
    assert exchange.has_notice("tools_added")


def marked(text: str) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text, "cache_control": MARK}]


MARKED_EVERYWHERE: dict[str, Any] = {
    "tools": [{**tool, "cache_control": MARK} for tool in TOOLS],
    "system": [*marked("s"), *marked("t")],
    "messages": [
        {"role": "user", "content": marked("a")},
        {"role": "assistant", "content": marked("b")},
        {"role": "user", "content": marked("c")},
    ],
}


async def test_cache_control_of_the_system_prompt_and_newest_message_is_sent_to_anthropic(ask):
    exchange = await ask("anthropic", MARKED_EVERYWHERE, client="anthropic")
    sent = exchange.sent
    assert ["cache_control" in tool for tool in sent["tools"]] == [False, True]
    assert ["cache_control" in block for block in sent["system"]] == [True, True]
    assert [message["content"][-1:] for message in sent["messages"][:2]] == ["a", "b"]
    assert "cache_control" in sent["messages"][2]["content"][0]
    assert exchange.has_notice("cache_mark_left_out")


async def test_cache_points_of_the_system_prompt_and_newest_message_are_sent_to_bedrock(ask):
    model = "claude-sonnet-4-5"
    exchange = await ask("bedrock", MARKED_EVERYWHERE, client="anthropic", model=model)
    sent = exchange.sent
    assert ["cachePoint" in tool for tool in sent["toolConfig"]["tools"]] == [False, False, True]
    assert ["cachePoint" in block for block in sent["system"]] == [False, True] * 2
    assert [len(message["content"]) for message in sent["messages"]] == [1, 1, 2]
    assert exchange.has_notice("cache_mark_left_out")


def test_an_anthropic_body_is_unchanged():
    body = {"messages": [HI], "tools": TOOLS, "tool_choice": {"type": "auto"}, "stop_sequences": []}
    prompt = prompt_of(body, "anthropic", "claude-opus-4-6", stream=False)
    assert encode_anthropic(prompt, default_max_tokens=5).body is own_body(prompt)
