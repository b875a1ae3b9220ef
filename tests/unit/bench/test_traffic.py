"""The traffic that the benchmark of the wire measures with is such as providers accept."""

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


def provider(protocol: traffic.Protocol) -> HttpProvider:
    http, url = StdlibTransport(), "http://127.0.0.1:9"
    if protocol == "bedrock":
        return BedrockProvider(
            name="x", account=AwsAccount(bearer="k", endpoint_url=url), http=http
        )
    if protocol == "anthropic":
        return AnthropicProvider(name="x", base_url=url, api_key="k", http=http)
    return OpenAIProvider(name="x", base_url=url, api_key="k", http=http)


@pytest.mark.parametrize("client", traffic.CLIENTS)
def test_the_conversation_has_200_messages_beside_its_system_prompt(client):
    fields = json.loads(traffic.request_body(client, "some-model"))

    assert sum(message["role"] != "system" for message in fields["messages"]) == 200
    assert len(fields["tools"]) == 10


def test_every_call_in_openais_words_is_answered_before_anything_else_is_said():
    messages = json.loads(traffic.request_body("openai", "some-model"))["messages"]
    asked = [place for place, message in enumerate(messages) if message.get("tool_calls")]

    assert len(asked) == 40
    for place in asked:
        ids = [call["id"] for call in messages[place]["tool_calls"]]
        answers = messages[place + 1 : place + 1 + len(ids)]
        assert [answer.get("tool_call_id") for answer in answers] == ids


def test_every_call_in_anthropics_words_is_answered_in_the_next_message():
    messages = json.loads(traffic.request_body("anthropic", "some-model"))["messages"]
    pairs = zip(messages[1::4], messages[2::4], strict=True)

    for asked, answered in pairs:
        ids = [block["id"] for block in asked["content"] if block["type"] == "tool_use"]
        assert len(ids) == 2
        assert [block["tool_use_id"] for block in answered["content"]] == ids


@pytest.mark.parametrize("client", traffic.CLIENTS)
@pytest.mark.parametrize("protocol", traffic.PROTOCOLS)
def test_the_whole_conversation_reaches_every_provider(client, protocol):
    prompt = DECODERS[client](traffic.request_body(client, traffic.MODELS[protocol]))

    body = provider(protocol)._encode(prompt).body.decode()

    exchanges = 200 // traffic.MESSAGES_OF_EXCHANGE[client]
    for number in range(exchanges):
        for words in (traffic.question(number), traffic.answer(number)):
            assert json.dumps(words, ensure_ascii=False)[1:-1] in body
    assert all(f"call_{number:024}" in body for number in range(2 * exchanges))


@pytest.mark.parametrize("kind", traffic.KINDS)
@pytest.mark.parametrize("protocol", traffic.PROTOCOLS)
def test_a_stream_is_a_whole_answer_of_one_delta_an_event(protocol, kind):
    reader = provider(protocol)._stream_reader(ProviderRequest(url="", body=b""))

    events = [event for piece in traffic.stream(protocol, kind) for event in reader.feed(piece)]

    said = {"text": TextDelta, "thinking": ThinkingDelta, "arguments": ToolCallDelta}[kind]
    field = "arguments" if kind == "arguments" else "text"
    pieces = [getattr(event, field) for event in events if isinstance(event, said)]
    assert [piece for piece in pieces if piece] == traffic.pieces(kind)
    finished = reader.finish()
    assert isinstance(finished, ReplyFinished)
    assert finished.stop_reason == ("tool_calls" if kind == "arguments" else "end")


def test_the_pieces_of_arguments_are_json_together():
    assert set(json.loads("".join(traffic.pieces("arguments")))) == {"notes"}


@pytest.mark.parametrize("protocol", traffic.PROTOCOLS)
def test_the_short_answer_is_one_in_the_words_of_its_protocol(protocol):
    events = provider(protocol)._decode_answer(
        traffic.whole_answer(protocol), ProviderRequest(url="", body=b"")
    )

    end = events[-1]
    assert isinstance(end, ReplyFinished)
    assert b"Yes." in end.message.raw
    assert end.stop_reason == "end"
