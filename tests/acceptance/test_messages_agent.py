"""Requests of a coding agent over real HTTP to every provider, with and without stream.

The fake providers record requests, which are validated by the types of the providers' SDKs.
Anthropic's SDK reads the responses. The local model is the real one.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anthropic
import pytest
from anthropic.types.beta import BetaMessage
from tests.agent_request import (
    BETAS,
    ENVIRONMENT,
    HEADERS,
    IDENTITY,
    NAMES,
    RULES,
    SIGNATURE,
    THOUGHT,
    make_agent_request,
    make_png,
)
from tests.fake_provider import FakeProvider, ToolCall
from tests.messages_api import MESSAGES, MODELS, SONNET, make_settings, post_message, start_server
from tests.request_validation import validate_bedrock_request, validate_compatible_request
from tests.server_process import Response, Server

from cllm.providers.local.models import CachePaths

LOCAL = "local/smollm2-135m"
ADDRESS = f"{MESSAGES}?beta=true"
CALL = ToolCall(id="toolu_03grep", name="Grep", arguments='{"path": "/project"}')
LONG = 60
"""Repetitions of the rules: a system prompt of about 15 KB."""
CONTEXT = 1024
ADAPTIVE: dict[str, Any] = {
    "thinking": {"type": "adaptive"},
    "output_config": {"effort": "medium"},
}


@pytest.fixture(scope="module")
def server(
    upstream: FakeProvider,
    local_model: Path,
    model_cache: CachePaths,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Server]:
    assert local_model.is_file()
    folder = tmp_path_factory.mktemp("agent")
    values = make_settings(upstream)
    values["providers"]["local"]["context"] = CONTEXT
    environment = {"XDG_CACHE_HOME": str(model_cache.root.parent)}
    store = f"sqlite:{folder / 'served.db'}"
    with start_server(folder, values, environment=environment, store=store) as running:
        yield running


@pytest.fixture(params=[False, True], ids=["whole", "streamed"])
def stream(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def answered(upstream: FakeProvider) -> None:
    """Reply with thinking, text and a tool call."""
    upstream.queue_reply(
        "I look ", "closer.", reasoning=("Not yet clear.",), tool_calls=(CALL,), finish="tool_calls"
    )


def through_the_sdk(server: Server, body: dict[str, Any], *, stream: bool) -> BetaMessage:
    """Return the response as Anthropic's SDK reads it."""
    known = {
        key: value for key, value in body.items() if key not in ("stream", "a_field_of_tomorrow")
    }
    rest = {"a_field_of_tomorrow": body["a_field_of_tomorrow"]}
    request_fields: Any = {**known, "betas": list(BETAS), "extra_body": rest}
    with anthropic.Anthropic(base_url=server.address, api_key="any", max_retries=0) as client:
        if not stream:
            message: BetaMessage = client.beta.messages.create(**request_fields)
            return message
        with client.beta.messages.stream(**request_fields) as streamed:
            return streamed.get_final_message()


def codes(response: Response) -> set[str]:
    return {notice["code"] for notice in response.notices}


def paths(response: Response, code: str) -> set[str]:
    return {notice["path"] for notice in response.notices if notice["code"] == code}


def test_anthropic_receives_the_agents_bytes(server: Server, upstream: FakeProvider, stream: bool):
    body = json.dumps(make_agent_request(SONNET, rules=LONG, stream=stream), indent=1).encode()
    answered(upstream)
    response = server("POST", ADDRESS, body, HEADERS)

    sent = upstream.requests[-1]
    assert response.status == 200, response.body
    assert sent.body == body
    assert sent.headers["anthropic-beta"] == ",".join(BETAS)
    assert sent.headers["anthropic-version"] == "2023-06-01"
    assert response.notices == []


@pytest.mark.parametrize("provider", MODELS)
def test_the_sdk_reads_thinking_text_and_tool_calls(
    server: Server, upstream: FakeProvider, provider: str, stream: bool
):
    answered(upstream)
    body = make_agent_request(MODELS[provider], rules=LONG)
    message = through_the_sdk(server, body, stream=stream)

    found: dict[str, Any] = {block.type: block for block in message.content}
    assert found["thinking"].thinking == "Not yet clear."
    assert found["text"].text == "I look closer."
    assert (found["tool_use"].id, found["tool_use"].name) == (CALL.id, CALL.name)
    assert found["tool_use"].input == {"path": "/project"}
    assert message.stop_reason == "tool_use"
    assert (message.usage.input_tokens, message.usage.output_tokens) == (11, 7)


def test_bedrock_receives_everything_that_converse_supports(
    server: Server, upstream: FakeProvider, stream: bool
):
    answered(upstream)
    body = make_agent_request(MODELS["bedrock"], rules=LONG, stream=stream)
    response = server("POST", ADDRESS, body, HEADERS)

    sent = upstream.requests[-1]
    validate_bedrock_request(sent.body, model=sent.path.split("/")[2].replace("%3A", ":"))
    provider_request = sent.json
    named = [
        tool["toolSpec"]["name"]
        for tool in provider_request["toolConfig"]["tools"]
        if "toolSpec" in tool
    ]
    more = provider_request["additionalModelRequestFields"]
    thought, text_block, *calls = provider_request["messages"][1]["content"]
    results = [block["toolResult"] for block in provider_request["messages"][2]["content"][:2]]
    assert response.status == 200, response.body
    assert provider_request["system"][0] == {"text": IDENTITY}
    assert [block for block in provider_request["system"] if "cachePoint" in block]
    assert named == list(NAMES)
    assert "cachePoint" in provider_request["toolConfig"]["tools"][-1]
    assert more["thinking"] == {"type": "enabled", "budget_tokens": 2048}
    assert more["anthropic_beta"] == [flag for flag in BETAS if not flag.startswith("claude-code")]
    assert thought["reasoningContent"]["reasoningText"] == {"text": THOUGHT, "signature": SIGNATURE}
    assert text_block == {"text": "I look at the plot and at the folder."}
    assert [call["toolUse"]["toolUseId"] for call in calls] == ["toolu_01plot", "toolu_02list"]
    assert [result.get("status", "success") for result in results] == ["success", "error"]
    assert results[0]["content"][1]["image"]["source"]["bytes"] == make_png()
    assert paths(response, "field_left_out") == {
        "tools.Write.eager_input_streaming",
        "context_management",
        "a_field_of_tomorrow",
        "user",
    }
    assert codes(response) == {"field_left_out", "beta_left_out", "cache_ttl_left_out"}


def test_an_openai_compatible_server_receives_everything_that_it_supports(
    server: Server, upstream: FakeProvider, stream: bool
):
    answered(upstream)
    body = make_agent_request(MODELS["openai"], rules=LONG, stream=stream)
    response = server("POST", ADDRESS, body, HEADERS)

    sent = upstream.requests[-1]
    system, _, called, plot, listed, shown = sent.messages
    assert called["reasoning_content"] == THOUGHT
    validate_compatible_request(sent.body)
    assert response.status == 200, response.body
    assert IDENTITY in str(system["content"])
    assert ENVIRONMENT.splitlines()[0] in str(system["content"])
    assert [tool["function"]["name"] for tool in sent.json["tools"]] == list(NAMES)
    assert [call["id"] for call in called["tool_calls"]] == ["toolu_01plot", "toolu_02list"]
    assert [m["tool_call_id"] for m in (plot, listed)] == ["toolu_01plot", "toolu_02list"]
    assert shown["role"] == "user"
    assert make_png() in str(shown["content"])
    assert SIGNATURE.encode() not in sent.body
    assert "anthropic-beta" not in sent.headers
    assert codes(response) == {
        "cache_mark_left_out",
        "error_flag_left_out",
        "field_left_out",
        "media_moved",
        "signature_left_out",
        "thinking_changed",
    }


def test_the_local_model_replies_to_an_agent_with_notices(server: Server, stream: bool):
    body = make_agent_request(LOCAL, stream=stream, max_tokens=64, thinking=None)
    request_body = {key: value for key, value in body.items() if value is not None}
    response = server("POST", ADDRESS, request_body, HEADERS)
    message = through_the_sdk(server, request_body, stream=stream)

    assert response.status == 200, response.body
    assert message.content[0].type == "text"
    assert message.content[0].text.strip()
    assert message.stop_reason in {"end_turn", "max_tokens"}
    assert message.usage.output_tokens > 0
    assert {"tools_left_out", "part_left_out", "signature_left_out"} <= codes(response)


def test_the_local_model_reads_the_system_prompt_the_calls_and_their_results(server: Server):
    body = make_agent_request(LOCAL)
    without = {
        "system": {**body, "system": [{"type": "text", "text": IDENTITY}]},
        "calls": {**body, "messages": body["messages"][:1]},
    }
    everything = counted(server, body)

    assert everything > counted(server, without["system"]) + len(" ".join(RULES).split())
    assert everything > counted(server, without["calls"]) + 40


def test_a_request_too_long_for_the_local_model_is_one_clear_error(server: Server, stream: bool):
    body = make_agent_request(LOCAL, rules=LONG, stream=stream, max_tokens=64)
    response = server("POST", ADDRESS, body, HEADERS)

    assert (response.status, response.json["type"]) == (400, "error")
    assert response.error["type"] == "invalid_request_error"
    assert "prompt is too long" in response.error["message"].lower()


def test_a_conversation_too_long_for_the_local_model_is_cut_to_its_window(server: Server):
    request_fields: dict[str, Any] = {"model": LOCAL, "max_tokens": 4}
    long = "My cat is called Luna. " * 80
    first_response = post_message(
        server, ("user", long), headers={"X-Conversation-ID": ""}, **request_fields
    )
    going_on = {"X-Conversation-ID": first_response.conversation}
    response = post_message(
        server, ("user", f"And again: {long}"), headers=going_on, **request_fields
    )

    assert (first_response.status, response.status) == (200, 200), response.body
    provider_request = response.json["usage"]
    assert provider_request["input_tokens"] + provider_request["cache_read_input_tokens"] < CONTEXT
    assert "trimmed" in codes(response)


def test_newer_thinking_options_pass_through_unchanged(
    server: Server, upstream: FakeProvider, stream: bool
):
    body = make_agent_request("anthropic/claude-opus-5", stream=stream, **ADAPTIVE)
    response = server("POST", ADDRESS, body, HEADERS)

    sent = upstream.requests[-1].json
    assert response.status == 200, response.body
    assert sent["thinking"] == ADAPTIVE["thinking"]
    assert sent["output_config"] == ADAPTIVE["output_config"]
    assert sent["context_management"] == body["context_management"]


def counted(server: Server, body: dict[str, Any]) -> int:
    """Count the tokens of a request with its model."""
    response = server("POST", f"{MESSAGES}/count_tokens?beta=true", body, HEADERS)
    assert response.status == 200, response.body
    tokens: int = response.json["input_tokens"]
    return tokens
