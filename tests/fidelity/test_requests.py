"""What a client may ask, and what it is told when that cannot be sent as it is."""

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
async def test_a_turn_that_was_paused_is_gone_on_with(ask, model):
    said = [{"type": "text", "text": "I look."}, SEARCHING]
    messages = [HI, {"role": "assistant", "content": said}]
    body = {"messages": messages, "tools": [SEARCH]}
    asked = await ask("anthropic", body, client="anthropic", model=model)
    assert asked.sent["messages"] == messages
    assert asked.notices == []


async def test_words_put_into_the_mouth_of_a_newer_model_are_refused(ask):
    messages = [HI, {"role": "assistant", "content": "I"}]
    with pytest.raises(InvalidRequestError, match="the last message is the assistant's"):
        await ask("anthropic", {"messages": messages}, client="anthropic", model="claude-opus-4-6")


async def test_a_limit_of_null_is_no_limit(ask):
    asked = await ask("anthropic", {"max_tokens": None}, client="anthropic")
    assert asked.sent["max_tokens"] == 64_000
    assert asked.noticed("max_tokens_added", "64000")


@on_claude
async def test_a_given_beginning_of_the_answer_switches_thinking_off(ask, kind):
    messages = [HI, {"role": "assistant", "content": "I"}]
    body = {"messages": messages, "thinking": THINKING}
    asked = await ask(kind, body, client="anthropic")
    fields = asked.sent if kind == "anthropic" else asked.sent["additionalModelRequestFields"]
    assert fields.get("thinking", {"type": "disabled"}) == {"type": "disabled"}
    assert asked.noticed("thinking_disabled", "prefilled")


@pytest.mark.parametrize("kind", ["anthropic", "bedrock", "openai"])
@pytest.mark.parametrize("choice", ["auto", "any", "none"])
async def test_a_choice_without_tools_is_left_out_and_said(ask, kind, choice):
    client = "anthropic" if kind != "anthropic" else "openai"
    said: Any = {"type": choice} if client == "anthropic" else choice.replace("any", "required")
    asked = await ask(kind, {"tool_choice": said}, client=client)
    assert "tool_choice" not in asked.sent
    assert "toolConfig" not in asked.sent
    assert asked.noticed("tool_choice_left_out")


async def test_a_clients_own_choice_without_tools_is_left_out_too(ask):
    asked = await ask("anthropic", {"tool_choice": {"type": "auto"}}, client="anthropic")
    assert "tool_choice" not in asked.sent
    assert asked.noticed("tool_choice_left_out")


async def test_a_document_by_its_address_is_told_to_openai_as_text(ask):
    url = "https://example.org/a.pdf"
    document = {"type": "document", "source": {"type": "url", "url": url}}
    messages = [{"role": "user", "content": [document]}]
    asked = await ask("openai", {"messages": messages}, client="anthropic")
    assert asked.sent["messages"] == [{"role": "user", "content": url}]
    assert asked.noticed("part_changed", "address")


async def test_a_question_of_which_nothing_can_be_said_is_an_error(ask):
    block = {"type": "container_upload", "file_id": "f"}
    messages = [{"role": "user", "content": [block]}]
    with pytest.raises(InvalidRequestError, match=r"messages\[0\].*nothing"):
        await ask("openai", {"messages": messages}, client="anthropic")


async def test_an_older_message_of_which_nothing_can_be_said_is_left_out(ask):
    block = {"type": "container_upload", "file_id": "f"}
    answer = {"role": "assistant", "content": "I have it."}
    messages = [{"role": "user", "content": [block]}, answer, HI]
    asked = await ask("openai", {"messages": messages}, client="anthropic")
    assert asked.sent["messages"] == [answer, HI]
    assert asked.noticed("message_left_out", "messages[0]")


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
async def test_what_openai_refuses_is_an_error_before_it_is_sent(ask, server, body, path, model):
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
def test_what_openai_takes_is_not_touched(messages):
    prompt = prompt_of({"messages": messages, "stop": None}, "openai", "gpt-4o", stream=False)
    assert encode_openai(prompt).body is own_body(prompt)


@on_claude
async def test_what_says_nothing_is_left_out_without_a_word(ask, kind):
    image = {"url": "data:image/png;base64,iVBORw0KGgo=", "detail": "auto"}
    content = [{"type": "image_url", "image_url": image}, {"type": "text", "text": "What is it?"}]
    body = {"messages": [{"role": "user", "content": content}], "metadata": {}}
    assert (await ask(kind, body)).notices == []


@on_claude
async def test_how_closely_to_look_is_named_when_it_is_lost(ask, kind):
    image = {"url": "data:image/png;base64,iVBORw0KGgo=", "detail": "low"}
    content = [{"type": "image_url", "image_url": image}, {"type": "text", "text": "What is it?"}]
    asked = await ask(kind, {"messages": [{"role": "user", "content": content}]})
    assert asked.noticed("field_left_out", "image_url.detail")


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
    (choice,) = sent["toolConfig"]["toolChoice"]
    return str(choice)


@on_claude
@pytest.mark.parametrize(("mode", "choice"), [("auto", "auto"), ("required", "any")])
async def test_only_the_tools_that_are_allowed_are_offered(ask, kind, mode, choice):
    allowed = {"mode": mode, "tools": [{"type": "function", "function": {"name": "g"}}]}
    said = {"type": "allowed_tools", "allowed_tools": allowed}
    asked = await ask(kind, {"tools": OPENAI_TOOLS, "tool_choice": said})
    assert names(kind, asked.sent) == ["g"]
    assert choice_of(kind, asked.sent) == choice
    assert asked.notices == []


@on_claude
@pytest.mark.parametrize(
    ("said", "choice"), [("auto", "auto"), ({"name": "g"}, "tool")], ids=["auto", "named"]
)
async def test_functions_are_tools(ask, kind, said, choice):
    messages = [
        HI,
        {"role": "assistant", "content": None, "function_call": {"name": "f", "arguments": "{}"}},
        {"role": "function", "name": "f", "content": "12"},
    ]
    body = {"messages": messages, "functions": FUNCTIONS, "function_call": said}
    asked = await ask(kind, body)
    assert names(kind, asked.sent) == ["f", "g"]
    assert choice_of(kind, asked.sent) == choice
    call, answer = (message["content"][0] for message in asked.sent["messages"][1:])
    if kind == "anthropic":
        assert (call["type"], call["name"]) == ("tool_use", "f")
        assert (answer["type"], answer["tool_use_id"]) == ("tool_result", call["id"])
    else:
        assert call["toolUse"]["name"] == "f"
        assert answer["toolResult"]["toolUseId"] == call["toolUse"]["toolUseId"]
    assert not asked.noticed("left_out", "function")


async def test_tools_that_bedrock_has_to_be_told_of_are_said(ask):
    messages = [
        HI,
        {
            "role": "assistant",
            "content": [{"type": "tool_use", "id": "t", "name": "f", "input": {}}],
        },
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "1"}]},
    ]
    asked = await ask("bedrock", {"messages": messages}, client="anthropic")
    assert names("bedrock", asked.sent) == ["f"]
    assert asked.noticed("tools_added")


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


async def test_anthropic_keeps_the_marks_of_the_system_prompt_and_of_the_newest_message(ask):
    asked = await ask("anthropic", MARKED_EVERYWHERE, client="anthropic")
    sent = asked.sent
    assert ["cache_control" in tool for tool in sent["tools"]] == [False, True]
    assert ["cache_control" in block for block in sent["system"]] == [True, True]
    assert [message["content"][-1:] for message in sent["messages"][:2]] == ["a", "b"]
    assert "cache_control" in sent["messages"][2]["content"][0]
    assert asked.noticed("cache_mark_left_out")


async def test_bedrock_keeps_the_same_marks(ask):
    model = "claude-sonnet-4-5"
    asked = await ask("bedrock", MARKED_EVERYWHERE, client="anthropic", model=model)
    sent = asked.sent
    assert ["cachePoint" in tool for tool in sent["toolConfig"]["tools"]] == [False, False, True]
    assert ["cachePoint" in block for block in sent["system"]] == [False, True] * 2
    assert [len(message["content"]) for message in sent["messages"]] == [1, 1, 2]
    assert asked.noticed("cache_mark_left_out")


def test_a_body_in_anthropics_words_is_not_touched():
    body = {"messages": [HI], "tools": TOOLS, "tool_choice": {"type": "auto"}, "stop_sequences": []}
    prompt = prompt_of(body, "anthropic", "claude-opus-4-6", stream=False)
    assert encode_anthropic(prompt, default_max_tokens=5).body is own_body(prompt)
