"""Reads the recorded requests of real clients in `../shared/data/clients`.

The recordings replace long prompts by marks such as `<redacted: 764 characters, sha256 8a044df7>`.
Some prompts identify a request; their first words are restored here.
"""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from cllm.core.prompt import Prompt
from cllm.wire.anthropic.request import decode_request as decode_anthropic
from cllm.wire.openai.request import decode_request as decode_openai
from cllm.wire.responses.request import decode_request as decode_responses

FOLDER = Path(__file__).resolve().parents[2] / "shared" / "data" / "clients"
# For tests that read the recordings.
MARKS = [
    pytest.mark.shared_data,
    pytest.mark.skipif(not FOLDER.exists(), reason=f"{FOLDER} does not exist"),
]

MARK = re.compile(r"<redacted: \d+ characters, sha256 ([0-9a-f]{8})>")
REMINDER = re.compile(rf"<system-reminder> {MARK.pattern}")
FIRST_WORDS = {
    "43755ebc": "Act as an expert software developer.\nAlways use best practices when coding.",
    "dfb96886": "Act as an expert code analyst.\nAnswer questions about the supplied code.",
    "8a044df7": "You are an expert software engineer that generates concise, one-line Git commit "
    "messages based on the provided diffs.",
    "a448c3c2": "You are gptme v0.35.1, a general-purpose AI assistant powered by LLMs.",
    "e12676b2": "You are an agent in the Continue CLI.",
    "f2819e1e": "This is the Qwen Code. We are setting up the context for our chat.",
    "3d86c610": "present in my git repository.",
    "e7a6848e": "You are a title generator. You output ONLY a thread title. Nothing else.",
}
DECODERS = {
    "/v1/chat/completions": decode_openai,
    "/v1/messages": decode_anthropic,
    "/v1/responses": decode_responses,
}


class RecordedRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One request. `body` is None for the opening request of a WebSocket.

    `answer` is None if the provider refused the request; `aborted`: the client disconnected.
    """

    seq: int
    scenario: str
    method: str
    path: str
    headers: dict[str, str]
    body: dict[str, Any] | None = None
    answer: dict[str, Any] | None = None
    aborted: bool = False

    @property
    def content(self) -> bytes:
        return json.dumps(self.body).encode()

    def decode(self) -> Prompt:
        """Decode the body as the server does."""
        return DECODERS[self.path.partition("?")[0]](self.content)


def read_recording(name: str) -> Iterator[RecordedRequest]:
    """Yield the requests of `<name>.jsonl` in order."""
    for line in (FOLDER / f"{name}.jsonl").read_text(encoding="utf-8").splitlines():
        marked = REMINDER.sub(r"\g<0></system-reminder>", line)
        restored = MARK.sub(_restore, marked)
        yield msgspec.json.decode(restored, type=RecordedRequest)


def _restore(mark: re.Match[str]) -> str:
    words = FIRST_WORDS.get(mark[1])
    return mark[0] if words is None else json.dumps(f"{words}\n")[1:-1] + mark[0]
