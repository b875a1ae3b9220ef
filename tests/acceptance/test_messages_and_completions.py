"""One conversation in all three protocols, and another provider in every turn."""

import json
from collections.abc import Iterator
from itertools import product
from typing import Any

import pytest
from tests.fake_provider import FakeProvider, Reply, ToolCall
from tests.messages_api import (
    MODELS,
    list_notice_codes,
    make_settings,
    post_message,
    start_server,
    validate_provider_request,
)
from tests.server_process import COMPLETIONS, Response, Server, list_messages

SCHEMA = {"type": "object", "properties": {"at": {"type": "string"}}}
ANTHROPIC_TOOLS = [{"name": "look", "description": "Look.", "input_schema": SCHEMA}]
OPENAI_TOOLS = [
    {
        "type": "function",
        "function": {"name": "look", "description": "Look.", "parameters": SCHEMA},
    }
]
THINKING = {"type": "enabled", "budget_tokens": 1024}
RESPONSES_TOOLS = [
    {"type": "function", "name": "look", "description": "Look.", "parameters": SCHEMA}
]
DOORS = ("messages", "completions", "responses")
WAYS = list(product(MODELS, DOORS, (False, True)))


@pytest.fixture(scope="module")
def server(upstream: FakeProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("doors")
    with start_server(
        folder, make_settings(upstream), store=f"sqlite:{folder / 'served.db'}"
    ) as running:
        yield running


def say(
    server: Server, door: str, conversation: str, message: dict[str, Any], **fields: Any
) -> Response:
    """Send one message in a protocol."""
    headers = {"X-Conversation-ID": conversation}
    if door == "messages":
        role_and_content = (message["role"], message["content"])
        request_fields = {
            "tools": ANTHROPIC_TOOLS,
            "thinking": THINKING,
            "max_tokens": 2000,
            **fields,
        }
        return post_message(
            server, role_and_content, headers=headers, system="Be brief.", **request_fields
        )
    if door == "responses":
        request = {"input": [message], "tools": RESPONSES_TOOLS, "reasoning": {"effort": "low"}}
        body = {**request, "instructions": "Be brief.", **fields}
        return server("POST", "/v1/responses", body, headers)
    system = {"role": "system", "content": "Be brief."}
    body = {"messages": [system, message], "tools": OPENAI_TOOLS, **fields}
    return server("POST", COMPLETIONS, {"reasoning_effort": "low", **body}, headers)


def result(door: str, call_id: str, text: str) -> dict[str, Any]:
    """Return a tool result in a protocol."""
    if door == "completions":
        return {"role": "tool", "tool_call_id": call_id, "content": text}
    if door == "responses":
        return {"type": "function_call_output", "call_id": call_id, "output": text}
    block = {"type": "tool_result", "tool_use_id": call_id, "content": text}
    return {"role": "user", "content": [block]}


def take_turn(server: Server, upstream: FakeProvider, conversation: str, number: int) -> str:
    """Send a question, get thinking and a tool call, send its result in another protocol."""
    provider, door, stream = WAYS[number % len(WAYS)]
    other = DOORS[(DOORS.index(door) + 1) % len(DOORS)]
    request_fields: dict[str, Any] = {"model": MODELS[provider], "stream": stream}
    call = ToolCall(id=f"toolu_{number}", name="look", arguments=f'{{"at": "{number}"}}')
    upstream.queue_reply(reasoning=(f"Look at {number}.",), tool_calls=(call,), finish="tool_calls")
    question = {"role": "user", "content": f"What is at {number}?"}
    called = say(server, door, conversation, question, **request_fields)
    assert called.status == 200, called.body
    assert f"toolu_{number}".encode() in called.body
    upstream.queue_reply(f"A door is at {number}.")
    answered = say(
        server,
        other,
        called.conversation,
        result(other, call.id, f"Door {number}."),
        **request_fields,
    )
    assert answered.status == 200, answered.body
    return called.conversation


def test_a_conversation_alternates_between_protocols_and_providers(
    server: Server, upstream: FakeProvider
):
    conversation = ""
    first = len(upstream.requests)
    for number in range(len(WAYS)):
        conversation = take_turn(server, upstream, conversation, number)
    upstream.queue_reply("That is all.")
    last = post_message(
        server,
        ("user", "Thanks."),
        tools=ANTHROPIC_TOOLS,
        thinking=THINKING,
        max_tokens=2000,
        headers={"X-Conversation-ID": conversation},
    )

    for request in upstream.requests[first:]:
        validate_provider_request(request)
    blocks = [
        block
        for message in upstream.requests[-1].messages
        for block in message["content"]
        if isinstance(block, dict)
    ]
    turns = range(len(WAYS))
    used = [(block["id"], block["input"]) for block in blocks if block["type"] == "tool_use"]
    assert used == [(f"toolu_{n}", {"at": str(n)}) for n in turns]
    assert [
        (block["tool_use_id"], text_in(block)) for block in blocks if block["type"] == "tool_result"
    ] == [(f"toolu_{n}", f"Door {n}.") for n in turns]
    claudes = [n for n in turns if WAYS[n][0] != "openai"]
    assert [
        (block["thinking"], block["signature"]) for block in blocks if block["type"] == "thinking"
    ] == [(f"Look at {n}.", Reply().signature) for n in claudes]
    assert set(list_notice_codes(last)) <= {"thinking_left_out", "cache_mark_left_out"}
    assert len(list(list_messages(server, conversation))) == 4 * len(WAYS) + 2


def text_in(block: dict[str, Any]) -> str:
    content = block["content"]
    return content if isinstance(content, str) else "".join(part["text"] for part in content)


@pytest.mark.parametrize("stream", [False, True])
def test_a_reply_is_regenerated_through_messages(
    server: Server, upstream: FakeProvider, stream: bool
):
    first_response = post_message(
        server, ("user", "Tell me a word."), headers={"X-Conversation-ID": ""}
    )
    upstream.queue_reply("Another.")
    again = post_message(
        server,
        model=MODELS["bedrock"],
        system="Be brief.",
        stream=stream,
        headers={"X-Conversation-ID": first_response.conversation},
    )
    sent = upstream.requests[-1]
    shown = server("GET", f"/v1/conversations/{first_response.conversation}?variants=true").json

    assert again.status == 200, again.body
    assert b"Another." in again.body
    assert [message["role"] for message in sent.messages] == ["user"]
    assert sent.json["system"][0] == {"text": "Be brief."}
    assert list(list_messages(server, first_response.conversation)) == [
        ("user", "Tell me a word."),
        ("assistant", "Another."),
    ]
    assert "echo: Tell me a word." in json.dumps(shown["variants"])


def test_a_reply_with_tools_is_regenerated_from_the_user_message(
    server: Server, upstream: FakeProvider
):
    conversation = take_turn(server, upstream, "", 0)
    upstream.queue_reply("No door.")
    again = post_message(
        server,
        tools=ANTHROPIC_TOOLS,
        headers={"X-Conversation-ID": conversation},
    )

    assert again.status == 200, again.body
    assert upstream.requests[-1].message_pairs == [("user", "What is at 0?")]
    assert [role for role, _ in list_messages(server, conversation)] == ["user", "assistant"]
