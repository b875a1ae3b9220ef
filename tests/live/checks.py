"""The checks of one service: each runs the real command and reads its output and files."""

import struct
import zlib
from collections.abc import Callable
from pathlib import Path

from tests.command import Cllm, Result

SECONDS = 180.0
FILE = "zebra-4711.txt"
"""A name that a model knows only if it ran the command."""


class LiveCommand:
    """The command with the model and the keys of one service."""

    def __init__(self, cllm: Cllm, model: str, environment: dict[str, str]) -> None:
        self.cllm = cllm
        self.model = model
        self.environment = environment

    def run(self, *arguments: str, model: str | None = None) -> Result:
        line = ("-m", model or self.model, *arguments)
        result = self.cllm(*line, env=self.environment, timeout=SECONDS)
        for secret in self.environment.values():
            assert len(secret) < 16 or secret not in result.out + result.err, "a key was printed"
        return result


def check_text(live: LiveCommand) -> None:
    """A reply that is not streamed, and a second turn that knows the first."""
    live.run("My cat is called Luna.", "--no-stream", "--conversation", "cats").succeeded()
    second = live.run("What is my cat called?", "--no-stream", "--conversation", "cats")
    assert "luna" in second.succeeded().out.lower()
    turns = live.cllm.home.load("cats")["metadata"]["cllm"]["turns"]
    assert len(turns) == 2
    assert all(turn["usage"]["input"] > 0 for turn in turns)


def check_stream(live: LiveCommand) -> None:
    result = live.run("Count from 1 to 20, separated by spaces.", "--stream").succeeded()
    assert "19" in result.out


def check_tool_call(live: LiveCommand) -> None:
    (live.cllm.home.work / FILE).write_text("", encoding="utf-8")
    result = live.run("Run the command ls. Which file is here?", "--allow-commands").succeeded()
    assert FILE in result.out


def check_image(live: LiveCommand) -> None:
    write_red_image(live.cllm.home.work / "image.png")
    result = live.run("Which colour is this image? One word.", "--attach", "image.png")
    assert "red" in result.succeeded().out.lower()


def check_error(live: LiveCommand) -> None:
    """A model that does not exist is one sentence, and the turn is saved as failed."""
    provider = live.model.partition("/")[0]
    # Bedrock accepts short names only of models that cllm knows.
    name = "anthropic.no-such-model-v1:0" if provider == "bedrock" else "no-such-model"
    line = ("Hello", "--conversation", "none", "--max-tokens", "20")
    result = live.run(*line, model=f"{provider}/{name}")
    result.failed_with_one_sentence()
    assert live.cllm.home.turn_states("none") == ["failed"]


CHECKS: tuple[Callable[[LiveCommand], None], ...] = (
    check_text,
    check_stream,
    check_tool_call,
    check_image,
    check_error,
)


def write_red_image(path: Path, size: int = 64) -> None:
    def chunk(kind: bytes, data: bytes) -> bytes:
        checksum = struct.pack(">I", zlib.crc32(kind + data))
        return struct.pack(">I", len(data)) + kind + data + checksum

    header = struct.pack(">IIBBBBB", size, size, 8, 2, 0, 0, 0)
    rows = (b"\0" + b"\xff\0\0" * size) * size
    path.write_bytes(
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", header)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )
