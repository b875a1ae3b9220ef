"""A provider on loopback that returns the same short reply to every chat completion."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

WORDS = ["Paris", " is", " the", " capital", " of", " France", "."]
USAGE = {"prompt_tokens": 12, "completion_tokens": 7, "total_tokens": 19}


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self) -> None:
        length = int(self.headers.get("Content-Length", "0"))
        request = json.loads(self.rfile.read(length))
        streamed = bool(request.get("stream"))
        body = _stream(request["model"]) if streamed else _response(request["model"])
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream" if streamed else "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - its name there
        """Log nothing."""


def _response(model: str) -> bytes:
    message = {"role": "assistant", "content": "".join(WORDS)}
    choice = {"index": 0, "message": message, "finish_reason": "stop"}
    return json.dumps(
        {"id": "1", "object": "chat.completion", "created": 1, "model": model}
        | {"choices": [choice], "usage": USAGE}
    ).encode()


def _stream(model: str) -> bytes:
    def chunk(delta: dict[str, str], reason: str | None = None) -> dict[str, object]:
        choice = {"index": 0, "delta": delta, "finish_reason": reason}
        return {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": model} | {
            "choices": [choice]
        }

    chunks = [chunk({"role": "assistant"}), *(chunk({"content": word}) for word in WORDS)]
    chunks.append(chunk({}, "stop"))
    chunks.append(chunk({}) | {"choices": [], "usage": USAGE})
    lines = [f"data: {json.dumps(each)}\n\n" for each in chunks]
    return ("".join(lines) + "data: [DONE]\n\n").encode()


@contextmanager
def run_provider(port: int = 0) -> Iterator[str]:
    """Run a provider during the block, on `port` or on a free port, and yield its base URL."""
    server = ThreadingHTTPServer(("127.0.0.1", port), _Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1"
    finally:
        server.shutdown()
        server.server_close()
