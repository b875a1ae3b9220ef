"""Steps and texts that all protocols of the fake provider use."""

import json
from collections.abc import Iterator
from typing import Any

from tests.fake_provider.model import Cut, Head, Hold, Reply, Request, Send, Step


def echo_reply(request: Request) -> Reply:
    """Return the newest user text, from blocks or a string."""
    texts = [read_text(m.get("content")) for m in request.json["messages"] if m["role"] == "user"]
    return Reply(pieces=("echo: ", texts[-1] if texts else ""))


def split_text(text: str) -> tuple[str, str]:
    return text[: len(text) // 2], text[len(text) // 2 :]


def packet_steps(reply: Reply, encoded: bytes) -> Iterator[Step]:
    size = reply.packet or len(encoded)
    for start in range(0, len(encoded), size):
        yield Send(encoded[start : start + size])


def json_reply_steps(reply: Reply, body: dict[str, Any]) -> Iterator[Step]:
    """Yield a complete response, with the gates and the cut of the reply."""
    for _, gate in sorted(reply.hold.items()):
        yield Hold(gate)
    data = json.dumps(body, ensure_ascii=False).encode()
    if reply.stop_after is None:
        yield from response_steps(200, data)
        return
    yield Head(headers={"Content-Type": "application/json", "Content-Length": str(len(data))})
    yield Send(data[: len(data) // 2])
    yield Cut()


def response_steps(status: int, data: bytes, **headers: str) -> tuple[Step, ...]:
    """Return the steps of a complete response. Header names have underscores for hyphens."""
    extra = {name.replace("_", "-").title(): value for name, value in headers.items()}
    defaults = {"Content-Type": "application/json", "Content-Length": str(len(data))}
    return (Head(status=status, headers=defaults | extra), Send(data))


def read_text(content: Any) -> str:
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(part.get("text", "") for part in parts if isinstance(part, dict))
