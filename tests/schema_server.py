"""A web server on loopback that gives schemas as a test tells it to, and counts who asks."""

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

Give = Callable[[BaseHTTPRequestHandler], None]


def body(data: bytes, status: int = 200, **headers: str) -> Give:
    """An ordinary answer."""

    def give(asked: BaseHTTPRequestHandler) -> None:
        asked.send_response(status)
        for name, value in ({"Content_Length": str(len(data))} | headers).items():
            asked.send_header(name.replace("_", "-"), value)
        asked.end_headers()
        asked.wfile.write(data)

    return give


def redirect(to: str) -> Give:
    return body(b"", 302, Location=to)


def endless(asked: BaseHTTPRequestHandler) -> None:
    """A body without an end, of a size that nobody was told."""
    asked.send_response(200)
    asked.end_headers()
    while True:
        asked.wfile.write(b" " * 65536)


def certificate(folder: Path) -> Path:
    """A certificate for this machine and its key, in one file that was made a moment ago."""
    path = folder / "certificate.pem"
    subject = ["-subj", "/CN=127.0.0.1", "-addext", "subjectAltName=IP:127.0.0.1"]
    made = ["-keyout", str(path), "-out", str(folder / "public.pem"), "-nodes", "-days", "1"]
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"]
    subprocess.run(
        ["openssl", "req", "-x509", *kind, *made, *subject], check=True, capture_output=True
    )
    with path.open("a", encoding="utf-8") as file:
        file.write((folder / "public.pem").read_text(encoding="utf-8"))
    return path


class SchemaServer:
    """Gives what was put under a path; `asked` are the paths that were asked for."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.asked: list[str] = []
        self._given: dict[str, Give] = {}
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._scheme = "http"
        if tls is not None:
            self._scheme = "https"
            # The handshake is for the thread of the request: one that fails must stop nobody else.
            self._server.socket = tls.wrap_socket(
                self._server.socket, server_side=True, do_handshake_on_connect=False
            )
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)

    def put(self, path: str, give: Give) -> str:
        """Give this from now on; the address of it."""
        self._given[path] = give
        return f"{self._scheme}://127.0.0.1:{self._server.server_port}{path}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """From now on nobody answers."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                outer.asked.append(self.path)
                try:
                    outer._given.get(self.path, body(b"no", 404))(self)
                except OSError:
                    self.close_connection = True

            def log_message(self, *_: Any) -> None:
                pass

        return Handler
