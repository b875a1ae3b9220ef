"""The sample traffic of the wire benchmark is valid for the providers."""

import json
import sys
from pathlib import Path

import pytest

from cllm.core.reply import ReplyFinished, TextDelta, ThinkingDelta, ToolCallDelta
from cllm.providers.anthropic import AnthropicProvider
from cllm.providers.bedrock import AwsAccount, BedrockProvider
from cllm.providers.http.provider import HttpProvider, ProviderRequest
from cllm.providers.http.stdlib_transport import StdlibTransport
from cllm.providers.openai import OpenAIProvider
from cllm.wire.anthropic import request as anthropic_request
from cllm.wire.openai import request as openai_request

sys.path.append(str(Path(__file__).parents[3] / "bench"))

import traffic

DECODERS = {
    "openai": openai_request.decode_request,
    "anthropic": anthropic_request.decode_request,
}


def make_provider(protocol: traffic.Protocol) -> HttpProvider:
    http, url = StdlibTransport(), "http://127.0.0.1:9"
    if protocol == "bedrock":
        return BedrockProvider(
            name="x", account=AwsAccount(bearer="k", endpoint_url=url), http=http
        )
    if protocol == "anthropic":
        return AnthropicProvider(name="x", base_url=url, api_key="k", http=http)
    return OpenAIProvider(name="x", base_url=url, api_key="k", http=http)


@pytest.mark.parametrize("client", traffic.CLIENTS)
def test_the_conversation_has_200_messages_and_a_system_prompt(client):
    fields = json.loads(traffic.request_body(client, "some-model"))

    assert sum(message["role"] != "system" for message in fields["messages"]) == 200
    assert len(fields["tools"]) == 10


def test_results_follow_their_calls_in_openai_requests():
    messages = json.loads(traffic.request_body("openai", "some-model"))["messages"]
    indexes = [index for index, message in enumerate(messages) if message.get("tool_calls")]

    assert len(indexes) == 40
    for index in indexes:
        ids = [call["id"] for call in messages[index]["tool_calls"]]
        results = messages[index + 1 : index + 1 + len(ids)]
        assert [result.get("tool_call_id") for result in results] == ids


def test_results_are_in_the_message_after_their_calls_in_anthropic_requests():
    messages = json.loads(traffic.request_body("anthropic", "some-model"))["messages"]
    pairs = zip(messages[1::4], messages[2::4], strict=True)

    for calls, results in pairs:
        ids = [block["id"] for block in calls["content"] if block["type"] == "tool_use"]
        assert len(ids) == 2
        assert [block["tool_use_id"] for block in results["content"]] == ids


@pytest.mark.parametrize("client", traffic.CLIENTS)
@pytest.mark.parametrize("protocol", traffic.PROTOCOLS)
def test_the_complete_conversation_reaches_every_provider(client, protocol):
    prompt = DECODERS[client](traffic.request_body(client, traffic.MODELS[protocol]))

    body = make_provider(protocol)._encode(prompt).body.decode()

    exchanges = 200 // traffic.MESSAGES_PER_EXCHANGE[client]
    for number in range(exchanges):
        for text in (traffic.question(number), traffic.reply(number)):
            assert json.dumps(text, ensure_ascii=False)[1:-1] in body
    assert all(f"call_{number:024}" in body for number in range(2 * exchanges))


@pytest.mark.parametrize("kind", traffic.KINDS)
@pytest.mark.parametrize("protocol", traffic.PROTOCOLS)
def test_a_stream_is_a_complete_reply_with_one_delta_per_event(protocol, kind):
    reader = make_provider(protocol)._stream_reader(ProviderRequest(url="", body=b""))

    events = [event for data in traffic.stream(protocol, kind) for event in reader.feed(data)]

    event_type = {"text": TextDelta, "thinking": ThinkingDelta, "arguments": ToolCallDelta}[kind]
    field = "arguments" if kind == "arguments" else "text"
    texts = [getattr(event, field) for event in events if isinstance(event, event_type)]
    assert [text for text in texts if text] == traffic.deltas(kind)
    finished = reader.finish()
    assert isinstance(finished, ReplyFinished)
    assert finished.stop_reason == ("tool_calls" if kind == "arguments" else "end")


def test_the_deltas_of_arguments_are_one_json_object():
    assert set(json.loads("".join(traffic.deltas("arguments")))) == {"notes"}


@pytest.mark.parametrize("protocol", traffic.PROTOCOLS)
def test_the_short_response_is_valid_in_its_protocol(protocol):
    events = make_provider(protocol)._decode_answer(
        traffic.response_body(protocol), ProviderRequest(url="", body=b"")
    )

    end = events[-1]
    assert isinstance(end, ReplyFinished)
    assert b"Yes." in end.message.raw
    assert end.stop_reason == "end"
