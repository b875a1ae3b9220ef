"""The child process: its start, its secrets, and that it always ends."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest
from tests.waits import wait_until_async

from cllm.core.errors import BrokenStreamError, LocalModelError, MissingExtraError
from cllm.core.message import plain_message
from cllm.core.prompt import Prompt
from cllm.core.reply import ModelReported, ReplyFinished, TextDelta

LONG = Prompt(
    model="m",
    messages=(plain_message("user", "Write a very long story about a dog."),),
    parameters={"max_tokens": 4000, "logit_bias": [[2, -100]]},
)
SHORT = Prompt(model="m", messages=(plain_message("user", "Hello"),), parameters={"max_tokens": 5})

PARENT = """
import asyncio, os, sys
from pathlib import Path
from cllm.providers.local.models import CachePaths, ModelFile
from cllm.providers.local.provider import LocalProvider

async def main():
    model = ModelFile(name="m", path=Path(sys.argv[1]))
    paths = CachePaths(root=Path(sys.argv[2]))
    provider = LocalProvider(model=model, paths=paths, environ=dict(os.environ), threads=1)
    await provider._connect()
    print(provider.pid, flush=True)
    await asyncio.sleep(60)

asyncio.run(main())
"""


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def children() -> set[str]:
    """The child processes of this one; a fork server of other tests can be among them."""
    path = Path(f"/proc/self/task/{os.getpid()}/children")
    return set(path.read_text(encoding="utf-8").split())


def is_gone(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return True
    # The new parent of an orphan collects it.
    return state == "Z"


async def test_the_child_shows_neither_its_key_nor_ours(
    make_provider: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OPENAI_API_KEY", "sk-of-the-user")
    provider = make_provider()
    await provider._connect()
    key = provider._child.process.key.encode()
    for file in ("cmdline", "environ"):
        content = Path(f"/proc/{provider.pid}/{file}").read_bytes()
        assert content
        assert key not in content
        assert b"sk-of-the-user" not in content


async def test_a_request_without_the_key_is_refused(make_provider: Any):
    provider = make_provider()
    await provider._connect()
    provider._child._provider._key = "another"
    with pytest.raises(Exception, match="401"):
        _ = [event async for event in provider.ask(SHORT)]


async def test_the_child_has_a_separate_session(make_provider: Any):
    provider = make_provider()
    await provider._connect()
    assert os.getsid(provider.pid) == provider.pid


async def test_the_child_starts_with_the_first_prompt(make_provider: Any):
    """A turn is saved between `prepare` and `ask`, and a model can take long to load."""
    provider = make_provider()
    await provider.prepare()
    assert provider.pid is None
    _ = [event async for event in provider.ask(SHORT)]
    assert provider.pid is not None


async def test_close_stops_the_child_and_leaves_no_zombie(make_provider: Any):
    provider = make_provider()
    await provider._connect()
    pid = provider.pid
    await provider.close()
    assert not Path(f"/proc/{pid}").exists()
    assert provider.pid is None


async def test_close_during_a_reply_stops_the_child(make_provider: Any):
    provider = make_provider()
    async with aclosing(provider.ask(LONG)) as events:
        await anext(events)
        pid = provider.pid
    await provider.close()
    assert not Path(f"/proc/{pid}").exists()


async def test_a_cancelled_request_stops_the_computation(make_provider: Any):
    provider = make_provider()
    started = asyncio.Event()

    async def listen() -> None:
        async for _ in provider.ask(LONG):
            started.set()

    task = asyncio.create_task(listen())
    await started.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    pid = provider.pid
    used = [cpu_seconds(pid)]

    def is_idle() -> bool:
        time.sleep(0.3)
        used.append(cpu_seconds(pid))
        return used[-1] - used[-2] < 0.05

    await wait_until_async(is_idle, 10)
    answer = [event async for event in provider.ask(SHORT)]
    assert isinstance(answer[-1], ReplyFinished)


async def test_after_a_child_was_killed_during_a_reply_the_next_turn_works(
    make_provider: Any,
):
    provider = make_provider()
    answer = provider.ask(LONG)
    assert isinstance(await anext(answer), ModelReported)
    assert isinstance(await anext(answer), TextDelta)
    os.kill(provider.pid, signal.SIGKILL)
    with pytest.raises(BrokenStreamError, match="process ended before its reply was complete"):
        _ = [event async for event in answer]
    events = [event async for event in provider.ask(SHORT)]
    assert isinstance(events[-1], ReplyFinished)


async def test_the_child_ends_when_its_parent_is_killed(local_model: Path, tmp_path: Path):
    with subprocess.Popen(
        [sys.executable, "-c", PARENT, str(local_model), str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        assert not is_gone(pid)
        parent.kill()
    await wait_until_async(lambda: is_gone(pid))


async def test_a_cancelled_start_leaves_no_child(make_provider: Any):
    before = children()
    provider = make_provider()
    task = asyncio.create_task(provider._connect())
    await wait_until_async(lambda: children() - before)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert children() <= before


@pytest.mark.parametrize("size", [200, 2_000_000])
async def test_a_damaged_model_file_is_named_in_the_error(
    size: int, make_provider: Any, local_model: Path, tmp_path: Path
):
    damaged = tmp_path / "damaged.gguf"
    with local_model.open("rb") as file:
        damaged.write_bytes(file.read(size))
    with pytest.raises(LocalModelError, match="did not start") as raised:
        await make_provider(damaged)._connect()
    assert str(damaged) in str(raised.value)
    assert "\n" not in str(raised.value)


async def test_a_file_that_is_not_a_model_is_refused_before_the_start(
    make_provider: Any, tmp_path: Path
):
    text = tmp_path / "a.gguf"
    text.write_text("Hello", encoding="utf-8")
    provider = make_provider(text)
    with pytest.raises(LocalModelError, match="is not a GGUF model file"):
        await provider._connect()
    assert provider.pid is None


async def test_a_missing_package_names_the_extra(
    make_provider: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setitem(sys.modules, "xllamacpp", None)
    with pytest.raises(MissingExtraError, match=r"install .*\[local\]'"):
        await make_provider().prepare()
