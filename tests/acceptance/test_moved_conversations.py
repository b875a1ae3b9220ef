"""Ten conversations with attachments, tools and reasoning move through five providers and back.

The fake provider refuses what the real ones refuse (`tests/provider_rules.py`).
"""

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import tests.fake_responses as responses
from tests.fake_provider import FakeProvider, ToolCall
from tests.messages_api import BEDROCK_KEY, OPERATORS_KEY, post_message, start_server
from tests.provider_rules import TEXT_SERVER, refuse_request
from tests.server_process import COMPLETIONS, Response, Server

OPENAI = "openai/gpt-4o"
AUDIO = "openai/gpt-4o-audio-preview"
RESPONSES = "answers/gpt-5.2"
ANTHROPIC = "anthropic/claude-opus-4-8"
BEDROCK = "bedrock/claude-sonnet-4-6"
TEXT = f"lab/{TEXT_SERVER}-1"
VISION = "eyes/vision-1"
ROUTE = (OPENAI, RESPONSES, ANTHROPIC, BEDROCK, TEXT)
DATA = base64.b64encode(b"some data").decode()
WORD = "application/vnd.openxmlformats-officedocument.wordprocessingml.document"
PARAMETERS = {"type": "object", "properties": {"at": {"type": "string"}}}
OPENAI_TOOLS = [{"type": "function", "function": {"name": "look", "parameters": PARAMETERS}}]
ANTHROPIC_TOOLS = [{"name": "look", "input_schema": PARAMETERS}]
CALL = ToolCall(id="call_1", name="look", arguments='{"at": "door"}')


@pytest.fixture(scope="module")
def upstream() -> Iterator[FakeProvider]:
    with FakeProvider() as provider:
        provider.refuse = refuse_request
        yield provider


@pytest.fixture(scope="module")
def server(upstream: FakeProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    key = "sk-openai-0123456789"
    address = {"api_base": upstream.url, "api_key": key}
    providers = {
        "anthropic": {"api_base": upstream.root, "api_key": OPERATORS_KEY},
        "bedrock": {"endpoint_url": upstream.root, "api_key": BEDROCK_KEY},
        "openai": {**address, "attachments": "openai"},
        "answers": {**address, "api": "responses"},
        "lab": {**address, "attachments": "none", "reasoning_field": "reasoning_content"},
        "eyes": address,
    }
    folder = tmp_path_factory.mktemp("moved")
    settings = {"model": OPENAI, "num_retries": 0, "providers": providers}
    with start_server(folder, settings, store=f"sqlite:{folder / 'served.db'}") as running:
        yield running


def data_url(media_type: str) -> str:
    return f"data:{media_type};base64,{DATA}"


def image(url: str) -> dict[str, Any]:
    return {"type": "image_url", "image_url": {"url": url}}


def file(**fields: str) -> dict[str, Any]:
    return {"type": "file", "file": fields}


def block(kind: str, **source: str) -> dict[str, Any]:
    return {"type": kind, "source": source}


@dataclass(frozen=True)
class Start:
    """The first turn: model, protocol of the client, and content of the user message."""

    model: str
    content: tuple[dict[str, Any], ...] = ()
    door: str = "completions"
    reasoning: bool = False
    calls: bool = False
    result: tuple[dict[str, Any], ...] = ()
    is_interrupted: bool = False


AUDIO_BLOCK = {"type": "input_audio", "input_audio": {"data": DATA, "format": "wav"}}
VIDEO_BLOCK = {"type": "video_url", "video_url": {"url": "https://x.example/a.mp4"}}
STARTS = {
    "images by URL and as data": Start(
        OPENAI, (image("https://x.example/a.png"), image(data_url("image/png")))
    ),
    "a PDF and a file ID": Start(
        OPENAI,
        (file(filename="a.pdf", file_data=data_url("application/pdf")), file(file_id="file-1")),
    ),
    "audio": Start(AUDIO, (AUDIO_BLOCK,)),
    "a Word document": Start(RESPONSES, (file(filename="a.docx", file_data=data_url(WORD)),)),
    "a bitmap, a drawing and a video": Start(
        VISION, (image(data_url("image/bmp")), image(data_url("image/svg+xml")), VIDEO_BLOCK)
    ),
    "documents of Anthropic": Start(
        ANTHROPIC,
        (
            block("image", type="url", url="https://x.example/a.png"),
            block("image", type="file", file_id="file_1"),
            block("document", type="url", url="https://x.example/a.pdf"),
            block("document", type="file", file_id="file_1"),
            block("document", type="text", media_type="text/plain", data="Plain."),
            {"type": "container_upload", "file_id": "file_1"},
        ),
        door="messages",
        reasoning=True,
    ),
    "documents of Bedrock": Start(
        BEDROCK,
        tuple(
            file(filename=f"a.{name}", file_data=data_url(kind))
            for name, kind in (("docx", WORD), ("csv", "text/csv"), ("pdf", "application/pdf"))
        ),
        reasoning=True,
    ),
    "a tool result with images": Start(
        ANTHROPIC,
        door="messages",
        reasoning=True,
        calls=True,
        result=(
            {"type": "text", "text": "A door."},
            block("image", type="base64", media_type="image/png", data=DATA),
            block("image", type="url", url="https://x.example/a.png"),
        ),
    ),
    "reasoning and a tool call of OpenAI": Start(RESPONSES, calls=True, reasoning=True),
    "an interrupted tool call": Start(TEXT, calls=True, reasoning=True, is_interrupted=True),
}


def send(server: Server, door: str, conversation: str, model: str, message: Any) -> Response:
    headers = {"X-Conversation-ID": conversation}
    if door == "messages":
        pair = (message["role"], message["content"])
        return post_message(
            server, pair, headers=headers, model=model, tools=ANTHROPIC_TOOLS, max_tokens=4000
        )
    body = {"model": model, "messages": [message], "tools": OPENAI_TOOLS}
    return server("POST", COMPLETIONS, body, headers)


def queue_call(upstream: FakeProvider, start: Start) -> None:
    if start.model != RESPONSES:
        upstream.queue_reply(
            reasoning=("Look at it.",) if start.reasoning else (),
            tool_calls=(CALL,),
            finish="tool_calls",
        )
        return
    call = responses.function_call_item(CALL.id, CALL.name, CALL.arguments)
    answer = responses.make_response(responses.reasoning_item("Look at it."), call)
    upstream.queue_steps(*responses.json_response_steps(answer))


def take_first_turn(server: Server, upstream: FakeProvider, start: Start) -> str:
    """Send the attachments, or a tool call and its result; return the conversation."""
    question = {"type": "text", "text": "What is it?"}
    message = {"role": "user", "content": [question, *start.content]}
    if start.calls:
        queue_call(upstream, start)
    elif start.reasoning:
        upstream.queue_reply("It is a door.", reasoning=("Hm.",))
    first = send(server, start.door, "", start.model, message)
    assert first.status == 200, first.body
    if not start.calls or start.is_interrupted:
        return first.conversation
    result: dict[str, Any] = {"role": "tool", "tool_call_id": CALL.id, "content": "A door."}
    if start.door == "messages":
        content = {"type": "tool_result", "tool_use_id": CALL.id, "content": list(start.result)}
        result = {"role": "user", "content": [content]}
    answered = send(server, start.door, first.conversation, start.model, result)
    assert answered.status == 200, answered.body
    return first.conversation


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS.keys())
def test_a_conversation_moves_through_every_provider_and_back(server, upstream, start):
    conversation = take_first_turn(server, upstream, start)
    doors = ("completions", "messages")

    for number, model in enumerate((*ROUTE, *reversed(ROUTE), start.model)):
        message = {"role": "user", "content": f"And number {number}?"}
        answer = send(server, doors[number % 2], conversation, model, message)

        assert answer.status == 200, (model, answer.body)
        assert f"And number {number}?" in json.dumps(upstream.requests[-1].json)

    # The first provider receives its attachments unchanged.
    sent = upstream.requests[-1].json
    assert "cannot see" not in json.dumps(sent.get("messages", sent.get("input"))[0])


ATTACHED = {name: start for name, start in STARTS.items() if start.content}


@pytest.mark.parametrize("start", ATTACHED.values(), ids=ATTACHED.keys())
def test_the_whole_history_is_accepted_in_one_stateless_request(server, upstream, start):
    """A client that sends everything itself, in the protocol of the attachments."""
    question = {"role": "user", "content": list(start.content)}
    reply = {"role": "assistant", "content": "I see."}
    newest = {"role": "user", "content": "And now?"}
    fields = {"max_tokens": 4000, "messages": [question, reply, newest]}
    path = "/v1/messages" if start.door == "messages" else COMPLETIONS

    for model in ROUTE:
        answer = server("POST", path, {"model": model, **fields}, {"X-Routing-Mode": "stateless"})
        assert answer.status == 200, (model, answer.body)
