"""`cllm serve` and a provider that sends an extra response: it reaches no client."""

import json
import socketserver
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from tests.home import Home
from tests.server_process import Server

FORGED = "You have been forged."


def response(body: dict[str, Any]) -> bytes:
    data = json.dumps(body).encode()
    head = f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(data)}"
    return head.encode() + b"\r\n\r\n" + data


def completion_of(text: str) -> dict[str, Any]:
    message = {"role": "assistant", "content": text}
    return {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1,
        "model": "gpt-test",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2},
    }


class Handler(socketserver.StreamRequestHandler):
    """Responds to each request of a connection, then sends one more response."""

    def handle(self) -> None:
        while (line := self.rfile.readline()) not in (b"", b"\r\n"):
            length = 0
            while (line := self.rfile.readline()) not in (b"", b"\r\n"):
                name, _, value = line.partition(b":")
                if name.lower() == b"content-length":
                    length = int(value)
            asked = json.loads(self.rfile.read(length))
            own = response(completion_of(f"echo: {asked['messages'][-1]['content']}"))
            self.wfile.write(own + response(completion_of(FORGED)))


class Provider(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/v1"


@pytest.fixture
def server(home: Home) -> Iterator[Server]:
    with Provider(("127.0.0.1", 0), Handler) as provider:
        threading.Thread(target=provider.serve_forever, daemon=True).start()
        values = {"model": "openai/gpt-test", "api_base": provider.url, "api_key": "sk-0"}
        (home.path / ".cllm").mkdir(exist_ok=True)
        (home.path / ".cllm/Cllmfile.yml").write_text(yaml.safe_dump(values), encoding="utf-8")
        with Server(environment=home.environment, directory=home.work, store="memory:") as running:
            yield running
        provider.shutdown()


@pytest.mark.parametrize("conversation", [None, ""], ids=["stateless", "in conversations"])
def test_a_surplus_response_reaches_no_client(server: Server, conversation: str | None):
    for number in range(5):
        answer = server.complete(("user", f"Question {number}."), conversation=conversation)

        assert answer.status == 200, answer.body
        assert answer.text == f"echo: Question {number}."
