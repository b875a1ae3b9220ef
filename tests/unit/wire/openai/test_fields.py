"""All that an OpenAI answer carries beside its message reaches an OpenAI client, and no other."""

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
    said = [
        {
            "index": index,
            "message": message,
            "logprobs": {"content": [TOKEN]},
            "finish_reason": "stop",
        }
        for index in range(choices)
    ]
    return {**HEAD, "choices": said, "usage": OWN_USAGE, "brand_new": {"x": 1}}


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
    said = [
        {**head, "choices": [{"index": index, **delta}]}
        for delta in deltas
        for index in range(choices)
    ]
    return [*said, {**head, "choices": [], "usage": OWN_USAGE}]


def streamed(sent: list[dict[str, Any]]) -> list[ReplyEvent]:
    decoder = OpenAIStreamDecoder()
    events = [event for chunk in sent for event in decoder.decode(json.dumps(chunk).encode())]
    finished = decoder.finish()
    assert finished is not None
    return [*events, finished]


def shown(events: list[ReplyEvent]) -> list[dict[str, Any]]:
    encoder = OpenAIStreamEncoder(model="gpt-4o", id="c", created=7, include_usage=True)
    data = b"".join(encoder.encode(event) for event in events).decode()
    lines = [line.removeprefix("data: ") for line in data.split("\n\n") if line]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


def choices_of(told: list[dict[str, Any]], index: int) -> list[dict[str, Any]]:
    return [choice for chunk in told for choice in chunk["choices"] if choice["index"] == index]


def last_of(events: list[ReplyEvent]) -> ReplyFinished:
    last = events[-1]
    assert isinstance(last, ReplyFinished)
    return last


def test_a_whole_answer_goes_on_byte_for_byte():
    body = json.dumps(whole()).encode()
    assert encode_reply(last_of(decode_answer(body)), parts=[Text(text="Hi")]) == body


def test_a_whole_answer_can_be_given_another_id_and_loses_nothing_else():
    finished = last_of(decode_answer(json.dumps(whole(choices=2)).encode()))
    told = json.loads(encode_reply(finished, parts=[], id="mine", created=1, model="alias"))
    assert told == {**whole(choices=2), "id": "mine", "created": 1, "model": "alias"}


def test_an_answer_of_another_protocol_is_written_from_its_parts():
    finished = last_of(decode_answer(json.dumps(whole()).encode()))
    plain = ReplyFinished(message=finished.message, stop_reason="end", model="m")
    told = json.loads(encode_reply(plain, parts=[Text(text="Hi")], id="i", created=3))
    assert (told["id"], told["created"], told["model"]) == ("i", 3, "m")
    assert told["choices"][0]["message"]["content"] == "Hi"


def test_log_probabilities_are_streamed_on():
    told = choices_of(shown(streamed(chunks())), 0)
    tokens = [t for choice in told for t in (choice["logprobs"] or {}).get("content") or []]
    assert tokens == [TOKEN, TOKEN]
    assert "".join(choice["delta"].get("content") or "" for choice in told) == "Hi"
    assert [choice["delta"].get("role") for choice in told].count("assistant") == 1


def test_annotations_and_audio_are_streamed_on_and_kept_with_the_message():
    events = streamed(chunks())
    deltas = [choice["delta"] for choice in choices_of(shown(events), 0)]
    assert [delta["annotations"] for delta in deltas if "annotations" in delta] == [[CITED]]
    assert [delta["audio"].get("data") for delta in deltas if "audio" in delta] == ["AA", "BB"]
    message = last_of(events).message.json()
    assert message["annotations"] == [CITED]
    assert message["audio"] == {"id": "a", "data": "AABB", "transcript": "Hi"}


def test_the_fingerprint_the_tier_and_the_own_counts_come_with_the_end():
    *_, ending, counts = shown(streamed(chunks()))
    for chunk in (ending, counts):
        assert (chunk["system_fingerprint"], chunk["service_tier"]) == ("fp_1", "default")
    assert OWN_USAGE.items() <= counts["usage"].items()


def test_a_stream_is_the_same_answer_as_a_whole_one():
    raw = last_of(streamed(chunks())).raw
    assert raw is not None
    told = json.loads(raw)
    assert HEAD.items() <= told.items()
    assert told["usage"] == OWN_USAGE
    (choice,) = told["choices"]
    assert choice["logprobs"] == {"content": [TOKEN, TOKEN]}
    assert choice["finish_reason"] == "stop"


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
def test_of_several_choices_the_first_is_kept_and_that_is_said_once(stream):
    if stream:
        events = streamed(chunks(choices=3))
    else:
        events = decode_answer(json.dumps(whole(choices=3)).encode())
    notices = [event.notice.code for event in events if isinstance(event, Noticed)]
    assert notices == ["choices_not_kept"]
    assert "".join(e.text for e in events if isinstance(e, TextDelta)) == "Hi"


def test_every_choice_of_a_stream_reaches_an_openai_client():
    told = shown(streamed(chunks(choices=3)))
    for index in (1, 2):
        pieces = choices_of(told, index)
        assert "".join(piece["delta"].get("content") or "" for piece in pieces) == "Hi"
        assert pieces[-1]["finish_reason"] == "stop"


def test_a_client_of_another_protocol_is_shown_one_unbroken_answer():
    encoder = AnthropicEncoder(message_id="m", model="x")
    sent = b"".join(encoder.encode(event) for event in streamed(chunks(choices=2)))
    assert sent.count(b"event: content_block_start") == 1
    assert b"logprob" not in sent


def test_calls_go_on_under_the_clients_names():
    body = whole()
    call = {"id": "1", "type": "function", "function": {"name": "alias", "arguments": "{}"}}
    body["choices"][0]["message"] = {"role": "assistant", "content": None, "tool_calls": [call]}
    finished = last_of(decode_answer(json.dumps(body).encode(), names={"alias": "my.tool"}))
    told = json.loads(encode_reply(finished, parts=[]))
    assert told["choices"][0]["message"]["tool_calls"][0]["function"]["name"] == "my.tool"
    assert told["brand_new"] == {"x": 1}


def test_what_is_beside_the_message_is_no_text():
    events = streamed(chunks())
    assert sum(isinstance(event, PartAdded) for event in events) == 5
