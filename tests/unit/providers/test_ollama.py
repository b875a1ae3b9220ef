"""The address of Ollama, and the models of a server on loopback."""

import json
import socket
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from cllm.providers.ollama import MAX_BYTES, find_ollama_url, list_ollama_models


class Ollama:
    def __init__(self) -> None:
        self.page = b""
        self.paths: list[str] = []
        ollama = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                ollama.paths.append(self.path)
                self.send_response(200)
                self.send_header("Content-Length", str(len(ollama.page)))
                self.end_headers()
                self.wfile.write(ollama.page)

            def log_message(self, *_: Any) -> None:
                """Log nothing."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def has(self, *models: dict[str, Any]) -> None:
        self.page = json.dumps({"models": models}).encode()

    def names(self) -> list[str] | None:
        models = list_ollama_models(self.url)
        return None if models is None else [model.name for model in models]


@pytest.fixture
def ollama() -> Iterator[Ollama]:
    ollama = Ollama()
    yield ollama
    ollama.server.shutdown()
    ollama.server.server_close()


@pytest.mark.parametrize(
    ("host", "url"),
    [
        ("", "http://127.0.0.1:11434"),
        ("gpu", "http://gpu:11434"),
        ("gpu:80", "http://gpu:80"),
        (":1234", "http://127.0.0.1:1234"),
        ("0.0.0.0", "http://127.0.0.1:11434"),
        ("[::1]:1234", "http://[::1]:1234"),
        ("http://gpu", "http://gpu:80"),
        ("https://gpu/ollama/", "https://gpu:443/ollama"),
        ("gpu:x", "http://127.0.0.1:11434"),
        ("ftp://gpu", "http://127.0.0.1:11434"),
    ],
)
def test_the_address_is_read_as_ollama_reads_it(host: str, url: str):
    assert find_ollama_url({"OLLAMA_HOST": host}) == url


def test_the_newest_chat_model_is_first(ollama: Ollama):
    ollama.has(
        {"name": "old:latest", "modified_at": "2026-01-01T08:00:00.123456789-07:00"},
        {"name": "new:latest", "modified_at": "2026-01-01T16:00:00Z"},
        {"name": "broken-date", "modified_at": "yesterday"},
    )

    assert ollama.names() == ["new:latest", "old:latest", "broken-date"]
    assert ollama.paths == ["/api/tags"]


@pytest.mark.parametrize(
    "model",
    [
        {"name": "nomic-embed-text:latest"},
        {"name": "bge-m3", "details": {"family": "bert", "families": ["bert"]}},
        {"name": "x", "details": {"family": "nomic-bert"}},
        {"name": "x", "capabilities": ["embedding"]},
        {"name": "gpt-oss:120b-cloud"},
        {"name": "x", "remote_host": "https://ollama.com:443"},
    ],
)
def test_models_for_embeddings_and_on_other_machines_are_left_out(ollama: Ollama, model):
    ollama.has(model, {"name": "chat", "details": {"family": "llama", "families": None}})

    assert ollama.names() == ["chat"]


@pytest.mark.parametrize("page", [b"", b"<html>", b"[]", b'{"models": 1}', b" " * (MAX_BYTES + 1)])
def test_another_response_is_no_server(ollama: Ollama, page: bytes):
    ollama.page = page

    assert ollama.names() is None


def test_a_refused_connection_is_no_server():
    assert list_ollama_models("http://127.0.0.1:9") is None


def test_a_server_that_does_not_respond_is_not_waited_for():
    with socket.create_server(("127.0.0.1", 0)) as server:
        url = f"http://127.0.0.1:{server.getsockname()[1]}"

        assert list_ollama_models(url, timeout=0.05) is None
