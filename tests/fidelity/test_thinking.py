"""Thinking is sent to its model unchanged, and to no other model as text."""

import json
from typing import Any

import pytest
from msgspec.structs import replace
from tests.fidelity.answers import (
    anthropic_block,
    anthropic_stream,
    anthropic_whole,
    converse_block,
    converse_stream,
    converse_whole,
    openai_stream,
    openai_whole,
    text_block,
    thinking_block,
)
from tests.fidelity.clients import (
    last,
    to_anthropic_client,
    to_openai_client,
    whole_for_anthropic,
    whole_for_openai,
)
from tests.fidelity.conftest import MODELS, prompt_of

from cllm.core.errors import StrictError
from cllm.core.message import RedactedThinking, Thinking
from cllm.core.reply import Noticed
from cllm.wire.anthropic import parts as anthropic_parts
from cllm.wire.bedrock import parts as bedrock_parts

TOOLS = [{"name": "f", "input_schema": {"type": "object"}}]
OPENAI_TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
THINKING = {"type": "enabled", "budget_tokens": 1024}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "f", "input": {"a": 1}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "ok"}
REDACTED = {"type": "redacted_thinking", "data": "RVRY"}
SIGNED = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}


def history(*content: Any) -> dict[str, Any]:
    """An open tool loop whose assistant message is these blocks and a call."""
    return {
        "tools": TOOLS,
        "messages": [
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": [*content, CALL]},
            {"role": "user", "content": [RESULT]},
        ],
    }


def kinds(message: dict[str, Any]) -> list[str]:
    return [block.get("type") or next(iter(block)) for block in message["content"]]


@pytest.mark.parametrize("signature", [None, "", "absent"])
@pytest.mark.parametrize("kind", ["anthropic", "bedrock"])
async def test_thinking_without_a_signature_is_dropped(ask, kind, signature):
    thought = {"type": "thinking", "thinking": "hm", "signature": signature}
    if signature == "absent":
        del thought["signature"]
    body = history(thought, {"type": "text", "text": "Let me see."})
    exchange = await ask(kind, body, client="anthropic")
    sent = exchange.sent["messages"][1]
    assert kinds(sent) == (["text", "tool_use"] if kind == "anthropic" else ["text", "toolUse"])
    assert "hm" not in json.dumps(exchange.sent)
    assert exchange.has_notice("thinking", "messages")


@pytest.mark.parametrize("kind", ["anthropic", "bedrock"])
@pytest.mark.parametrize("field", ["reasoning_content"])
async def test_reasoning_of_an_openai_model_is_not_sent_to_claude(ask, kind, field):
    body = {
        "messages": [
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": "Hi.", field: "hm"},
            {"role": "user", "content": "And now?"},
        ]
    }
    exchange = await ask(kind, body)
    assert '"hm"' not in json.dumps(exchange.sent)
    assert "Hi." in json.dumps(exchange.sent)
    assert exchange.has_notice("thinking")


async def test_an_assistant_message_with_only_unsigned_thinking_is_dropped(ask):
    body = {
        "messages": [
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}]},
            {"role": "user", "content": "Still there?"},
        ]
    }
    for kind in ("anthropic", "bedrock"):
        exchange = await ask(kind, body, client="anthropic")
        assert {message["role"] for message in exchange.sent["messages"]} == {"user"}
        assert "Still there?" in json.dumps(exchange.sent)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param([REDACTED], id="first"),
        pytest.param([SIGNED, REDACTED], id="after thinking"),
        pytest.param([REDACTED, SIGNED, REDACTED], id="around thinking"),
    ],
)
async def test_redacted_thinking_is_sent_in_its_position(ask, content):
    body = history(*content) | {"thinking": THINKING}
    exchange = await ask("anthropic", body, client="anthropic")
    assert exchange.sent["messages"][1]["content"] == [*content, CALL]


async def test_redacted_thinking_is_sent_to_bedrock_in_its_position(ask):
    body = history(REDACTED, SIGNED) | {"thinking": THINKING}
    sent = (await ask("bedrock", body, client="anthropic")).sent["messages"][1]["content"]
    assert sent[:2] == [
        {"reasoningContent": {"redactedContent": "RVRY"}},
        {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "c2ln"}}},
    ]


async def test_redacted_thinking_from_a_stream_can_be_sent_again(ask):
    redacted = anthropic_block(0, REDACTED)
    answer = anthropic_stream(redacted, thinking_block(1, "hm"), text_block(2, "B"))
    first = await ask("anthropic", client="anthropic", answer=answer)
    reply = last(first.events).message.json()
    assert reply["content"][0] == REDACTED
    again = {
        "messages": [
            {"role": "user", "content": "Hello"},
            reply,
            {"role": "user", "content": "?"},
        ]
    }
    exchange = await ask("anthropic", again | {"thinking": THINKING}, client="anthropic")
    assert exchange.sent["messages"][1] == reply


CONVERSE_THOUGHT = {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "c2ln"}}}


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
async def test_reasoning_of_bedrock_is_saved_with_its_signature(ask, stream):
    streamed = converse_stream(
        converse_block(
            0,
            {"reasoningContent": {"text": "h"}},
            {"reasoningContent": {"text": "m"}},
            {"reasoningContent": {"signature": "c2ln"}},
        ),
        converse_block(1, {"text": "B"}),
    )
    answer = streamed if stream else converse_whole(CONVERSE_THOUGHT, {"text": "B"})
    exchange = await ask("bedrock", answer=answer, stream=stream)
    finished = last(exchange.events)
    thought = bedrock_parts.decode_parts(finished.message)[0]
    assert thought == Thinking(text="hm", signature="c2ln")
    assert finished.message.json()["content"] == [CONVERSE_THOUGHT, {"text": "B"}]
    assert to_openai_client(exchange.events).message.to_dict()["reasoning_content"] == "hm"


async def test_reasoning_of_bedrock_is_sent_unchanged(ask, make, server, prompt):
    """In our own words, as a store keeps it: the message that came back is sent as it is."""
    answer = converse_whole(CONVERSE_THOUGHT, {"text": "B"})
    reply = last((await ask("bedrock", answer=answer, stream=False)).events).message
    exchange = prompt("bedrock")
    history = replace(exchange, messages=(*exchange.messages, reply, *exchange.messages))
    assert [event async for event in make("bedrock").ask(history)]
    assert server.requests[-1].json["messages"][1]["content"] == [CONVERSE_THOUGHT, {"text": "B"}]


async def test_redacted_reasoning_of_bedrock_is_preserved_whole_and_streamed(ask):
    redacted = {"reasoningContent": {"redactedContent": "RVRY"}}
    whole = await ask("bedrock", answer=converse_whole(redacted, {"text": "B"}), stream=False)
    stream = await ask(
        "bedrock",
        answer=converse_stream(converse_block(0, redacted), converse_block(1, {"text": "B"})),
    )
    for exchange in (whole, stream):
        assert last(exchange.events).message.json()["content"][0] == redacted


@pytest.mark.parametrize(
    "choice",
    [{"type": "any"}, {"type": "tool", "name": "f"}],
    ids=["any", "tool"],
)
async def test_a_forced_tool_disables_thinking_with_a_notice(ask, choice):
    body = {"tools": TOOLS, "tool_choice": choice, "thinking": THINKING}
    exchange = await ask("anthropic", body, client="anthropic")
    assert exchange.sent["tool_choice"] == choice
    assert exchange.sent.get("thinking", {"type": "disabled"})["type"] == "disabled"
    assert exchange.has_notice("thinking")
    on_bedrock = await ask("bedrock", body, client="anthropic")
    assert "thinking" not in json.dumps(on_bedrock.sent.get("additionalModelRequestFields", {}))
    assert on_bedrock.has_notice("thinking")


@pytest.mark.parametrize("kind", ["anthropic", "bedrock"])
@pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "function": {"name": "f"}}], ids=["any", "tool"]
)
async def test_a_forced_tool_of_an_openai_client_disables_thinking(ask, kind, choice):
    body = {"tools": OPENAI_TOOLS, "tool_choice": choice, "reasoning_effort": "high"}
    exchange = await ask(kind, body)
    sent = (
        exchange.sent
        if kind == "anthropic"
        else exchange.sent.get("additionalModelRequestFields", {})
    )
    assert sent.get("thinking", {"type": "disabled"})["type"] == "disabled"
    assert exchange.has_notice("thinking")


@pytest.mark.parametrize("choice", [{"type": "auto"}, {"type": "none"}, None])
async def test_a_tool_choice_of_auto_does_not_disable_thinking(ask, choice):
    body = {"tools": TOOLS, "thinking": THINKING} | ({"tool_choice": choice} if choice else {})
    exchange = await ask("anthropic", body, client="anthropic")
    assert exchange.sent["thinking"] == THINKING
    assert not exchange.has_notice("thinking")


@pytest.mark.parametrize("model", ["gpt-5.2", "deepseek-reasoner", "qwen3-32b"])
async def test_disabled_thinking_is_effort_none_for_a_reasoning_model(ask, model):
    body = {"thinking": {"type": "disabled"}}
    exchange = await ask("openai", body, client="anthropic", model=model)
    assert exchange.sent["reasoning_effort"] == "none"
    assert "thinking" not in exchange.sent


@pytest.mark.parametrize(("model", "least"), [("o3", "low"), ("gpt-5", "minimal")])
async def test_disabled_thinking_is_the_lowest_effort_if_a_model_always_reasons(ask, model, least):
    """These refuse `none`."""
    body = {"thinking": {"type": "disabled"}}
    exchange = await ask("openai", body, client="anthropic", model=model)
    assert exchange.sent["reasoning_effort"] == least
    assert exchange.has_notice("reasoning")


async def test_disabled_thinking_is_not_sent_to_models_without_reasoning(ask):
    body = {"thinking": {"type": "disabled"}}
    exchange = await ask("openai", body, client="anthropic", model="gpt-4o")
    assert "reasoning_effort" not in exchange.sent


@pytest.mark.parametrize(("budget", "effort"), [(1024, "low"), (8000, "medium"), (32000, "high")])
async def test_a_budget_is_the_nearest_effort_with_a_notice(ask, budget, effort):
    body = {"max_tokens": 64000, "thinking": {"type": "enabled", "budget_tokens": budget}}
    exchange = await ask("openai", body, client="anthropic")
    assert exchange.sent["reasoning_effort"] == effort
    assert exchange.has_notice("reasoning")


@pytest.mark.parametrize("kind", ["anthropic", "bedrock"])
async def test_effort_none_disables_thinking_for_claude(ask, kind):
    exchange = await ask(kind, {"reasoning_effort": "none"})
    sent = (
        exchange.sent
        if kind == "anthropic"
        else exchange.sent.get("additionalModelRequestFields", {})
    )
    assert sent.get("thinking", {"type": "disabled"}) == {"type": "disabled"}


@pytest.mark.parametrize("thought", [SIGNED, REDACTED], ids=["signed", "redacted"])
async def test_thinking_is_never_text_for_an_openai_model(ask, thought):
    exchange = await ask(
        "openai", history(thought, {"type": "text", "text": "Hi."}), client="anthropic"
    )
    sent = exchange.sent["messages"][1]
    assert sent["content"] == "Hi."
    assert "hm" not in exchange.request.body.decode()
    assert "RVRY" not in exchange.request.body.decode()
    assert sent["tool_calls"][0]["id"] == "toolu_1"
    assert exchange.has_notice("thinking", "messages[1]")


async def test_an_assistant_message_with_only_thinking_has_no_null_content_for_openai(ask):
    body = {
        "messages": [
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": [SIGNED]},
            {"role": "user", "content": "Still there?"},
        ]
    }
    exchange = await ask("openai", body, client="anthropic")
    assert all(isinstance(m["content"], str) for m in exchange.sent["messages"])
    assert exchange.has_notice("thinking", "messages[1]")


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "reasoning_details"])
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
async def test_reasoning_is_dropped_with_one_notice_for_openai(ask, field, stream):
    message = {"role": "assistant", "content": "Hi.", field: "hm"}
    question = {"role": "user", "content": "Hello"}
    exchange = await ask(
        "openai", {"messages": [question, message, question, message]}, stream=stream
    )
    assert exchange.sent["messages"][1] == {"role": "assistant", "content": "Hi."}
    assert [notice.code for notice in exchange.notices] == ["thinking_left_out"]
    assert exchange.notices[0].path == f"messages[1].{field}"
    assert exchange.notices[0].message.endswith("(2 times)")


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "reasoning_details"])
async def test_reasoning_for_openai_itself_is_an_error_in_strict_mode(make, server, field):
    message = {"role": "assistant", "content": "Hi.", field: "hm"}
    question = {"role": "user", "content": "Hello"}
    body = {"messages": [question, message, question]}
    strict = replace(prompt_of(body, "openai", MODELS["openai"], stream=True), strict=True)
    with pytest.raises(StrictError) as error:
        _ = [event async for event in make("openai").ask(strict)]
    assert [notice.path for notice in error.value.notices] == [f"messages[1].{field}"]
    assert server.requests == []


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("kind", ["anthropic", "bedrock", "openai"])
async def test_thinking_of_any_model_is_reasoning_content_for_an_openai_client(
    ask, server, kind, stream
):
    server.queue_reply("Hi.", reasoning=("h", "m"))
    exchange = await ask(kind, stream=stream)
    for message in (
        to_openai_client(exchange.events).message,
        whole_for_openai(exchange.events).choices[0].message,
    ):
        assert message.content == "Hi."
        assert message.to_dict()["reasoning_content"] == "hm"


async def test_thinking_of_a_whole_answer_is_saved_with_its_signature(ask):
    answer = anthropic_whole(SIGNED, REDACTED, {"type": "text", "text": "B"})
    finished = last((await ask("anthropic", answer=answer, stream=False)).events)
    thought, redacted, _ = anthropic_parts.decode_parts(finished.message)
    assert thought == Thinking(text="hm", signature="c2ln")
    assert redacted == RedactedThinking(data="RVRY")


@pytest.mark.parametrize("kind", ["anthropic", "bedrock"])
async def test_signed_thinking_of_another_model_is_dropped(make, server, kind):
    """The signature is right, and the model that is asked did not write it."""
    body = history(SIGNED, {"type": "text", "text": "Hi."})
    exchange = replace(
        prompt_of(body, "anthropic", MODELS[kind], stream=True), foreign=frozenset({1})
    )
    events = [event async for event in make(kind).ask(exchange)]
    sent = server.requests[-1]
    assert b"c2ln" not in sent.body
    assert b"Hi." in sent.body
    assert any(isinstance(event, Noticed) for event in events)


async def test_thinking_before_an_open_tool_loop_is_sent_byte_for_byte(ask):
    odd = {"type": "thinking", "thinking": "ä  \n\n <b>\u2028", "signature": "c2ln=="}
    exchange = await ask("anthropic", history(odd) | {"thinking": THINKING}, client="anthropic")
    assert exchange.sent["messages"][1]["content"][0] == odd
    exchange = await ask("bedrock", history(odd) | {"thinking": THINKING}, client="anthropic")
    (message,) = [b for b in exchange.sent["messages"][1]["content"] if "reasoningContent" in b]
    assert message["reasoningContent"]["reasoningText"] == {
        "text": odd["thinking"],
        "signature": odd["signature"],
    }


DETAILS = [{"type": "reasoning.text", "text": "hm", "signature": "c2ln", "index": 0}]


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
async def test_reasoning_details_are_saved_for_the_next_turn(ask, stream):
    """OpenRouter wants them back unmodified while a tool loop is open."""
    message = {"content": "B", "reasoning": "hm", "reasoning_details": DETAILS}
    answer = openai_stream(message) if stream else openai_whole(message)
    exchange = await ask("openai", answer=answer, stream=stream)
    assert last(exchange.events).message.json()["reasoning_details"] == DETAILS


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning"])
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
async def test_the_reasoning_of_every_compatible_server_is_thinking_to_anthropics_clients(
    ask, field, stream
):
    """Groq, Cerebras, OpenRouter and Ollama send `reasoning`, DeepSeek and vLLM the other."""
    message = {"content": "B", field: "hm"}
    answer = openai_stream(message) if stream else openai_whole(message)
    exchange = await ask("openai", answer=answer, stream=stream)
    for received in (
        to_anthropic_client(exchange.events).message,
        whole_for_anthropic(exchange.events),
    ):
        assert [block.type for block in received.content] == ["thinking", "text"]
        assert received.content[0].thinking == "hm"
