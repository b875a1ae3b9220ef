"""Several processes use one index of conversation files; some die while they write it."""

import asyncio
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cllm.stores.json.store import JsonFileStore
from cllm.testing.store_paths import find

PROGRAM = textwrap.dedent(
    """
    import asyncio, itertools, sys
    from datetime import UTC, datetime
    from pathlib import Path
    from cllm.stores.json.store import JsonFileStore
    from cllm.testing.store_harness import say
    from cllm.testing.store_paths import find

    folder, cache, name, turns = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], int(sys.argv[4])

    async def main():
        store = JsonFileStore(folder, clock=lambda: datetime.now(UTC), cache=cache)
        texts = []
        for number in itertools.islice(itertools.count(), turns):
            text = f"{name} {number}"
            await say(store, name, f"t{number}", text)
            texts += [text, f"{text}?"]
            (match,) = await find(store, *texts)
            assert (match.conversation, match.sequence) == (name, len(texts)), match
            print(number, flush=True)

    asyncio.run(main())
    """
)


@pytest.fixture
def processes() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


def run(stack: ExitStack, folder: Path, cache: Path, name: str, turns: int):
    command = [sys.executable, "-c", PROGRAM, str(folder), str(cache), name, str(turns)]
    process = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE))
    stack.callback(process.kill)
    return process


async def open_and_find(folder: Path, cache: Path, name: str) -> list[tuple[str, int | None]]:
    store = JsonFileStore(folder, clock=lambda: datetime.now(UTC), cache=cache)
    matches = await find(store, f"{name} 0", f"{name} 0?")
    await store.close()
    return [(match.conversation, match.sequence) for match in matches]


async def test_processes_share_an_index(tmp_path: Path, processes: ExitStack):
    folder, cache = tmp_path / "conversations", tmp_path / "cache"
    names = [f"p{number}" for number in range(4)]
    running = [run(processes, folder, cache, name, 8) for name in names]
    for process in running:
        assert await asyncio.to_thread(process.wait, 120) == 0
    assert len(list((cache / "paths").glob("*.sqlite3"))) == 1
    for name in names:
        assert await open_and_find(folder, cache, name) == [(name, 2)]


async def test_a_killed_process_leaves_a_usable_index(tmp_path: Path, processes: ExitStack):
    folder, cache = tmp_path / "conversations", tmp_path / "cache"
    for number in range(3):
        process = run(processes, folder, cache, f"p{number}", 10_000)
        assert process.stdout is not None
        for _ in range(3):
            await asyncio.to_thread(process.stdout.readline)
        process.kill()
        process.wait()
        assert await open_and_find(folder, cache, f"p{number}") == [(f"p{number}", 2)]
