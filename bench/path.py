"""Counts the source files that a turn executes and the frames that wait for a provider's event.

Traces a streamed `POST /v1/messages` that continues a conversation on SQLite and Bedrock, and
`cllm "hi" --conversation x`, each the second time, so that imports do not count. The provider is a
fake on loopback. A frame counts if it is suspended while the turn waits for the provider's next
event. Run it with `PYTHONPATH=. .venv/bin/python bench/path.py`.
"""

import asyncio
import gc
import json
import sys
import tempfile
import threading
from inspect import isasyncgen
from pathlib import Path
from types import FrameType
from typing import Any, Self

from tests.fake_provider import FakeProvider
from tests.server_app import open_server_app

import cllm
from cllm.cli.main import run
from results import Results, make_parser

PACKAGE = str(Path(cllm.__file__).parent)
MAX_FILES = {"server": 68, "command": 70}
MAX_FRAMES = 7
MODEL = "bedrock/claude-opus-4-6"


class Trace:
    """Records the files of cllm whose functions run during the block."""

    def __init__(self) -> None:
        self.files: set[str] = set()

    def __enter__(self) -> Self:
        threading.setprofile(self._record)
        sys.setprofile(self._record)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _record(self, frame: FrameType, event: str, _argument: Any) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(PACKAGE):
            self.files.add(name.removeprefix(PACKAGE).lstrip("/"))


def count_waiting_frames() -> int:
    """Return the number of cllm's frames between a turn's task and the socket it waits for."""
    return max(map(_count_frames, asyncio.all_tasks()))


def _count_frames(task: asyncio.Task[Any]) -> int:
    awaitable: Any = task.get_coro()
    files = []
    while awaitable is not None:
        if type(awaitable).__name__.startswith("async_generator_"):
            # This object has no attribute for the generator that it waits for.
            awaitable = next(one for one in gc.get_referents(awaitable) if isasyncgen(one))
        frame = getattr(awaitable, "cr_frame", None) or getattr(awaitable, "ag_frame", None)
        if frame is not None:
            files.append(frame.f_code.co_filename)
        awaitable = getattr(awaitable, "cr_await", None) or getattr(awaitable, "ag_await", None)
    return sum(file.startswith(PACKAGE) for file in files)


async def trace_server(folder: Path) -> tuple[set[str], int]:
    """Trace the second request of a conversation. A gate holds the stream before its last chunk."""
    with FakeProvider() as provider, Trace() as trace:
        settings = f"providers: {{bedrock: {{api_base: '{provider.root}', api_key: x}}}}"
        store = f"sqlite:{folder}/conversations.db"
        async with open_server_app(folder, settings, store=store, timeout=None) as server:
            body = {"model": MODEL, "max_tokens": 99, "stream": True}
            headers = {"X-Conversation-ID": ""}
            for number in range(2):
                messages = [{"role": "user", "content": f"Hello {number}."}]
                gate = provider.queue_held_reply("One ", "two ", "three.", at=2)
                trace.files.clear()
                request = asyncio.create_task(
                    server(
                        "POST", "/v1/messages", json=body | {"messages": messages}, headers=headers
                    )
                )
                await asyncio.to_thread(gate.wait_reached)
                await asyncio.sleep(0.2)
                frames = count_waiting_frames()
                gate.open()
                response = await request
                assert response.status_code == 200, response.text
                headers = {"X-Conversation-ID": response.headers["X-Conversation-ID"]}
            files = set(trace.files)
    return files, frames


def trace_command(folder: Path) -> set[str]:
    """Trace the second turn of a conversation."""
    with FakeProvider() as provider:
        settings = {
            "model": "openai/gpt-test",
            "providers": {"openai": {"api_base": provider.url, "api_key": "x"}},
        }
        path = folder / "Cllmfile.yml"
        path.write_text(json.dumps(settings))
        for _ in range(2):
            with Trace() as trace:
                code = run(["hi", "--conversation", "x", "--cllm-path", str(folder)])
            assert code == 0
    return trace.files


def main() -> int:
    options = make_parser(__doc__).parse_args()
    results = Results("path")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "server").mkdir()
        (folder / "command").mkdir()
        files, frames = asyncio.run(trace_server(folder / "server"))
        print_files(
            "A streamed POST /v1/messages that continues a conversation, SQLite, Bedrock", files
        )
        results.check(
            "source files that a request executes", len(files), MAX_FILES["server"], unit="files"
        )
        results.check("frames that wait for an event", frames, MAX_FRAMES, unit="frames")
        files = trace_command(folder / "command")
        print_files('cllm "hi" --conversation x', files)
        results.check(
            "source files that a command executes", len(files), MAX_FILES["command"], unit="files"
        )
    return results.finish(options.json)


def print_files(title: str, files: set[str]) -> None:
    print(f"{title}: {len(files)} files")
    for file in sorted(files):
        print(f"  {file}")


if __name__ == "__main__":
    sys.exit(main())
