"""OpenAI's own library for Node, unmodified, as a client of `cllm serve`.

Each test runs a small program of `tests/node` in a process of its own and looks at what the library
made of the answers, what the provider was sent and what the server keeps.
"""

import json
import time
import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from tests.fake_provider import FakeProvider, ToolCall
from tests.home import Home, write_settings
from tests.node_programs import NodePrograms
from tests.server_process import Server, list_messages

UNKNOWN = "5f0c3a52-9d6f-4a57-8f53-d7c3e8f1a7aa"
CALL = ToolCall(id="call_1", name="weather", arguments='{"city": "Paris"}')
CAT = ("user", "My cat is called Luna.")
QUESTION = ("user", "What is my cat called?")


@pytest.fixture(scope="module")
def server(upstream: FakeProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that sends the head of a silent stream soon."""
    home = Home(tmp_path_factory.mktemp("served"))
    write_settings(home, upstream, server={"silence_seconds": 0.5})
    with Server(
        environment=home.environment,
        directory=home.work,
        store=f"sqlite:{home.path / 'served.db'}",
    ) as running:
        yield running


@pytest.fixture
def node(server: Server, tmp_path: Path) -> Iterator[NodePrograms]:
    programs = NodePrograms(tmp_path, server.address)
    yield programs
    programs.close()


def test_a_whole_completion_is_read(node: NodePrograms, upstream: FakeProvider):
    found = node("whole")

    assert upstream.requests[-1].message_pairs == [("user", "Hello.")]
    assert found["text"] == "echo: Hello."
    assert found["finish"] == "stop"
    assert found["usage"] == {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
    assert found["requestId"]
    assert found["conversation"] is None


def test_a_streamed_completion_is_read_plainly_and_by_the_helper(
    node: NodePrograms, upstream: FakeProvider
):
    found = node("streamed")

    assert found["text"] == "echo: Hello."
    assert found["usage"]["total_tokens"] == 18
    assert found["deltas"] == ["echo: ", "Hello again."]
    assert found["final"] == "echo: Hello again."
    assert [request.json["stream"] for request in upstream.requests[-2:]] == [True, True]


def test_the_head_of_a_stream_is_there_before_its_first_chunk(
    node: NodePrograms, server: Server, upstream: FakeProvider
):
    gate = upstream.queue_held_reply("Held.", at=0)
    running = node.start("early")
    assert running.stdout is not None
    conversation = json.loads(running.stdout.readline())["conversation"]
    gate.open()
    out, err = running.communicate(timeout=60)

    assert str(uuid.UUID(conversation)) == conversation
    assert json.loads(out) == {"text": "Held."}, err
    assert list(list_messages(server, conversation)) == [
        ("user", "Hello."),
        ("assistant", "Held."),
    ]


def test_a_stream_that_breaks_off_is_an_error(node: NodePrograms, upstream: FakeProvider):
    upstream.queue_reply("Half", " of it", stop_after=1)

    found = node("broken")

    assert found["text"] == "Half"
    assert found["error"]["name"] == "APIError"
    assert found["error"]["code"] == "upstream_broken_stream"


@pytest.mark.parametrize("way", ["whole", "stream"])
def test_the_library_runs_the_tools_that_are_asked_for(
    node: NodePrograms, upstream: FakeProvider, way: str
):
    upstream.queue_reply(tool_calls=(CALL,), finish="tool_calls")
    upstream.queue_reply("It rains.")

    found = node("tools", way)

    assert found == {
        "text": "It rains.",
        "uses": ["Paris"],
        "roles": ["user", "assistant", "tool", "assistant"],
    }
    asked, answered = upstream.requests[-2:]
    assert asked.json["tools"][0]["function"]["name"] == "weather"
    assert answered.messages[-1] == {
        "role": "tool",
        "content": "Rain.",
        "tool_call_id": "call_1",
    }


@pytest.mark.parametrize("way", ["whole", "stream"])
def test_the_tools_that_the_library_runs_are_saved_once_in_a_conversation(
    node: NodePrograms, server: Server, upstream: FakeProvider, way: str
):
    name = f"weather-{way}"
    for _ in range(2):
        upstream.queue_reply(tool_calls=(CALL,), finish="tool_calls")
        upstream.queue_reply("It rains.")

    for _ in range(2):
        assert node("tools", way, name)["text"] == "It rains."

    turn = ["user", "assistant", "tool", "assistant"]
    sent = [[message["role"] for message in one.messages] for one in upstream.requests[-4:]]
    assert sent == [turn[:1], turn[:3], [*turn, *turn[:1]], [*turn, *turn[:3]]]
    assert [role for role, _ in list_messages(server, name)] == turn * 2


def test_an_answer_fits_the_schema_that_it_was_asked_for(
    node: NodePrograms, upstream: FakeProvider
):
    upstream.queue_reply('{"city": "Paris", "inhabitants": 2100000}')

    found = node("structured")

    assert found == {"city": "Paris", "inhabitants": 2_100_000}
    asked = upstream.requests[-1].json["response_format"]
    assert asked["type"] == "json_schema"
    assert asked["json_schema"]["strict"] is True
    assert set(asked["json_schema"]["schema"]["properties"]) == {"city", "inhabitants"}


@pytest.mark.parametrize(
    ("conversation", "body", "name", "status", "code", "param"),
    [
        ("not an id", {}, "BadRequestError", 400, "invalid_conversation_id", "X-Conversation-ID"),
        (UNKNOWN, {}, "NotFoundError", 404, "conversation_not_found", None),
        (
            "",
            {"model": "nobody/anything"},
            "NotFoundError",
            404,
            "model_not_found",
            "model",
        ),
        (
            "",
            {"messages": []},
            "UnprocessableEntityError",
            422,
            "empty_messages_array",
            "messages",
        ),
        (
            "",
            {"messages": [{"role": "user"}]},
            "UnprocessableEntityError",
            422,
            "validation_error",
            "messages[0].content",
        ),
    ],
    ids=["id", "conversation", "model", "empty", "field"],
)
def test_a_refusal_has_its_class_and_its_code(
    node: NodePrograms,
    conversation: str,
    body: dict[str, object],
    name: str,
    status: int,
    code: str,
    param: str | None,
):
    found = node("failing", conversation, json.dumps(body))

    assert found["isApiError"], found
    assert (found["name"], found["status"]) == (name, status), found
    assert found["code"] == code, found
    assert found["param"] == param, found
    assert found["requestId"]
    assert found["message"].startswith(str(status))


@pytest.mark.parametrize(
    ("status", "name", "told"),
    [
        (400, "BadRequestError", 400),
        (401, "AuthenticationError", 401),
        (429, "RateLimitError", 429),
        (500, "InternalServerError", 500),
    ],
)
def test_a_providers_error_has_its_class(
    node: NodePrograms, upstream: FakeProvider, status: int, name: str, told: int
):
    upstream.queue_error(status, "No.")

    found = node("failing")

    assert (found["name"], found["status"]) == (name, told), found


def test_the_library_waits_as_long_as_the_provider_said(node: NodePrograms, upstream: FakeProvider):
    count = len(upstream.requests)
    upstream.queue_error(429, "Slowly.", Retry_After="2")

    found = node("retried")

    first, second = upstream.requests[count:]
    assert found["text"] == "echo: Hello."
    assert found["waited"] >= 2000
    assert second.received_at - first.received_at >= 1.95


def test_the_library_asks_again_after_a_fault_of_the_providers(
    node: NodePrograms, upstream: FakeProvider
):
    count = len(upstream.requests)
    upstream.queue_error(500, "Broken.")
    upstream.queue_error(503, "Still broken.")

    found = node("retried")

    assert found["text"] == "echo: Hello."
    assert len(upstream.requests) == count + 3


def test_a_conversation_goes_on_by_a_header(
    node: NodePrograms, server: Server, upstream: FakeProvider
):
    upstream.queue_reply("A good name.")
    upstream.queue_reply("Luna, I think.")
    upstream.queue_reply("Luna.")

    found = node("conversation")

    said = [CAT, ("assistant", "A good name."), QUESTION]
    assert [request.message_pairs for request in upstream.requests[-2:]] == [said, said]
    assert (found["second"], found["again"]) == ("Luna, I think.", "Luna.")
    kept = [*said, ("assistant", "Luna.")]
    assert [tuple(message) for message in found["messages"]] == kept
    assert list(list_messages(server, found["conversation"])) == kept
    assert "openai/gpt-test" in found["models"]


def test_a_tools_result_goes_on_in_the_conversation_that_asked_for_it(
    node: NodePrograms, server: Server, upstream: FakeProvider
):
    upstream.queue_reply(tool_calls=(CALL,), finish="tool_calls")
    upstream.queue_reply("It rains.")

    found = node("tool_result")

    assert found["text"] == "It rains."
    kept = [role for role, _ in list_messages(server, found["conversation"])]
    assert kept == ["user", "assistant", "tool", "assistant"]
    assert [message["role"] for message in upstream.requests[-1].messages] == kept[:-1]


def test_the_library_waits_for_a_turn_that_runs(
    node: NodePrograms, server: Server, upstream: FakeProvider
):
    conversation = server.complete(("user", "Hello."), conversation="").conversation
    gate = upstream.queue_held_reply("Held.", at=0)
    count = len(upstream.requests)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(server.complete, CAT, conversation=conversation)
        upstream.wait_for(count + 1)
        running = node.start("retried", conversation)
        time.sleep(0.8)
        gate.open()
        assert first.result().text == "Held."
        out, err = running.communicate(timeout=60)

    assert json.loads(out)["text"] == "echo: Hello.", err
    assert [content for _, content in list_messages(server, conversation)][-3:] == [
        "Held.",
        "Hello.",
        "echo: Hello.",
    ]


def test_responses(node: NodePrograms, upstream: FakeProvider):
    upstream.queue_reply("Luna, I see.")
    upstream.queue_reply("Luna.")
    upstream.queue_reply("Hi", " there.")
    upstream.queue_reply('{"city": "Paris", "inhabitants": 2100000}')
    gate = upstream.queue_held_reply("Held.", at=0)

    found = node("responses")

    gate.open()
    assert found == {
        "text": "Luna, I see.",
        "echoed": True,
        "retrieved": "Luna.",
        "previous": True,
        "instructions": None,
        "events": [
            "response.created",
            "response.in_progress",
            "response.output_item.added",
            "response.content_part.added",
            "response.output_text.delta",
            "response.output_text.delta",
            "response.output_text.done",
            "response.content_part.done",
            "response.output_item.done",
            "response.completed",
        ],
        "final": "Hi there.",
        "parsed": {"city": "Paris", "inhabitants": 2100000},
        "items": ["message"],
        "running": "in_progress",
        "cancelled": "cancelled",
        "deleted": 404,
    }
