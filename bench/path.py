"""How much code a turn runs through: the files of cllm, and the frames that wait for an event.

Traces a continued, streamed `POST /v1/messages` on SQLite and Bedrock, and
`cllm "hi" --conversation x`, each the second time, so that imports do not count. The provider is a
fake one on loopback. A frame is counted if it is suspended while the provider's next event is
awaited.
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
from measure import Targets

HOME = str(Path(cllm.__file__).parent)
MOST_FILES = {"server": 65, "command": 70}
MOST_FRAMES = 7
MODEL = "bedrock/claude-opus-4-6"


class Trace:
    """The files of cllm in which a function runs, while it is on."""

    def __init__(self) -> None:
        self.files: set[str] = set()

    def __enter__(self) -> Self:
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        threading.setprofile(None)

    def _note(self, frame: FrameType, event: str, _argument: Any) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(HOME):
            self.files.add(name.removeprefix(HOME).lstrip("/"))


def waiting_frames() -> int:
    """The frames of cllm between the task of a turn and the socket it waits for."""
    return max(map(_depth, asyncio.all_tasks()))


def _depth(task: asyncio.Task[Any]) -> int:
    waits: Any = task.get_coro()
    files = []
    while waits is not None:
        if type(waits).__name__.startswith("async_generator_"):
            # What waits for a generator does not name it, but refers to it.
            waits = next(one for one in gc.get_referents(waits) if isasyncgen(one))
        frame = getattr(waits, "cr_frame", None) or getattr(waits, "ag_frame", None)
        if frame is not None:
            files.append(frame.f_code.co_filename)
        waits = getattr(waits, "cr_await", None) or getattr(waits, "ag_await", None)
    return sum(file.startswith(HOME) for file in files)


async def trace_server(folder: Path) -> tuple[set[str], int]:
    """Trace the second request in a conversation; its stream is held before its last piece."""
    with FakeProvider() as provider, Trace() as trace:
        settings = f"providers: {{bedrock: {{api_base: '{provider.root}', api_key: x}}}}"
        store = f"sqlite:{folder}/conversations.db"
        async with open_server_app(folder, settings, store=store, timeout=None) as server:
            body = {"model": MODEL, "max_tokens": 99, "stream": True}
            headers = {"X-Conversation-ID": ""}
            for number in range(2):
                said = [{"role": "user", "content": f"Hello {number}."}]
                gate = provider.say_held("One ", "two ", "three.", at=2)
                trace.files.clear()
                sending = asyncio.create_task(
                    server("POST", "/v1/messages", json=body | {"messages": said}, headers=headers)
                )
                await asyncio.to_thread(gate.wait_reached)
                await asyncio.sleep(0.2)
                frames = waiting_frames()
                gate.open()
                answer = await sending
                assert answer.status_code == 200, answer.text
                headers = {"X-Conversation-ID": answer.headers["X-Conversation-ID"]}
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
    targets = Targets()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "server").mkdir()
        (folder / "command").mkdir()
        files, frames = asyncio.run(trace_server(folder / "server"))
        show("A continued, streamed POST /v1/messages on SQLite and Bedrock", files)
        targets.at_most("files of a request", len(files), MOST_FILES["server"])
        targets.at_most("frames that wait for an event", frames, MOST_FRAMES)
        files = trace_command(folder / "command")
        show('cllm "hi" --conversation x', files)
        targets.at_most("files of a command", len(files), MOST_FILES["command"])
    return targets.finish()


def show(title: str, files: set[str]) -> None:
    print(f"{title}: {len(files)} files")
    for file in sorted(files):
        print(f"  {file}")


if __name__ == "__main__":
    sys.exit(main())
