import asyncio
import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.postgres import Server, postgres_server

__all__ = ["postgres_server"]

Work = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "conversations"


@pytest.fixture
def work(folder: Path) -> Iterator[Work]:
    """Start processes that take turns in the conversation `demo` of the folder."""
    started: list[subprocess.Popen[str]] = []

    def start(name: str, count: int, how: str) -> subprocess.Popen[str]:
        script = Path(__file__).with_name("worker.py")
        command = [sys.executable, str(script), str(folder), name, str(count), how]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.wait()
        if process.stdout is not None:
            process.stdout.close()


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The store URL of an empty database, of each engine."""
    if request.param == "sqlite":
        yield f"sqlite:{tmp_path / 'cllm.db'}"
        return
    server: Server = request.getfixturevalue("postgres_server")
    name = f"empty_{uuid.uuid4().hex}"
    asyncio.run(server.execute(f"CREATE DATABASE {name}"))
    yield server.url(name)
    asyncio.run(server.execute(f"DROP DATABASE {name} WITH (FORCE)"))
