"""Anthropic's Python SDK, unmodified, with `cllm serve` as its base URL."""

import json
import time
from collections.abc import Iterator
from typing import Any

import anthropic
import pytest
from tests.fake_provider import FakeProvider, ToolCall, response_steps
from tests.messages_api import MODELS, make_settings, start_server
from tests.server_process import Server, list_messages

HELLO: Any = {"role": "user", "content": "Hello."}
CALL = ToolCall(id="toolu_1", name="look", arguments='{"at": "the sky"}')
THINKING: Any = {"type": "enabled", "budget_tokens": 1024}


@pytest.fixture(scope="module")
def server(upstream: FakeProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("sdk")
    with start_server(
        folder, make_settings(upstream), store=f"sqlite:{folder / 'served.db'}"
    ) as running:
        yield running


@pytest.fixture
def client(server: Server) -> Iterator[anthropic.Anthropic]:
    with anthropic.Anthropic(base_url=server.address, api_key="any", max_retries=0) as made:
        yield made


@pytest.fixture(params=list(MODELS.values()), ids=list(MODELS))
def model(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@anthropic.beta_tool
def look(at: str) -> str:
    """Look at something.

    Args:
        at: What to look at.
    """
    return f"{at} is blue"


def test_a_message(client: anthropic.Anthropic, model: str):
    message = client.messages.create(
        model=model, max_tokens=100, messages=[HELLO], system="Be brief."
    )

    assert message.content[0].type == "text"
    assert message.content[0].text == "echo: Hello."
    assert message.stop_reason == "end_turn"
    assert (message.usage.input_tokens, message.usage.output_tokens) == (11, 7)


def test_models(client: anthropic.Anthropic):
    listed = list(client.models.list())

    model = client.models.retrieve("claude-haiku-4-5")

    assert listed[0].type == "model"
    assert (model.id, model.display_name) == ("claude-haiku-4-5", "claude-haiku-4-5")
    with pytest.raises(anthropic.NotFoundError):
        client.models.retrieve("nobody")


def test_the_streaming_helper(client: anthropic.Anthropic, model: str):
    with client.messages.stream(model=model, max_tokens=100, messages=[HELLO]) as stream:
        pieces = list(stream.text_stream)
        final = stream.get_final_message()

    assert pieces == ["echo: ", "Hello."]
    assert stream.get_final_text() == "echo: Hello."
    assert (final.usage.input_tokens, final.usage.output_tokens) == (11, 7)
    assert final.stop_reason == "end_turn"


def test_raw_events(client: anthropic.Anthropic, model: str):
    with client.messages.create(
        model=model, max_tokens=100, messages=[HELLO], stream=True
    ) as events:
        seen: list[str] = [event.type for event in events]
        kinds = [kind for kind in seen if kind != "ping"]

    assert kinds == [
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
    ]


@pytest.mark.parametrize("stream", [False, True])
def test_a_loop_with_tools(
    client: anthropic.Anthropic, upstream: FakeProvider, model: str, stream: bool
):
    upstream.queue_reply("Looking.", tool_calls=(CALL,), finish="tool_calls")
    upstream.queue_reply("It is blue.")
    runner = client.beta.messages.tool_runner(
        model=model,
        max_tokens=100,
        tools=[look],
        messages=[{"role": "user", "content": "What do you see?"}],
        stream=stream,
    )
    final = runner.until_done()

    sent = upstream.requests[-1]
    assert final.content[0].type == "text"
    assert final.content[0].text == "It is blue."
    assert b"the sky is blue" in sent.body
    assert b"toolu_1" in sent.body
    if model == MODELS["anthropic"]:
        assert sent.json["thread"]["type"] == "continue"
        assert len(sent.messages) == 1
    else:
        assert "thread" not in sent.json
        assert len(sent.messages) == 3


def test_the_error_of_a_lost_thread_makes_the_sdk_send_everything(
    client: anthropic.Anthropic, upstream: FakeProvider
):
    upstream.queue_reply("Looking.", tool_calls=(CALL,), finish="tool_calls")
    lost = {"error_code": "thread_not_found"}
    error = {"type": "not_found_error", "message": "No such thread.", "details": lost}
    upstream.queue_steps(
        *response_steps(404, json.dumps({"type": "error", "error": error}).encode())
    )
    upstream.queue_reply("It is blue.")
    final = client.beta.messages.tool_runner(
        model=MODELS["anthropic"],
        max_tokens=100,
        tools=[look],
        messages=[{"role": "user", "content": "What do you see?"}],
    ).until_done()

    assert final.content[0].type == "text"
    assert final.content[0].text == "It is blue."
    assert upstream.requests[-1].json["thread"] == {"type": "create"}
    assert len(upstream.requests[-1].messages) == 3


def test_a_stored_conversation_needs_no_thread(client: anthropic.Anthropic, upstream: FakeProvider):
    request_fields: Any = {"model": MODELS["anthropic"], "max_tokens": 9}
    begun = client.beta.messages.with_raw_response.create(
        **request_fields,
        messages=[HELLO],
        thread={"type": "create"},
        extra_headers={"X-Conversation-ID": ""},
    )
    client.beta.messages.create(
        **request_fields,
        messages=[{"role": "user", "content": "Again."}],
        thread={"type": "continue", "previous_message_id": begun.parse().id},
        extra_headers={"X-Conversation-ID": begun.headers["X-Conversation-ID"]},
    )

    assert "thread" not in upstream.requests[-1].json
    assert len(upstream.requests[-1].messages) == 3
    assert "thread_left_out" in begun.headers["X-CLLM-Notice"]


@pytest.mark.parametrize("stream", [False, True])
def test_thinking_and_its_signature(
    client: anthropic.Anthropic, upstream: FakeProvider, model: str, stream: bool
):
    upstream.queue_reply("Four.", reasoning=("Two and ", "two."))
    request_fields: Any = {
        "model": model,
        "max_tokens": 2000,
        "thinking": THINKING,
        "messages": [HELLO],
    }
    if stream:
        with client.messages.stream(**request_fields) as streamed:
            message = streamed.get_final_message()
    else:
        message = client.messages.create(**request_fields)

    thought, text_block = message.content
    assert thought.type == "thinking"
    assert thought.thinking == "Two and two."
    assert thought.signature == ("" if "openai" in model else "c2lnbmVk")
    assert text_block.type == "text"
    assert text_block.text == "Four."


def test_thinking_goes_back_with_the_tools_results(
    client: anthropic.Anthropic, upstream: FakeProvider
):
    upstream.queue_reply(reasoning=("I look.",), tool_calls=(CALL,), finish="tool_calls")
    request_fields: Any = {
        "model": MODELS["bedrock"],
        "max_tokens": 2000,
        "thinking": THINKING,
        "tools": [{"name": "look", "input_schema": {"type": "object"}}],
    }
    message = client.messages.create(**request_fields, messages=[HELLO])
    result: Any = {"type": "tool_result", "tool_use_id": "toolu_1", "content": "Blue."}
    turns: Any = [HELLO, {"role": "assistant", "content": message.content}]
    client.messages.create(
        **request_fields, messages=[*turns, {"role": "user", "content": [result]}]
    )

    sent = upstream.requests[-1].json["messages"][1]["content"]
    assert sent[0]["reasoningContent"]["reasoningText"] == {
        "text": "I look.",
        "signature": "c2lnbmVk",
    }
    assert sent[1]["toolUse"]["toolUseId"] == "toolu_1"


def test_counting_tokens(client: anthropic.Anthropic, model: str):
    counted = client.messages.count_tokens(model=model, messages=[HELLO], system="Be brief.")

    assert counted.input_tokens > 0


def test_errors_are_the_sdks_own(client: anthropic.Anthropic, upstream: FakeProvider):
    request_fields: Any = {"model": MODELS["anthropic"], "max_tokens": 9, "messages": [HELLO]}
    with pytest.raises(anthropic.NotFoundError):
        client.messages.create(**{**request_fields, "model": "no-such-model"})
    with pytest.raises(anthropic.BadRequestError):
        client.messages.create(**{**request_fields, "messages": []})
    upstream.queue_error(401, "No.")
    with pytest.raises(anthropic.AuthenticationError):
        client.messages.create(**request_fields)
    upstream.queue_error(403, "No.")
    with pytest.raises(anthropic.PermissionDeniedError):
        client.messages.create(**request_fields)
    upstream.queue_error(429, "Slow down.", retry_after="1")
    with pytest.raises(anthropic.RateLimitError) as limited:
        client.messages.create(**request_fields)
    upstream.queue_error(529, "Overloaded.")
    with pytest.raises(anthropic.OverloadedError) as overloaded:
        client.messages.create(**request_fields)

    assert limited.value.response.headers["retry-after"] == "1"
    assert overloaded.value.status_code == 529


def test_an_error_in_the_middle_of_a_stream_is_raised(
    client: anthropic.Anthropic, upstream: FakeProvider, model: str
):
    upstream.queue_reply("Half ", "of it", stop_after=1)
    with (
        pytest.raises(anthropic.APIError),
        client.messages.stream(model=model, max_tokens=9, messages=[HELLO]) as stream,
    ):
        stream.get_final_message()


def test_the_sdk_retries_after_429_and_529_and_respects_retry_after(
    client: anthropic.Anthropic, upstream: FakeProvider, server: Server
):
    begun = client.messages.with_raw_response.create(
        model=MODELS["anthropic"],
        max_tokens=9,
        messages=[HELLO],
        extra_headers={"X-Conversation-ID": ""},
    )
    conversation = begun.headers["X-Conversation-ID"]
    upstream.queue_error(429, "Slow down.", retry_after="2")
    upstream.queue_error(529, "Overloaded.")
    before = time.monotonic()
    client.with_options(max_retries=3).messages.create(
        model=MODELS["anthropic"],
        max_tokens=9,
        messages=[{"role": "user", "content": "Again."}],
        extra_headers={"X-Conversation-ID": conversation},
    )

    assert time.monotonic() - before >= 2
    assert [content for _, content in upstream.requests[-1].message_pairs][::2] == [
        "Hello.",
        "Again.",
    ]
    assert [role for role, _ in list_messages(server, conversation)][-2:] == ["user", "assistant"]


async def test_the_async_client(server: Server):
    async with (
        anthropic.AsyncAnthropic(base_url=server.address, auth_token="any") as client,
        client.messages.stream(model=MODELS["bedrock"], max_tokens=9, messages=[HELLO]) as stream,
    ):
        text = await stream.get_final_text()

    assert text == "echo: Hello."
