"""The check of recorded conversations, with conversations that a request starts by its header."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.clients.recording import Transcript, assert_recorded
from tests.clients.routes import start_server
from tests.fake_provider import FakeProvider
from tests.server_process import COMPLETIONS, Server

pytestmark = pytest.mark.clients

MESSAGES = "/v1/messages"
QUESTION = {"type": "text", "text": "Read it.\n", "cache_control": {"type": "ephemeral"}}
REMINDER = {"type": "text", "text": "<system-reminder>\nBe short.\n</system-reminder>\n"}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "Read", "input": {"path": "note"}}
RESULT = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "alpha"}
ANTHROPIC: dict[str, Any] = {
    "model": "claude-sonnet-4-5",
    "max_tokens": 100,
    "system": "You are an agent.",
    "messages": [
        {"role": "user", "content": [REMINDER, QUESTION]},
        {"role": "assistant", "content": [{"type": "text", "text": "I read."}, CALL]},
        {"role": "user", "content": [RESULT]},
    ],
}
FUNCTION = {"name": "read", "arguments": "{}"}
OPENAI: dict[str, Any] = {
    "model": "gpt-test",
    "messages": [
        {"role": "system", "content": "You are an agent."},
        {"role": "user", "content": "I have *added these files to the chat* so …"},
        {"role": "assistant", "content": "Ok."},
        {"role": "user", "content": "Read it."},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [{"id": "call_1", "type": "function", "function": FUNCTION}],
        },
        {"role": "tool", "tool_call_id": "call_1", "content": "alpha"},
    ],
}
BODIES = [(MESSAGES, ANTHROPIC), (COMPLETIONS, OPENAI)]


@pytest.fixture
def provider() -> Iterator[FakeProvider]:
    with FakeProvider() as running:
        yield running


@pytest.fixture
def server(tmp_path: Path, provider: FakeProvider) -> Iterator[Server]:
    with start_server(tmp_path, provider) as running:
        yield running


def store(server: Server, provider: FakeProvider, path: str, body: dict[str, Any]) -> None:
    """Store all messages of a request in a new conversation, with the reply `Done.`."""
    provider.queue_reply("Done.")
    response = server("POST", path, body, {"X-Conversation-ID": ""})
    assert response.status == 200, response.body


@pytest.mark.parametrize(("path", "body"), BODIES, ids=["anthropic", "openai"])
def test_a_complete_conversation_is_accepted(
    server: Server, provider: FakeProvider, path: str, body: dict[str, Any]
):
    store(server, provider, path, body)

    assert_recorded(server, Transcript(request=body, reply="Done."))


@pytest.mark.parametrize(("path", "body"), BODIES, ids=["anthropic", "openai"])
def test_a_repeated_message_is_rejected(
    server: Server, provider: FakeProvider, path: str, body: dict[str, Any]
):
    repeated = body | {"messages": [*body["messages"], body["messages"][-1]]}
    store(server, provider, path, repeated)

    with pytest.raises(AssertionError):
        assert_recorded(server, Transcript(request=body, reply="Done."))


def test_a_missing_reply_and_a_second_conversation_are_rejected(
    server: Server, provider: FakeProvider
):
    store(server, provider, COMPLETIONS, OPENAI)
    with pytest.raises(AssertionError):
        assert_recorded(server, Transcript(request=OPENAI, reply="Something else."))

    store(server, provider, COMPLETIONS, OPENAI)
    with pytest.raises(AssertionError):
        assert_recorded(server, Transcript(request=OPENAI, reply="Done."))
