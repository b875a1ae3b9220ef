"""Thinking: what a model thought goes back to it unchanged, and to no other model as words."""

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
from tests.fidelity.clients import last, to_openai_client, whole_for_openai
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
async def test_thinking_without_a_signature_is_left_out_and_the_rest_kept(ask, kind, signature):
    thought = {"type": "thinking", "thinking": "hm", "signature": signature}
    if signature == "absent":
        del thought["signature"]
    body = history(thought, {"type": "text", "text": "Let me see."})
    asked = await ask(kind, body, client="anthropic")
    sent = asked.sent["messages"][1]
    assert kinds(sent) == (["text", "tool_use"] if kind == "anthropic" else ["text", "toolUse"])
    assert "hm" not in json.dumps(asked.sent)
    assert asked.noticed("thinking", "messages")


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
    asked = await ask(kind, body)
    assert '"hm"' not in json.dumps(asked.sent)
    assert "Hi." in json.dumps(asked.sent)
    assert asked.noticed("thinking")


async def test_an_assistant_message_of_unsigned_thinking_alone_goes_altogether(ask):
    body = {
        "messages": [
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm"}]},
            {"role": "user", "content": "Still there?"},
        ]
    }
    for kind in ("anthropic", "bedrock"):
        asked = await ask(kind, body, client="anthropic")
        assert [message["role"] for message in asked.sent["messages"]] == ["user"]
        assert "Still there?" in json.dumps(asked.sent)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param([REDACTED], id="first"),
        pytest.param([SIGNED, REDACTED], id="after thinking"),
        pytest.param([REDACTED, SIGNED, REDACTED], id="around thinking"),
    ],
)
async def test_redacted_thinking_goes_back_in_its_place_with_its_data(ask, content):
    body = history(*content) | {"thinking": THINKING}
    asked = await ask("anthropic", body, client="anthropic")
    assert asked.sent["messages"][1]["content"] == [*content, CALL]


async def test_redacted_thinking_goes_to_bedrock_in_its_place_with_its_data(ask):
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
    asked = await ask("anthropic", again | {"thinking": THINKING}, client="anthropic")
    assert asked.sent["messages"][1] == reply


CONVERSE_THOUGHT = {"reasoningContent": {"reasoningText": {"text": "hm", "signature": "c2ln"}}}


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
async def test_reasoning_of_converse_is_captured_with_its_signature(ask, stream):
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
    asked = await ask("bedrock", answer=answer, stream=stream)
    finished = last(asked.events)
    thought = bedrock_parts.decode_parts(finished.message)[0]
    assert thought == Thinking(text="hm", signature="c2ln")
    assert finished.message.json()["content"] == [CONVERSE_THOUGHT, {"text": "B"}]
    assert to_openai_client(asked.events).message.to_dict()["reasoning_content"] == "hm"


async def test_reasoning_of_converse_is_replayed_as_it_came(ask, make, server, prompt):
    """In our own words, as a store keeps it: the message that came back is sent as it is."""
    answer = converse_whole(CONVERSE_THOUGHT, {"text": "B"})
    reply = last((await ask("bedrock", answer=answer, stream=False)).events).message
    asked = prompt("bedrock")
    history = replace(asked, messages=(*asked.messages, reply, *asked.messages))
    assert [event async for event in make("bedrock").ask(history)]
    assert server.requests[-1].json["messages"][1]["content"] == [CONVERSE_THOUGHT, {"text": "B"}]


async def test_redacted_reasoning_of_converse_survives_whole_and_stream(ask):
    redacted = {"reasoningContent": {"redactedContent": "RVRY"}}
    whole = await ask("bedrock", answer=converse_whole(redacted, {"text": "B"}), stream=False)
    stream = await ask(
        "bedrock",
        answer=converse_stream(converse_block(0, redacted), converse_block(1, {"text": "B"})),
    )
    for asked in (whole, stream):
        assert last(asked.events).message.json()["content"][0] == redacted


@pytest.mark.parametrize(
    "choice",
    [{"type": "any"}, {"type": "tool", "name": "f"}],
    ids=["any", "tool"],
)
async def test_a_forced_tool_switches_thinking_off_and_says_so(ask, choice):
    body = {"tools": TOOLS, "tool_choice": choice, "thinking": THINKING}
    asked = await ask("anthropic", body, client="anthropic")
    assert asked.sent["tool_choice"] == choice
    assert asked.sent.get("thinking", {"type": "disabled"})["type"] == "disabled"
    assert asked.noticed("thinking")
    on_bedrock = await ask("bedrock", body, client="anthropic")
    assert "thinking" not in json.dumps(on_bedrock.sent.get("additionalModelRequestFields", {}))
    assert on_bedrock.noticed("thinking")


@pytest.mark.parametrize("kind", ["anthropic", "bedrock"])
@pytest.mark.parametrize(
    "choice", ["required", {"type": "function", "function": {"name": "f"}}], ids=["any", "tool"]
)
async def test_an_openai_clients_forced_tool_switches_thinking_off_too(ask, kind, choice):
    body = {"tools": OPENAI_TOOLS, "tool_choice": choice, "reasoning_effort": "high"}
    asked = await ask(kind, body)
    sent = asked.sent if kind == "anthropic" else asked.sent.get("additionalModelRequestFields", {})
    assert sent.get("thinking", {"type": "disabled"})["type"] == "disabled"
    assert asked.noticed("thinking")


@pytest.mark.parametrize("choice", [{"type": "auto"}, {"type": "none"}, None])
async def test_a_choice_that_forces_nothing_leaves_thinking_on(ask, choice):
    body = {"tools": TOOLS, "thinking": THINKING} | ({"tool_choice": choice} if choice else {})
    asked = await ask("anthropic", body, client="anthropic")
    assert asked.sent["thinking"] == THINKING
    assert not asked.noticed("thinking")


@pytest.mark.parametrize("model", ["gpt-5.2", "deepseek-reasoner", "qwen3-32b"])
async def test_thinking_disabled_is_no_effort_for_a_reasoner(ask, model):
    body = {"thinking": {"type": "disabled"}}
    asked = await ask("openai", body, client="anthropic", model=model)
    assert asked.sent["reasoning_effort"] == "none"
    assert "thinking" not in asked.sent


@pytest.mark.parametrize(("model", "least"), [("o3", "low"), ("gpt-5", "minimal")])
async def test_a_reasoner_that_always_thinks_is_told_to_think_least(ask, model, least):
    """These refuse `none`."""
    body = {"thinking": {"type": "disabled"}}
    asked = await ask("openai", body, client="anthropic", model=model)
    assert asked.sent["reasoning_effort"] == least
    assert asked.noticed("reasoning")


async def test_a_model_that_never_thinks_is_not_told_not_to(ask):
    body = {"thinking": {"type": "disabled"}}
    asked = await ask("openai", body, client="anthropic", model="gpt-4o")
    assert "reasoning_effort" not in asked.sent


@pytest.mark.parametrize(("budget", "effort"), [(1024, "low"), (8000, "medium"), (32000, "high")])
async def test_a_budget_is_the_nearest_effort_and_said_so(ask, budget, effort):
    body = {"max_tokens": 64000, "thinking": {"type": "enabled", "budget_tokens": budget}}
    asked = await ask("openai", body, client="anthropic")
    assert asked.sent["reasoning_effort"] == effort
    assert asked.noticed("reasoning")


@pytest.mark.parametrize("kind", ["anthropic", "bedrock"])
async def test_no_effort_is_thinking_disabled_for_claude(ask, kind):
    asked = await ask(kind, {"reasoning_effort": "none"})
    sent = asked.sent if kind == "anthropic" else asked.sent.get("additionalModelRequestFields", {})
    assert sent.get("thinking", {"type": "disabled"}) == {"type": "disabled"}


@pytest.mark.parametrize("thought", [SIGNED, REDACTED], ids=["signed", "redacted"])
async def test_thinking_is_never_words_for_an_openai_model(ask, thought):
    asked = await ask(
        "openai", history(thought, {"type": "text", "text": "Hi."}), client="anthropic"
    )
    sent = asked.sent["messages"][1]
    assert sent["content"] == "Hi."
    assert "hm" not in asked.request.body.decode()
    assert "RVRY" not in asked.request.body.decode()
    assert sent["tool_calls"][0]["id"] == "toolu_1"
    assert asked.noticed("thinking", "messages[1]")


async def test_an_assistant_message_of_thinking_alone_is_no_null_content_for_openai(ask):
    body = {
        "messages": [
            {"role": "user", "content": "Hello"},
            {"role": "assistant", "content": [SIGNED]},
            {"role": "user", "content": "Still there?"},
        ]
    }
    asked = await ask("openai", body, client="anthropic")
    assert all(isinstance(m["content"], str) for m in asked.sent["messages"])
    assert asked.noticed("thinking", "messages[1]")


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "reasoning_details"])
@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
async def test_reasoning_is_not_sent_back_to_openai_itself_and_one_notice_says_so(
    ask, field, stream
):
    said = {"role": "assistant", "content": "Hi.", field: "hm"}
    question = {"role": "user", "content": "Hello"}
    asked = await ask("openai", {"messages": [question, said, question, said]}, stream=stream)
    assert asked.sent["messages"][1] == {"role": "assistant", "content": "Hi."}
    assert [notice.code for notice in asked.notices] == ["thinking_left_out"]
    assert asked.notices[0].path == f"messages[1].{field}"
    assert asked.notices[0].message.endswith("(2 times)")


@pytest.mark.parametrize("field", ["reasoning_content", "reasoning", "reasoning_details"])
async def test_reasoning_for_openai_itself_is_an_error_in_strict_mode(make, server, field):
    said = {"role": "assistant", "content": "Hi.", field: "hm"}
    question = {"role": "user", "content": "Hello"}
    body = {"messages": [question, said, question]}
    strict = replace(prompt_of(body, "openai", MODELS["openai"], stream=True), strict=True)
    with pytest.raises(StrictError) as error:
        _ = [event async for event in make("openai").ask(strict)]
    assert [notice.path for notice in error.value.notices] == [f"messages[1].{field}"]
    assert server.requests == []


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("kind", ["anthropic", "bedrock", "openai"])
async def test_thinking_of_any_model_is_beside_the_content_for_an_openai_client(
    ask, server, kind, stream
):
    server.say("Hi.", reasoning=("h", "m"))
    asked = await ask(kind, stream=stream)
    for message in (
        to_openai_client(asked.events).message,
        whole_for_openai(asked.events).choices[0].message,
    ):
        assert message.content == "Hi."
        assert message.to_dict()["reasoning_content"] == "hm"


async def test_thinking_in_a_whole_answer_is_kept_with_its_signature(ask):
    answer = anthropic_whole(SIGNED, REDACTED, {"type": "text", "text": "B"})
    finished = last((await ask("anthropic", answer=answer, stream=False)).events)
    thought, redacted, _ = anthropic_parts.decode_parts(finished.message)
    assert thought == Thinking(text="hm", signature="c2ln")
    assert redacted == RedactedThinking(data="RVRY")


@pytest.mark.parametrize("kind", ["anthropic", "bedrock"])
async def test_signed_thinking_of_another_model_is_left_out(make, server, kind):
    """The signature is right, and the model that is asked did not write it."""
    body = history(SIGNED, {"type": "text", "text": "Hi."})
    asked = replace(prompt_of(body, "anthropic", MODELS[kind], stream=True), foreign=frozenset({1}))
    events = [event async for event in make(kind).ask(asked)]
    sent = server.requests[-1]
    assert b"c2ln" not in sent.body
    assert b"Hi." in sent.body
    assert any(isinstance(event, Noticed) for event in events)


async def test_thinking_before_an_open_loop_is_sent_unmodified_to_the_byte(ask):
    odd = {"type": "thinking", "thinking": "ä  \n\n <b>\u2028", "signature": "c2ln=="}
    asked = await ask("anthropic", history(odd) | {"thinking": THINKING}, client="anthropic")
    assert asked.sent["messages"][1]["content"][0] == odd
    asked = await ask("bedrock", history(odd) | {"thinking": THINKING}, client="anthropic")
    (said,) = [b for b in asked.sent["messages"][1]["content"] if "reasoningContent" in b]
    assert said["reasoningContent"]["reasoningText"] == {
        "text": odd["thinking"],
        "signature": odd["signature"],
    }


DETAILS = [{"type": "reasoning.text", "text": "hm", "signature": "c2ln", "index": 0}]


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
async def test_reasoning_details_are_kept_for_the_next_turn(ask, stream):
    """OpenRouter wants them back unmodified while a tool loop is open."""
    said = {"content": "B", "reasoning": "hm", "reasoning_details": DETAILS}
    answer = openai_stream(said) if stream else openai_whole(said)
    asked = await ask("openai", answer=answer, stream=stream)
    assert last(asked.events).message.json()["reasoning_details"] == DETAILS
