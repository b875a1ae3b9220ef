"""Measures how the CPU time of a request grows with its size.

Runs a server in this process with a store in memory and real providers, over a transport that
responds from memory. `growth` compares a size with four times that size: linear work gives about 4,
quadratic work about 16. The conversation of a request is deleted after it. The garbage collector is
off, because its full collections happen at some sizes only.
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

MAX_LINEAR_GROWTH = 6.0
"""The maximum growth of CPU time when the size is four times as large.

Memory that no longer fits in the processor's cache makes linear work grow up to fivefold.
"""
ROUNDS = 30
CHUNK_BYTES = 65_536

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
    """Encode server-sent events. The type of an event, if it has one, is its name."""
    return b"".join(map(_encode_event, events))


def _encode_event(event: Mapping[str, Any] | str) -> bytes:
    if isinstance(event, str):
        return f"data: {event}\n\n".encode()
    name = f"event: {event['type']}\n" if "type" in event else ""
    return f"{name}data: {json.dumps(event)}\n\n".encode()


class CannedResponse(HttpResponse):
    """A response with its body in memory, returned in chunks of network size."""

    def __init__(self, body: bytes, content_type: str, **options: Any) -> None:
        super().__init__(**options)
        self.status = 200
        self.headers = {"Content-Type": content_type}
        self._body = body
        self._offset = 0

    async def _read_chunk(self, limit: float) -> bytes:  # noqa: ARG002 - the body is in memory
        # As on a network, the client runs between two chunks.
        await asyncio.sleep(0)
        chunk = self._body[self._offset : self._offset + CHUNK_BYTES]
        self._offset += len(chunk)
        return chunk

    async def close(self) -> None: ...


class CannedTransport:
    """Responds with "ok" in the protocol of the URL, or with `body` if it is set."""

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
        response = (self.body, self.content_type)
        if self.body is None:
            is_stream = url.endswith("-stream") or b'"stream":true' in body
            response = _RESPONSES[url.rpartition("/")[2], is_stream]
        return CannedResponse(response[0] or b"", response[1], provider=provider, timeouts=timeouts)

    async def close(self) -> None: ...


def _encode_reply(path: str, *, stream: bool) -> tuple[bytes, str]:
    request = Request(
        method="POST", path=path, headers={}, body=b"", received_at=0.0, json={"stream": stream}
    )
    head, *rest = PROTOCOLS[path].steps(Reply(pieces=("ok",)), request, 1)
    assert isinstance(head, Head)
    return b"".join(step.data for step in rest if isinstance(step, Send)), dict(head.headers)[
        "Content-Type"
    ]


_RESPONSES: dict[tuple[str, bool], tuple[bytes, str]] = {
    ("completions", False): _encode_reply("/v1/chat/completions", stream=False),
    ("completions", True): _encode_reply("/v1/chat/completions", stream=True),
    ("messages", False): _encode_reply("/v1/messages", stream=False),
    ("messages", True): _encode_reply("/v1/messages", stream=True),
    ("converse", False): _encode_reply("/model/{id}/converse", stream=False),
    ("converse-stream", True): _encode_reply("/model/{id}/converse-stream", stream=True),
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
    """A server in this process with a canned transport."""

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
        """Return the growth of CPU time, from the shortest times of interleaved rounds.

        Stops after the first round that shows linear growth. Other processes can make a time too
        long, never too short.
        """
        times = {small: math.inf, large: math.inf}
        gc.collect()
        gc.disable()
        try:
            for _ in range(ROUNDS):
                for body, shortest in list(times.items()):
                    times[body] = min(shortest, await self._time(body, send))
                if times[large] <= MAX_LINEAR_GROWTH * times[small]:
                    break
        finally:
            gc.enable()
        return times[large] / times[small]

    async def _time(self, body: bytes, send: Callable[[bytes], Awaitable[httpx.Response]]) -> float:
        start = time.process_time()
        response = await send(body)
        seconds = time.process_time() - start
        assert response.is_success, response.text[:500]
        await self._delete(response.headers.get("X-Conversation-ID"))
        return seconds

    async def _delete(self, conversation: str | None) -> None:
        if conversation is not None:
            await self.server("DELETE", f"/v1/conversations/{conversation}?permanent=true")


@asynccontextmanager
async def start_measured_server(folder: Path) -> AsyncIterator[MeasuredServer]:
    """Start a server in this process whose providers use one canned transport."""
    async with open_server_app(folder, SETTINGS, timeout=None) as server:
        http = CannedTransport()
        for model in MODELS.values():
            provider = server.state.app.find_route(model).provider
            assert isinstance(provider, HttpProvider)
            provider._http = http
        measured = MeasuredServer(server, http)
        for client, provider_name in PAIRS:
            # Warm up: modules that are imported at first use are not measured.
            for stream in (False, True):
                options = {"model": MODELS[provider_name], "max_tokens": 99, "stream": stream}
                message = {"messages": [{"role": "user", "content": "Hello"}], "k": 1}
                await measured.send(client, json.dumps({**options, **message}).encode())
        # Existing objects stay frozen, as the collected tests do: later collections skip them.
        gc.collect()
        gc.freeze()
        yield measured
