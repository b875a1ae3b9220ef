"""Several processes build one search index of conversation files; some die meanwhile."""

import asyncio
import json
import sqlite3
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

import pytest

from cllm.stores.json.store import JsonFileStore

COUNT = 400
MOMENT = "2026-11-16T00:00:00Z"
PROGRAM = textwrap.dedent(
    """
    import asyncio, sys
    from datetime import UTC, datetime
    from pathlib import Path
    from cllm.stores.json import file_index
    from cllm.stores.json.store import JsonFileStore
    from cllm.stores.json.texts import JsonTexts

    folder, cache, mode = Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3]
    file_index.FILES_PER_TRANSACTION = 20

    def announce(index, saved=file_index.FileIndex._transaction):
        print("transaction", flush=True)
        return saved(index)

    async def main():
        store = JsonFileStore(folder, clock=lambda: datetime.now(UTC), cache=cache)
        hits = await store.search("cat", limit=100)
        assert (len(hits.items), hits.notices) == (57, ()), hits
        assert not store._open_texts()._access._is_unusable
        await store.close()

    print("ready", flush=True)
    sys.stdin.readline()
    if mode == "slow":
        file_index.FileIndex._transaction = announce
    asyncio.run(main())
    """
)


@pytest.fixture
def processes() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "conversations"
    folder.mkdir()
    for number in range(COUNT):
        text = f"number{number} {'cat' if number % 7 == 0 and number < 399 else 'dog'}"
        content = {
            "id": f"c{number}",
            "messages": [{"role": "user", "content": text}],
            "created_at": MOMENT,
            "updated_at": MOMENT,
        }
        (folder / f"c{number}.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


def start(stack: ExitStack, folder: Path, mode: str = "fast") -> "subprocess.Popen[bytes]":
    command = [sys.executable, "-c", PROGRAM, str(folder), str(folder.parent / "cache"), mode]
    process = stack.enter_context(
        subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    )
    stack.callback(process.kill)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


def go(*started: "subprocess.Popen[bytes]") -> None:
    for process in started:
        assert process.stdin is not None
        process.stdin.write(b"\n")
        process.stdin.flush()


def assert_one_index(folder: Path) -> None:
    (path,) = (folder.parent / "cache/search").glob("*.sqlite3")
    connection = sqlite3.connect(path)
    assert connection.execute("SELECT count(*) FROM files").fetchone() == (COUNT,)
    assert connection.execute("SELECT count(*) FROM terms").fetchone() == (COUNT,)
    assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.execute("INSERT INTO texts (texts) VALUES ('integrity-check')")
    connection.close()
    assert path.stat().st_mode & 0o777 == 0o600


def test_four_processes_search_first_at_once(folder: Path, processes: ExitStack) -> None:
    started = [start(processes, folder) for _ in range(4)]
    go(*started)
    for process in started:
        _, errors = process.communicate(timeout=120)
        assert (process.returncode, errors) == (0, b"")
    assert_one_index(folder)


def test_one_of_four_processes_dies_while_it_builds_the_index(
    folder: Path, processes: ExitStack
) -> None:
    victim = start(processes, folder, "slow")
    others = [start(processes, folder) for _ in range(3)]
    go(victim)
    assert victim.stdout is not None
    for _ in range(4):
        assert victim.stdout.readline() == b"transaction\n"
    go(*others)
    victim.kill()
    for process in others:
        _, errors = process.communicate(timeout=120)
        assert (process.returncode, errors) == (0, b"")
    victim.wait()
    assert_one_index(folder)


def test_a_deleted_text_is_not_in_the_files_of_the_index(folder: Path) -> None:
    secret, title = "xylophonist", "Marimbaphone"
    content = {
        "id": "secret-key",
        "messages": [{"role": "user", "content": f"{secret} 猫猫猫"}],
        "created_at": MOMENT,
        "updated_at": MOMENT,
        "metadata": {"cllm": {"title": title}},
    }
    (folder / "secret-key.json").write_text(json.dumps(content), encoding="utf-8")
    cache = folder.parent / "cache"

    def read_index() -> bytes:
        return b"".join(path.read_bytes() for path in (cache / "search").iterdir())

    async def run() -> None:
        store = JsonFileStore(folder, clock=lambda: datetime.now(UTC), cache=cache)
        assert (await store.search(secret)).total == 1
        # Another process reads the index, so that the write-ahead log is not deleted.
        other = JsonFileStore(folder, clock=lambda: datetime.now(UTC), cache=cache)
        assert (await other.search("cat")).total == 57
        stored = read_index()
        assert title.encode() in stored
        assert b"secret-key" in stored
        assert secret[:8].encode() in stored
        await store.delete("secret-key")
        erased = read_index()
        for text in (title, "secret-key", secret[2:8]):
            assert text.encode() not in erased
        assert (await other.search(secret)).total == 0
        assert (await other.search("cat")).total == 57
        await other.close()
        await store.close()

    asyncio.run(run())


def test_the_text_of_a_file_that_another_program_deleted_is_erased(folder: Path) -> None:
    path = folder / "c1.json"
    content = json.loads(path.read_text(encoding="utf-8"))
    content["messages"][0]["content"] = "xylophonist"
    path.write_text(json.dumps(content), encoding="utf-8")
    cache = folder.parent / "cache"

    async def run() -> None:
        store = JsonFileStore(folder, clock=lambda: datetime.now(UTC), cache=cache)
        assert (await store.search("xylophonist")).total == 1
        path.unlink()
        assert (await store.search("xylophonist")).total == 0
        stored = b"".join(file.read_bytes() for file in (cache / "search").iterdir())
        assert b"lophonis" not in stored
        await store.close()

    asyncio.run(run())
