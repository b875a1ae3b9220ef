import asyncio
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.postgres import Server, postgres_server
from tests.sqlite_template import write_database

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
    """The store URL of a database with our tables and no rows, of each engine."""
    if request.param == "sqlite":
        write_database(tmp_path / "cllm.db")
        yield f"sqlite:{tmp_path / 'cllm.db'}"
        return
    server: Server = request.getfixturevalue("postgres_server")
    template = asyncio.run(server.head_template())
    name = asyncio.run(server.create_database(template=template))
    yield server.url(name)
    asyncio.run(server.drop_database(name))


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """The store URL of a database without tables, of each engine."""
    if request.param == "sqlite":
        yield f"sqlite:{tmp_path / 'cllm.db'}"
        return
    server: Server = request.getfixturevalue("postgres_server")
    name = asyncio.run(server.create_database())
    yield server.url(name)
    asyncio.run(server.drop_database(name))
