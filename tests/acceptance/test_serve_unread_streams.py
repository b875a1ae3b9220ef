"""A client that does not read its stream: the turn completes and is stored."""

import json
import socket
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest
from tests.fake_provider import WAIT, FakeProvider
from tests.messages_api import MESSAGES, MODELS, make_settings, start_server
from tests.server_process import COMPLETIONS, Server

PIECE = "x" * 50_000
PIECES = 140
"""Seven megabytes: more than fits in the buffers of server, sockets and client."""
RECEIVE_BYTES = 4096


@pytest.fixture(scope="module")
def server(upstream: FakeProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("unread")
    with start_server(
        folder, make_settings(upstream), store=f"sqlite:{folder / 'served.db'}"
    ) as running:
        yield running


def send_without_reading(
    server: Server, path: str, body: dict[str, Any], headers: dict[str, str]
) -> socket.socket:
    """Send a request on a connection with the smallest receive buffer."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BYTES)
    connection.settimeout(WAIT)
    connection.connect((server.host, server.port))
    data = json.dumps(body).encode()
    named = {"Host": f"{server.host}:{server.port}", "Content-Length": str(len(data)), **headers}
    lines = [f"POST {path} HTTP/1.1", *(f"{name}: {value}" for name, value in named.items())]
    connection.sendall("\r\n".join((*lines, "", "")).encode() + data)
    return connection


def texts(server: Server, conversation: str) -> list[str]:
    shown = server("GET", f"/v1/conversations/{conversation}").json
    return [
        content if isinstance(content := message["content"], str) else content[0]["text"]
        for message in shown["messages"]
        if message["state"] == "complete"
    ]


@pytest.mark.parametrize("keyed", [False, True], ids=["without a key", "with a key"])
@pytest.mark.parametrize("provider", ["openai", "anthropic"])
@pytest.mark.parametrize("path", [COMPLETIONS, MESSAGES])
def test_a_saved_turn_does_not_wait_for_a_client_that_does_not_read(
    server: Server,
    upstream: FakeProvider,
    until: Callable[..., bool],
    path: str,
    provider: str,
    keyed: bool,
):
    prompt_messages = [{"role": "user", "content": "Hello."}]
    body = {"model": MODELS[provider], "max_tokens": 100, "messages": prompt_messages}
    first_response = server("POST", path, body, {"X-Conversation-ID": ""})
    conversation = first_response.conversation
    headers = {"X-Conversation-ID": conversation}
    key = {"Idempotency-Key": str(uuid.uuid4())} if keyed else {}
    upstream.queue_reply(*[PIECE] * PIECES)
    with closing(send_without_reading(server, path, {**body, "stream": True}, headers | key)):
        assert until(lambda: len(texts(server, conversation)) == 4)
        assert texts(server, conversation)[-1] == PIECE * PIECES

        again = server("POST", path, body, headers)
        assert again.status == 200, again.body
        assert len(texts(server, conversation)) == 6
