"""Streams of every provider, and errors in them, read by OpenAI's SDK."""

import json
from typing import Any

import openai
import pytest
from tests.fake_provider import Cut, Head, Send, Silence, ToolCall, response_steps
from tests.fidelity.answers import (
    FRAMES,
    SSE,
    anthropic_block,
    anthropic_head,
    anthropic_stream,
    converse_block,
    converse_stream,
    converse_tool,
    openai_call,
    openai_stream,
    openai_whole,
    sse,
    text_block,
    thinking_block,
    tool_block,
)
from tests.fidelity.clients import (
    read_chunks,
    stream_for_openai,
    to_anthropic_client,
    to_openai_client,
    whole_for_openai,
)

from cllm.core import errors
from cllm.core.errors import ProviderError
from cllm.core.reply import ReplyFinished, TextDelta
from cllm.engine.retry import RetryRules, call_with_retry
from cllm.providers.http.transport import Timeouts
from cllm.server.api.completions import KEEP_ALIVE
from cllm.wire.openai.response_encoder import OpenAIStreamEncoder

KINDS = ["openai", "anthropic", "bedrock"]
every_kind = pytest.mark.parametrize("kind", KINDS)
FIRSTS: dict[str, Any] = {
    "text": {"pieces": ("Hi",)},
    "thinking": {"pieces": ("Hi",), "reasoning": ("hm",)},
    "call": {
        "tool_calls": (ToolCall(id="a", name="f", arguments="{}"),),
        "finish": "tool_calls",
    },
    "nothing": {},
}


def encoder() -> OpenAIStreamEncoder:
    return OpenAIStreamEncoder(model="m", id="c", created=7, include_usage=True)


@every_kind
@pytest.mark.parametrize("first", FIRSTS)
async def test_the_first_chunk_always_has_the_role(ask, server, kind, first):
    fields = dict(FIRSTS[first])
    server.queue_reply(*fields.pop("pieces", ()), **fields)
    read = to_openai_client((await ask(kind, client="openai")).events)
    assert read.deltas[0]["role"] == "assistant"


TWO_THINGS_AND_TWO_CALLS = {
    "anthropic": anthropic_stream(
        thinking_block(0, "hm"),
        text_block(1, "B"),
        tool_block(2, '{"n":', "1}", call="a"),
        tool_block(3, '{"n":2}', call="b"),
        text_block(4, "C"),
        tool_block(5, '{"n":3}', call="c"),
        stop="tool_use",
    ),
    "bedrock": converse_stream(
        converse_block(0, {"reasoningContent": {"text": "hm"}}),
        converse_block(1, {"text": "B"}),
        converse_tool(2, '{"n":', "1}", call="a"),
        converse_tool(3, '{"n":2}', call="b"),
        converse_block(4, {"text": "C"}),
        converse_tool(5, '{"n":3}', call="c"),
        stop="tool_use",
    ),
    "openai": openai_stream(
        {"reasoning_content": "hm"},
        {"content": "B"},
        openai_call(1, '{"n":', id="a", name="f"),
        openai_call(1, "1}"),
        openai_call(2, '{"n":2}', id="b", name="f"),
        {"content": "C"},
        openai_call(7, '{"n":3}', id="c", name="f"),
        finish="tool_calls",
    ),
}


@every_kind
async def test_calls_are_numbered_in_order_and_not_by_block(ask, kind):
    read = to_openai_client((await ask(kind, answer=TWO_THINGS_AND_TWO_CALLS[kind])).events)
    indices = [call["index"] for delta in read.deltas for call in delta.get("tool_calls", [])]
    assert sorted(set(indices)) == [0, 1, 2]
    assert indices == sorted(indices)
    assert read.calls == [
        ("a", "f", '{"n":1}'),
        ("b", "f", '{"n":2}'),
        ("c", "f", '{"n":3}'),
    ]
    assert read.message.content == "BC"
    assert read.message.to_dict()["reasoning_content"] == "hm"
    assert read.finish_reason == "tool_calls"


@pytest.mark.parametrize(
    ("kind", "answer"),
    [
        ("anthropic", anthropic_stream(tool_block(0), stop="tool_use")),
        ("anthropic", anthropic_stream(tool_block(0, "", ""), stop="tool_use")),
        ("bedrock", converse_stream(converse_tool(0, call="toolu_1"), stop="tool_use")),
        ("bedrock", converse_stream(converse_tool(0, "", call="toolu_1"), stop="tool_use")),
        ("openai", openai_stream(openai_call(0, id="toolu_1", name="f"), finish="tool_calls")),
    ],
)
async def test_a_call_without_arguments_has_an_empty_object(ask, kind, answer):
    exchange = await ask(kind, answer=answer)
    assert to_openai_client(exchange.events).calls == [("toolu_1", "f", "{}")]
    (call,) = whole_for_openai(exchange.events).choices[0].message.tool_calls
    assert call.function.arguments == "{}"


async def test_an_input_in_the_start_event_is_sent(ask):
    start = {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}}
    answer = anthropic_stream(anthropic_block(0, start), stop="tool_use")
    (call,) = to_openai_client((await ask("anthropic", answer=answer)).events).calls
    assert call == ("t", "f", '{"a": 1}')


@every_kind
async def test_two_calls_without_arguments_both_get_an_empty_object(ask, server, kind):
    calls = tuple(ToolCall(id=name, name="f", arguments="{}") for name in ("a", "b"))
    server.queue_reply(tool_calls=calls, finish="tool_calls")
    read = to_openai_client((await ask(kind, client="anthropic")).events)
    assert read.calls == [("a", "f", "{}"), ("b", "f", "{}")]


ERRORS = [
    ("anthropic", "overloaded_error", errors.UpstreamError, 529),
    ("anthropic", "rate_limit_error", errors.RateLimitedError, 429),
    ("anthropic", "api_error", errors.UpstreamError, 500),
    ("anthropic", "an_error_of_tomorrow", errors.UpstreamError, 500),
    ("bedrock", "throttlingException", errors.RateLimitedError, 429),
    ("bedrock", "serviceUnavailableException", errors.UpstreamError, 503),
    ("bedrock", "modelStreamErrorException", errors.UpstreamError, 424),
    ("bedrock", "internalServerException", errors.UpstreamError, 500),
]


@pytest.mark.parametrize(("kind", "word", "expected", "status"), ERRORS)
@pytest.mark.parametrize("after", [0, 1, 2])
async def test_an_error_in_the_stream_is_not_an_end(
    break_off, server, kind, word, expected, status, after
):
    server.queue_reply("Hel", "lo", stop_after=after, error=(word, "Too much."))
    events, error = await break_off(kind)
    assert not any(isinstance(event, ReplyFinished) for event in events)
    assert type(error) is expected
    assert error.status == status
    assert error.code == word
    made = encoder()
    sent = b"".join(map(made.encode, events)) + made.error("Too much.", type=word)
    assert b'"finish_reason":"' not in sent
    assert b"[DONE]" not in sent
    with pytest.raises(openai.APIError, match="Too much"):
        read_chunks(sent)


@pytest.mark.parametrize(
    "error",
    [
        {"message": "Too much.", "type": "server_error", "code": None, "param": None},
        {"message": "Too much.", "code": 502, "metadata": {}},
        {"message": "Too much."},
        "Too much.",
    ],
    ids=["openai", "openrouter", "bare", "text"],
)
async def test_an_error_object_in_an_openai_stream_is_not_an_end(break_off, server, error):
    steps = openai_stream({"content": "Hel"})[:2]
    server.queue_steps(
        *steps, *sse({"type": "error", "error": error})[1:], Send(b"data: [DONE]\n\n")
    )
    events, raised = await break_off("openai")
    assert isinstance(raised, errors.UpstreamError)
    assert "Too much" in str(raised)
    assert not any(isinstance(event, ReplyFinished) for event in events)


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize(
    ("code", "expected"), [(429, errors.RateLimitedError), (502, errors.UpstreamError)]
)
async def test_the_status_in_an_openai_error_is_used(break_off, server, stream, code, expected):
    """OpenRouter answers 200 and says the status of what failed behind it as `code`."""
    value = {"error": {"message": "Too much.", "code": code}}
    if stream:
        server.queue_steps(*openai_stream({"content": "Hel"})[:2], *sse({"type": "x", **value})[1:])
    else:
        server.queue_steps(*response_steps(200, json.dumps(value).encode()))
    _, error = await break_off("openai", stream=stream)
    assert (type(error), error.status) == (expected, code)


async def test_nothing_is_encoded_after_an_error(ask):
    exchange = await ask("openai", answer=openai_stream({"content": "Hi"}))
    made = encoder()
    assert made.error("No.", type="api_error")
    assert b"".join(map(made.encode, exchange.events)) == b""
    assert made.error("No.", type="api_error") == b""


async def test_comments_between_chunks_are_skipped(ask):
    exchange = await ask("openai", answer=openai_stream({"content": "A"}, {"content": "B"}))
    made = encoder()
    sent = KEEP_ALIVE + b"".join(made.encode(e) + KEEP_ALIVE for e in exchange.events)
    value = [chunk.choices[0].delta.content for chunk in read_chunks(sent) if chunk.choices]
    assert "".join(filter(None, value)) == "AB"


@every_kind
async def test_pings_of_a_provider_are_not_events_and_reset_the_timeout(ask, kind):
    """Comments and pings come while a model thinks; they are life, and nothing of the answer."""
    quiet = {
        "openai": Send(b": OPENROUTER PROCESSING\n\n"),
        "anthropic": Send(b'event: ping\ndata: {"type": "ping"}\n\n'),
        "bedrock": Send(b""),
    }[kind]
    answer = {
        "openai": openai_stream({"content": "B"}),
        "anthropic": anthropic_stream(text_block(0, "B")),
        "bedrock": converse_stream(converse_block(0, {"text": "B"})),
    }[kind]
    pings = (quiet,) * 5 if kind != "bedrock" else ()
    read = to_openai_client((await ask(kind, answer=(answer[0], *pings, *answer[1:]))).events)
    assert read.message.content == "B"


@every_kind
async def test_silence_in_a_stream_is_a_timeout(break_off, server, kind):
    begun = {
        "openai": openai_stream({"content": "B"})[:2],
        "anthropic": sse(anthropic_head(), *text_block(0, "B")),
        "bedrock": converse_stream(converse_block(0, {"text": "B"}))[:3],
    }[kind]
    server.queue_steps(*begun, Silence())
    events, error = await break_off(kind, timeouts=Timeouts(idle=0.1))
    assert type(error) is errors.ProviderTimeoutError
    assert not any(isinstance(event, ReplyFinished) for event in events)


async def no_wait(_seconds: float) -> None:
    """Asks again at once."""


async def collect(provider: Any, prompt: Any) -> tuple[list[Any], ProviderError | None]:
    """What a patient asker hears, and the error that it ends with."""
    events: list[Any] = []
    patient = call_with_retry(
        lambda: provider.ask(prompt), rules=RetryRules(), sleep=no_wait, jitter=lambda: 0.0
    )
    try:
        async for event in patient:
            events.append(event)  # noqa: PERF401 - what came before an error counts
    except ProviderError as error:
        return events, error
    return events, None


@every_kind
async def test_a_failure_after_the_first_byte_is_not_retried(make, server, prompt, kind):
    server.queue_reply("Hel", "lo", stop_after=1)
    server.queue_reply("Hello again")
    events, error = await collect(make(kind), prompt(kind))
    assert isinstance(error, errors.BrokenStreamError)
    assert [event.text for event in events if isinstance(event, TextDelta)] == ["Hel"]
    assert len(server.requests) == 1


@every_kind
@pytest.mark.parametrize("fault", ["status", "cut before the first event", "hung up"])
async def test_a_failure_before_the_first_byte_is_retried(make, server, prompt, kind, fault):
    if fault == "status":
        server.queue_error(503)
    elif fault == "hung up":
        server.queue_steps(Cut())
    else:
        server.queue_steps(FRAMES if kind == "bedrock" else SSE)
    server.queue_reply("Hello")
    events, error = await collect(make(kind), prompt(kind))
    assert error is None
    assert len(server.requests) == 2
    assert to_openai_client(events).message.content == "Hello"


async def test_a_whole_answer_instead_of_a_stream_is_decoded(ask, server):
    """Some servers pay no heed to `stream`."""
    body = b'{"choices":[{"message":{"role":"assistant","content":"Hi"},"finish_reason":"stop"}]}'
    server.queue_steps(
        Head(headers={"Content-Type": "application/json", "Content-Length": str(len(body))}),
        Send(body),
    )
    assert to_openai_client((await ask("openai")).events).message.content == "Hi"


@every_kind
async def test_white_space_deltas_are_sent(ask, server, kind):
    server.queue_reply("a", " ", "\n\n", "b", "  ", "")
    exchange = await ask(kind)
    assert to_openai_client(exchange.events).message.content == "a \n\nb  "
    assert to_anthropic_client(exchange.events).content == [{"type": "text", "text": "a \n\nb  "}]


LOGPROBS = {
    "content": [{"token": "B", "logprob": -0.1, "bytes": [66], "top_logprobs": []}],
    "refusal": None,
}


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
async def test_requested_log_probabilities_are_returned(ask, stream):
    steps = openai_stream({"content": "B"}) if stream else openai_whole({"content": "B"})
    field = b'"finish_reason":'
    added = b'"logprobs": ' + json.dumps(LOGPROBS).encode() + b', "finish_reason":'
    sends = [step.data.replace(field, added) for step in steps[1:] if isinstance(step, Send)]
    answer = (SSE, *map(Send, sends)) if stream else response_steps(200, sends[0])
    exchange = await ask("openai", {"logprobs": True}, answer=answer, stream=stream)
    if stream:
        assert b'"logprob":-0.1' in to_openai_client(exchange.events).sent
    else:
        choice = whole_for_openai(exchange.events).choices[0]
        assert choice.logprobs is not None
        assert choice.logprobs.content[0].logprob == -0.1


async def test_the_loss_of_further_choices_is_reported(ask):
    steps = openai_stream({"content": "A"})
    second = json.dumps({"choices": [{"index": 1, "delta": {"content": "X"}}]}).encode()
    answer = (*steps[:2], Send(b"data: " + second + b"\n\n"), *steps[2:])
    exchange = await ask("openai", {"n": 2}, answer=answer)
    assert exchange.has_notice("n") or b'"index":1' in stream_for_openai(exchange.events)


async def test_a_bedrock_stream_without_usage_is_an_answer(ask):
    answer = converse_stream(converse_block(0, {"text": "B"}))[:-1]
    exchange = await ask("bedrock", answer=answer)
    assert to_openai_client(exchange.events).message.content == "B"
