import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

Work = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "cllm.db"


@pytest.fixture
def work(database: Path) -> Iterator[Work]:
    """Start processes that take turns in the conversation `demo` of the file."""
    started: list[subprocess.Popen[str]] = []

    def start(name: str, count: int, how: str = "visible") -> subprocess.Popen[str]:
        script = Path(__file__).with_name("worker.py")
        command = [sys.executable, str(script), str(database), name, str(count), how]
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()
