"""A long run of an agent that changes its provider and returns to the first one.

The server stores the conversation. Every request to a provider is validated by the types of its
SDK and by the rules for histories. The last request to Anthropic is compared with the history that
the client recorded itself: they differ only as the notices say. It is also equal to the request of
a client that has the same history and never changed its provider.
"""

import base64
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.fake_provider import FakeProvider, Reply, Request, ToolCall
from tests.messages_api import (
    MODELS,
    SONNET,
    make_settings,
    post_message,
    start_server,
    validate_provider_request,
)
from tests.server_process import Response, Server
from tests.torture import choose_size

from cllm.providers.local.models import CachePaths

pytestmark = pytest.mark.torture
LOCAL = "local/smollm2-135m"
TURNS = (
    *[MODELS["anthropic"]] * choose_size(22, 70),
    *[MODELS["bedrock"]] * choose_size(15, 60),
    *[MODELS["openai"]] * choose_size(15, 50),
    *[LOCAL] * 2,
    *[MODELS["anthropic"]] * choose_size(6, 18),
)
PIXEL = base64.b64encode(b"\x89PNG\r\n\x1a\n" + b"\0" * 64).decode()
MARK = {"cache_control": {"type": "ephemeral"}}
SYSTEM = [{"type": "text", "text": "You are a careful agent.", **MARK}]
TOOLS = [
    {
        "name": name,
        "description": f"The tool {name}.",
        "input_schema": {"type": "object", "properties": {"path": {"type": "string"}}},
    }
    for name in ("read", "list")
]
EXPECTED_NOTICES = {"cache_mark_left_out", "thinking_left_out"}
# The local model is small and may reply with nothing.
OF_SILENCE = {"blank_text_left_out", "message_left_out", "messages_merged"}
MOST_MARKS = 4
LONGEST = 2000
THINKING = {"type": "enabled", "budget_tokens": 1024}
ASKED = {
    "model": SONNET,
    "max_tokens": LONGEST,
    "system": SYSTEM,
    "tools": TOOLS,
    "thinking": THINKING,
}


@pytest.fixture(scope="module")
def server(
    upstream: FakeProvider,
    local_model: Path,
    model_cache: CachePaths,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Server]:
    assert local_model.is_file()
    folder = tmp_path_factory.mktemp("run")
    environment = {"XDG_CACHE_HOME": str(model_cache.root.parent)}
    store = f"sqlite:{folder / 'served.db'}"
    values = make_settings(upstream)
    values["providers"]["local"]["context"] = 1024
    with start_server(folder, values, environment=environment, store=store) as running:
        yield running


class Agent:
    """Runs the turns of one conversation: a question, two parallel tool calls, a reply."""

    def __init__(self, server: Server, upstream: FakeProvider) -> None:
        self._server = server
        self._upstream = upstream
        self._conversation = ""
        self.history: list[dict[str, Any]] = []
        self.answers: list[Response] = []

    def take(self, number: int, model: str) -> None:
        """Run one turn; the small local model gets only a question."""
        if model == LOCAL:
            self._ask(model, f"Question {number}.", max_tokens=8)
            return
        calls = tuple(
            ToolCall(id=f"toolu_{number}_{name}", name=name, arguments=f'{{"path": "{number}"}}')
            for name in ("read", "list")
        )
        self._upstream.queue_reply(
            reasoning=(f"I need both of {number}.",),
            tool_calls=calls,
            finish="tool_calls",
        )
        self._ask(model, [{"type": "text", "text": f"Question {number}.", **MARK}])
        self._upstream.queue_reply(f"Answer {number}.")
        self._ask(model, results(number))

    def _ask(self, model: str, content: Any, *, max_tokens: int = LONGEST) -> None:
        response = post_message(
            self._server,
            ("user", content),
            model=model,
            system=SYSTEM,
            tools=TOOLS,
            max_tokens=max_tokens,
            thinking=THINKING if max_tokens == LONGEST else None,
            headers={"X-Conversation-ID": self._conversation},
        )
        assert response.status == 200, response.body
        self._conversation = response.conversation
        self.answers.append(response)
        self.history.append({"role": "user", "content": content})
        self.history.append({"role": "assistant", "content": response.json["content"]})

    def ask_by_itself(self) -> None:
        """Send the last question again as a client that sends its whole history."""
        self._upstream.queue_reply("As before.")
        earlier_messages = [(message["role"], message["content"]) for message in self.history[:-1]]
        response = post_message(
            self._server,
            *earlier_messages,
            model=MODELS["anthropic"],
            system=SYSTEM,
            tools=TOOLS,
            max_tokens=LONGEST,
            thinking=THINKING,
        )
        assert response.status == 200, response.body


def results(number: int) -> list[dict[str, Any]]:
    """Return the results of both tools: text, sometimes an image or an error."""
    read: dict[str, Any] = {"type": "tool_result", "tool_use_id": f"toolu_{number}_read"}
    content: list[dict[str, Any]] = [{"type": "text", "text": f"Content of {number}."}]
    if number % 10 == 0:
        source = {"type": "base64", "media_type": "image/png", "data": PIXEL}
        content.append({"type": "image", "source": source})
    listed: dict[str, Any] = {"type": "tool_result", "content": "a, b"}
    listed["tool_use_id"] = f"toolu_{number}_list"
    if number % 7 == 0:
        listed |= {"is_error": True, "content": "No such folder."}
    return [{**read, "content": content}, {**listed, **MARK}]


def in_blocks(request: Request) -> dict[str, Any]:
    """Return the content as blocks; a string is one text block."""
    messages = [
        {**message, "content": as_blocks(message["content"])} for message in request.messages
    ]
    return {**request.json, "messages": messages}


def as_noticed(history: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the client's history without the parts that the expected notices name."""
    merged: list[dict[str, Any]] = []
    for message in history:
        blocks = [without_mark(b) for b in as_blocks(message["content"]) if not is_unsent(b)]
        if merged and merged[-1]["role"] == message["role"]:
            merged[-1]["content"] += blocks
        elif blocks:
            merged.append({"role": message["role"], "content": blocks})
    return merged


def is_unsent(block: dict[str, Any]) -> bool:
    """Whether it is unsigned thinking or an empty text."""
    unsigned = block["type"] == "thinking" and not block["signature"]
    return unsigned or (block["type"] == "text" and not block["text"].strip())


def without_mark(block: dict[str, Any]) -> dict[str, Any]:
    earlier_messages = {name: value for name, value in block.items() if name != "cache_control"}
    return in_blocks_too(earlier_messages)


def in_blocks_too(block: dict[str, Any]) -> dict[str, Any]:
    """Return the block; a string in a tool result is one text block."""
    if block["type"] != "tool_result":
        return block
    return {**block, "content": as_blocks(block["content"])}


def marked(messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the blocks with cache_control."""
    blocks = (block for message in messages for block in as_blocks(message["content"]))
    return [in_blocks_too(block) for block in blocks if "cache_control" in block]


def as_blocks(content: Any) -> list[dict[str, Any]]:
    return [{"type": "text", "text": content}] if isinstance(content, str) else content


def thoughts(messages: list[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return the thinking with its signatures."""
    return [
        (block["thinking"], block["signature"])
        for message in messages
        for block in as_blocks(message["content"])
        if block["type"] == "thinking"
    ]


def test_a_run_through_four_providers_ends_like_a_run_with_one(
    server: Server, upstream: FakeProvider
):
    agent = Agent(server, upstream)
    for number, model in enumerate(TURNS):
        agent.take(number, model)
    travelled = upstream.requests[-1]
    agent.ask_by_itself()
    stayed = upstream.requests[-1]

    for request in upstream.requests:
        validate_provider_request(request)
    written = agent.history[:-1]
    sent = in_blocks(travelled)["messages"]
    assert as_noticed(sent) == as_noticed(written)
    assert {name: travelled.json[name] for name in ASKED} == ASKED
    assert all(block in marked(written) for block in marked(sent))
    assert len(marked(sent)) == MOST_MARKS - len(SYSTEM)
    assert in_blocks_too(sent[-1]["content"][-1]) == marked(written)[-1]
    assert in_blocks(travelled) == in_blocks(stayed)
    claudes = (MODELS["anthropic"], MODELS["bedrock"])
    signature = Reply().signature
    signed = [
        (f"I need both of {n}.", signature) for n, model in enumerate(TURNS) if model in claudes
    ]
    assert thoughts(travelled.messages) == signed
    noticed = {notice["code"] for notice in agent.answers[-1].notices}
    assert noticed >= EXPECTED_NOTICES
    assert noticed <= EXPECTED_NOTICES | OF_SILENCE
