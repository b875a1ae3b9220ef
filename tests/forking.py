"""Starts `cllm` out of a process that has imported it, for tests that start it hundreds of times.

A command is still a process of its own, with its own arguments, environment, folder and streams; it
only does not import again what all of them import, which is nine tenths of what a short one costs.
What is about how the interpreter itself starts is not for here, and a full run forks nothing.
"""

import atexit
import contextlib
import json
import os
import pty
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

from tests.fork_server import LENGTH
from tests.scale import TORTURE

PROGRAM = Path(__file__).with_name("fork_server.py")
MOST_BYTES = 100_000
"""Arguments beyond this may be more than a process can be started with."""
OF_THE_START = ("PYTHON", "LC_", "LD_")
"""Variables that are for the interpreter's start."""
LANGUAGE = "C.UTF-8"
STOPPING_SECONDS = 10.0
STARTING_SECONDS = 60.0
"""Within these a command has been forked, however much else is going on."""


def is_forkable(arguments: Sequence[str | bytes], environment: Mapping[str, str]) -> bool:
    """Whether the command would be the same as one that was started in full."""
    if TORTURE or environment.get("LANG") != LANGUAGE:
        return False
    if any(name.startswith(OF_THE_START) for name in environment):
        return False
    return sum(len(os.fsencode(word)) for word in arguments) < MOST_BYTES


class ForkServer:
    """The process with everything imported, started when it is first needed.

    `python` is another interpreter than that of the tests.
    """

    def __init__(self, python: Path | None = None) -> None:
        address = f"\0cllm-tests-{os.getpid()}-{id(self)}"
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(address)
            listener.listen(64)
            self._process = subprocess.Popen(
                [python or sys.executable, str(PROGRAM), str(listener.fileno())],
                stdin=subprocess.PIPE,
                env={"LANG": LANGUAGE, "PATH": os.environ["PATH"], "HOME": "/"},
                pass_fds=[listener.fileno()],
            )
        self._address = address

    def close(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            self._process.wait(STOPPING_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def start(
        self,
        arguments: Sequence[str | bytes],
        environment: Mapping[str, str],
        directory: Path,
        memory: int | None = None,
        *,
        terminal: bool = False,
    ) -> "Forked":
        """Start a command, with pipes for its streams and at most so many bytes of memory.

        With `terminal` all three streams are a terminal of its own.
        """
        request = {
            "arguments": [os.fsdecode(word) for word in arguments],
            "environment": dict(environment),
            "directory": str(directory),
            "memory": memory,
            "terminal": terminal,
        }
        data = json.dumps(request).encode()
        ours, theirs = _terminal() if terminal else _pipes()
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(self._address)
        socket.send_fds(connection, [len(data).to_bytes(LENGTH, "big")], theirs)
        connection.sendall(data)
        for descriptor in theirs:
            os.close(descriptor)
        return Forked(connection, ours)


def _pipes() -> tuple[list[int], list[int]]:
    """Our ends of three pipes, and the command's."""
    pipes = [os.pipe() for _ in range(3)]
    return [pipes[0][1], pipes[1][0], pipes[2][0]], [pipes[0][0], pipes[1][1], pipes[2][1]]


def _terminal() -> tuple[list[int], list[int]]:
    """Our end of a terminal, to write to and to read from, and the command's three streams."""
    master, slave = pty.openpty()
    nothing = os.open(os.devnull, os.O_RDONLY)
    return [os.dup(master), master, nothing], [slave, os.dup(slave), os.dup(slave)]


class Forked:
    """A command that was started so."""

    def __init__(self, connection: socket.socket, streams: list[int]) -> None:
        self._connection = connection
        self._stdin, self._stdout, self._stderr = streams
        connection.settimeout(STARTING_SECONDS)
        self.pid = _number_from(connection)

    def communicate(self, stdin: bytes, timeout: float) -> subprocess.CompletedProcess[bytes]:
        """How it ended and all that it wrote; it is killed when the time is over.

        Whoever it started and still has its streams is waited for too, as `subprocess` does.
        """
        deadline = time.monotonic() + timeout
        written: dict[int, bytes] = {}
        threads = [
            threading.Thread(target=_feed, args=(self._stdin, stdin), daemon=True),
            *(
                threading.Thread(target=_drain, args=(stream, written), daemon=True)
                for stream in (self._stdout, self._stderr)
            ),
        ]
        for thread in threads:
            thread.start()
        code = self._wait(timeout)
        for thread in threads:
            thread.join(max(deadline - time.monotonic(), 0))
        if any(thread.is_alive() for thread in threads):
            raise subprocess.TimeoutExpired("cllm", timeout)
        out, err = written[self._stdout], written[self._stderr]
        return subprocess.CompletedProcess(("cllm",), code, out, err)

    def _wait(self, timeout: float) -> int:
        with self._connection:
            self._connection.settimeout(timeout)
            try:
                return _number_from(self._connection)
            except TimeoutError:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(self.pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired("cllm", timeout) from None


def _number_from(connection: socket.socket) -> int:
    """The number that is sent next; an error if it never comes, which is no number."""
    data = b""
    while len(data) < LENGTH:
        piece = connection.recv(LENGTH - len(data))
        if not piece:
            raise ConnectionError("Whoever waits for the forked command has ended; see its output.")
        data += piece
    return int.from_bytes(data, "big", signed=True)


def _feed(descriptor: int, data: bytes) -> None:
    with os.fdopen(descriptor, "wb", buffering=0) as pipe:
        try:
            while data:
                data = data[pipe.write(data) or 0 :]
        except BrokenPipeError:
            return


def _drain(descriptor: int, written: dict[int, bytes]) -> None:
    data = bytearray()
    with contextlib.suppress(OSError):  # nobody has the other end of a terminal any more
        while piece := os.read(descriptor, 65536):
            data += piece
    os.close(descriptor)
    written[descriptor] = bytes(data)


@cache
def fork_server() -> ForkServer:
    """The one of this process."""
    server = ForkServer()
    atexit.register(server.close)
    return server
