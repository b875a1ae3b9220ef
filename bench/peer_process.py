"""Measures other libraries in their own environment, with a script that reads and writes lines.

The script reads a line of words for each measurement and prints the CPU and wall seconds.
"""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from measurement import Cost


class PeerProcess:
    """A running script of another environment."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def measure(self, *words: object) -> Cost:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(*words, file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline().split()
        if len(answer) != 2:
            raise SystemExit(f"{words[0]} could not be measured in the environment of the peers.")
        return Cost(cpu=float(answer[0]), wall=float(answer[1]))


@contextmanager
def start_peers(python: Path | str, script: str) -> Iterator[PeerProcess]:
    """Start a script of this folder with another Python."""
    path = Path(__file__).with_name(script)
    with subprocess.Popen(
        [str(python), str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        yield PeerProcess(process)
        assert process.stdin is not None
        process.stdin.close()
