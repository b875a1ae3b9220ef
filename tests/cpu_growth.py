"""Measures how the processor time of a request grows with its size.

A server in this process with a store in memory and real providers, over a transport that answers
from memory. `growth` compares a size with twice that size: linear work gives about 2, quadratic
work about 4. Caches of earlier requests are emptied before each request, and the garbage collector,
whose full collections come at some sizes and not at others, is off.
"""

import asyncio
import gc
import json
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
from tests.fake_provider import PROTOCOLS, Head, Reply, Request, Send
from tests.server_app import ServerApp, open_server_app

from cllm.providers.http.provider import HttpProvider
from cllm.providers.http.transport import HttpResponse, Timeouts

MAX_LINEAR_GROWTH = 2.5
"""The most that the processor time may be multiplied by when the size is doubled."""
ROUNDS = 30
PIECE_BYTES = 65_536

CLIENTS = {"chat": "/v1/chat/completions", "messages": "/v1/messages"}
MODELS = {
    "chat": "openai/gpt-test",
    "responses": "openai/gpt-5-codex",
    "anthropic": "anthropic/claude-opus-4-6",
    "bedrock": "bedrock/claude-opus-4-6",
}
PAIRS = [(client, provider) for client in CLIENTS for provider in MODELS]
SETTINGS = """
providers:
  anthropic: {api_key: sk-ant-0123456789}
  bedrock: {api_key: bedrock-0123456789}
server:
  limits: {messages: 1000000, parts: 1000000}
"""
STREAM = "text/event-stream"
RESPONSE = {
    "id": "resp_1",
    "object": "response",
    "status": "completed",
    "model": "m",
    "output": [
        {
            "id": "msg_1",
            "type": "message",
            "status": "completed",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "ok", "annotations": []}],
        }
    ],
    "usage": {"input_tokens": 1, "output_tokens": 1, "total_tokens": 2},
}


def encode_sse(*events: Mapping[str, Any] | str) -> bytes:
    """Server-sent events with this data; those of a type have that for their name."""
    return b"".join(map(_sse, events))


def _sse(event: Mapping[str, Any] | str) -> bytes:
    if isinstance(event, str):
        return f"data: {event}\n\n".encode()
    name = f"event: {event['type']}\n" if "type" in event else ""
    return f"{name}data: {json.dumps(event)}\n\n".encode()


class CannedResponse(HttpResponse):
    """A response whose body is there already, in pieces of the size that the network has."""

    def __init__(self, body: bytes, content_type: str, **given: Any) -> None:
        super().__init__(**given)
        self.status = 200
        self.headers = {"Content-Type": content_type}
        self._body = body
        self._at = 0

    async def _next(self, limit: float) -> bytes:  # noqa: ARG002 - it is there
        # As on a network, the client has its turn between two pieces.
        await asyncio.sleep(0)
        piece = self._body[self._at : self._at + PIECE_BYTES]
        self._at += len(piece)
        return piece

    async def close(self) -> None: ...


class CannedTransport:
    """Answers "ok" in the protocol of the address, or with the `body` that it was given."""

    def __init__(self) -> None:
        self.body: bytes | None = None
        self.content_type = STREAM

    async def post(
        self,
        url: str,
        *,
        headers: Mapping[str, str],  # noqa: ARG002
        body: bytes,
        provider: str,
        timeouts: Timeouts,
    ) -> HttpResponse:
        answer = (self.body, self.content_type)
        if self.body is None:
            is_stream = url.endswith("-stream") or b'"stream":true' in body
            answer = _ANSWERS[url.rpartition("/")[2], is_stream]
        return CannedResponse(answer[0] or b"", answer[1], provider=provider, timeouts=timeouts)

    async def close(self) -> None: ...


def _answer(path: str, *, stream: bool) -> tuple[bytes, str]:
    request = Request(
        method="POST", path=path, headers={}, body=b"", received_at=0.0, json={"stream": stream}
    )
    head, *rest = PROTOCOLS[path].steps(Reply(pieces=("ok",)), request, 1)
    assert isinstance(head, Head)
    return b"".join(step.data for step in rest if isinstance(step, Send)), dict(head.headers)[
        "Content-Type"
    ]


_ANSWERS: dict[tuple[str, bool], tuple[bytes, str]] = {
    ("completions", False): _answer("/v1/chat/completions", stream=False),
    ("completions", True): _answer("/v1/chat/completions", stream=True),
    ("messages", False): _answer("/v1/messages", stream=False),
    ("messages", True): _answer("/v1/messages", stream=True),
    ("converse", False): _answer("/model/{id}/converse", stream=False),
    ("converse-stream", True): _answer("/model/{id}/converse-stream", stream=True),
    ("responses", False): (json.dumps(RESPONSE).encode(), "application/json"),
    ("responses", True): (
        encode_sse(
            {"type": "response.output_text.delta", "delta": "ok"},
            {"type": "response.completed", "response": RESPONSE},
        ),
        STREAM,
    ),
}


class MeasuredServer:
    """A server whose requests are measured."""

    def __init__(self, server: ServerApp, http: CannedTransport) -> None:
        self.server = server
        self.http = http

    async def send(
        self, client: str, body: bytes, headers: Mapping[str, str] | None = None
    ) -> httpx.Response:
        return await self.server("POST", CLIENTS[client], content=body, headers=dict(headers or {}))

    async def growth(
        self, small: bytes, large: bytes, send: Callable[[bytes], Awaitable[httpx.Response]]
    ) -> float:
        """By how much the processor time grows: the least times of interleaved rounds, compared.

        There is one round if that shows linear growth, and there are more if it does not: on a
        machine with other work a single time can be too long, and never too short.
        """
        times = {small: math.inf, large: math.inf}
        gc.collect()
        gc.disable()
        try:
            for _ in range(ROUNDS):
                for body, least in list(times.items()):
                    times[body] = min(least, await self._time(body, send))
                if times[large] <= MAX_LINEAR_GROWTH * times[small]:
                    break
        finally:
            gc.enable()
        return times[large] / times[small]

    async def _time(self, body: bytes, send: Callable[[bytes], Awaitable[httpx.Response]]) -> float:
        begun = time.process_time()
        answer = await send(body)
        spent = time.process_time() - begun
        assert answer.is_success, answer.text[:500]
        await self._delete(answer.headers.get("X-Conversation-ID"))
        return spent

    async def _delete(self, conversation: str | None) -> None:
        if conversation is not None:
            await self.server("DELETE", f"/v1/conversations/{conversation}?permanent=true")


@asynccontextmanager
async def start_measured_server(folder: Path) -> AsyncIterator[MeasuredServer]:
    """A server in this process whose providers are asked over one canned transport."""
    async with open_server_app(folder, SETTINGS, timeout=None) as server:
        http = CannedTransport()
        for model in MODELS.values():
            provider = server.state.app.find_route(model).provider
            assert isinstance(provider, HttpProvider)
            provider._http = http
        scaled = MeasuredServer(server, http)
        for client, provider_name in PAIRS:
            # What is imported when it is first used is not measured.
            for stream in (False, True):
                asked = {"model": MODELS[provider_name], "max_tokens": 99, "stream": stream}
                said = {"messages": [{"role": "user", "content": "Hello"}], "k": 1}
                await scaled.send(client, json.dumps({**asked, **said}).encode())
        # What exists now is never looked at again; it stays frozen, as the collected tests are.
        gc.collect()
        gc.freeze()
        yield scaled
