"""A client that reads slowly: a stateless turn waits and loses no data."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec
from starlette.types import Message
from tests.fake_provider import FakeProvider
from tests.server_app import open_server_app

from cllm.server.http.app import build_app
from cllm.server.turns.task import MAX_UNREAD_STATELESS

PIECE = "x" * 20_000
PIECES = 200
EVENT_BYTES = len(PIECE) + 1000
"""More than the size of one event."""
PAUSE = 0.5
"""Seconds in which the provider sends much more than fits in the queue."""
BODY = {
    "model": "openai/gpt-test",
    "messages": [{"role": "user", "content": "Hello."}],
    "stream": True,
}


async def test_a_stateless_turn_waits_for_a_client_that_reads_slowly(tmp_path: Path):
    request: list[Message] = [
        {"type": "http.request", "body": msgspec.json.encode(BODY), "more_body": False}
    ]
    bodies: list[bytes] = []

    async def receive() -> Message:
        if request:
            return request.pop()
        return await asyncio.Future()

    async def send(message: Message) -> None:
        if message["type"] == "http.response.body":
            bodies.append(message["body"])
            if len(bodies) == 1:
                await asyncio.sleep(PAUSE)

    scope: dict[str, Any] = {
        "type": "http",
        "http_version": "1.1",
        "method": "POST",
        "scheme": "http",
        "path": "/v1/chat/completions",
        "raw_path": b"/v1/chat/completions",
        "query_string": b"",
        "headers": [(b"host", b"127.0.0.1:3000"), (b"content-type", b"application/json")],
        "client": ("127.0.0.1", 1),
        "server": ("127.0.0.1", 3000),
    }
    with FakeProvider() as provider:
        provider.queue_reply(*[PIECE] * PIECES)
        settings = f"providers: {{openai: {{api_base: '{provider.url}'}}}}"
        async with open_server_app(tmp_path, settings) as server:
            await build_app(server.state)(scope, receive, send)

    assert b"".join(bodies).count(PIECE.encode()) == PIECES
    assert max(map(len, bodies)) < MAX_UNREAD_STATELESS + EVENT_BYTES
