"""A web server on loopback that serves JSON schemas for tests and records the requests."""

import ssl
import subprocess
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self

PERSON = {
    "title": "A person",
    "type": "object",
    "properties": {"name": {"type": "string"}, "age": {"type": "integer"}},
    "required": ["name", "age"],
    "additionalProperties": False,
}
ALICE = '{"name": "Alice", "age": 30}'
HTTP = {"CLLM_ALLOW_HTTP_SCHEMAS": "true"}

Respond = Callable[[BaseHTTPRequestHandler], None]


def body(data: bytes, status: int = 200, **headers: str) -> Respond:
    """Return a handler that sends this response."""

    def respond(handler: BaseHTTPRequestHandler) -> None:
        handler.send_response(status)
        for name, value in ({"Content_Length": str(len(data))} | headers).items():
            handler.send_header(name.replace("_", "-"), value)
        handler.end_headers()
        handler.wfile.write(data)

    return respond


def redirect(to: str) -> Respond:
    return body(b"", 302, Location=to)


def endless(handler: BaseHTTPRequestHandler) -> None:
    """Send an endless body without Content-Length."""
    handler.send_response(200)
    handler.end_headers()
    while True:
        handler.wfile.write(b" " * 65536)


def certificate(folder: Path) -> Path:
    """Create a certificate for loopback; return the file with it and its key."""
    path = folder / "certificate.pem"
    subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    output = ["-keyout", str(path), "-out", str(folder / "public.pem"), "-nodes", "-days", "1"]
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    subprocess.run(
        ["openssl", "req", "-x509", *kind, *output, *subject], check=True, capture_output=True
    )
    with path.open("a", encoding="utf-8") as file:
        file.write((folder / "public.pem").read_text(encoding="utf-8"))
    return path


class SchemaServer:
    """Serves the responses that a test puts; `asked` are the requested paths."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.asked: list[str] = []
        self._responses: dict[str, Respond] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._scheme = "http"
        if tls is not None:
            self._scheme = "https"
            # The request's thread does the handshake, so that a failed one does not block others.
            self._server.socket = tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def put(self, path: str, respond: Respond) -> str:
        """Serve this response at the path; return its URL."""
        self._responses[path] = respond
        return f"{self._scheme}://127.0.0.1:{self._server.server_port}{path}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                try:
                    outer._responses.get(self.path, body(b"no", 404))(self)
                except OSError:
                    self.close_connection = True

            def log_message(self, *_: Any) -> None:
                pass

        return Handler
