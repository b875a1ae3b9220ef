import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

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
