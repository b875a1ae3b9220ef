"""Token usage of all protocols: disjoint, adding up, never negative."""

import json
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cllm.core.message import plain_message
from cllm.core.reply import ReplyFinished, Usage
from cllm.wire.anthropic import response_decoder as anthropic_decoder
from cllm.wire.anthropic import response_encoder as anthropic_encoder
from cllm.wire.bedrock import response_decoder as bedrock_decoder
from cllm.wire.openai import response_decoder as openai_decoder
from cllm.wire.openai.fields import decode_usage, encode_usage

COUNTS = st.integers(0, 10_000)
USAGES = st.builds(
    Usage,
    input=COUNTS,
    output=COUNTS,
    cache_read=COUNTS,
    cache_write=COUNTS,
    reasoning=COUNTS,
)
ODD = st.none() | st.integers(-5, 50) | st.just(2**60) | st.text(max_size=2)


def from_anthropic(usage: Any) -> Usage | None:
    body = {"type": "message", "content": [], "stop_reason": "end_turn", "usage": usage}
    finished = anthropic_decoder.decode_answer(json.dumps(body).encode())[-1]
    assert isinstance(finished, ReplyFinished)
    return finished.usage


def from_bedrock(usage: Any) -> Usage | None:
    message = {"role": "assistant", "content": [{"text": "Hi"}]}
    body = {"output": {"message": message}, "stopReason": "end_turn", "usage": usage}
    finished = bedrock_decoder.decode_answer(json.dumps(body).encode())[-1]
    assert isinstance(finished, ReplyFinished)
    return finished.usage


def numbers(usage: Usage) -> tuple[int, ...]:
    return (usage.input, usage.output, usage.cache_read, usage.cache_write, usage.reasoning)


@given(USAGES)
def test_openai_usage_survives_encoding(usage):
    assert decode_usage(encode_usage(usage)) == usage


@given(USAGES, COUNTS)
def test_anthropic_usage_survives_encoding(usage, hour):
    usage = msgspec.structs.replace(usage, cache_write_hour=min(hour, usage.cache_write))
    assert from_anthropic(anthropic_encoder.encode_usage(usage)) == usage


@given(USAGES)
def test_openai_input_includes_cached_tokens_and_anthropic_input_does_not(usage):
    openai, anthropic = encode_usage(usage), anthropic_encoder.encode_usage(usage)
    assert openai["prompt_tokens"] == usage.input + usage.cache_read + usage.cache_write
    assert openai["total_tokens"] == usage.total
    assert anthropic["input_tokens"] == usage.input
    assert anthropic["output_tokens"] == usage.output + usage.reasoning


@given(COUNTS, COUNTS, COUNTS, COUNTS, COUNTS)
def test_openai_counts_add_up_to_the_reported_totals(prompt, read, write, completion, thought):
    usage = decode_usage(
        {
            "prompt_tokens": prompt,
            "completion_tokens": completion,
            "total_tokens": prompt + completion,
            "prompt_tokens_details": {"cached_tokens": read, "cache_write_tokens": write},
            "completion_tokens_details": {"reasoning_tokens": thought},
        }
    )
    assert usage is not None
    assert min(numbers(usage)) >= 0
    assert usage.input + usage.cache_read + usage.cache_write == prompt
    assert usage.output + usage.reasoning == completion


@pytest.mark.parametrize(
    ("said", "usage"),
    [
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 4,
                "prompt_cache_hit_tokens": 6,
                "prompt_cache_miss_tokens": 4,
            },
            Usage(input=4, cache_read=6, output=4),
        ),
        (
            {"prompt_tokens": 10, "completion_tokens": 4, "cached_tokens": 3},
            Usage(input=7, cache_read=3, output=4),
        ),
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 4,
                "total_tokens": 34,
                "completion_tokens_details": {"reasoning_tokens": 20},
            },
            Usage(input=10, output=4, reasoning=20),
        ),
        (
            {
                "prompt_tokens": 10,
                "completion_tokens": 4,
                "prompt_tokens_details": {"cached_tokens": 2, "cache_write_tokens": 5},
            },
            Usage(input=3, cache_read=2, cache_write=5, output=4),
        ),
    ],
    ids=["deepseek", "moonshot", "reasoning beside", "written"],
)
def test_counts_of_other_servers_are_converted(said, usage):
    assert decode_usage(said) == usage


def test_cache_writes_by_lifetime_are_added():
    parts = {"ephemeral_5m_input_tokens": 3, "ephemeral_1h_input_tokens": 4}
    said = {"input_tokens": 1, "output_tokens": 2, "cache_creation": parts}
    counted = Usage(input=1, output=2, cache_write=7, cache_write_hour=4)
    assert from_anthropic(said) == counted
    assert from_anthropic({**said, "cache_creation_input_tokens": 7}) == counted


def test_bedrock_cache_writes_for_an_hour_are_counted():
    details = [{"ttl": "1h", "inputTokens": 4}, {"ttl": "5m", "inputTokens": 3}]
    said = {"inputTokens": 1, "outputTokens": 2, "totalTokens": 10, "cacheDetails": details}
    counted = Usage(input=1, output=2, cache_write=7, cache_write_hour=4)
    assert from_bedrock({**said, "cacheWriteInputTokens": 7}) == counted
    assert from_bedrock(said) == counted


@pytest.mark.parametrize("details", [None, [], {}, "1h", [{"ttl": "1h"}], [7]], ids=repr)
def test_invalid_cache_details_of_bedrock_do_not_change_other_counts(details):
    said = {"inputTokens": 1, "outputTokens": 2, "cacheWriteInputTokens": 7}
    assert from_bedrock({**said, "cacheDetails": details}) == Usage(
        input=1, output=2, cache_write=7
    )


def test_anthropic_clients_receive_lifetimes_and_server_tools():
    usage = {
        "input_tokens": 1,
        "output_tokens": 2,
        "cache_creation": {"ephemeral_1h_input_tokens": 4, "ephemeral_5m_input_tokens": 0},
        "server_tool_use": {"web_search_requests": 3},
    }
    body = {"type": "message", "content": [], "stop_reason": "end_turn", "usage": usage}
    finished = anthropic_decoder.decode_answer(json.dumps(body).encode())[-1]
    assert isinstance(finished, ReplyFinished)
    encoder = anthropic_encoder.AnthropicStreamEncoder(message_id="m", model="x")
    ending = next(
        line for line in encoder.encode(finished).split(b"\n") if b'"message_delta"' in line
    )
    told = json.loads(ending.removeprefix(b"data: "))["usage"]
    assert usage.items() <= told.items()


def test_bedrock_input_does_not_include_cached_tokens():
    said = {
        "inputTokens": 1,
        "outputTokens": 2,
        "totalTokens": 15,
        "cacheReadInputTokens": 5,
        "cacheWriteInputTokens": 7,
    }
    usage = from_bedrock(said)
    assert usage == Usage(input=1, output=2, cache_read=5, cache_write=7)
    assert usage.total == said["totalTokens"]


@given(
    st.dictionaries(
        st.sampled_from(
            [
                "prompt_tokens",
                "completion_tokens",
                "input_tokens",
                "output_tokens",
                "cache_read_input_tokens",
                "inputTokens",
                "outputTokens",
                "cacheReadInputTokens",
            ]
        ),
        ODD,
    )
)
def test_counts_are_never_negative(said):
    for usage in (decode_usage(said), from_anthropic(said), from_bedrock(said)):
        assert usage is None or 0 <= min(numbers(usage)) <= max(numbers(usage)) <= 2**53


@given(USAGES)
def test_usage_of_a_stream_equals_that_of_the_whole_answer(usage):
    said = encode_usage(usage)
    decoder = openai_decoder.OpenAIStreamDecoder()
    choice = {"index": 0, "delta": {"content": "Hi"}, "finish_reason": "stop"}
    decoder.decode(json.dumps({"choices": [choice]}).encode())
    decoder.decode(json.dumps({"choices": [], "usage": said}).encode())
    finished = decoder.finish()
    assert finished is not None
    assert finished.usage == usage
    assert finished.message == plain_message("assistant", "Hi")
