"""Cases of the other routes: token counts, embeddings, models, malformed requests."""

import copy
import itertools
from collections.abc import Iterator
from typing import Any

from tests.agent_request import HEADERS as AGENT_HEADERS
from tests.agent_request import make_agent_request
from tests.differential.catalogue.builders import (
    MODELS,
    MODES,
    PATHS,
    PROTOCOLS,
    PROVIDERS,
    STATES,
    encode_body,
    make_body,
    make_call,
    make_case,
    make_steps,
)
from tests.differential.catalogue.conversations import get, send
from tests.differential.model import Action, Call, Case, Json, Refusal
from tests.fake_provider import Head, Send

COUNT = "/v1/messages/count_tokens"
PNG = "iVBORw0KGgo="
MARK = {"type": "ephemeral", "ttl": "5m"}


def count_cases() -> Iterator[Case]:
    """Token counts, by a provider or estimated, with and without a conversation."""
    texts = ("Hi", "word " * 400, "🐈" * 50, "def f(x):\n    return x ** 2\n" * 20)
    for provider, (number, text) in itertools.product(PROVIDERS, enumerate(texts)):
        body = {"model": MODELS[provider], "messages": [{"role": "user", "content": text}]}
        headers = {"X-Provider": provider}
        steps: list[Action] = [send("POST", COUNT, body, headers=headers)]
        if number == 0:
            opening = make_call("anthropic", provider, make_body("anthropic"), conversation="")
            continued = {**headers, "X-Conversation-ID": "{conversation}"}
            steps += [opening, send("POST", f"{COUNT}?beta=true", body, headers=continued)]
            steps += [send("POST", COUNT, body, headers=headers, answers=(Refusal(status=500),))]
        yield make_case(f"count-{number}", "count_tokens", provider, "whole", "stateless", steps)


def embedding_cases() -> Iterator[Case]:
    inputs: list[Any] = ["Hello", ["a", "b", "c"], [[1, 2, 3]], "", None, {"a": 1}]
    for number, value in enumerate(inputs):
        for provider in ("openai", "anthropic", "bedrock", "deepseek"):
            body = {"model": "text-embedding-3-small", "input": value, "dimensions": 2}
            headers = {"X-Provider": provider}
            steps = [send("POST", "/v1/embeddings", body, headers=headers)]
            yield make_case(f"embed-{number}", "embeddings", provider, "whole", "stateless", steps)
    for number, refusal in enumerate((Refusal(status=400), Refusal(status=429))):
        body = {"model": "openai/text-embedding-3-small", "input": "x"}
        step = send("POST", "/v1/embeddings", body, answers=(refusal,))
        yield make_case(f"embed-no-{number}", "embeddings", "openai", "whole", "stateless", [step])


def server_cases() -> Iterator[Case]:
    """Routes about the server, unusual requests and invalid bodies."""
    paths = (
        "/",
        "/health",
        "/ready",
        "/docs",
        "/openapi.json",
        "/v1/models",
        "/v1/models/gpt-4o",
        "/v1/models/openai/gpt-test",
        "/v1/models/text-embedding-3-small",
        "/v1/models/none",
        "/v1/usage?from=2020-01-01&to=2020-01-02",
        "/v1/usage?by=colour",
        "/v1/usage?from=soon",
        "/v1/nothing",
        "/v1/responses",
        "/chat/completions",
        "/v1/chat/completions",
        "/v1/messages",
        "/v1/messages/",
        "/V1/models",
        "/v1//models",
        "/v1/models?x=1&x=2",
        "/favicon.ico",
        "/metrics/none",
    )
    for path, method in itertools.product(paths, ("GET", "HEAD", "POST")):
        step = Call(method=method, path=path, body=b"{}" if method == "POST" else None)
        name = f"route-{method}-{path}"
        yield make_case(name, "server", "none", "whole", "none", [step])
    # On a separate server: the numbers depend on the durations of other requests.
    metrics = [get("/metrics")]
    yield make_case("route-metrics", "server", "none", "whole", "none", metrics, "separate")
    headers: tuple[Json, ...] = (
        {"Host": "evil.example"},
        {"Host": "localhost"},
        {"Origin": "https://evil.example"},
        {"X-Provider": "none"},
        {"X-Provider": ""},
        {"X-Provider": "anthropic", "anthropic-beta": "novel-2030-01-01,fine"},
        {"X-CLLM-Strict": "true"},
        {"X-CLLM-Strict": "perhaps"},
        {"X-CLLM-History": "full"},
        {"Idempotency-Key": "x" * 300},
        {"Idempotency-Key": ""},
        {"anthropic-version": "2030-01-01"},
        {"Accept": "text/event-stream"},
        {"Content-Type": "text/plain"},
        {"Content-Encoding": "gzip"},
        {"x-anthropic-api-key": "sk-ant-mine", "X-Provider": "anthropic"},
        {"x-anthropic-api-key": "sk-ant-oat01-mine", "X-Provider": "anthropic"},
        {"x-anthropic-api-key": "sk-ant-mine"},
        {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"},
    )
    for protocol, (number, named) in itertools.product(PROTOCOLS, enumerate(headers)):
        call = Call(
            path=PATHS[protocol],
            headers=named,
            body=encode_body(make_body(protocol, model="gpt-4o")),
        )
        name = f"header-{number:02}"
        yield make_case(name, protocol, "openai", "whole", "stateless", [call])
    yield from _broken_bodies()


def _broken_bodies() -> Iterator[Case]:
    bodies = (
        b"",
        b"null",
        b"[]",
        b"{",
        b"\xff\xfe",
        b'{"model": "gpt-4o"}',
        b'{"model": 5, "messages": [{"role": "user", "content": "x"}]}',
        b'{"model": "gpt-4o", "messages": [{"role": "user", "content": "\\ud83d"}]}',
        b'{"model": "gpt-4o", "messages": [{"role": "user", "content": "a\\u0000b"}]}',
        b'{"model": "gpt-4o", "model": "gpt-4", "messages": [{"role":"user","content":"x"}]}',
        b'{ "model" : "gpt-4o",\n "messages" : [ {"content":"x", "role":"user"} ] , "z":1e400 }',
        b'{"model":"gpt-4o","messages":[{"role":"user","content":"caf\\u00e9 \\/"}],"seed":1.0}',
        b'{"model":"gpt-4o","messages":[{"role":"user","content":"x"}],"n":2}',
        b'{"model":"gpt-4o","messages":[{"role":"user","content":"x"}],"stream":"yes"}',
        b"[" * 5000,
        b'{"model":"gpt-4o","messages":' + b"[" * 200 + b"]" * 200 + b"}",
    )
    for protocol, (number, body) in itertools.product(PROTOCOLS, enumerate(bodies)):
        for state in ("stateless", "new"):
            headers = {"X-Conversation-ID": ""} if state == "new" else {}
            call = Call(path=PATHS[protocol], headers=headers, body=body)
            yield make_case(f"body-{number:02}", protocol, "openai", "whole", state, [call])
    requests = (
        b"GET /health HTTP/1.0\r\n\r\n",
        b"GET /health HTTP/1.1\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"nonsense\r\n\r\n",
        b"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: x\r\n\r\n",
    )
    for number, data in enumerate(requests):
        call = Call(path="", body=data, is_raw=True)
        yield make_case(f"raw-{number}", "server", "none", "whole", "none", [call])


def agent_cases() -> Iterator[Case]:
    """A coding agent's request, to every provider in every mode and state."""
    for provider, mode, state in itertools.product(PROVIDERS, MODES, STATES):
        body = make_agent_request(MODELS[provider])
        steps = make_steps(state, "anthropic", provider, body, mode=mode, headers=AGENT_HEADERS)
        yield make_case("agent", "anthropic", provider, mode, state, steps)


OPENAI_REQUEST: Json = {
    "max_tokens": 9,
    "temperature": 0.5,
    "stop": ["X"],
    "n": 1,
    "reasoning_effort": "low",
    "parallel_tool_calls": False,
    "tool_choice": {"type": "function", "function": {"name": "f"}},
    "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {}}},
    "tools": [
        {"type": "function", "function": {"name": "f", "strict": True}, "cache_control": MARK}
    ],
    "messages": [
        {"role": "system", "content": [{"type": "text", "text": "S", "cache_control": MARK}]},
        {
            "role": "user",
            "name": "a",
            "content": [
                {"type": "text", "text": "x"},
                {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
            ],
        },
        {
            "role": "assistant",
            "content": "y",
            "reasoning_content": "r",
            "tool_calls": [
                {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
            ],
        },
        {"role": "tool", "tool_call_id": "a", "content": [{"type": "text", "text": "ok"}]},
        {"role": "user", "content": "z"},
    ],
}
ANTHROPIC_REQUEST: Json = {
    "max_tokens": 2000,
    "top_k": 1,
    "stop_sequences": ["X"],
    "metadata": {"user_id": "u"},
    "thinking": {"type": "enabled", "budget_tokens": 1024},
    "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
    "system": [{"type": "text", "text": "S", "cache_control": MARK}],
    "tools": [{"name": "f", "input_schema": {"type": "object"}, "cache_control": MARK}],
    "messages": [
        {
            "role": "user",
            "content": [
                {"type": "text", "text": "x"},
                {
                    "type": "image",
                    "source": {"type": "base64", "media_type": "image/png", "data": PNG},
                },
            ],
        },
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "t", "signature": "s"},
                {"type": "redacted_thinking", "data": "RVRY"},
                {"type": "tool_use", "id": "c", "name": "f", "input": {"a": 1}},
            ],
        },
        {
            "role": "user",
            "content": [
                {
                    "type": "tool_result",
                    "tool_use_id": "c",
                    "is_error": True,
                    "content": [{"type": "text", "text": "ok"}],
                }
            ],
        },
    ],
}
UNUSUAL_VALUES: tuple[Any, ...] = (None, "", "🐈", -1, 1.5, True, 2**70, [], {}, [None], {"a": 1})
REMOVED = object()


def malformed_request_cases() -> Iterator[Case]:
    """Requests with one unusual value or one missing value, at each path of the body."""
    for protocol, request in (("openai", OPENAI_REQUEST), ("anthropic", ANTHROPIC_REQUEST)):
        for number, path in enumerate(_list_paths(request)):
            for turn in range(2):
                odd = (*UNUSUAL_VALUES, REMOVED)[(number * 2 + turn) % (len(UNUSUAL_VALUES) + 1)]
                provider = PROVIDERS[(number + turn) % len(PROVIDERS)]
                mode = MODES[number % 2]
                body = _replace_at(request, path, odd)
                steps = [make_call(protocol, provider, body, mode=mode)]
                name = f"odd-{number:03}-{turn}"
                yield make_case(name, protocol, provider, mode, "stateless", steps)


def _list_paths(value: Any, prefix: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    if prefix:
        yield prefix
    inner = value.items() if isinstance(value, dict) else ()
    for name, field in enumerate(value) if isinstance(value, list) else inner:
        yield from _list_paths(field, (*prefix, name))


def _replace_at(value: Json, path: tuple[str | int, ...], new: Any) -> Json:
    changed = copy.deepcopy(value)
    parent: Any = changed
    for name in path[:-1]:
        parent = parent[name]
    if new is REMOVED:
        del parent[path[-1]]
    else:
        parent[path[-1]] = new
    return changed


def malformed_response_cases() -> Iterator[Case]:
    """Complete responses with one unusual value."""
    answers: dict[str, Json] = {
        "openai": {
            "id": "c",
            "object": "chat.completion",
            "created": 9,
            "model": "gpt",
            "choices": [
                {
                    "index": 0,
                    "message": {
                        "role": "assistant",
                        "content": "B",
                        "reasoning_content": "r",
                        "tool_calls": [
                            {
                                "id": "a",
                                "type": "function",
                                "function": {"name": "f", "arguments": "{}"},
                            }
                        ],
                    },
                    "finish_reason": "stop",
                }
            ],
            "usage": {"prompt_tokens": 3, "completion_tokens": 2},
        },
        "anthropic": {
            "id": "msg_9",
            "type": "message",
            "role": "assistant",
            "model": "claude",
            "content": [
                {"type": "thinking", "thinking": "t", "signature": "s"},
                {"type": "text", "text": "x"},
                {"type": "tool_use", "id": "t", "name": "f", "input": {"a": 1}},
            ],
            "stop_reason": "end_turn",
            "stop_sequence": None,
            "usage": {"input_tokens": 11, "output_tokens": 7},
        },
        "bedrock": {
            "output": {
                "message": {
                    "role": "assistant",
                    "content": [
                        {"text": "x"},
                        {"reasoningContent": {"reasoningText": {"text": "t", "signature": "s"}}},
                        {"toolUse": {"toolUseId": "t", "name": "f", "input": {"a": 1}}},
                    ],
                }
            },
            "stopReason": "end_turn",
            "usage": {"inputTokens": 11, "outputTokens": 7, "totalTokens": 18},
        },
    }
    for provider, answer in answers.items():
        for number, path in enumerate(_list_paths(answer)):
            odd = (*UNUSUAL_VALUES, REMOVED)[number % (len(UNUSUAL_VALUES) + 1)]
            data = encode_body(_replace_at(answer, path, odd))
            headers = {"Content-Type": "application/json", "Content-Length": str(len(data))}
            steps = (Head(headers=headers), Send(data))
            protocol = PROTOCOLS[number % 2]
            state = STATES[number % 2]
            calls = make_steps(
                state, protocol, provider, make_body(protocol), mode="whole", answers=[steps]
            )
            yield make_case(f"odd-answer-{number:02}", protocol, provider, "whole", state, calls)


def route_cases() -> Iterator[Case]:
    """Yield all cases of this module."""
    yield from count_cases()
    yield from embedding_cases()
    yield from server_cases()
    yield from agent_cases()
    yield from malformed_request_cases()
    yield from malformed_response_cases()
