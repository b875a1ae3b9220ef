"""Extra fields of OpenAI answers are sent to OpenAI clients only."""

import json
from typing import Any

import pytest

from cllm.core.message import Text
from cllm.core.reply import Noticed, PartAdded, ReplyEvent, ReplyFinished, TextDelta
from cllm.wire.anthropic.response_encoder import AnthropicStreamEncoder as AnthropicEncoder
from cllm.wire.openai.response_decoder import OpenAIStreamDecoder, decode_answer
from cllm.wire.openai.response_encoder import OpenAIStreamEncoder, encode_reply

TOKEN = {"token": "Hi", "logprob": -0.5, "bytes": [72, 105], "top_logprobs": []}
CITED = {"type": "url_citation", "url_citation": {"url": "https://x.test", "title": "X"}}
HEAD = {
    "id": "chatcmpl-7",
    "object": "chat.completion",
    "created": 1_760_000_000,
    "model": "gpt-4o",
    "system_fingerprint": "fp_1",
    "service_tier": "default",
}
OWN_USAGE = {
    "prompt_tokens": 3,
    "completion_tokens": 2,
    "total_tokens": 5,
    "completion_tokens_details": {"accepted_prediction_tokens": 1, "reasoning_tokens": 0},
}


def whole(*, choices: int = 1) -> dict[str, Any]:
    message = {"role": "assistant", "content": "Hi", "annotations": [CITED], "audio": {"id": "a"}}
    choices_list = [
        {
            "index": index,
            "message": message,
            "logprobs": {"content": [TOKEN]},
            "finish_reason": "stop",
        }
        for index in range(choices)
    ]
    return {**HEAD, "choices": choices_list, "usage": OWN_USAGE, "brand_new": {"x": 1}}


def chunks(*, choices: int = 1) -> list[dict[str, Any]]:
    head = {**HEAD, "object": "chat.completion.chunk"}
    deltas: list[dict[str, Any]] = [
        {"delta": {"role": "assistant", "content": "H"}, "logprobs": {"content": [TOKEN]}},
        {"delta": {"content": "i"}, "logprobs": {"content": [TOKEN], "refusal": None}},
        {"delta": {"annotations": [CITED]}},
        {"delta": {"audio": {"id": "a", "data": "AA", "transcript": "H"}}},
        {"delta": {"audio": {"data": "BB", "transcript": "i"}}},
        {"delta": {}, "finish_reason": "stop"},
    ]
    choices_list = [
        {**head, "choices": [{"index": index, **delta}]}
        for delta in deltas
        for index in range(choices)
    ]
    return [*choices_list, {**head, "choices": [], "usage": OWN_USAGE}]


def decode_stream(sent: list[dict[str, Any]]) -> list[ReplyEvent]:
    decoder = OpenAIStreamDecoder()
    events = [event for chunk in sent for event in decoder.decode(json.dumps(chunk).encode())]
    finished = decoder.finish()
    assert finished is not None
    return [*events, finished]


def encode_stream(events: list[ReplyEvent]) -> list[dict[str, Any]]:
    encoder = OpenAIStreamEncoder(model="gpt-4o", id="c", created=7, include_usage=True)
    data = b"".join(encoder.encode(event) for event in events).decode()
    lines = [line.removeprefix("data: ") for line in data.split("\n\n") if line]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


def choices_of(body: list[dict[str, Any]], index: int) -> list[dict[str, Any]]:
    return [choice for chunk in body for choice in chunk["choices"] if choice["index"] == index]


def last_of(events: list[ReplyEvent]) -> ReplyFinished:
    last = events[-1]
    assert isinstance(last, ReplyFinished)
    return last


def test_a_whole_answer_is_forwarded_byte_for_byte():
    body = json.dumps(whole()).encode()
    assert encode_reply(last_of(decode_answer(body)), parts=[Text(text="Hi")]) == body


def test_a_whole_answer_with_another_id_keeps_its_other_fields():
    finished = last_of(decode_answer(json.dumps(whole(choices=2)).encode()))
    body = json.loads(encode_reply(finished, parts=[], id="mine", created=1, model="alias"))
    assert body == {**whole(choices=2), "id": "mine", "created": 1, "model": "alias"}


def test_an_answer_of_another_protocol_is_encoded_from_its_parts():
    finished = last_of(decode_answer(json.dumps(whole()).encode()))
    plain = ReplyFinished(message=finished.message, stop_reason="end", model="m")
    body = json.loads(encode_reply(plain, parts=[Text(text="Hi")], id="i", created=3))
    assert (body["id"], body["created"], body["model"]) == ("i", 3, "m")
    assert body["choices"][0]["message"]["content"] == "Hi"


def test_log_probabilities_are_streamed():
    body = choices_of(encode_stream(decode_stream(chunks())), 0)
    tokens = [t for choice in body for t in (choice["logprobs"] or {}).get("content") or []]
    assert tokens == [TOKEN, TOKEN]
    assert "".join(choice["delta"].get("content") or "" for choice in body) == "Hi"
    assert [choice["delta"].get("role") for choice in body].count("assistant") == 1


def test_annotations_and_audio_are_streamed_and_saved():
    events = decode_stream(chunks())
    deltas = [choice["delta"] for choice in choices_of(encode_stream(events), 0)]
    assert [delta["annotations"] for delta in deltas if "annotations" in delta] == [[CITED]]
    assert [delta["audio"].get("data") for delta in deltas if "audio" in delta] == ["AA", "BB"]
    message = last_of(events).message.json()
    assert message["annotations"] == [CITED]
    assert message["audio"] == {"id": "a", "data": "AABB", "transcript": "Hi"}


def test_the_last_chunk_has_the_fingerprint_service_tier_and_usage():
    *_, ending, counts = encode_stream(decode_stream(chunks()))
    for chunk in (ending, counts):
        assert (chunk["system_fingerprint"], chunk["service_tier"]) == ("fp_1", "default")
    assert OWN_USAGE.items() <= counts["usage"].items()


def test_a_stream_equals_the_whole_answer():
    raw = last_of(decode_stream(chunks())).raw
    assert raw is not None
    body = json.loads(raw)
    assert HEAD.items() <= body.items()
    assert body["usage"] == OWN_USAGE
    (choice,) = body["choices"]
    assert choice["logprobs"] == {"content": [TOKEN, TOKEN]}
    assert choice["finish_reason"] == "stop"


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_only_the_first_choice_is_saved_with_one_notice(stream):
    if stream:
        events = decode_stream(chunks(choices=3))
    else:
        events = decode_answer(json.dumps(whole(choices=3)).encode())
    notices = [event.notice.code for event in events if isinstance(event, Noticed)]
    assert notices == ["choices_not_kept"]
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == "Hi"


def test_every_choice_of_a_stream_is_sent_to_openai_clients():
    body = encode_stream(decode_stream(chunks(choices=3)))
    for index in (1, 2):
        pieces = choices_of(body, index)
        assert "".join(piece["delta"].get("content") or "" for piece in pieces) == "Hi"
        assert pieces[-1]["finish_reason"] == "stop"


def test_clients_of_another_protocol_receive_one_complete_answer():
    encoder = AnthropicEncoder(message_id="m", model="x")
    sent = b"".join(encoder.encode(event) for event in decode_stream(chunks(choices=2)))
    assert sent.count(b"event: content_block_start") == 1
    assert b"logprob" not in sent


def test_tool_calls_have_the_clients_names():
    body = whole()
    call = {"id": "1", "type": "function", "function": {"name": "alias", "arguments": "{}"}}
    body["choices"][0]["message"] = {"role": "assistant", "content": None, "tool_calls": [call]}
    finished = last_of(decode_answer(json.dumps(body).encode(), names={"alias": "my.tool"}))
    body = json.loads(encode_reply(finished, parts=[]))
    assert body["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "my.tool"
    assert body["brand_new"] == {"x": 1}


def test_extra_fields_are_not_text():
    events = decode_stream(chunks())
    assert sum(isinstance(event, PartAdded) for event in events) == 5


def test_a_stream_keeps_the_providers_name_for_reasoning():
    for name in ("reasoning", "reasoning_content"):
        sent = [
            {"choices": [{"index": 0, "delta": {name: "hm"}}]},
            {"choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": "stop"}]},
        ]
        deltas = [choice["delta"] for choice in choices_of(encode_stream(decode_stream(sent)), 0)]
        assert deltas[0] == {"role": "assistant", name: "hm"}


def test_a_stream_keeps_the_unknown_fields_of_its_chunks():
    head = {"id": "c", "created": 7, "model": "m", "obfuscation": "abc"}
    sent = [
        {**head, "provider": "Groq", "x_groq": {"id": "req_1"}, "choices": []},
        {**head, "choices": [{"index": 0, "delta": {"content": "Hi"}}]},
        {
            **head,
            "citations": ["https://a.example"],
            "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}],
        },
        {**head, "x_groq": {"usage": {}}, "choices": [], "usage": OWN_USAGE},
    ]
    events = decode_stream(sent)
    extra = {
        "provider": "Groq",
        "x_groq": {"usage": {}},
        "citations": ["https://a.example"],
    }
    *_, ending, counts = encode_stream(events)
    raw = json.loads(last_of(events).raw or b"")
    for body in (ending, counts, raw):
        assert extra.items() <= body.items()
        assert "obfuscation" not in body
    assert (raw["id"], raw["created"], raw["model"]) == ("c", 7, "m")
