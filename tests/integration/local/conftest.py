"""A file server on loopback that fails on request, and providers of the real model."""

import json
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from cllm.providers.local.models import DEFAULT_MODEL, KNOWN_MODELS, CachePaths, ModelFile
from cllm.providers.local.provider import LocalProvider

MakeProvider = Callable[..., LocalProvider]


class FileServer:
    """Serves `pages` at their paths and `content` at every other one; records all requests."""

    def __init__(self) -> None:
        self.content = b"GGUF" + bytes(range(256)) * 4000
        self.pages: dict[str, Any] = {}
        self.etag: str | None = '"one"'
        self.ignores_ranges = False
        self.cut_after: int | None = None
        self.statuses: list[int] = []
        self.redirect: str | None = None
        self.gate: threading.Event | None = None
        self.requests: list[tuple[str, dict[str, str]]] = []
        self.half_sent = threading.Event()
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.answer(self)

            def log_message(self, *_: Any) -> None:
                """Log nothing."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.port = self._http.server_address[1]
        self._thread = threading.Thread(target=self._http.serve_forever, daemon=True)
        self._thread.start()

    def url(self, path: str = "/model.gguf", *, host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    @property
    def ranges(self) -> list[str | None]:
        return [headers.get("Range") for _, headers in self.requests]

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        self.requests.append((handler.path, dict(handler.headers)))
        if handler.path in self.pages:
            page = json.dumps(self.pages[handler.path]).encode()
            handler.send_response(200)
            handler.send_header("Content-Length", str(len(page)))
            handler.end_headers()
            handler.wfile.write(page)
        elif self.statuses:
            handler.send_error(self.statuses.pop(0))
        elif self.redirect is not None and not handler.path.startswith("/moved"):
            handler.send_response(302)
            handler.send_header("Location", self.redirect)
            handler.end_headers()
        else:
            self._send(handler)

    def _send(self, handler: BaseHTTPRequestHandler) -> None:
        start = self._start_of_range(handler)
        if start == len(self.content) > 0:
            handler.send_response(416)
            handler.send_header("Content-Range", f"bytes */{len(self.content)}")
            handler.end_headers()
            return
        handler.send_response(206 if start else 200)
        if start:
            last = len(self.content) - 1
            handler.send_header("Content-Range", f"bytes {start}-{last}/{last + 1}")
        if self.etag is not None:
            handler.send_header("ETag", self.etag)
        body = self.content[start:]
        handler.send_header("Content-Length", str(len(body)))
        handler.end_headers()
        self._write(handler, body)

    def _start_of_range(self, handler: BaseHTTPRequestHandler) -> int:
        requested = handler.headers.get("Range")
        condition = handler.headers.get("If-Range")
        if self.ignores_ranges or requested is None or condition not in (None, self.etag):
            return 0
        return int(requested.removeprefix("bytes=").removesuffix("-"))

    def _write(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        if self.cut_after is not None:
            body, self.cut_after = body[: self.cut_after], None
            handler.wfile.write(body)
            handler.close_connection = True
            return
        try:
            half = len(body) // 2
            handler.wfile.write(body[:half])
            handler.wfile.flush()
            self.half_sent.set()
            if self.gate is not None:
                self.gate.wait(60)
            handler.wfile.write(body[half:])
        except (BrokenPipeError, ConnectionResetError):
            handler.close_connection = True

    def close(self) -> None:
        if self.gate is not None:
            self.gate.set()
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()


@pytest.fixture
def files() -> Iterator[FileServer]:
    server = FileServer()
    yield server
    server.close()


@pytest.fixture
def paths(tmp_path: Path) -> CachePaths:
    return CachePaths(root=tmp_path / "cache")


@pytest.fixture
async def make_provider(local_model: Path, paths: CachePaths) -> AsyncIterator[MakeProvider]:
    """Make providers of the real model, one thread each; close them after the test."""
    providers: list[LocalProvider] = []

    def make(path: Path = local_model, **options: Any) -> LocalProvider:
        known = KNOWN_MODELS[DEFAULT_MODEL] if path == local_model else None
        model = ModelFile(name=DEFAULT_MODEL, path=path, known=known)
        provider = LocalProvider(
            model=model, paths=paths, environ=dict(os.environ), threads=1, **options
        )
        providers.append(provider)
        return provider

    yield make
    for provider in providers:
        await provider.close()
