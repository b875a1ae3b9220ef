"""Stop reasons, usage and errors of providers, for clients of both protocols."""

import gzip
import json
from typing import Any

import pytest
from tests.fake_provider import Head, Send
from tests.fidelity.answers import (
    anthropic_head,
    anthropic_stream,
    anthropic_whole,
    converse_block,
    converse_stream,
    converse_whole,
    openai_stream,
    openai_whole,
    sse,
    text_block,
    tool_block,
)
from tests.fidelity.clients import (
    last,
    to_anthropic_client,
    to_openai_client,
    whole_for_anthropic,
    whole_for_openai,
)

from cllm.core import errors
from cllm.core.reply import TextDelta, Usage

both_ways = pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])


def answered(kind: str, reason: Any, *, stream: bool) -> Any:
    """An answer of one text, with that reason in the provider's words."""
    if kind == "openai":
        message = {"content": "B"}
        return openai_stream(message, finish=reason) if stream else openai_whole(message, reason)
    if kind == "anthropic":
        if stream:
            return anthropic_stream(text_block(0, "B"), stop=reason)
        return anthropic_whole({"type": "text", "text": "B"}, stop=reason)
    if stream:
        return converse_stream(converse_block(0, {"text": "B"}), stop=reason)
    return converse_whole({"text": "B"}, stop=reason)


REASONS = [
    ("openai", "stop", "end", "end_turn", "stop"),
    ("openai", "length", "length", "max_tokens", "length"),
    ("openai", "content_filter", "content_filter", "refusal", "content_filter"),
    ("anthropic", "end_turn", "end", "end_turn", "stop"),
    ("anthropic", "max_tokens", "length", "max_tokens", "length"),
    (
        "anthropic",
        "model_context_window_exceeded",
        "context_window",
        "model_context_window_exceeded",
        "length",
    ),
    ("anthropic", "stop_sequence", "stop_sequence", "stop_sequence", "stop"),
    ("anthropic", "refusal", "refusal", "refusal", "content_filter"),
    ("anthropic", "pause_turn", "pause", "pause_turn", "length"),
    ("bedrock", "end_turn", "end", "end_turn", "stop"),
    ("bedrock", "max_tokens", "length", "max_tokens", "length"),
    ("bedrock", "stop_sequence", "stop_sequence", "stop_sequence", "stop"),
    ("bedrock", "guardrail_intervened", "content_filter", "refusal", "content_filter"),
    ("bedrock", "content_filtered", "content_filter", "refusal", "content_filter"),
    ("bedrock", "malformed_model_output", "unknown", "max_tokens", "length"),
    ("bedrock", "malformed_tool_use", "unknown", "max_tokens", "length"),
    (
        "bedrock",
        "model_context_window_exceeded",
        "context_window",
        "model_context_window_exceeded",
        "length",
    ),
]


@both_ways
@pytest.mark.parametrize(("kind", "provider_reason", "reason", "anthropic", "openai"), REASONS)
async def test_a_stop_reason_means_the_same_to_both_clients(
    ask, kind, provider_reason, reason, anthropic, openai, stream
):
    exchange = await ask(kind, answer=answered(kind, provider_reason, stream=stream), stream=stream)
    assert last(exchange.events).stop_reason == reason
    assert to_anthropic_client(exchange.events).message.stop_reason == anthropic
    assert whole_for_anthropic(exchange.events).stop_reason == anthropic
    assert to_openai_client(exchange.events).finish_reason == openai
    assert whole_for_openai(exchange.events).choices[0].finish_reason == openai


@both_ways
async def test_a_paused_turn_is_not_a_finished_one(ask, stream):
    exchange = await ask("anthropic", answer=answered("anthropic", "pause_turn", stream=stream))
    assert last(exchange.events).stop_reason == "pause"
    assert to_openai_client(exchange.events).finish_reason not in ("stop", "tool_calls")
    assert to_anthropic_client(exchange.events).message.stop_reason == "pause_turn"


@both_ways
@pytest.mark.parametrize(
    ("kind", "reason"),
    [
        ("openai", "reason_of_tomorrow"),
        *((kind, reason) for kind in ("anthropic", "bedrock") for reason in ("tomorrow", "")),
    ],
)
async def test_an_unknown_stop_reason_is_never_stop(ask, kind, reason, stream):
    answer = answered(kind, reason, stream=stream)
    exchange = await ask(kind, answer=answer, stream=stream)
    assert last(exchange.events).stop_reason == "unknown"
    assert to_openai_client(exchange.events).finish_reason != "stop"
    assert to_anthropic_client(exchange.events).message.stop_reason != "end_turn"
    assert whole_for_anthropic(exchange.events).stop_reason != "end_turn"


@both_ways
@pytest.mark.parametrize("reason", [None, ""])
async def test_a_complete_answer_without_a_finish_reason_is_not_cut_off(ask, reason, stream):
    answer = answered("openai", reason, stream=stream)
    exchange = await ask("openai", answer=answer, stream=stream)
    assert last(exchange.events).stop_reason == "end"
    assert to_openai_client(exchange.events).finish_reason == "stop"
    assert to_anthropic_client(exchange.events).message.stop_reason == "end_turn"
    assert whole_for_anthropic(exchange.events).stop_reason == "end_turn"


async def test_an_anthropic_answer_without_a_stop_reason_is_never_stop(ask):
    answer = answered("anthropic", None, stream=False)
    exchange = await ask("anthropic", answer=answer, stream=False)
    assert last(exchange.events).stop_reason == "unknown"


@both_ways
async def test_a_refusal_of_openai_is_a_refusal_to_both_clients(ask, stream):
    message = {"content": None, "refusal": "I cannot help with that."}
    answer = openai_stream(message) if stream else openai_whole(message)
    exchange = await ask("openai", answer=answer, stream=stream)
    assert last(exchange.events).stop_reason == "refusal"
    assert to_anthropic_client(exchange.events).message.stop_reason == "refusal"
    assert whole_for_anthropic(exchange.events).stop_reason == "refusal"
    assert to_openai_client(exchange.events).finish_reason == "stop"
    assert whole_for_openai(exchange.events).choices[0].finish_reason == "stop"


async def test_an_anthropic_stream_without_a_stop_reason_is_never_stop(ask):
    exchange = await ask("anthropic", answer=answered("anthropic", None, stream=True))
    assert last(exchange.events).stop_reason == "unknown"
    assert to_openai_client(exchange.events).finish_reason != "stop"


async def test_the_stop_sequence_of_anthropic_is_returned(ask):
    answer = anthropic_stream(text_block(0, "B"), stop="stop_sequence", stop_sequence="X")
    exchange = await ask("anthropic", {"stop": ["X"]}, answer=answer)
    assert last(exchange.events).stop_sequence == "X"
    message = to_anthropic_client(exchange.events).message
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", "X")
    whole = whole_for_anthropic(exchange.events)
    assert (whole.stop_reason, whole.stop_sequence) == ("stop_sequence", "X")


@both_ways
async def test_the_stop_sequence_of_bedrock_is_requested_and_returned(ask, stream):
    fields = {"stop_sequence": "X"}
    answer = converse_stream(converse_block(0, {"text": "B"}), stop="stop_sequence", fields=fields)
    if not stream:
        answer = converse_whole({"text": "B"}, stop="stop_sequence", fields=fields)
    body = {"stop_sequences": ["X"]}
    exchange = await ask("bedrock", body, client="anthropic", answer=answer, stream=stream)
    assert exchange.sent["additionalModelResponseFieldPaths"] == ["/stop_sequence"]
    message = to_anthropic_client(exchange.events).message
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", "X")


@both_ways
async def test_a_stop_sequence_of_openai_is_an_end(ask, stream):
    """OpenAI does not tell which sequence matched, nor that one did."""
    answer = answered("openai", "stop", stream=stream)
    exchange = await ask("openai", {"stop": ["X"]}, answer=answer, stream=stream)
    assert to_anthropic_client(exchange.events).message.stop_sequence is None


@both_ways
async def test_a_refusal_of_openai_is_a_refusal_for_an_openai_client(ask, stream):
    reply = {"content": None, "refusal": "I can't help with that."}
    pieces = [{"refusal": "I can't "}, {"refusal": "help with that."}]
    answer = openai_stream(*pieces) if stream else openai_whole(reply)
    exchange = await ask("openai", answer=answer, stream=stream)
    assert whole_for_openai(exchange.events).choices[0].message.refusal == reply["refusal"]
    message = to_openai_client(exchange.events).message
    assert message.refusal == reply["refusal"]
    assert not message.content


@both_ways
async def test_a_refusal_of_openai_is_sent_to_an_anthropic_client(ask, stream):
    message = {"content": None, "refusal": "I can't help with that."}
    answer = openai_stream(message) if stream else openai_whole(message)
    exchange = await ask("openai", answer=answer, stream=stream)
    assert to_anthropic_client(exchange.events).content == [
        {"type": "text", "text": message["refusal"]}
    ]
    assert whole_for_anthropic(exchange.events).content[0].text == message["refusal"]


@both_ways
async def test_a_text_and_a_refusal_are_two_blocks_for_an_anthropic_client(ask, stream):
    message = {"content": "Well.", "refusal": "No."}
    answer = openai_stream(message) if stream else openai_whole(message)
    exchange = await ask("openai", answer=answer, stream=stream)
    blocks = [{"type": "text", "text": "Well."}, {"type": "text", "text": "No."}]
    assert to_anthropic_client(exchange.events).content == blocks
    assert [block.text for block in whole_for_anthropic(exchange.events).content] == [
        "Well.",
        "No.",
    ]


def test_usage_adds_up():
    assert Usage(input=1, output=2, cache_read=4, cache_write=8, reasoning=16).total == 31


OPENAI_USAGE = {
    "prompt_tokens": 100,
    "completion_tokens": 50,
    "total_tokens": 150,
    "prompt_tokens_details": {"cached_tokens": 60},
    "completion_tokens_details": {"reasoning_tokens": 30},
}


@both_ways
async def test_cached_and_reasoning_tokens_of_openai_are_counted_once(ask, stream):
    message = {"content": "B"}
    answer = openai_stream(message, usage=OPENAI_USAGE)
    if not stream:
        answer = openai_whole(message, usage=OPENAI_USAGE)
    exchange = await ask("openai", answer=answer, stream=stream)
    assert last(exchange.events).usage == Usage(input=40, cache_read=60, output=20, reasoning=30)
    usage = to_anthropic_client(exchange.events).message.usage
    assert (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens) == (40, 60, 50)
    back = to_openai_client(exchange.events).completion.usage
    assert (back.prompt_tokens, back.completion_tokens, back.total_tokens) == (100, 50, 150)
    assert back.prompt_tokens_details.cached_tokens == 60
    assert back.completion_tokens_details.reasoning_tokens == 30


@pytest.mark.parametrize("place", ["choice", "last chunk with choices", "before the end"])
async def test_usage_is_found_in_every_place_of_compatible_servers(ask, place):
    steps = list(openai_stream({"content": "B"}, usage=None))
    frame = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    choice = {"index": 0, "delta": {}, "finish_reason": None}
    if place == "choice":
        choice["finish_reason"] = "stop"
    choices = [] if place == "before the end" else [choice]
    counted = frame | {"choices": choices, "usage": OPENAI_USAGE}
    steps.insert(3 if place != "before the end" else 2, *sse_data(counted))
    exchange = await ask("openai", answer=tuple(steps))
    assert last(exchange.events).usage == Usage(input=40, cache_read=60, output=20, reasoning=30)


def sse_data(chunk: Any) -> tuple[Send]:
    return (Send(f"data: {json.dumps(chunk)}\n\n".encode()),)


ANTHROPIC_USAGE = {
    "input_tokens": 40,
    "cache_read_input_tokens": 60,
    "cache_creation_input_tokens": 5,
    "output_tokens": 50,
}


@both_ways
async def test_cached_tokens_of_anthropic_are_in_the_openai_total(ask, stream):
    block = {"type": "text", "text": "B"}
    answer = anthropic_whole(block, usage=ANTHROPIC_USAGE)
    if stream:
        end = {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}
        answer = sse(
            anthropic_head(ANTHROPIC_USAGE | {"output_tokens": 1}),
            *text_block(0, "B"),
            end | {"usage": {"output_tokens": 50}},
            {"type": "message_stop"},
        )
    exchange = await ask("anthropic", answer=answer, stream=stream)
    counted = Usage(input=40, cache_read=60, cache_write=5, output=50)
    assert last(exchange.events).usage == counted
    usage = to_openai_client(exchange.events).completion.usage
    assert usage.total_tokens == counted.total == 155
    assert usage.prompt_tokens == 105
    assert usage.prompt_tokens_details.cached_tokens == 60
    usage = whole_for_anthropic(exchange.events).usage
    assert (usage.cache_read_input_tokens, usage.cache_creation_input_tokens) == (60, 5)


@both_ways
async def test_cache_tokens_of_bedrock_are_counted_once(ask, stream):
    usage = {
        "inputTokens": 40,
        "outputTokens": 50,
        "totalTokens": 155,
        "cacheReadInputTokens": 60,
        "cacheWriteInputTokens": 5,
    }
    answer = converse_stream(converse_block(0, {"text": "B"}), usage=usage)
    if not stream:
        answer = converse_whole({"text": "B"}, usage=usage)
    exchange = await ask("bedrock", answer=answer, stream=stream)
    counted = last(exchange.events).usage
    assert counted == Usage(input=40, cache_read=60, cache_write=5, output=50)
    assert counted.total == 155


@both_ways
async def test_missing_usage_is_unknown_and_not_zero(ask, server, stream):
    server.queue_reply("Hi", usage=None)
    exchange = await ask("openai", stream=stream)
    assert last(exchange.events).usage is None
    assert whole_for_openai(exchange.events).usage is None
    assert b'"usage":{' not in to_openai_client(exchange.events).sent


@pytest.mark.parametrize(
    "usage",
    [{}, {"prompt_tokens": -1}, {"prompt_tokens": "many"}, [], "none", {"prompt_tokens": None}],
    ids=repr,
)
async def test_invalid_usage_is_unknown(ask, usage):
    exchange = await ask("openai", answer=openai_whole({"content": "B"}, usage=usage), stream=False)
    assert last(exchange.events).usage is None


@pytest.mark.parametrize(
    "details",
    [{"cached_tokens": 200}, {"cached_tokens": None}, None, {}],
    ids=repr,
)
async def test_invalid_usage_details_never_give_negative_counts(ask, details):
    usage = {"prompt_tokens": 100, "completion_tokens": 5, "prompt_tokens_details": details}
    exchange = await ask("openai", answer=openai_whole({"content": "B"}, usage=usage), stream=False)
    counted = last(exchange.events).usage
    assert counted is not None
    assert min(counted.input, counted.cache_read, counted.output) >= 0


async def test_a_stream_requests_usage(ask):
    assert (await ask("openai")).sent["stream_options"] == {"include_usage": True}
    exchange = await ask("openai", {"max_tokens": 9}, client="anthropic")
    assert exchange.sent["stream_options"] == {"include_usage": True}
    assert "stream_options" not in (await ask("openai", stream=False)).sent


STATUSES = [
    (400, errors.InvalidRequestError),
    (401, errors.AuthenticationError),
    (403, errors.PermissionDeniedError),
    (404, errors.InvalidRequestError),
    (413, errors.InvalidRequestError),
    (422, errors.InvalidRequestError),
    (429, errors.RateLimitedError),
    (500, errors.UpstreamError),
    (502, errors.UpstreamError),
    (503, errors.UpstreamError),
    (504, errors.UpstreamError),
    (529, errors.UpstreamError),
]


@pytest.mark.parametrize("kind", ["openai", "anthropic", "bedrock"])
@pytest.mark.parametrize(("status", "expected"), STATUSES)
async def test_a_status_has_one_kind_of_error(break_off, server, kind, status, expected):
    server.queue_error(status, "No.", Retry_After="7")
    _, error = await break_off(kind)
    assert (type(error), error.status, error.retry_after) == (expected, status, 7.0)


@pytest.mark.parametrize("kind", ["openai", "anthropic", "bedrock"])
async def test_a_prompt_that_is_too_long_is_recognised_by_its_code(break_off, server, kind):
    message = {
        "openai": (400, "Too many tokens.", "context_length_exceeded"),
        "anthropic": (400, "prompt is too long: 250000 tokens > 200000 maximum", None),
        "bedrock": (400, "250000 tokens > 200000 maximum", "ValidationException"),
    }[kind]
    server.queue_error(message[0], message[1], code=message[2])
    _, error = await break_off(kind)
    assert isinstance(error, errors.PromptTooLongError)
    assert error.status == 400


@pytest.mark.parametrize(
    ("kind", "message", "code"),
    [
        ("bedrock", "Input is too long for requested model.", "ValidationException"),
        ("openai", "This model's maximum context length is 8192 tokens.", None),
        ("anthropic", "Prompt is too long", None),
    ],
)
async def test_a_prompt_that_is_too_long_is_recognised_by_its_text(
    break_off, server, kind, message, code
):
    server.queue_error(400, message, code=code)
    _, error = await break_off(kind)
    assert isinstance(error, errors.PromptTooLongError)


STREAMED_ERRORS = [
    ({"type": "invalid_request_error", "code": "tool_use_failed", "status_code": 400}, 400),
    ({"type": "invalid_request_error", "code": "tool_use_failed"}, 400),
    ({"code": 429, "metadata": {}}, 429),
    ({"type": "rate_limit_error"}, 429),
    ({"type": "insufficient_quota", "code": "insufficient_quota"}, 429),
    ({"type": "server_error"}, 500),
    ({}, 500),
]


@pytest.mark.parametrize(("fields", "status"), STREAMED_ERRORS)
async def test_an_error_in_a_stream_has_the_status_that_it_states(
    break_off, server, fields, status
):
    error = {"message": "No.", **fields}
    server.queue_steps(
        Head(headers={"Content-Type": "text/event-stream"}), *sse_data({"error": error})
    )
    _, raised = await break_off("openai")
    assert raised.status == status
    assert raised.report().status == status
    assert raised.provider_message == "No."


@pytest.mark.parametrize("kind", ["openai", "anthropic", "bedrock"])
@both_ways
async def test_a_compressed_answer_is_decoded_without_its_headers(ask, server, kind, stream):
    """Our own body is encoded anew: nothing of the provider's length or encoding is handed on."""
    answer = answered(kind, {"openai": "stop"}.get(kind, "end_turn"), stream=stream)
    data = gzip.compress(b"".join(step.data for step in answer[1:]))
    headers = dict(answer[0].headers) | {
        "Content-Encoding": "gzip",
        "Content-Length": str(len(data)),
    }
    exchange = await ask(kind, answer=(Head(headers=headers), Send(data)), stream=stream)
    assert to_openai_client(exchange.events).message.content == "B"
    assert to_anthropic_client(exchange.events).content == [{"type": "text", "text": "B"}]


async def test_two_choices_are_not_mixed(ask):
    """`n` is the client's wish; a choice that is not the first is not put into the first."""
    frame = {"id": "c", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    chunks = [
        frame | {"choices": [{"index": i, "delta": {"content": message}, "finish_reason": None}]}
        for i, message in ((0, "A"), (1, "X"), (0, "B"), (1, "Y"))
    ]
    ends = [
        frame | {"choices": [{"index": i, "delta": {}, "finish_reason": "stop"}]} for i in (1, 0)
    ]
    sends = [step for chunk in (*chunks, *ends) for step in sse_data(chunk)]
    steps = (openai_stream()[0], *sends, Send(b"data: [DONE]\n\n"))
    exchange = await ask("openai", answer=steps)
    message = [event.text for event in exchange.events if isinstance(event, TextDelta)]
    assert "".join(message) == "AB"


async def test_a_truncated_call_has_the_stop_reason_length(ask):
    answer = anthropic_stream(tool_block(0, '{"path": "/a", "conte'), stop="max_tokens")
    exchange = await ask("anthropic", answer=answer)
    read = to_openai_client(exchange.events)
    assert read.finish_reason == "length"
    assert read.calls[0][2] == '{"path": "/a", "conte'
