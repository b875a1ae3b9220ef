"""Anthropic's Node SDK, unmodified, as a client of `cllm serve`."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fake_provider import FakeProvider, ToolCall
from tests.messages_api import MODELS, make_settings, start_server
from tests.node_programs import NodePrograms
from tests.server_process import Server

CALL = ToolCall(id="toolu_1", name="look", arguments='{"at": "the sky"}')
EVENTS = [
    "message_start",
    "content_block_start",
    "content_block_delta",
    "content_block_delta",
    "content_block_stop",
    "message_delta",
    "message_stop",
]


@pytest.fixture(scope="module")
def server(upstream: FakeProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("node")
    with start_server(
        folder, make_settings(upstream), store=f"sqlite:{folder / 'served.db'}"
    ) as running:
        yield running


@pytest.fixture
def node(server: Server, tmp_path: Path) -> NodePrograms:
    return NodePrograms(tmp_path, server.address)


@pytest.mark.parametrize("provider", MODELS)
def test_messages_streams_thinking_and_counts_are_read(
    node: NodePrograms, upstream: FakeProvider, provider: str
):
    for text in ("Hello.", "Hello again.", "Raw."):
        upstream.queue_reply("echo: ", text)
    upstream.queue_reply("Four.", reasoning=("Two and ", "two."))
    found = node("claude_messages", MODELS[provider])

    assert found["text"] == "echo: Hello."
    assert (found["stop"], found["usage"]) == ("end_turn", [11, 7])
    assert found["pieces"] == ["echo: ", "Hello again."]
    assert (found["final"], found["finalUsage"]) == ("echo: Hello again.", [11, 7])
    assert found["kinds"] == EVENTS
    assert found["thought"][0]["thinking"] == "Two and two."
    assert found["thought"][0]["signature"] == ("" if provider == "openai" else "c2lnbmVk")
    assert found["counted"] > 0


@pytest.mark.parametrize("way", ["whole", "stream"])
@pytest.mark.parametrize("provider", MODELS)
def test_a_loop_with_tools(node: NodePrograms, upstream: FakeProvider, provider: str, way: str):
    upstream.queue_reply("Looking.", tool_calls=(CALL,), finish="tool_calls")
    upstream.queue_reply("It is blue.")
    found = node("claude_tools", MODELS[provider], way)

    assert found == {"text": "It is blue.", "uses": ["the sky"]}
    assert b"the sky is blue" in upstream.requests[-1].body


def test_errors_and_retries_work_as_in_the_library(node: NodePrograms, upstream: FakeProvider):
    upstream.queue_error(429, "Slow down.", retry_after="1")
    upstream.queue_error(529, "Overloaded.")
    upstream.queue_reply("Half ", "of it", stop_after=1)
    upstream.queue_error(429, "Slow down.", retry_after="1")
    upstream.queue_error(529, "Overloaded.")
    upstream.queue_reply("At last.")
    found = node("claude_errors", MODELS["anthropic"])

    assert found["unknown"] == ["NotFoundError", 404, True]
    assert found["empty"] == ["BadRequestError", 400, True]
    assert found["limited"] == ["RateLimitError", 429, True]
    assert found["overloaded"][1:] == [529, True]
    assert found["broken"][2] is True
    assert found["waited"] >= 1000
    assert found["text"] == "At last."


def test_a_conversation_by_one_header(node: NodePrograms, upstream: FakeProvider):
    found = node("claude_conversation", MODELS["bedrock"])

    assert found["text"] == "echo: What is my cat called?"
    assert len(upstream.requests[-1].messages) == 3
